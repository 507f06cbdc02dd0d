"""Likely mistakes in a cluster or a policy, found before a job has to wait because of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from itertools import combinations

import numpy as np
from msgspec import Struct

from stromboli.api.keys import NATIVE_GROUP, outer_name
from stromboli.api.pod_state import PodState
from stromboli.api.resources import NATIVE, TOLERANCE, ResourceAmounts, amounts, is_scheduled, told
from stromboli.api.validation import did_you_mean
from stromboli.api.words import counted, first_few, measured
from stromboli.engine import Engine
from stromboli.explain.doubts import GIVE_UNIT, doubtful, largest_cpu, too_few_bytes
from stromboli.explain.evictions import PREEMPTING, RECLAIMING
from stromboli.explain.guaranteed import beyond_parents
from stromboli.framework.cluster.job import Queue
from stromboli.framework.diagnosis.ignored import ignored_of_job, ignored_of_queue, jobs_with_ignored, place_of
from stromboli.framework.reasons import not_open
from stromboli.framework.session.session import Session
from stromboli.kube.dra.extended import backing
from stromboli.plugins.nodepools import NodePools
from stromboli.plugins.nodepools.arguments import listed, named_by, nodes_of
from stromboli.state.nodes import devices_lost
from stromboli.state.pods import GROUP_ANNOTATION

#: objects of a kind that are named
_MOST = 5
#: stands in a cause for the objects
_THEM = "\N{HORIZONTAL ELLIPSIS}"
_SHARING = ("proportion", "capacity", "fairshare")
#: actions that ask conformance which pods to spare
_EVICTING = (*RECLAIMING, *PREEMPTING, "consolidation", "shuffle")
_TOPOLOGY = "network-topology-aware"
#: the scheduler of pods that name none
KUBE_SCHEDULER = "default-scheduler"


class Finding(Struct, frozen=True):
    """Something that is likely to be wrong."""

    #: policy, queues, pools, pods, nodes, topology, crds, access, schedulers or files
    area: str
    problem: str
    #: what to do about it
    advice: str
    #: the problem without its objects and amounts; empty if it has none
    cause: str = ""
    #: the objects in which that is found
    objects: tuple[str, ...] = ()


class Findings(Struct, frozen=True):
    """A likely mistake."""

    items: list[Finding]
    #: the names of schedulers that are served where it was looked
    served: list[str] = []


def findings(engine: Engine, session: Session) -> list[Finding]:
    """Likely mistakes in a policy, and in the cluster as a session of that policy saw it."""
    return [*policy_findings(engine), *_in(session)]


def policy_findings(engine: Engine) -> Iterator[Finding]:
    """Valid parts of a policy that are probably not intended."""
    policy = engine.policy
    actions = list(policy.actions)
    plugins = [option.name for tier in policy.tiers for option in tier.plugins]
    sharing = [name for name in _SHARING if name in plugins]

    def finding(problem: str, advice: str) -> Finding:
        return Finding("policy", problem, advice)

    if len(sharing) > 1:
        yield finding(
            f"{' and '.join(sharing)} both divide the cluster", "keep one: each holds queues to its own shares"
        )
    for name, count in Counter(plugins).items():
        if count > 1:
            yield finding(f"plugin {name} is named {count} times", "name it once")
    if "enqueue" in actions and "allocate" in actions and actions.index("enqueue") > actions.index("allocate"):
        yield finding("enqueue runs after allocate", "put it first: what it admits is placed in the next session only")
    if "allocate" not in actions:
        yield finding("there is no allocate", "without it only pods without requests are placed, by backfill")
    reclaiming = [name for name in RECLAIMING if name in actions]
    if reclaiming and not sharing:
        yield finding(f"{reclaiming[0]} has no plugin that determines shares", f"add {' or '.join(_SHARING)}")
    follow = {option.name for tier in policy.tiers for option in tier.plugins if option.hierarchy}
    if "nodepools" in plugins and "nodepools" not in follow and ("capacity" in follow or "fairshare" in plugins):
        advice = "set enableHierarchy: true on it: what queues above say of pools limits nothing"
        yield finding("nodepools does not follow the tree of queues", advice)
    if "overcommit" in plugins and "enqueue" not in actions:
        yield finding("overcommit has no effect without enqueue", "add enqueue to the actions, or drop overcommit")
    if any(name in actions for name in _EVICTING) and "conformance" not in plugins:
        yield finding("pods of kube-system may be evicted", "add the plugin conformance, which protects them")
    for line in engine.muted:
        yield finding(line, "move it there, or drop it")
    if "gang" not in plugins:
        yield finding("there is no gang", "without it jobs start pod by pod, whatever their minMember")
    if "predicates" not in plugins:
        yield finding("there is no predicates", "without it taints, affinity and volumes are ignored")


def queue_findings(session: Session) -> Iterator[Finding]:
    """Queues with a misleading spec, and jobs in queues that do not exist."""
    queues = session.view.queues
    ignored = {name: ignored_of_queue(session, queue) for name, queue in queues.items()}
    parents = {queue.parent for name, queue in queues.items() if "parent" not in ignored[name]} - {"", "root"}
    for queue in queues.values():
        for name, why in ignored[queue.name].items():
            advice = "clear it, or change the policy"
            yield Finding("queues", f"queue {queue.name}: spec.{name} {why}", advice)
        if queue.has_jobs and not queue.open:
            shut = queue if queue.state != "Open" else queue.closed_by or queue
            advice = f"stromboli queue open {shut.name}, or move its jobs"
            yield Finding("queues", f"queue {queue.name} has jobs but accepts none: {not_open(queue)}", advice)
        if queue.has_jobs and queue.name in parents:
            advice = "move its jobs to a queue below it, or those queues elsewhere"
            yield Finding("queues", f"queue {queue.name} has jobs, and queues below it: its jobs get nothing", advice)
        if queue.spec.parent and queue.spec.parent not in queues:
            near = did_you_mean(queue.spec.parent, queues)
            yield Finding(
                "queues", f"queue {queue.name}: there is no parent {queue.spec.parent}{near}", "create or name it"
            )
    missing: defaultdict[str, list[str]] = defaultdict(list)
    for group in session.view.snapshot.pod_groups:
        if group is not None and group.queue not in queues:
            missing[group.queue].append(group.called)
    for name, groups in missing.items():
        near = did_you_mean(name, queues)
        yield in_objects(
            "queues", "job", groups, f"there is no queue {name}{near}, for {_THEM}", "create it, or name another"
        )


def amount_findings(session: Session) -> Iterator[Finding]:
    """Promises to queues that exceed the cluster in total, and names of resources that no node offers."""
    view = session.view
    offered = _offered(session)
    top = [queue for queue in view.queues.values() if queue.parent in ("", "root") and queue.name != "root"]
    for word, amounts_of in _PROMISES.items():
        total: defaultdict[str, float] = defaultdict(float)
        for queue in top:
            for name, value in amounts(amounts_of(queue)).items():
                total[name] += value
        for name, promised in total.items():
            has = float(view.total[view.dimensions.index(name)]) if name in view.dimensions else 0.0
            if name in offered and name in view.dimensions and promised > has + TOLERANCE:
                asked = measured(told(name, promised), name)
                problem = f"queues are promised {asked} by spec.{word}, and the cluster has {told(name, has)}"
                cause = f"queues are promised more {name} by spec.{word} than the cluster has"
                yield Finding("queues", problem, "lower them, or add nodes", cause)
    for problem, cause in beyond_parents(session):
        yield Finding("queues", problem, "lower theirs, or raise it", cause)
    for queue in view.queues.values():
        named = {name for of in _AMOUNTS.values() for name in amounts(of(queue))}
        for field, amounts_of in _AMOUNTS.items():
            for few in too_few_bytes(amounts_of(queue)):
                yield Finding("queues", f"queue {queue.name}: spec.{field} has {few}", GIVE_UNIT)
        for name in sorted({name for of in _AMOUNTS.values() for name in of(queue) or () if not is_scheduled(name)}):
            problem = f"queue {queue.name} names {name}, which is no resource of nodes{did_you_mean(name, NATIVE)}"
            yield Finding("queues", problem, "correct the name: as written, it limits nothing")
        for name in sorted(each for each in named if "/" in each and each not in offered):
            near = did_you_mean(name, offered)
            problem = f"queue {queue.name} names {name}, which no node offers{near}"
            yield Finding("queues", problem, "correct the name, or add nodes that have it")


def _offered(session: Session) -> set[str]:
    """The resources that nodes offer, by themselves or as devices of a class."""
    by_nodes = {name for record in session.view.nodes.facts.records for name in record.allocatable}
    return by_nodes | backing(session.view.snapshot).keys()


#: amounts in a queue's spec that are for it
_PROMISES: dict[str, Callable[[Queue], ResourceAmounts | None]] = {
    "deserved": lambda queue: queue.spec.deserved,
    "guarantee": lambda queue: queue.spec.guarantee.resource,
}
#: all amounts in a queue's spec
_AMOUNTS: dict[str, Callable[[Queue], ResourceAmounts | None]] = {
    **_PROMISES,
    "capability": lambda queue: queue.spec.capability,
}


def topology_findings(session: Session) -> Iterator[Finding]:
    """Jobs that must stay close where there are no HyperNodes, or no plugin that reads them, and labels of nodes that
    make none."""
    labels = session.policy.topology.labels
    records = session.view.nodes.facts.records
    for label in labels if len(records) else ():
        partly = [
            record.name for record in records if label not in record.labels and record.labels.keys() & set(labels)
        ]
        if not any(label in record.labels for record in records):
            advice = "label nodes with it, or correct topology.levels: there is no HyperNode of that level"
            yield Finding("topology", f"no node has the label {label} of topology.levels", advice)
        elif partly:
            cause = f"{_THEM} without the label {label}, but with others of topology.levels"
            advice = "label them, or correct topology.levels: they are in no HyperNode of that level"
            yield in_objects("topology", "node", partly, cause, advice)
    asking = [
        job.called
        for job in session.view.jobs.values()
        if (topology := job.pod_group.spec.network_topology) is not None and topology.mode == "hard"
    ]
    if not asking:
        return

    def found(why: str, advice: str) -> Finding:
        return in_objects("topology", "job", asking, f"{_THEM} must stay in one HyperNode, and {why}", advice)

    if not any(plugin.name == _TOPOLOGY for plugin in session.points.plugins):
        yield found(f"the policy has no {_TOPOLOGY}", f"add the plugin {_TOPOLOGY}")
    if not session.view.snapshot.hyper_nodes:
        how = f"label nodes with {labels[0]}" if labels else "create HyperNodes, or name topology.levels in the policy"
        yield found("there are none", f"{how}, or drop networkTopology")


def ignored_findings(session: Session) -> Iterator[Finding]:
    """Fields of PodGroups without effect; a topology that the policy does not read is a finding of its own."""
    saying: defaultdict[str, list[str]] = defaultdict(list)
    for job in jobs_with_ignored(session):
        for field, why in ignored_of_job(session, job).items():
            if field != "networkTopology":
                saying[f"{place_of(field)} {why}"].append(job.called)
    for cause, jobs in saying.items():
        yield in_objects("pods", "job", jobs, f"{_THEM}: {cause}", "clear it, or go without what it asks for")


def pool_findings(session: Session) -> Iterator[Finding]:
    """Node pools that overlap or have no nodes, and names of pools that are not in the policy."""
    view = session.view
    plugin = next((plugin for plugin in session.points.plugins if isinstance(plugin, NodePools)), None)
    if plugin is None:
        return
    selected = {pool.name: nodes_of(pool, view.nodes.facts) for pool in plugin.arguments.pools}
    for name, nodes in selected.items():
        if not nodes.any():
            yield Finding("pools", f"node pool {name} has no nodes", "label nodes for it, or correct its nodeSelector")
    for (first, ours), (second, theirs) in combinations(selected.items(), 2):
        both = [view.nodes.name(row) for row in np.flatnonzero(ours & theirs).tolist()]
        if both:
            cause = f"node pools {first} and {second} both select {_THEM}, which count in {first} only"
            advice = "have their selectors exclude each other, or order them as meant"
            yield in_objects("pools", "node", both, cause, advice)
    for queue in view.queues.values():
        for pool in queue.spec.pools:
            if pool.name not in selected:
                problem = f"queue {queue.name} names node pool {pool.name}, which the policy does not"
                yield Finding("pools", problem + did_you_mean(pool.name, selected), "correct it, or name it there")
    asking: defaultdict[str, list[str]] = defaultdict(list)
    for group in view.snapshot.pod_groups:
        for name in listed(named_by(group)) if group is not None else ():
            if group is not None and name not in selected:
                asking[name].append(group.called)
    for name, groups in asking.items():
        cause = f"{_THEM} may use node pool {name}, which the policy does not name{did_you_mean(name, selected)}"
        yield in_objects("pools", "job", groups, cause, "correct the annotation, or name it there")


def pod_findings(session: Session) -> Iterator[Finding]:
    """Pods that wait and that no session can place."""
    view = session.view
    pending = view.records(np.flatnonzero(view.pods.state == PodState.Pending))
    waiting = [pod for pod in pending if not pod.node_name]
    groups = {group.key for group in view.snapshot.pod_groups if group is not None}
    lost: defaultdict[str, list[str]] = defaultdict(list)
    for pod in waiting:
        if pod.job not in groups:
            lost[pod.job].append(pod.key)
    offered = _offered(session).union(_in_capacity(session))
    unknown: defaultdict[str, list[str]] = defaultdict(list)
    for pod in waiting:
        for name in pod.pod_class.request:
            if "/" in name and name not in offered:
                unknown[name].append(pod.key)
    for name, pods in unknown.items():
        cause = f"{_THEM}: no node offers {name}{did_you_mean(name, offered)}"
        yield in_objects("pods", "pod", pods, cause, "correct the name, or add nodes that have it")
    for group, pods in lost.items():
        what = f"PodGroup {group} does not exist" if group else "no PodGroup"
        advice = f"create it, or correct the annotation {GROUP_ANNOTATION}"
        own = outer_name(group)
        if own is not None:
            what, advice = (
                f"PodGroup {own} of {NATIVE_GROUP} does not exist",
                "create it: their spec.schedulingGroup names it",
            )
        advice = advice if group else "the service makes one for each"
        yield in_objects("pods", "pod", pods, f"{_THEM}: {what}", advice)


def device_findings(session: Session) -> Iterator[Finding]:
    """Nodes that have more devices than can be allocated."""
    facts = session.view.nodes.facts
    for name in _in_capacity(session):
        lost: defaultdict[str, list[str]] = defaultdict(list)
        for record in facts.without_devices(name):
            lost[devices_lost(record, name)].append(record.name)
        for how, nodes in lost.items():
            advice = "see whether their device plugin and their devices are well"
            yield in_objects("nodes", "node", nodes, f"{name}: {_THEM} with {how}", advice)


def _in_capacity(session: Session) -> list[str]:
    """The resources that nodes have, be they allocatable or not."""
    return sorted({name for record in session.view.nodes.facts.records for name in record.capacity})


def request_findings(session: Session) -> Iterator[Finding]:
    """Amounts of pods and PodGroups that are probably mistakes, or that no API server accepts."""
    view = session.view
    largest = largest_cpu(session)
    asking: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    known: dict[int, list[tuple[str, str]]] = {}
    for pod in view.records(np.flatnonzero(~np.isin(view.pods.state, (PodState.Succeeded, PodState.Failed)))):
        each = pod.pod_class
        if each.id not in known:
            known[each.id] = list(dict.fromkeys(doubtful(each.spec, largest)))
        for doubt in known[each.id]:
            asking[doubt].append(pod.key)
    for (problem, advice), pods in asking.items():
        yield in_objects("pods", "pod", pods, f"{_THEM}: {problem}", advice)
    for group in view.snapshot.pod_groups:
        # What a controller adds up is wrong in its pods.
        if group is None or group.metadata.owner_references:
            continue
        for few in too_few_bytes(group.spec.min_resources):
            yield Finding("pods", f"PodGroup {group.key}: spec.minResources has {few}", GIVE_UNIT)


def scheduler_findings(pods: Collection[tuple[str, str, bool]], served: Collection[str]) -> Iterator[Finding]:
    """Names of schedulers that none answers to; `pods` are keys, scheduler names, and whether they wait."""
    waiting: defaultdict[str, list[str]] = defaultdict(list)
    for key, name, waits in pods:
        if waits and name not in served and name != KUBE_SCHEDULER:
            waiting[name].append(key)
    running = {name for _, name, waits in pods if not waits}
    for name, keys in waiting.items():
        if name not in running:
            advice = f"name one of {', '.join(sorted(served))}, or serve it with --scheduler-name {name}"
            cause = f"{_THEM} wait for scheduler {name}, which has never placed a pod"
            yield in_objects("schedulers", "pod", keys, cause, advice)


def in_objects(area: str, noun: str, keys: list[str], cause: str, advice: str) -> Finding:
    """A finding in objects of a kind, which stand where the cause has an ellipsis."""
    return Finding(area, cause.replace(_THEM, some_of(keys, noun)), advice, cause, tuple(keys))


def news(before: Session, after: Session) -> Iterator[Finding]:
    """The findings of a session that an earlier one did not have, or only had for other objects."""
    known: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for finding in _in(before):
        known[finding.area, finding.cause or finding.problem].update(finding.objects)
    for finding in _in(after):
        what = finding.area, finding.cause or finding.problem
        if what not in known or not known[what].issuperset(finding.objects):
            yield finding


def _in(session: Session) -> Iterator[Finding]:
    return (finding for check in OF_SESSIONS for finding in check(session))


def some_of(keys: list[str], noun: str) -> str:
    """Number of the keys, and the first of them by name."""
    return f"{counted(len(keys), noun)} ({first_few(keys, _MOST)})"


#: checks of a session
OF_SESSIONS: tuple[Callable[[Session], Iterator[Finding]], ...] = (
    queue_findings,
    amount_findings,
    topology_findings,
    pool_findings,
    pod_findings,
    device_findings,
    ignored_findings,
    request_findings,
)
