"""Remedies for pods without a node: constraints that rule nodes out, requests, and more nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial

import numpy as np
from msgspec.structs import replace

from stromboli.api import objects
from stromboli.api.requests import pod_level
from stromboli.api.resources import PODS, UNKNOWN, amounts, exact, is_device, listed, told
from stromboli.api.validation import nearest
from stromboli.api.words import counted
from stromboli.explain.answers import Amounts
from stromboli.explain.daemons import daemons_on, room_beside_daemons
from stromboli.explain.rehearsal import Change, node_of, pod_of
from stromboli.explain.remedies.case import MOST_ALIKE, Candidate, Case, smallest
from stromboli.explain.remedies.changes import respec
from stromboli.explain.remedies.labels import corrected_joining, corrected_spread, labels
from stromboli.explain.remedies.shares import limits, needs
from stromboli.framework.cluster.view import View
from stromboli.framework.reasons import resource_name
from stromboli.kube.node_affinity import label_values
from stromboli.kube.ports import host_ports
from stromboli.kube.taints import REPELLING, says_state, tolerates
from stromboli.state.cluster import ClusterState
from stromboli.state.pods import PodRecord

#: the number of nodes beyond which nothing is proposed
_MOST_NODES = 1_000
#: reasons that more nodes may do away with
_HELPED_BY_NODES = frozenset(
    (
        *("Unschedulable", "NeverFits", "NoMatchingNode", "NoNodes", "GangNotReady", "SameRoleFailed"),
        *(
            "CannotBePlacedTogether",
            "ClusterOvercommitted",
            "ClusterFull",
            "QueueShareExceeded",
            "QueueOverused",
            "QueueCapabilityExceeded",
        ),
    )
)
#: in the names of resources that are parts of cards
_PART_OF_CARD = "/mig-"
#: by resource: the factor between a unit and the one it is confused with, the step of usual values, a hint
_CONFUSED = {"cpu": (1000, 50, ", if thousandths are meant"), "memory": (1024, 2**24, "")}


def predicates(case: Case) -> Iterator[Candidate]:
    """Remedies for constraints that rule nodes out: taints, labels, rules between pods."""
    if not case.pods:
        return
    if case.reason == "CannotBePlacedTogether":
        yield from _rules(case)
    if case.stage == "Placement" and case.reason in ("NoMatchingNode", "Unschedulable", "NeverFits"):
        yield from _others_nodes(case)
        yield from _rules(case)


def _others_nodes(case: Case) -> Iterator[Candidate]:
    """Nodes that the pod may not use because of missing tolerations or its selectors."""
    yield from _tolerations(case, case.pods[0].pod_class.request.keys())
    if case.reason != "Unschedulable":
        # Where nodes have the labels, they were meant.
        yield from labels(case)
        yield from corrected_joining(case)
        yield from corrected_spread(case)


def _rules(case: Case) -> Iterator[Candidate]:
    """Rules between pods, or between pods and nodes, given up one by one."""
    spec = case.pods[0].pod_class.spec
    affinity = spec.affinity
    for words, field in (
        ("the required node affinity", "node_affinity"),
        ("the required pod affinity", "pod_affinity"),
        ("the required pod anti-affinity", "pod_anti_affinity"),
    ):
        if affinity is not None and getattr(affinity, field) is not None:
            yield Candidate(
                f"drop {words}{_terms(getattr(affinity, field))}",
                "user",
                respec(case, affinity=replace(affinity, **{field: None})),
            )
    if spec.topology_spread_constraints:
        yield from _fewer_domains(case)
        yield Candidate("drop the topology spread constraints", "user", respec(case, topology_spread_constraints=None))
    if case.reason == "CannotBePlacedTogether" and host_ports(case.pods[0].pod_class):
        free = [
            replace(each, ports=[replace(port, host_port=0) for port in each.ports or ()])
            for each in spec.containers or ()
        ]
        yield Candidate("drop the host ports", "user", respec(case, containers=free))


def _fewer_domains(case: Case) -> Iterator[Candidate]:
    """Constraints that want more domains than exist, lowered to the existing number."""
    facts, kept = case.session.view.nodes.facts, case.pods[0].pod_class.spec.topology_spread_constraints or ()
    there = {each.topology_key: max(1, len(label_values(each.topology_key, facts))) for each in kept}
    wanting = [each for each in kept if (each.min_domains or 1) > there[each.topology_key]]
    if wanting:
        fewer = [replace(each, min_domains=there[each.topology_key]) if each in wanting else each for each in kept]
        words = " and ".join(
            f"set minDomains: {there[each.topology_key]} in the spread by {each.topology_key}, as there are no more"
            for each in wanting
        )
        yield Candidate(words, "user", respec(case, topology_spread_constraints=fewer))


def _terms(rule: objects.NodeAffinity | objects.PodAffinity) -> str:
    """The labels that the first required term between pods names, and the topology in which they count."""
    if not isinstance(rule, objects.PodAffinity) or not rule.required:
        return ""
    first = rule.required[0]
    labels = (first.label_selector.match_labels if first.label_selector else None) or {}
    named = ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))
    return f" ({named} by {first.topology_key})" if named else ""


def _tolerations(
    case: Case, asked: Collection[str], besides: str = "", changed: dict[str, object] | None = None
) -> Iterator[Candidate]:
    """Taints to tolerate: none that says that a node is not well, or keeps those away that ask for no card of its.

    `asked` are the resources that pods ask for, once they are `changed` in what the words `besides` say.
    """
    spec, facts = case.pods[0].pod_class.spec, case.session.view.nodes.facts
    there = dict.fromkeys(taint for record in facts.records for taint in record.taints)
    taints = dict.fromkeys(
        (taint.key, taint.value or "", taint.effect)
        for record in facts.records
        for taint in record.taints
        if taint.effect in REPELLING and not says_state(taint.key)
        if all(name in asked for name in record.allocatable if is_device(name))
    )
    vain = [own for own in spec.tolerations or () if own.key and not any(tolerates(own, each) for each in there)]
    for key, value, effect in list(taints)[:MOST_ALIKE]:
        toleration = objects.Toleration(key=key, operator="Equal", value=value, effect=effect)
        meant = next((own for own in vain if own.key == key or nearest(own.key or "", [key])), None)
        rest = [own for own in spec.tolerations or () if own is not meant]
        words = f"tolerate taint {_of_taint(toleration)}"
        if meant is not None:
            words = f"correct the toleration of {_of_taint(meant)} to {_of_taint(toleration)}"
        yield Candidate(besides + words, "user", respec(case, tolerations=[*rest, toleration], **(changed or {})))


def _of_taint(toleration: objects.Toleration) -> str:
    """The tolerated taint in the notation of `kubectl taint`; without an effect it stands for all effects."""
    value, effect = toleration.value, toleration.effect
    return f"{toleration.key}{f'={value}' if value else ''}{f':{effect}' if effect else ''}"


def requests(case: Case) -> Iterator[Candidate]:
    """Requests lowered to what the largest node has for a pod, possibly next to DaemonSet pods."""
    if case.reason not in ("NeverFits", "Unschedulable", "ClusterFull") or not case.pods:
        return
    view, pod = case.session.view, case.pods[0]
    request, room = view.request(pod), view.nodes.allocatable
    if case.reason == "NeverFits":
        yield from _misspelt(case)
        yield from _of_another_unit(case)
    else:
        room = room_beside_daemons(view)
    if _has_cards_elsewhere(case):
        # What keeps the pod off those nodes is in the way.
        yield from _others_nodes(case)
    willing = case.session.kernel.feasible(pod)
    if not willing.any():
        # Something else keeps it off all nodes as well.
        willing = np.ones(len(view.nodes), np.bool_)
    largest = room[:, willing].max(axis=1)
    over = [c for c in np.flatnonzero(request > largest).tolist() if c != PODS]
    gone = [resource_name(view.dimensions, pod, c) for c in over if largest[c] == 0]
    unwell = any(view.nodes.facts.without_devices(name) for name in gone)
    if not over or unwell or (_has_cards_elsewhere(case) and any(is_device(view.dimensions[c]) for c in over)):
        # Cards are not given up where there are some: what keeps the pod off their nodes is what is wrong.
        return
    cut = {name: most for c in over for name, most in _by_name(view, pod, c, largest[c]).items()}
    some = {name: most for name, most in cut.items() if most != "0"}
    none = [f"no {name}" for name in cut.keys() - some.keys()]
    words = " and ".join([*([f"no more than {listed(some)} a pod"] if some else []), *sorted(none)])
    first = [each.name for each in pod.pod_class.spec.init_containers or () if _above(each, cut)]
    where = f" (init container {', '.join(first)} asks for more)" if first else ""
    beside = "" if case.reason == "NeverFits" else ", which pods of DaemonSets leave on a node"
    yield Candidate(f"ask for {words}{beside}{where}", "user", respec(case, **_resized(pod, cut)))


def _has_cards_elsewhere(case: Case) -> bool:
    """Whether nodes that the pod may not use have the cards that it lacks, and all else that it asks for."""
    view, pod = case.session.view, case.pods[0]
    request, allocatable = view.request(pod), view.nodes.allocatable
    most = allocatable[:, case.session.kernel.feasible(pod)].max(axis=1, initial=0)
    lacks_cards = any(is_device(view.dimensions[column]) for column in np.flatnonzero(request > most))
    return lacks_cards and bool((allocatable >= request[:, None]).all(axis=0).any())


def _above(container: objects.Container, cut: dict[str, str]) -> bool:
    """Whether a container alone asks for more of some resources."""
    asked = amounts(container.resources.requests if container.resources else None)
    return any(asked.get(name, 0) > most for name, most in amounts(cut).items())


def _misspelt(case: Case) -> Iterator[Candidate]:
    """Resources that no node offers, and whose names are much like one that is offered."""
    pod = case.pods[0]
    offered = sorted({name for record in case.session.view.nodes.facts.records for name in record.allocatable})
    for name in sorted(pod.pod_class.request.keys() - set(offered)):
        # Fractions of cards follow naming rules of their own.
        near = nearest(name, [each for each in offered if (_PART_OF_CARD in each) == (_PART_OF_CARD in name)])
        if near:
            words, changed = f"ask for {near} instead of {name}", _renamed(pod, name, near)
            yield Candidate(words, "user", respec(case, **changed))
            yield from _tolerations(case, {*pod.pod_class.request, near} - {name}, f"{words}, and ", changed)


def _mistaken(case: Case) -> Iterator[Candidate]:
    """Remedies for amounts that are probably not intended."""
    yield from _misspelt(case)
    if case.reason == "NeverFits":
        yield from _of_another_unit(case)


def _of_another_unit(case: Case) -> Iterator[Candidate]:
    """Amounts that no node has and that a unit which is easily confused makes ones that nodes have."""
    pod, records = case.pods[0], case.session.view.nodes.facts.records
    request = pod.pod_class.request
    for name, (factor, multiple, hint) in _CONFUSED.items():
        most = max((amounts(record.allocatable).get(name, 0) for record in records), default=0)
        asked = request.get(name, 0)
        part = asked // factor
        if asked > most >= part >= multiple and part % multiple == 0:
            instead = f"{part}m" if name == "cpu" else told(name, part)
            words = f"ask for {instead} {name} instead of {told(name, asked)}{hint}"
            yield Candidate(words, "user", respec(case, **_resized(pod, {name: exact(name, part)})))


def _renamed(pod: PodRecord, name: str, instead: str) -> dict[str, object]:
    """The requests of a pod with one resource replaced by another."""

    def of(resources: objects.ResourceRequirements | None) -> objects.ResourceRequirements | None:
        if resources is None:
            return None
        pairs = (
            {instead if each == name else each: value for each, value in (some or {}).items()}
            for some in (resources.requests, resources.limits)
        )
        requests, limits = pairs
        return replace(resources, requests=requests, limits=limits)

    spec = pod.pod_class.spec
    return {
        "resources": of(spec.resources),
        "containers": [replace(each, resources=of(each.resources)) for each in spec.containers or ()],
        "init_containers": [replace(each, resources=of(each.resources)) for each in spec.init_containers or ()],
    }


def _by_name(view: View, pod: PodRecord, column: int, amount: float | None = None) -> Amounts:
    """An amount of a column, or what a pod asks for, by resource: nodes offer none of some, which share a column."""
    name = view.dimensions[column]
    if name != UNKNOWN:
        return {name: exact(name, view.request(pod)[column] if amount is None else amount)}
    asked = {name: value for name, value in pod.pod_class.request.items() if name not in view.dimensions}
    return {name: exact(name, value if amount is None else amount) for name, value in sorted(asked.items())}


def _resized(pod: PodRecord, cut: dict[str, str]) -> dict[str, object]:
    """A pod's requests, lowered for some resources: at pod level where it has them there, else in its first container
    and in containers that exceed the new amount alone.
    """
    spec, out = pod.pod_class.spec, dict[str, object]()
    whole = {name: value for name, value in cut.items() if name in pod_level(spec, "requests")}
    if whole:
        out["resources"] = _asking(spec.resources, whole)
    of_container = {name: value for name, value in cut.items() if name not in whole}
    if of_container:
        first, *others = list(spec.containers or ())
        lasting = [*others, *(each for each in spec.init_containers or () if each.restart_policy == "Always")]
        taken = [amounts(each.resources.requests if each.resources else None) for each in lasting]
        left = {
            name: exact(name, max(0, most - sum(each.get(name, 0) for each in taken)))
            for name, most in amounts(of_container).items()
        }
        out["containers"] = [replace(first, resources=_asking(first.resources, left)), *others]
        out["init_containers"] = [
            replace(each, resources=_asking(each.resources, of_container)) if _above(each, of_container) else each
            for each in spec.init_containers or ()
        ]
    return out


def _asking(resources: objects.ResourceRequirements | None, requests: dict[str, str]) -> objects.ResourceRequirements:
    """Resources with other requests of some of them."""
    resources = resources or objects.ResourceRequirements()
    return replace(resources, requests={**(resources.requests or {}), **requests})


def nodes(case: Case) -> Iterator[Candidate]:
    """The fewest nodes like an existing one that would have to be added, alone or together with larger limits."""
    # What is misspelt is no reason to buy nodes.
    if "admin" in case.found or case.reason not in _HELPED_BY_NODES or (case.pods and any(_mistaken(case))):
        return
    if case.reason == "NeverFits" and "user" in case.found and case.pods and _has_cards_elsewhere(case):
        # There are such nodes.
        return
    added = _fewest(case, lambda state: None)
    if added is not None:
        yield added
        return
    for raised in limits(case):
        if raised.change is not None and (added := _fewest(case, raised.change)) is not None:
            yield Candidate(f"{raised.words}, and {added.words}", "admin", added.change)


def _fewest(case: Case, before: Change) -> Candidate | None:
    """The fewest nodes that help after another change."""
    facts, nodes = case.session.view.nodes.facts, case.session.view.nodes
    if not len(facts):
        return _first_node(case)
    willing = np.flatnonzero(case.session.kernel.feasible(case.pods[0])) if case.pods else np.arange(len(facts))
    # Of nodes with cards those are bought that have the cards which are asked for together.
    cards = [c for c in np.flatnonzero(needs(case) > 0).tolist() if is_device(case.session.view.dimensions[c])]
    at = int(willing[np.argmax(nodes.allocatable[(*cards, 0)[0], willing])]) if len(willing) else 0
    like = node_of(facts.records[at])
    # What a job asks for that has no pods yet is in more than one piece.
    view, daemons = case.session.view, daemons_on(case.session.view, at)
    held = sum((view.request(pod) for pod in daemons), np.zeros(len(case.asked)))
    request, allocatable = (case.asked if case.pods else np.zeros(len(case.asked))), nodes.allocatable[:, at]
    short = np.flatnonzero((request > 0) & (request + held > allocatable)).tolist()
    larger = {
        name: most for c in short for name, most in _by_name(view, case.pods[0], c, float((request + held)[c])).items()
    }
    like = replace(
        like,
        spec=objects.NodeSpec() if not len(willing) else like.spec,
        status=replace(like.status, allocatable={**(like.status.allocatable or {}), **larger}),
    )
    most = min(_MOST_NODES, max(len(case.pods), case.job.min_available if case.job else 0) + 1)

    def adding(number: int) -> Change:
        return partial(_add_nodes, before=before, like=like, number=number, daemons=daemons)

    number = smallest(1, most, lambda n: case.helps(adding(n)))
    if number is None:
        return None
    size = f" with {listed(larger)}" if larger else ""
    plain = " without taints" if not len(willing) and facts.records[at].taints else ""
    words = f"add {counted(number, 'node')} like {like.metadata.name}{size}{plain}"
    return Candidate(words + (f" for {_also_on(daemons)}" if size and daemons else ""), "admin", adding(number))


def _first_node(case: Case) -> Candidate | None:
    """Nodes where there is none: each has what a pod asks for."""
    if not case.pods:
        return None
    asked = {name: exact(name, amount) for name, amount in case.pods[0].pod_class.request.items() if name != "pods"}
    status = objects.NodeStatus(allocatable={**asked, "pods": "110"})
    node = objects.Node(metadata=objects.Metadata(name="new"), spec=objects.NodeSpec(), status=status)
    number = max(1, case.needed)
    words = f"add {counted(number, 'node')} with {listed(asked)}"
    return Candidate(words, "admin", partial(_add_nodes, before=lambda state: None, like=node, number=number))


def _also_on(daemons: Sequence[PodRecord]) -> str:
    """Words for the pods on each new node: the waiting one and those of DaemonSets."""
    return f"it and {counted(len(daemons), 'pod')} of DaemonSets"


def _add_nodes(
    state: ClusterState, before: Change, like: objects.Node, number: int, daemons: Sequence[PodRecord] = ()
) -> None:
    """Add nodes, each with its pods of the DaemonSets that have some on the node which they are like."""
    before(state)
    for index in range(number):
        name = f"{like.metadata.name}-more-{index}"
        labels = {**(like.metadata.labels or {}), "kubernetes.io/hostname": name}
        state.upsert("Node", replace(like, metadata=replace(like.metadata, name=name, uid=name, labels=labels)))
        for record in daemons:
            pod = pod_of(record, name, objects.PodStatus(phase="Running"))
            own = f"{record.name}-{name}"
            state.upsert("Pod", replace(pod, metadata=replace(pod.metadata, name=own, uid=own)))
