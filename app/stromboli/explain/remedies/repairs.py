"""Remedies for nodes that take no pods for now: those that are cordoned, or that are not well, or their devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from msgspec.structs import replace

from stromboli.api import objects
from stromboli.api.words import by_number, first_few
from stromboli.explain.rehearsal import Change, node_of
from stromboli.explain.remedies.case import MOST_ALIKE, Candidate, Case
from stromboli.kube.taints import UNSCHEDULABLE, says_state
from stromboli.state.cluster import ClusterState
from stromboli.state.nodes import NodeRecord, devices_lost

#: reasons that a node which takes pods again may do away with
_HELPED = frozenset(
    (
        *("NoMatchingNode", "Unschedulable", "NeverFits", "CannotBePlacedTogether", "PlacesTaken", "ClusterFull"),
        "ClusterOvercommitted",
    )
)


def repairs(case: Case) -> Iterator[Candidate]:
    """Nodes that are opened or brought back, one or all."""
    if not case.pods or case.reason not in _HELPED:
        return
    records = case.session.view.nodes.facts.records
    yield from _each_and_all("uncordon", [each for each in records if each.unschedulable], _opened)
    yield from _each_and_all("bring back", [each for each in records if _unwell(each)], _well)
    for name in sorted(case.pods[0].pod_class.request):
        lost = case.session.view.nodes.facts.without_devices(name)
        yield from _each_and_all(f"mend {name} of", lost, partial(_with_devices, name), partial(_devices, name))


def _unwell(record: NodeRecord) -> bool:
    """Whether the state of the node keeps pods away, rather than a cordon."""
    tainted = any(says_state(taint.key) and taint.key != UNSCHEDULABLE.key for taint in record.taints)
    return not record.is_ready or tainted


def _how(record: NodeRecord) -> str:
    """The conditions of a node that is not ready."""
    if not record.is_ready:
        return f" (Ready is {record.ready})"
    keys = [taint.key for taint in record.taints if says_state(taint.key) and taint.key != UNSCHEDULABLE.key]
    return f" ({', '.join(keys)})" if keys else ""


def _devices(resource: str, record: NodeRecord) -> str:
    return f" ({devices_lost(record, resource)}: see its device plugin)"


def _each_and_all(
    verb: str,
    records: Sequence[NodeRecord],
    mended: Callable[[NodeRecord], objects.Node],
    how: Callable[[NodeRecord], str] = _how,
) -> Iterator[Candidate]:
    for some in [*([record] for record in records[:MOST_ALIKE]), *([records] if len(records) > 1 else [])]:
        named = first_few([f"{record.name}{how(record)}" for record in some], MOST_ALIKE)
        words = f"{verb} {by_number(len(some), 'node', 'nodes')} {named}"
        yield Candidate(words, "admin", _putting([mended(record) for record in some]))


def _putting(nodes: Sequence[objects.Node]) -> Change:
    def change(state: ClusterState) -> None:
        for node in nodes:
            state.upsert("Node", node)

    return change


def _opened(record: NodeRecord) -> objects.Node:
    """The node uncordoned, including the taint of the cordon."""
    node = node_of(record)
    taints = [taint for taint in record.taints if taint.key != UNSCHEDULABLE.key]
    return replace(node, spec=replace(node.spec, unschedulable=False, taints=taints))


def _well(record: NodeRecord) -> objects.Node:
    """The node as it is when it is well."""
    node = node_of(record)
    taints = [taint for taint in record.taints if taint.key == UNSCHEDULABLE.key or not says_state(taint.key)]
    ready = [objects.NodeCondition("Ready", "True")]
    return replace(node, spec=replace(node.spec, taints=taints), status=replace(node.status, conditions=ready))


def _with_devices(resource: str, record: NodeRecord) -> objects.Node:
    """The node with all of its devices."""
    node = node_of(record)
    allocatable = {**record.allocatable, resource: record.capacity[resource]}
    return replace(node, status=replace(node.status, allocatable=allocatable))
