"""Remedies for jobs that are not admitted: their PodGroup or queue is missing or takes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from msgspec.structs import replace

from stromboli.api import crds, objects
from stromboli.api.crds import group_uid
from stromboli.api.keys import NATIVE_GROUP, outer_name
from stromboli.api.validation import nearest
from stromboli.explain.rehearsal import pod_of
from stromboli.explain.remedies.case import MOST_ALIKE, Candidate, Case
from stromboli.explain.remedies.changes import group_of, set_group, set_queue
from stromboli.framework.cluster.job import Job, Queue, lineage
from stromboli.framework.cluster.tenants import NAMESPACES
from stromboli.state.cluster import ClusterState
from stromboli.state.pods import GROUP_ANNOTATION, PodRecord
from stromboli.workloads.names import follows_rules, in_queue, said_by


def groups(case: Case) -> Iterator[Candidate]:
    """A PodGroup that is missing, and scheduling gates."""
    reason, state = case.reason, case.rehearsal.state
    if reason in ("PodGroupNotFound", "NoPodGroup"):
        first = case.pods[0]
        name = first.job.partition("/")[2] or first.name
        key = f"{first.namespace}/{name}"

        def create(forked: ClusterState) -> None:
            manifest = {
                "metadata": {"name": name, "namespace": first.namespace},
                "spec": {"minMember": 1, "queue": "default"},
            }
            forked.upsert("PodGroup", crds.PodGroup.parse(manifest))
            if not first.job:
                _regroup(forked, case.pods, name)

        of_kubernetes = outer_name(name)
        if near := nearest(name, _named_by_people(state, first.namespace, native=of_kubernetes is not None)):
            words = f"set the annotation {GROUP_ANNOTATION}: {near} on the pods"
            if of_kubernetes is not None:
                words = f"make the pods again with spec.schedulingGroup.podGroupName: {outer_name(near)}"
            yield Candidate(words, "user", partial(_regroup, pods=case.pods, name=near))
        if state.pod_group(key) is None:
            what = f"PodGroup {key} in queue default with minMember 1"
            if of_kubernetes is not None:
                what = f"podgroups.{NATIVE_GROUP} {first.namespace}/{of_kubernetes} with minCount 1"
            yield Candidate(f"create {what}", "user", create)
    if reason == "SchedulingGated":
        names = sorted({gate.name for pod in case.pods for gate in pod.pod_class.spec.scheduling_gates or ()})
        words = f"have the scheduling gates {', '.join(names)} lifted by what set them"
        yield Candidate(words, "user", partial(_lifted, pods=case.pods))


def _lifted(state: ClusterState, pods: Sequence[PodRecord]) -> None:
    """Let pods go that scheduling gates hold back."""
    for record in [pod for pod in pods if pod.pod_class.gated]:
        pod = pod_of(record, "", objects.PodStatus(phase="Pending"))
        state.upsert("Pod", replace(pod, spec=replace(pod.spec, scheduling_gates=None)))


def _named_by_people(state: ClusterState, namespace: str, *, native: bool) -> list[str]:
    """PodGroups of a namespace with names that users may misspell; groups made by the service have generated names.

    `native` are Kubernetes' own alone, and not Volcano's alone.
    """
    groups = [group.metadata for group in state.jobs.pod_groups if group is not None]
    return [
        group.name
        for group in groups
        if group.namespace == namespace
        and (outer_name(group.name) is not None) is native
        and not group_uid(group.name)
        and not any(owner.get("kind") == "Pod" for owner in group.owner_references)
    ]


def _regroup(state: ClusterState, pods: Sequence[PodRecord], name: str) -> None:
    """Put pods into another PodGroup of their namespace."""
    for record in pods:
        pod = pod_of(record, "", objects.PodStatus(phase="Pending"))
        meta = replace(pod.metadata, annotations={**(pod.metadata.annotations or {}), GROUP_ANNOTATION: name})
        state.upsert("Pod", replace(pod, metadata=meta))


def queues(case: Case) -> Iterator[Candidate]:
    """Remedies for a queue that does not exist, is not open, is not a leaf or has no place in the tree."""
    reason, state, view, key = case.reason, case.rehearsal.state, case.session.view, case.key
    if reason == "QueueNotFound":
        wanted = group_of(state, key).spec.queue
        parents = {queue.parent for queue in view.queues.values()}
        leaves = [queue.name for queue in view.queues.values() if queue.open and queue.name not in parents | {"root"}]
        near = nearest(wanted, leaves)
        # Where nothing looks like what is named, the queue of those who name none comes before any team's.
        leaves.sort(key=lambda name: name != crds.PodGroupSpec.model_fields["queue"].default)
        for name in [near] if near else leaves[:1]:
            yield _move(case, key, name)
        made = {"metadata": {"name": wanted}, "spec": {"weight": 1}, "status": {"state": "Open"}}
        queue = crds.Queue.parse(made)
        yield Candidate(f"create queue {wanted}", "admin", lambda forked: forked.upsert("Queue", queue))
    if case.job is None:
        return
    name = case.job.queue.name
    if reason == "QueueNotOpen":
        yield _reopen(case.job.queue, case)
    if reason == "NamespaceNotAllowed":
        yield from _for_namespace(case, case.job)
    if reason == "QueueNotALeaf":
        for child in [queue.name for queue in view.queues.values() if queue.parent == name and queue.open][:MOST_ALIKE]:
            yield _move(case, key, child)
    if reason == "QueueMisconfigured":
        others = [queue.name for queue in view.queues.values() if queue.name != name]
        near = nearest(case.job.queue.parent, others)
        for parent in dict.fromkeys([*([near] if near else []), "root"]):
            yield Candidate(f"set parent: {parent} in queue {name}", "admin", set_queue(name, parent=parent))


def _move(case: Case, key: str, queue: str) -> Candidate:
    """Another queue for a PodGroup, named where its present one is: in it, in its owner or in the policy."""
    group, change = group_of(case.rehearsal.state, key), set_group(key, queue=queue)
    rules = case.session.policy.queue_rules if follows_rules(group) else ()
    if not rules:
        return Candidate(in_queue(group, queue), "user", change)
    if any("{provided}" in rule.queue for rule in rules):
        # Rules are asked once, when the PodGroup is made.
        return Candidate(f"{in_queue(group, queue)}, and create it again", "user", change)
    return Candidate(f"have queueRules in the policy name queue {queue} for {said_by(group)}", "admin", change)


def _for_namespace(case: Case, job: Job) -> Iterator[Candidate]:
    """The queues that a job's namespace may use, and its namespace among those that may use its queue."""
    queues, tenants = case.session.view.queues, job.queue.tenants
    parents = {queue.parent for queue in queues.values()} | {"root"}
    for queue in [queue for queue in queues.values() if queue.open and queue.name not in parents]:
        if queue.tenants is None or queue.tenants.include(job.namespace):
            yield _move(case, job.key, queue.name)
            break
    if tenants is not None:
        yield Candidate(
            f"add {job.namespace} to the annotation {NAMESPACES} of queue {tenants.queue}",
            "admin",
            partial(_allow, queue=tenants.queue, namespace=job.namespace),
        )


def _allow(state: ClusterState, queue: str, namespace: str) -> None:
    found = state.queues[queue]
    named = ",".join(filter(None, (found.metadata.annotations.get(NAMESPACES, ""), namespace)))
    metadata = found.metadata.model_copy(update={"annotations": {**found.metadata.annotations, NAMESPACES: named}})
    state.upsert("Queue", found.model_copy(update={"metadata": metadata}))


def _reopen(queue: Queue, case: Case) -> Candidate:
    """A queue and those above it opened. Words leave out what was closed with its parent, and opens with it."""
    line = list(lineage(queue, case.session.view.queues))
    shut = [each for each in line if each.closed or (each is queue and each.state != "Open")]
    named = [each.name for each in shut if each is shut[-1] or not each.resource.closed_by_parent]

    def change(state: ClusterState) -> None:
        for each in shut:
            status = each.resource.status.model_copy(update={"state": crds.QueueState.Open})
            state.upsert("Queue", each.resource.model_copy(update={"status": status}))

    return Candidate(f"open queue {' and queue '.join(named)}", "admin", change)
