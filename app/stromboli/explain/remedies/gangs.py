"""Remedies for gangs that do not start: fewer pods together, more pods, and wider HyperNodes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction

import numpy as np
from msgspec.structs import replace

from stromboli.api import crds, objects, quantity
from stromboli.api.pod_state import PodState
from stromboli.api.resources import PODS, TOLERANCE, listed
from stromboli.api.validation import nearest
from stromboli.api.words import counted
from stromboli.explain.jobs import in_order
from stromboli.explain.places import amounts
from stromboli.explain.rehearsal import Change, pod_of
from stromboli.explain.remedies.case import MOST_ALIKE, Candidate, Case
from stromboli.explain.remedies.changes import set_group
from stromboli.framework.cluster.job import Job
from stromboli.kube.quotas import Counted, asked_for, counts, hard_of, used_by
from stromboli.state.cluster import ClusterState
from stromboli.state.plain import NO_OBJECTS
from stromboli.state.pods import ROLE_ANNOTATION
from stromboli.workloads.amounts import formatted
from stromboli.workloads.names import further_apart, said_by, smaller_gang

#: the part of a gang that it may start with instead
_LEAST = 0.5


def _one_hyper_node(case: Case, topology: crds.NetworkTopology) -> Candidate:
    """A HyperNode where there is none of the tier that the gang asks for; it is tried with all nodes in it."""
    names = [record.name for record in case.session.view.nodes.facts.records]
    tier, called = topology.highest_tier_allowed or 1, topology.highest_tier_name
    members = [{"type": "Node", "selector": {"exactMatch": {"name": name}}} for name in names]
    spec = {"tier": tier, "members": members, **({"tierName": called} if called else {})}
    made = crds.HyperNode.parse({"metadata": {"name": "new"}, "spec": spec})
    words = f"create HyperNodes of tier {called or tier} that say which nodes are close"
    return Candidate(words, "admin", lambda state: state.upsert("HyperNode", made))


def _level(case: Case, label: str) -> Candidate | None:
    """A level of the topology in the policy, where the tier that the gang asks for is a label of nodes."""
    session, levels = case.session, case.session.policy.topology.labels
    free = bool(levels) or len(session.view.topology) == 1
    if not (label and free) or label in levels or not (session.view.nodes.facts.label(label) >= 0).any():
        return None
    words = f"add {{nodeLabel: {label}}} to topology.levels of the policy"
    return Candidate(words, "admin", engine=case.rehearsal.engine.levelled(label))


def gangs(case: Case) -> Iterator[Candidate]:
    """The largest minMember with which the gang starts, and the pods that it lacks."""
    job = case.job
    if job is None or job.min_available <= 1:
        return
    short = case.reason == "NotEnoughPods" and bool(case.pods)
    missing = job.min_available - job.valid_count
    more = f"create {counted(missing, 'more pod')} of {job.title}"
    full = list(_full_quotas(case, missing)) if short else []
    if full:
        yield Candidate(f"raise {', '.join(full)}, and {more}", "admin", _more(case, missing))
    low = max(1, job.ready_count + 1)
    high = min(job.min_available - 1, job.valid_count)
    known = min(high, job.ready_count + case.answer.would_fit)
    first = in_order(job.pod_group, case.pods) if case.lacks_pods else None
    # A gang that starts with a fraction of its pods is a different job, unless it has no more pods at first.
    low = max(low, high if first else math.ceil(job.min_available * _LEAST))
    for number in dict.fromkeys(n for n in (known, low) if low <= n <= high):
        # With pods of several kinds, requests do not scale with the number of pods; they follow from the pods.
        alike = len({pod.pod_class.id for pod in case.pods}) <= 1
        least = job.pod_group.spec.min_resources if alike else None
        if least is not None:
            least = {name: _part(value, number, job.min_available) for name, value in least.items()}
        change = set_group(job.key, min_member=number, min_task_member={}, min_resources=least)
        start = max(1, number - job.ready_count) if case.answer.kind == "Job" else 1
        words = smaller_gang(job.pod_group, number)
        if first is not None:
            words = first.instead if first.only else f"{words}, or {first.instead}"
        elif short and not full:
            words = f"{words}{_or_more(case, job)}"
        yield Candidate(words, "user", change, needed=start)
    if short and not full:
        yield Candidate(more, "user", _more(case, missing))
        if 1 < job.valid_count < low:
            # Many more pods than there are, and more than fit: the number may be what is wrong.
            words = f"{smaller_gang(job.pod_group, job.valid_count)}, if these are all its pods"
            yield Candidate(words, "user", set_group(job.key, min_member=job.valid_count, min_resources=None))


def _or_more(case: Case, job: Job) -> str:
    """Creating the missing pods, as the alternative; empty if there could be none."""
    missing = job.min_available - job.valid_count
    if not case.helps(_more(case, missing)):
        return ""
    if job.counts[PodState.Failed] >= missing:
        return f", or create {counted(missing, 'pod')} in place of {'the one' if missing == 1 else 'those'} that failed"
    return f", or create {counted(missing, 'more pod')} of it"


def _full_quotas(case: Case, missing: int) -> Iterator[str]:
    """The ResourceQuotas that keep a controller from creating more pods like the first, with the rest of each."""
    pod = case.pods[0]
    wanted = {**used_by([pod]), "pods": Fraction(1)}
    for manifest in case.session.view.snapshot.objects.get("ResourceQuota", NO_OBJECTS).values():
        meta = manifest["metadata"]
        if (meta.get("namespace") or "default") != pod.namespace or not counts(manifest, Counted.of(pod)):
            continue
        used = asked_for((manifest.get("status") or {}).get("used"))
        for name, most in asked_for(hard_of(manifest)).items():
            if name in wanted and used.get(name, 0) + missing * wanted[name] > most:
                left = formatted(max(Fraction(0), most - used.get(name, Fraction(0))))
                yield f"ResourceQuota {pod.namespace}/{meta['name']} (of {formatted(most)} {name} {left} left)"
                break


def _part(amount: str | int | float, number: int, of: int) -> str:
    """A part of a quantity."""
    return f"{math.ceil(quantity.parse(amount) * 1000 * number / of)}m"


def _more(case: Case, number: int) -> Change:
    def change(state: ClusterState) -> None:
        like = pod_of(case.pods[0], "", objects.PodStatus(phase="Pending"))
        for index in range(number):
            name = f"{like.metadata.name}-more-{index}"
            state.upsert("Pod", replace(like, metadata=replace(like.metadata, name=name, uid=name)))

    return change


def sub_groups(case: Case) -> Iterator[Candidate]:
    """Lower the required number of sub groups to the existing one."""
    if case.job is None or case.reason != "NotEnoughPodsOfTask":
        return
    there = Counter(group.policy for group in case.job.sub_jobs.values())
    policies = case.job.pod_group.spec.sub_group_policy
    lacking = [policy for policy in policies if there[policy.name] < policy.min_sub_groups]
    if lacking:
        fewer = [
            policy.model_copy(update={"min_sub_groups": min(policy.min_sub_groups, there[policy.name])})
            for policy in policies
        ]
        words = " and ".join(f"minSubGroups: {there[policy.name]} of {policy.name}" for policy in lacking)
        change = set_group(case.job.key, sub_group_policy=fewer)
        yield Candidate(f"set {words} in {said_by(case.job.pod_group)}", "user", change)


def roles(case: Case) -> Iterator[Candidate]:
    """The pods that roles lack: those of a role with a name much like theirs, or more."""
    job = case.job
    if job is None or case.reason != "NotEnoughPodsOfTask" or not case.pods or not job.min_by_role:
        return
    if in_order(job.pod_group, case.pods) is not None:
        return
    have = job.valid_by_role()
    lacking = {role: need - have.get(role, 0) for role, need in job.min_by_role.items() if have.get(role, 0) < need}
    others = [role for role in have if role and role not in job.min_by_role]
    for role in lacking:
        if near := nearest(role, others):
            words = f"set the annotation {ROLE_ANNOTATION}: {role} on the pods of role {near}"
            renamed = Candidate(words, "user", _of_role(case, near, role))
            left = {**lacking, role: lacking[role] - have[near]}
            left = {each: number for each, number in left.items() if number > 0}
            yield renamed.then(_created(case, job, left)) if left else renamed
    yield _created(case, job, lacking)


def _created(case: Case, job: Job, lacking: Mapping[str, int]) -> Candidate:
    """Remedy: create the pods that roles lack."""
    words = " and ".join(f"{counted(number, 'more pod')} of role {role}" for role, number in lacking.items())
    return Candidate(f"create {words} in {job.title}", "user", _more_of(case, lacking))


def _of_role(case: Case, wrong: str, role: str) -> Change:
    def change(state: ClusterState) -> None:
        for record in case.pods:
            if record.role == wrong:
                state.upsert("Pod", _in_role(pod_of(record, "", objects.PodStatus(phase="Pending")), role))

    return change


def _more_of(case: Case, lacking: Mapping[str, int]) -> Change:
    def change(state: ClusterState) -> None:
        like = pod_of(case.pods[0], "", objects.PodStatus(phase="Pending"))
        for role, number in lacking.items():
            for index in range(number):
                name = f"{like.metadata.name}-{role}-{index}"
                one = replace(like, metadata=replace(like.metadata, name=name, uid=name))
                state.upsert("Pod", _in_role(one, role))

    return change


def _in_role(pod: objects.Pod, role: str) -> objects.Pod:
    annotations = {**(pod.metadata.annotations or {}), ROLE_ANNOTATION: role}
    return replace(pod, metadata=replace(pod.metadata, annotations=annotations))


def resources(case: Case) -> Iterator[Candidate]:
    """Lower minResources to the requests of the pods that start together, if it exceeds them."""
    job = case.job
    if job is None or job.min_resources is None or not case.pods or case.stage not in ("Admission", "QueueShare"):
        return
    pods = case.session.ask.in_task_order(case.session.view.members(job))[: max(1, job.min_available)]
    asked = sum((case.session.view.request(pod) for pod in pods), case.session.view.vector(None))
    above = job.min_resources > asked + TOLERANCE
    above[PODS] = False
    if above.any():
        least = amounts(case.session, asked)
        words = f"set minResources to {listed(least)} in {said_by(job.pod_group)}, which is what its pods ask for"
        yield Candidate(words, "user", set_group(job.key, min_resources=least))


def topology(case: Case) -> Iterator[Candidate]:
    """The lowest tier of HyperNodes that the gang fits in, or no limit of how far apart pods are."""
    if case.job is None or case.reason not in ("NoHyperNodeFits", "NoHyperNode", "CannotBePlacedTogether"):
        return
    topology = case.job.pod_group.spec.network_topology
    if topology is None:
        return
    tree = case.session.view.topology
    named = {tier: name for name, tier in tree.tier_by_name.items()} if topology.highest_tier_name else {}
    highest = tree.tier_by_name.get(topology.highest_tier_name, topology.highest_tier_allowed or 0)
    for tier in [tier for tier in np.unique(tree.tiers[: tree.top]).tolist() if tier > highest][:MOST_ALIKE]:
        field, value = ("highest_tier_name", named[tier]) if tier in named else ("highest_tier_allowed", tier)
        update = {"highest_tier_allowed": None, "highest_tier_name": "", field: value}
        wider = topology.model_copy(update=update)
        words = further_apart(case.job.pod_group, value)
        yield Candidate(words, "user", set_group(case.job.key, network_topology=wider))
    if case.reason == "NoHyperNode":
        yield _level(case, topology.highest_tier_name) or _one_hyper_node(case, topology)
    soft = topology.model_copy(update={"mode": "soft", "highest_tier_allowed": None, "highest_tier_name": ""})
    words = further_apart(case.job.pod_group)
    yield Candidate(words, "user", set_group(case.job.key, network_topology=soft))
