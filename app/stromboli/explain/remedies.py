"""The smallest changes that would let a job or a pod run, each tried on a fork of the cluster's state.

Candidates come kind by kind, those that cost least first; where a change has a size, the smallest that works is
searched. What does not work when it is tried is not proposed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from msgspec.structs import replace

from stromboli.api import crds, objects, quantity
from stromboli.api.pod_state import PodState
from stromboli.api.resources import PODS, Vector
from stromboli.api.validation import nearest
from stromboli.engine import Engine
from stromboli.explain.answers import Answer, Remedy
from stromboli.explain.jobs import counted, explain_job, explain_pod, in_jobs, listed
from stromboli.explain.places import amounts
from stromboli.explain.rehearsal import Change, Future, Rehearsal, node_of, pod_of
from stromboli.framework.job import Job
from stromboli.framework.reasons import describe
from stromboli.framework.session import Session
from stromboli.state.cluster import ClusterState
from stromboli.state.pods import GROUP_ANNOTATION, PodRecord

#: candidates of one kind, and how many sessions may be run in all
_MOST_ALIKE = 6
_MOST_SESSIONS = 60
#: nodes and weights beyond which nothing is proposed
_MOST_NODES, _MOST_WEIGHT = 1_000, 65_535
#: times the weights of all queues together, beyond which a weight says that the queue gets everything
_OVERWHELMING = 20


#: reasons that more nodes may do away with
_HELPED_BY_NODES = frozenset(
    (
        *("Unschedulable", "NeverFits", "NoMatchingNode", "NoNodes", "GangNotReady", "SameRoleFailed"),
        *("ClusterOvercommitted", "QueueShareExceeded", "QueueOverused", "QueueCapabilityExceeded"),
    )
)
#: reasons of pods that wait for others of their gang
_OF_OTHERS = ("GangNotReady", "SameRoleFailed")


@dataclass(slots=True)
class Candidate:
    """A change that may help, in words."""

    words: str
    who: str
    change: Change | None = None
    engine: Engine | None = None
    #: the jobs that it names
    jobs: Sequence[str] = ()
    #: how many of the pods have to be bound; 0 for as many as the case needs
    needed: int = 0


_NOTHING = Candidate("nothing: it gets its place as things are", "wait")


@dataclass(slots=True)
class _Case:
    """Whom a change is to help, and what is known of it."""

    session: Session
    rehearsal: Rehearsal
    answer: Answer
    job: Job | None
    #: the pods that wait, in order
    pods: list[PodRecord]
    #: the keys that have to be bound; any of them, as many as the gang needs
    keys: frozenset[str]
    needed: int
    #: what is decided without any change
    before: Future
    #: what blocks; of a pod that waits for its gang, what blocks that
    reason: str
    stage: str
    #: what was found so far, by who can do it
    found: dict[str, Remedy] = field(default_factory=dict)

    @property
    def exhausted(self) -> bool:
        """Whether enough was tried."""
        return self.rehearsal.sessions >= _MOST_SESSIONS

    def tried(self, candidate: Candidate) -> Future | None:
        """What would be after a change; None when it does not help."""
        if self.exhausted:
            return None
        needed = candidate.needed or self.needed

        def helps(future: Future) -> bool:
            return len(self.keys & future.bound.keys()) >= needed

        future = self.rehearsal.run(candidate.change, engine=candidate.engine, enough=helps)
        return future if helps(future) else None

    def helps(self, change: Change) -> bool:
        """Whether a change alone is enough."""
        return self.tried(Candidate("", "", change)) is not None


def with_remedies(session: Session, answer: Answer, rehearsal: Rehearsal) -> Answer:
    """The answer with a change for each of those who can act, where one was found that works."""
    case = _case(session, answer, rehearsal)
    if case is None:
        return answer
    found = case.found
    future: Future | None
    if len(case.keys & case.before.bound.keys()) >= case.needed:
        future = case.before
        found["wait"] = Remedy(change=_NOTHING.words, who=_NOTHING.who, effect=_effect(case, future))
    else:
        for kind in _KINDS:
            for candidate in kind(case):
                if case.exhausted or candidate.who in found:
                    break
                future = case.tried(candidate)
                if future is not None:
                    effect = _effect(case, future)
                    found[candidate.who] = Remedy(
                        change=candidate.words, who=candidate.who, effect=effect, jobs=list(candidate.jobs)
                    )
    order = {who: rank for rank, who in enumerate(dict.fromkeys((answer.who, "user", "admin", "wait")))}
    return replace(answer, remedies=sorted(found.values(), key=lambda remedy: order[remedy.who]))


def explained(session: Session, kind: str, key: str, rehearsal: Rehearsal | None) -> Answer | None:
    """The answer about a job or a pod (`kind`), with what would help if there is something to try it on."""
    answer: Answer | None
    if kind == "job":
        answer = explain_job(session, key)
    else:
        record = next((pod for pod in session.view.pods.records if pod is not None and pod.key == key), None)
        answer = explain_pod(session, record) if record is not None else None
    return answer if answer is None or rehearsal is None else with_remedies(session, answer, rehearsal)


def _case(session: Session, answer: Answer, rehearsal: Rehearsal) -> _Case | None:
    """None when nothing waits."""
    view = session.view
    if not answer.reason:
        return None
    key = f"{answer.namespace}/{answer.name}"
    if answer.kind == "Pod":
        own = [record for record in view.pods.records if record is not None and record.key == key]
        job = view.jobs.get(own[0].job) if own else None
        pods = [*own, *(pod for pod in view.pending(job) if pod is not own[0])] if job else own
        needed = 1
    else:
        job = view.jobs.get(key)
        pods = [record for record in view.pods.records if record is not None and record.job == key]
        needed = max(1, job.min_available - job.ready_count) if job else 1
    pods = [pod for pod in pods if view.pods.state[pod.row] in (PodState.Pending, PodState.Pipelined)]
    if not pods:
        return None
    keys = frozenset([key] if answer.kind == "Pod" else [pod.key for pod in pods])
    word, stage = answer.reason, answer.stage
    root = view.reason(job) if job and word in _OF_OTHERS else None
    if root is not None:
        word, stage = root.reason, root.stage.name
    return _Case(
        session=session,
        rehearsal=rehearsal,
        answer=answer,
        job=job,
        pods=session.ask.in_task_order(pods),
        keys=keys,
        needed=min(needed, len(keys)),
        before=rehearsal.run(),
        reason=word,
        stage=stage,
    )


def _effect(case: _Case, future: Future) -> str:
    """What a change would bring about beside."""
    mine = len(case.keys & future.bound.keys())
    known = case.before if future is not case.before else Future()
    others = len(future.bound.keys() - known.bound.keys() - case.keys)
    gone = len(future.evicted.keys() - known.evicted.keys())
    parts = [f"{counted(mine, 'pod')} bound"]
    if others:
        parts.append(f"{others} more")
    if gone:
        parts.append(f"{counted(gone, 'pod')} of others evicted")
    return ", ".join(parts)


def _smallest(low: int, high: int, works: Callable[[int], bool]) -> int | None:
    """The smallest number that works, from `low` to `high`, where all larger ones work as well."""
    if low > high or not works(high):
        return None
    reach = 1
    while low + reach - 1 < high and not works(low + reach - 1):
        reach *= 2
    first, last = low + reach // 2, min(low + reach - 1, high)
    while first < last:
        middle = (first + last) // 2
        if works(middle):
            last = middle
        else:
            first = middle + 1
    return last


# -- admission: queues and groups ------------------------------------------------------------------------------------


def _group(state: ClusterState, key: str) -> crds.PodGroup:
    group = state.pod_group(key)
    assert group is not None
    return group


def set_group(key: str, **spec: object) -> Change:
    """Change fields of a PodGroup's spec."""

    def change(state: ClusterState) -> None:
        group = _group(state, key)
        state.upsert("PodGroup", group.model_copy(update={"spec": group.spec.model_copy(update=spec)}))

    return change


def set_queue(name: str, **spec: object) -> Change:
    """Change fields of a queue's spec."""

    def change(state: ClusterState) -> None:
        queue = state.queues[name]
        state.upsert("Queue", queue.model_copy(update={"spec": queue.spec.model_copy(update=spec)}))

    return change


def _groups(case: _Case) -> Iterator[Candidate]:
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

        there = [
            group.metadata.name for group in state.pod_groups if group and group.metadata.namespace == first.namespace
        ]
        if near := nearest(name, there):
            words = f"set the annotation {GROUP_ANNOTATION}: {near} on the pods"
            yield Candidate(words, "user", partial(_regroup, pods=case.pods, name=near))
        if state.pod_group(key) is None:
            yield Candidate(f"create PodGroup {key} in queue default with minMember 1", "user", create)
    if reason == "SchedulingGated":
        names = sorted({gate.name for pod in case.pods for gate in pod.pod_class.spec.scheduling_gates or ()})
        yield Candidate(f"remove the scheduling gates {', '.join(names)}", "user", _respec(case, scheduling_gates=None))


def _regroup(state: ClusterState, pods: Sequence[PodRecord], name: str) -> None:
    """Put pods into another PodGroup of their namespace."""
    for record in pods:
        pod = pod_of(record, "", objects.PodStatus(phase="Pending"))
        meta = replace(pod.metadata, annotations={**(pod.metadata.annotations or {}), GROUP_ANNOTATION: name})
        state.upsert("Pod", replace(pod, metadata=meta))


def _queues(case: _Case) -> Iterator[Candidate]:
    """A queue that is not there, not open, not a leaf or has no place in the tree."""
    reason, state, view = case.reason, case.rehearsal.state, case.session.view
    key = case.pods[0].job
    if reason == "QueueNotFound":
        wanted = _group(state, key).spec.queue
        parents = {queue.parent for queue in view.queues.values()}
        leaves = [queue.name for queue in view.queues.values() if queue.open and queue.name not in parents | {"root"}]
        near = nearest(wanted, leaves)
        for name in dict.fromkeys([*([near] if near else []), *leaves[:1]]):
            yield Candidate(f"set queue: {name} in PodGroup {key}", "user", set_group(key, queue=name))
        made = {"metadata": {"name": wanted}, "spec": {"weight": 1}, "status": {"state": "Open"}}
        queue = crds.Queue.parse(made)
        yield Candidate(f"create queue {wanted}", "admin", lambda forked: forked.upsert("Queue", queue))
    if case.job is None:
        return
    name = case.job.queue.name
    if reason == "QueueNotOpen":

        def reopen(forked: ClusterState) -> None:
            queue = forked.queues[name]
            status = queue.status.model_copy(update={"state": crds.QueueState.Open})
            forked.upsert("Queue", queue.model_copy(update={"status": status}))

        yield Candidate(f"open queue {name}", "admin", reopen)
    if reason == "QueueNotALeaf":
        for child in [queue.name for queue in view.queues.values() if queue.parent == name and queue.open][
            :_MOST_ALIKE
        ]:
            yield Candidate(f"set queue: {child} in PodGroup {key}", "user", set_group(key, queue=child))
    if reason == "QueueMisconfigured":
        yield Candidate(f"set parent: root in queue {name}", "admin", set_queue(name, parent="root"))


# -- shares ----------------------------------------------------------------------------------------------------------


def _needs(case: _Case) -> Vector:
    """What those ask for that have to be bound together."""
    view, job = case.session.view, case.job
    together = case.needed if case.answer.kind == "Job" or job is None else job.min_available - job.ready_count
    asked = view.requested(case.pods[: max(1, together)])
    if job is not None and job.min_resources is not None and job.pending_phase:
        asked = np.maximum(asked, job.min_resources)
    return asked


def _limits(case: _Case) -> Iterator[Candidate]:
    """A limit that is raised to what is held and asked for together, in the queue and those above it."""
    over = ("QueueCapabilityExceeded", "QueueShareExceeded", "QueueOverused", "NeverFits")
    if case.reason not in over or case.job is None:
        return
    view, report, needs = case.session.view, case.session.report, _needs(case)
    raised: list[tuple[str, dict[str, str]]] = []
    name = case.job.queue.name
    while name in view.queues and name not in {queue for queue, _ in raised}:
        queue, gauges = view.queues[name], report.gauges.get(name)
        if gauges is not None and gauges.limit is not None and queue.spec.capability:
            held = gauges.amounts["allocated"] + gauges.amounts.get("inqueue", 0.0)
            wanted = held + needs
            short = {c for c in np.flatnonzero((wanted > gauges.limit) & (needs > 0)).tolist() if c != PODS} & {
                view.dimensions.index(each) for each in queue.spec.capability if each in view.dimensions
            }
            if short:
                raised.append((name, amounts(case.session, wanted, sorted(short))))
        name = queue.parent
    if raised:
        words = "; ".join(f"raise capability of queue {name} to {listed(most)}" for name, most in raised)

        def change(state: ClusterState) -> None:
            for queue, most in raised:
                spec = state.queues[queue].spec
                set_queue(queue, capability={**(spec.capability or {}), **most})(state)

        yield Candidate(words, "admin", change)


def _weights(case: _Case) -> Iterator[Candidate]:
    """The smallest weight, or amount that is deserved, with which the queue gets enough."""
    evicting = {"reclaim", "gangreclaim"} & set(case.session.policy.actions)
    at_stake = case.stage == "QueueShare" or (case.reason == "Unschedulable" and evicting)
    if case.job is None or not at_stake or "admin" in case.found:
        return
    queue, gauges = case.job.queue, case.session.report.gauges.get(case.job.queue.name)
    if gauges is None:
        return
    if gauges.plugin == "proportion":
        low = queue.spec.weight + 1
        weights = sum(each.spec.weight for each in case.session.view.queues.values() if each.jobs)
        most = min(_MOST_WEIGHT, _OVERWHELMING * max(weights, 1))
        weight = _smallest(low, most, lambda n: case.helps(set_queue(queue.name, weight=n)))
        if weight is not None:
            words = f"raise the weight of queue {queue.name} from {queue.spec.weight} to {weight}"
            yield Candidate(words, "admin", set_queue(queue.name, weight=weight))
    elif gauges.plugin:
        held = gauges.amounts["allocated"] + _needs(case)
        needs = np.flatnonzero(_needs(case) > 0).tolist()
        deserved = {**(queue.spec.deserved or {}), **amounts(case.session, held, needs)}
        words = f"raise what queue {queue.name} deserves to {listed(amounts(case.session, held, needs))}"
        yield Candidate(words, "admin", set_queue(queue.name, deserved=deserved))


def _quotas(case: _Case) -> Iterator[Candidate]:
    """ResourceQuotas of the namespace, raised by what is asked for."""
    job = case.job
    if case.reason != "ResourceQuotaExceeded" or job is None:
        return
    asked = job.pod_group.spec.min_resources or {}
    quotas = case.rehearsal.state.objects.get("ResourceQuota", {})
    raised = {key: quota for key, quota in quotas.items() if key.startswith(f"{job.namespace}/")}

    def change(state: ClusterState) -> None:
        for manifest in raised.values():
            status = manifest.get("status") or {}
            hard = {name: _sum(value, asked.get(name, 0)) for name, value in (status.get("hard") or {}).items()}
            state.upsert("ResourceQuota", {**manifest, "status": {**status, "hard": hard}})

    words = f"raise ResourceQuota {', '.join(raised)} by {listed({name: str(value) for name, value in asked.items()})}"
    yield Candidate(words, "admin", change)


def _sum(one: str | int | float, other: str | int | float) -> str:
    """Two quantities together."""
    total = quantity.parse(one) + quantity.parse(other)
    return f"{math.ceil(total * 1000)}m"


# -- gangs -----------------------------------------------------------------------------------------------------------


def _gangs(case: _Case) -> Iterator[Candidate]:
    """The largest minMember with which the gang starts, and the pods that it lacks."""
    job = case.job
    if job is None or job.min_available <= 1:
        return
    low = max(1, job.ready_count + 1)
    high = min(job.min_available - 1, job.valid_count)
    known = min(high, job.ready_count + case.answer.would_fit)
    for number in dict.fromkeys(n for n in (known, low) if low <= n <= high):
        least = job.pod_group.spec.min_resources
        if least is not None:
            least = {name: _part(value, number, job.min_available) for name, value in least.items()}
        change = set_group(job.key, min_member=number, min_task_member={}, min_resources=least)
        start = max(1, number - job.ready_count) if case.answer.kind == "Job" else 1
        words = f"set minMember: {number} in PodGroup {job.key}" + (", and minResources to match" if least else "")
        yield Candidate(words, "user", change, needed=start)
    if case.reason == "NotEnoughPods":
        missing = job.min_available - job.valid_count
        yield Candidate(f"create {counted(missing, 'more pod')} of PodGroup {job.key}", "user", _more(case, missing))


def _part(amount: str | int | float, number: int, of: int) -> str:
    """A part of a quantity."""
    return f"{math.ceil(quantity.parse(amount) * 1000 * number / of)}m"


def _more(case: _Case, number: int) -> Change:
    def change(state: ClusterState) -> None:
        like = pod_of(case.pods[0], "", objects.PodStatus(phase="Pending"))
        for index in range(number):
            name = f"{like.metadata.name}-more-{index}"
            state.upsert("Pod", replace(like, metadata=replace(like.metadata, name=name, uid=name)))

    return change


# -- placement -------------------------------------------------------------------------------------------------------


def _respec(case: _Case, **spec: object) -> Change:
    """Change the spec of all pods that wait."""

    def change(state: ClusterState) -> None:
        for record in case.pods:
            pod = pod_of(record, "", objects.PodStatus(phase="Pending"))
            state.upsert("Pod", replace(pod, spec=replace(pod.spec, **spec)))

    return change


def _predicates(case: _Case) -> Iterator[Candidate]:
    """What rules nodes out: taints, cordons, labels, rules between pods."""
    if case.stage != "Placement" or case.reason not in ("NoMatchingNode", "Unschedulable", "NeverFits"):
        return
    spec, facts = case.pods[0].pod_class.spec, case.session.view.nodes.facts
    taints = dict.fromkeys(
        (taint.key, taint.value or "", taint.effect)
        for record in facts.records
        for taint in record.taints
        if taint.effect in ("NoSchedule", "NoExecute")
    )
    for key, value, effect in list(taints)[:_MOST_ALIKE]:
        toleration = objects.Toleration(key=key, operator="Equal", value=value, effect=effect)
        words = f"tolerate taint {key}{f'={value}' if value else ''}:{effect}"
        yield Candidate(words, "user", _respec(case, tolerations=[*(spec.tolerations or ()), toleration]))
    for key, value in list((spec.node_selector or {}).items()):
        rest = {other: wanted for other, wanted in (spec.node_selector or {}).items() if other != key}
        yield Candidate(f"drop {key}: {value} from nodeSelector", "user", _respec(case, node_selector=rest))
        node = next((record for record in facts.records if not record.unschedulable), None)
        if node is not None:
            labelled = node_of(node)
            meta = replace(labelled.metadata, labels={**(labelled.metadata.labels or {}), key: value})
            yield Candidate(
                f"label node {node.name} with {key}={value}",
                "admin",
                partial(_put_node, node=replace(labelled, metadata=meta)),
            )
    if spec.node_selector and len(spec.node_selector) > 1:
        yield Candidate("drop nodeSelector", "user", _respec(case, node_selector=None))
    affinity = spec.affinity
    if affinity is not None:
        for words, field in (
            ("the required node affinity", "node_affinity"),
            ("the required pod affinity", "pod_affinity"),
            ("the required pod anti-affinity", "pod_anti_affinity"),
        ):
            if getattr(affinity, field) is not None:
                yield Candidate(f"drop {words}", "user", _respec(case, affinity=replace(affinity, **{field: None})))
    if spec.topology_spread_constraints:
        yield Candidate("drop the topology spread constraints", "user", _respec(case, topology_spread_constraints=None))
    for record in [record for record in facts.records if record.unschedulable][:_MOST_ALIKE]:
        node_ = node_of(record)
        opened = replace(node_, spec=replace(node_.spec, unschedulable=False))
        yield Candidate(f"uncordon node {record.name}", "admin", partial(_put_node, node=opened))


def _put_node(state: ClusterState, node: objects.Node) -> None:
    state.upsert("Node", node)


def _requests(case: _Case) -> Iterator[Candidate]:
    """Requests of what the largest node has."""
    if case.reason != "NeverFits":
        return
    view, pod = case.session.view, case.pods[0]
    request = view.request(pod)
    willing = case.session.kernel.feasible(pod)
    if not willing.any():
        return
    largest = view.nodes.allocatable[:, willing].max(axis=1)
    over = [c for c in np.flatnonzero(request > largest).tolist() if c != PODS]
    if not over:
        return
    less = ", ".join(f"{describe(c, largest[c])} {view.dimensions[c]}" for c in over)
    cut = {view.dimensions[c]: describe(c, largest[c]) for c in over}
    yield Candidate(f"ask for no more than {less} a pod", "user", _respec(case, **_resized(pod, cut)))


def _resized(pod: PodRecord, cut: dict[str, str]) -> dict[str, object]:
    """The containers of a pod, the first of which asks for less of some resources."""
    containers = list(pod.pod_class.spec.containers or ())
    first = containers[0]
    resources = first.resources or objects.ResourceRequirements()
    requests = {**(resources.requests or {}), **cut}
    return {"containers": [replace(first, resources=replace(resources, requests=requests)), *containers[1:]]}


def _nodes(case: _Case) -> Iterator[Candidate]:
    """The fewest nodes that would have to be added, like one that is there, alone or with larger limits."""
    if "admin" in case.found or case.reason not in _HELPED_BY_NODES:
        return
    added = _fewest(case, lambda state: None)
    if added is not None:
        yield added
        return
    for limits in _limits(case):
        if limits.change is not None and (added := _fewest(case, limits.change)) is not None:
            yield Candidate(f"{limits.words}, and {added.words}", "admin", added.change)


def _fewest(case: _Case, before: Change) -> Candidate | None:
    """The fewest nodes that help after another change."""
    facts, nodes = case.session.view.nodes.facts, case.session.view.nodes
    if not len(facts):
        return None
    willing = np.flatnonzero(case.session.kernel.feasible(case.pods[0]))
    at = int(willing[np.argmax(nodes.allocatable[0, willing])]) if len(willing) else 0
    like = node_of(facts.records[at])
    request, allocatable = case.session.view.request(case.pods[0]), nodes.allocatable[:, at]
    names = case.session.view.dimensions
    larger = {names[c]: describe(c, request[c]) for c in np.flatnonzero(request > allocatable).tolist()}
    like = replace(
        like,
        spec=objects.NodeSpec() if not len(willing) else like.spec,
        status=replace(like.status, allocatable={**(like.status.allocatable or {}), **larger}),
    )
    most = min(_MOST_NODES, len(case.pods) + 1)

    def adding(number: int) -> Change:
        return partial(_add_nodes, before=before, like=like, number=number)

    number = _smallest(1, most, lambda n: case.helps(adding(n)))
    if number is None:
        return None
    size = f" with {listed(larger)}" if larger else ""
    plain = " without taints" if not len(willing) else ""
    return Candidate(f"add {counted(number, 'node')} like {like.metadata.name}{size}{plain}", "admin", adding(number))


def _add_nodes(state: ClusterState, before: Change, like: objects.Node, number: int) -> None:
    before(state)
    for index in range(number):
        name = f"{like.metadata.name}-more-{index}"
        labels = {**(like.metadata.labels or {}), "kubernetes.io/hostname": name}
        state.upsert("Node", replace(like, metadata=replace(like.metadata, name=name, uid=name, labels=labels)))


def _topology(case: _Case) -> Iterator[Candidate]:
    """The lowest tier of HyperNodes that has room."""
    if case.job is None or case.reason not in ("NoHyperNodeFits", "NoHyperNode"):
        return
    topology = case.job.pod_group.spec.network_topology
    if topology is None:
        return
    tiers = sorted({node.spec.tier for node in case.session.view.snapshot.hyper_nodes.values()})
    for tier in [tier for tier in tiers if tier > (topology.highest_tier_allowed or 0)][:_MOST_ALIKE]:
        wider = topology.model_copy(update={"highest_tier_allowed": tier, "highest_tier_name": ""})
        words = f"set highestTierAllowed: {tier} in PodGroup {case.job.key}"
        yield Candidate(words, "user", set_group(case.job.key, network_topology=wider))


# -- preemption ------------------------------------------------------------------------------------------------------


def _actions(case: _Case) -> Iterator[Candidate]:
    """Actions that are not in the policy, and queues that give nothing back."""
    actions, engine = case.session.policy.actions, case.rehearsal.engine
    for action in ("enqueue", "allocate"):
        if action not in actions:
            # What admits comes first, what places next.
            first = tuple(name for name in ("enqueue", "allocate") if name in (*actions, action))
            rest = tuple(name for name in actions if name not in first)
            words = f"add {action} to the actions of the policy"
            yield Candidate(words, "admin", engine=engine.acting(first + rest))
    if case.stage not in ("Placement", "Gang"):
        return
    for action in ("preempt", "reclaim"):
        if action not in actions and action in engine.registry.actions:
            words = f"add {action} to the actions of the policy"
            yield Candidate(words, "admin", engine=engine.acting((*actions, action)))
    for queue in case.session.view.queues.values():
        if queue.spec.reclaimable is False and queue.jobs and "reclaim" in actions:
            yield Candidate(
                f"set reclaimable: true in queue {queue.name}", "admin", set_queue(queue.name, reclaimable=True)
            )


# -- waiting ---------------------------------------------------------------------------------------------------------


def _ends(case: _Case) -> Iterator[Candidate]:
    """The fewest jobs that have to end first: one of those that hold what is missing, or the largest together."""
    holding = list(case.answer.holders)
    if case.job is not None and case.stage in ("Admission", "QueueShare", "Gang"):
        # Where shares are divided, whoever wants less leaves more to others.
        columns = np.flatnonzero(case.session.view.request(case.pods[0]) > 0).tolist()
        holding += in_jobs(case.session, case.session.view.jobs.values(), columns, claimed=True)
    named = list(dict.fromkeys(f"{each.namespace}/{each.name}" for each in holding if each.name))
    named = [key for key in named if case.job is None or key != case.job.key]
    groups: list[Sequence[str]] = [[key] for key in reversed(named)]
    groups += [named[:count] for count in range(2, len(named) + 1)]
    for group in groups:
        words = f"{' and '.join(group)} {'ends' if len(group) == 1 else 'end'}"
        yield Candidate(f"wait until {words}", "wait", partial(_end, jobs=group), jobs=group)


def _end(state: ClusterState, jobs: Sequence[str]) -> None:
    for key in jobs:
        for record in [record for record in state.pods.records if record is not None and record.job == key]:
            state.delete("Pod", record.key)
        state.delete("PodGroup", key)


_KINDS: tuple[Callable[[_Case], Iterator[Candidate]], ...] = (
    *(_groups, _queues, _predicates, _requests, _topology, _gangs),
    *(_limits, _quotas, _actions, _ends, _weights, _nodes),
)
