"""Where a pod could go: nodes by what rules them out, the nearest ones, and the jobs that hold what it lacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from stromboli.api.pod_state import ON_NODE_STATES, STATES, PodState
from stromboli.api.resources import (
    PODS,
    TOLERANCE,
    UNKNOWN,
    Mask,
    Matrix,
    Vector,
    compared,
    exact,
    fits,
    told,
)
from stromboli.api.words import counted, measured
from stromboli.explain.answers import Amounts, Holding, NodeCause
from stromboli.framework.cluster.job import Job
from stromboli.framework.plugin.relations import Apart, Balanced, Limited, Relation
from stromboli.framework.plugin.report import QueueGauges
from stromboli.framework.reasons import insufficient, resource_name
from stromboli.framework.session.session import Session
from stromboli.placement.fitting import Alike, fitting
from stromboli.state.pods import PodRecord

#: holders that are named
MOST_HOLDERS = 5
#: the limit where there is none
UNLIMITED = 2**60
#: states of pods that hold a node, or are promised what others on it leave
_HOLDS_NODE = np.isin(np.arange(STATES), (*ON_NODE_STATES, PodState.Pipelined))


@dataclass(slots=True)
class Places:
    """Causes that keep a pod off nodes, and nodes that would suit it; masks have shape (nodes,)."""

    causes: list[NodeCause] = field(default_factory=list)
    #: which nodes have each of the causes
    where: dict[str, Mask] = field(default_factory=dict)
    nearest: str = ""
    #: those that would take it if they had more free
    willing: Mask = field(default_factory=lambda: np.zeros(0, np.bool_))
    #: the columns of the resources that are lacking on any of those
    lacking: list[int] = field(default_factory=list)
    #: the node that comes closest, -1 without one
    closest: int = -1

    def add(self, cause: str, nodes: Mask, others: Sequence[tuple[str, Mask]] = ()) -> None:
        """Add a cause for some nodes; some of those have others as well."""
        also = {other: both for other, mask in others if other != cause and (both := int((mask & nodes).sum()))}
        self.causes.append(NodeCause(cause=cause, nodes=int(nodes.sum()), also=also))
        self.where[cause] = nodes


def amounts(
    session: Session, vector: Vector, columns: Iterable[int] | None = None, *, pod: PodRecord | None = None
) -> Amounts:
    """Amounts by resource, those of nothing left out, and the pods' own places unless they are asked for and count.

    A resource that no node offers has a name only where a `pod` says what it asks for, and is left out elsewhere.
    """
    names = session.view.dimensions
    places = columns is not None and pod is None and session.view.counts_pods
    listed = range(len(names)) if columns is None else columns
    shown = [c for c in listed if (places or c != PODS) and vector[c] >= TOLERANCE]
    if pod is not None:
        return {resource_name(names, pod, c): exact(names[c], vector[c]) for c in shown}
    return {names[c]: exact(names[c], vector[c]) for c in shown if names[c] != UNKNOWN}


def share(resource: str, value: float) -> str:
    """A share as a quantity; memory is cut to whole MiB, since shares are hardly ever round numbers of bytes."""
    if resource == "memory" and 2**20 < value < UNLIMITED:
        value = float(np.floor(value / 2**20) * 2**20)
    return exact(resource, value)


def limited(gauges: QueueGauges, column: int) -> float | None:
    """The most that a queue may have of a resource; None without a limit."""
    most = gauges.limit if gauges.bound is None else gauges.bound()
    limit = np.inf if most is None else float(most[column])
    return limit if limit < UNLIMITED else None


def places(session: Session, pod: PodRecord, count: int) -> Places:
    """Causes that keep a pod off each node; `count` identical pods wait."""
    view, out = session.view, Places()
    out.willing = np.ones(len(view.nodes), np.bool_)
    alike = Alike(session, pod)
    of_gang = alike.replaced if count > 1 else set()
    refusals = [(str(cause), failed) for cause, failed in session.kernel.refusals(pod) if cause not in of_gang]
    for cause, failed in refusals:
        if (first := failed & out.willing).any():
            out.add(cause, first, [*refusals, *_too_small(session, pod)])
        out.willing &= ~failed
    willing = np.flatnonzero(out.willing)
    if not len(willing):
        return out
    request, free = view.request(pod), view.nodes.available(willing)
    short = _shortage(session, request, free)

    def among(some: Mask) -> Mask:
        """Some of the nodes that are willing, as a mask over all."""
        mask = np.zeros(len(view.nodes), np.bool_)
        mask[willing[some]] = True
        return mask

    for cause, lack in _lacking(session, pod, short):
        out.add(cause, among(lack))
    alone = alike.alone(free, count)
    copies = alike.together(willing, alone)
    crowded = (alone > 0) & (copies == 0)
    if crowded.any():
        out.add(_crowding(alike.relations), among(crowded))
    for number in np.unique(copies[copies > 0]).tolist():
        out.add(f"fits {number:.0f} of {counted(count, 'pod')}", among(copies == number))
    if copies.sum() < count:
        # What is lacking is what the next pod lacks.
        left = free - request[:, None] * copies
        short = _shortage(session, request, left)
        out.lacking = np.flatnonzero((short > 0).any(axis=1)).tolist()
        if out.lacking:
            _find_closest(session, pod, out, short, left, copies)
    return out


def _crowding(relations: list[Relation]) -> str:
    """Why a node that fits a pod alone takes no further pod of its gang: the rules between its pods, by name."""
    rules = " and ".join(sorted({each.words for each in relations if isinstance(each, Apart | Balanced | Limited)}))
    return f"fits a pod alone, and none beside the gang's others by {rules}"


def _shortage(session: Session, request: Vector, free: Matrix) -> Matrix:
    """The part of the request that each node lacks, shape (dimensions, nodes)."""
    short: Matrix = np.where(compared(request, session.view.nodes.always)[:, None], request[:, None] - free, 0.0)
    short[short < TOLERANCE] = 0.0
    return short


def _too_small(session: Session, pod: PodRecord) -> Iterator[tuple[str, Mask]]:
    """Nodes that have too little free, by resource."""
    nodes = session.view.nodes
    short = _shortage(session, session.view.request(pod), nodes.available(nodes.rows)) > 0
    for column in np.flatnonzero(short.any(axis=1)).tolist():
        yield insufficient(session.view.dimensions, pod, [column]), short[column]


def _lacking(session: Session, pod: PodRecord, short: Matrix) -> list[tuple[str, Mask]]:
    """One cause for all nodes that lack the same resources, with the nearest one's shortage; the most nodes first."""
    lacks = short > 0
    patterns, number = np.unique(lacks, axis=1, return_inverse=True)
    relative = _relative(session, pod, short)
    out: list[tuple[str, Mask]] = []
    for index, pattern in enumerate(patterns.T):
        same = number.reshape(-1) == index
        at = np.flatnonzero(same)
        if pattern.any():
            nearest = at[np.argmin(relative[at])]
            lacks_of = insufficient(session.view.dimensions, pod, np.flatnonzero(pattern).tolist())
            short_of = f"{'at least ' if len(at) > 1 else ''}{_named(session, pod, short[:, nearest])} short"
            out.append((f"{lacks_of}: {short_of}", same))
    return sorted(out, key=lambda each: (-int(each[1].sum()), each[0]))


def _relative(session: Session, pod: PodRecord, short: Matrix) -> Vector:
    """The largest fraction of the request, over all dimensions, that each node lacks."""
    request = np.maximum(session.view.request(pod), 1)
    out: Vector = (short / request[:, None]).max(axis=0)
    return out


def _named(session: Session, pod: PodRecord, vector: Vector) -> str:
    names = session.view.dimensions
    return ", ".join(
        measured(told(names[c], vector[c]), resource_name(names, pod, c)) for c in np.flatnonzero(vector > 0).tolist()
    )


def _find_closest(session: Session, pod: PodRecord, out: Places, short: Matrix, left: Matrix, copies: Vector) -> None:
    """The node that lacks least for one more pod than fit on it."""
    relative = np.where((short > 0).any(axis=0), _relative(session, pod, short), np.inf)
    best = int(np.argmin(relative))
    out.closest = int(np.flatnonzero(out.willing)[best])
    name, lack = session.view.nodes.name(out.closest), short[:, best]
    names = session.view.dimensions
    free = ", ".join(
        measured(told(names[c], max(0.0, float(left[c, best]))), resource_name(names, pod, c))
        for c in np.flatnonzero(lack > 0).tolist()
    )
    taken, some = int(copies[best]), "one more" if copies[best] else "one"
    after = f"takes {taken} and " if taken else ""
    out.nearest = f"{name} {after}lacks {_named(session, pod, lack)} for {some}: {free} {'left' if taken else 'free'}"


def would_fit(session: Session, pods: Sequence[PodRecord]) -> int:
    """Number of pods that fit on nodes now, without those that have scheduling gates."""
    nodes = session.view.nodes
    free = nodes.available(nodes.rows).copy()
    kinds = {pod.pod_class.id: pod for pod in pods if not pod.pod_class.gated}
    # Those that few nodes have room for come before others that take it.
    room = {
        kind: np.count_nonzero(session.kernel.feasible(pod) & fits(session.view.request(pod), free))
        for kind, pod in kinds.items()
    }
    some = [pod for pod in pods if pod.pod_class.id in room]
    return fitting(session, sorted(some, key=lambda pod: room[pod.pod_class.id]), free)


def holders(session: Session, nodes: Mask, columns: Sequence[int], waiting: Job) -> list[Holding]:
    """The jobs that hold most of some resources on some nodes, without the waiting job itself.

    Pods in no job count by namespace.
    """
    pods = session.view.pods
    if not len(nodes):
        # No pod was looked for a place for: all nodes count.
        nodes = np.ones(len(session.view.nodes), np.bool_)
    at = np.flatnonzero(_HOLDS_NODE[pods.state] & (pods.node >= 0))
    at = at[nodes[pods.node[at]]]
    if not len(at) or not columns:
        return []
    requests = session.view.snapshot.requests[:, : len(session.view.dimensions)]
    held: dict[tuple[str, str], Vector] = {}
    number: Counter[tuple[str, str]] = Counter()
    for row in at.tolist():
        record = pods.records[row]
        if record is not None and record.job != waiting.key:
            who = (record.namespace, record.job.partition("/")[2])
            number[who] += 1
            held[who] = held.get(who, 0.0) + requests[record.pod_class.id]
    total = np.maximum(session.view.total[list(columns)], 1)
    part = {who: float((vector[list(columns)] / total).max()) for who, vector in held.items()}
    largest = sorted((who for who in held if part[who] > 0), key=lambda who: (-part[who], who))
    return [
        Holding(
            namespace=namespace,
            name=name,
            queue=job.queue.name if job else "",
            pods=number[namespace, name],
            amounts=amounts(session, held[namespace, name], columns),
            called=job.pod_group.workload if job else "",
        )
        for namespace, name in largest[:MOST_HOLDERS]
        for job in (session.view.jobs.get(f"{namespace}/{name}"),)
    ]
