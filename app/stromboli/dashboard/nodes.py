"""Nodes as a session saw them: all of them in columns, and one with its labels and taints."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from stromboli.api.pod_state import PodState
from stromboli.api.resources import MEMORY, PODS, UNKNOWN, Mask, Vector
from stromboli.explain.jobs import places_of
from stromboli.explain.overview import NodePage, Nodes
from stromboli.framework.session.session import Session
from stromboli.plugins.fgd.fragmentation import fragments


def in_units(column: int, amount: float) -> float:
    """An amount in the units of the report: cores, bytes, devices."""
    return amount if column in (MEMORY, PODS) else amount / 1000


def columns(
    session: Session,
    offset: int,
    limit: int,
    *,
    resource: str = "cpu",
    name: str = "",
    only: Mask | None = None,
    pods: Iterable[int] | None = None,
) -> Nodes:
    """Nodes whose names contain `name`, `only` some of them, with the number of some pods on each, given by row."""
    nodes, dimensions = session.view.nodes, list(session.view.dimensions)
    column = dimensions.index(resource) if resource in dimensions else 0
    names = [record.name for record in nodes.facts.records]
    found = [at for at, each in enumerate(names) if name in each and (only is None or only[at])]
    rows = np.array(found[offset : offset + limit], np.intp)
    of_job = None if pods is None else _per_node(session, pods)
    kinds = list(fragments(session.view))
    return Nodes(
        total=len(found),
        offset=offset,
        resource=dimensions[column],
        resources=[name for name in dimensions if name != UNKNOWN],
        names=[names[at] for at in rows.tolist()],
        allocatable=[in_units(column, each) for each in nodes.allocatable[column][rows].tolist()],
        used=[in_units(column, each) for each in nodes.used[column][rows].tolist()],
        pods=np.rint(nodes.used[PODS][rows]).astype(int).tolist(),
        of_job=[] if of_job is None else of_job[rows].tolist(),
        free_cards=[] if not kinds else _rounded(sum(each.free[rows] for each in kinds)),
        fragments=[] if not kinds else _rounded(sum(each.fragments[rows] for each in kinds)),
        cordoned=np.flatnonzero(nodes.facts.unschedulable[rows]).tolist(),
    )


def with_cause(session: Session, job: str, cause: str) -> Mask:
    """The nodes that have a cause for a job, as its answer says."""
    known = session.view.jobs.get(job)
    where = places_of(session, known).where if known is not None else {}
    return where.get(cause, np.zeros(len(session.view.nodes), np.bool_))


def node(session: Session, name: str) -> NodePage | None:
    """One node; None if it is not there."""
    nodes = session.view.nodes
    row = next((row for row, each in enumerate(nodes.facts.records) if each.name == name), -1)
    if row < 0:
        return None
    record, dimensions = nodes.facts.records[row], list(enumerate(session.view.dimensions))
    has = [(column, each) for column, each in dimensions if each != UNKNOWN and nodes.allocatable[column, row]]
    return NodePage(
        name=name,
        ready=record.ready,
        cordoned=record.unschedulable,
        labels=record.labels,
        taints=[f"{each.key}{f'={each.value}' if each.value else ''}:{each.effect}" for each in record.taints],
        allocatable={each: in_units(column, float(nodes.allocatable[column, row])) for column, each in has},
        used={each: in_units(column, float(nodes.used[column, row])) for column, each in has},
    )


def _rounded(cards: Vector | int) -> list[float]:
    found: list[float] = np.round(cards, 3).tolist()
    return found


def _per_node(session: Session, rows: Iterable[int]) -> np.ndarray:
    """The number of pods on each node."""
    view = session.view
    listed = np.fromiter(rows, np.intp)
    placed = view.pods.node[listed[view.pods.state[listed] != PodState.Pending]]
    return np.bincount(placed[placed >= 0], minlength=len(view.nodes))
