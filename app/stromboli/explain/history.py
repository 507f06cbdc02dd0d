"""History of a pod in a session: how it was tried, refused, scored and placed, from a session run once more."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from msgspec.structs import replace

from stromboli.api import objects
from stromboli.explain.answers import Answer, Happening, NodeScore
from stromboli.explain.rehearsal import Change, Rehearsal, pod_of
from stromboli.framework.diagnosis.pod_trace import Considered, PodTrace, Step
from stromboli.framework.session.session import Session
from stromboli.state.cluster import ClusterState
from stromboli.state.pods import PodRecord

#: the number of nodes shown for a step besides the named ones
_MOST_NODES = 20


def with_history(answer: Answer, rehearsal: Rehearsal, named: Collection[str] = ()) -> Answer:
    """The answer about a pod with its history; if there are many nodes, the `named` ones are always shown.

    A pod that has a place is taken off it on a copy of the cluster, so that one sees how it would be placed now.
    """
    record = rehearsal.state.record(f"{answer.namespace}/{answer.name}")
    if record is None:
        return answer
    trace = PodTrace(record.key)
    placed = bool(record.node_name)
    session = rehearsal.follow(trace, _taken_off(record) if placed else None)
    history = [_happening(session, step, named) for step in trace.steps]
    return replace(answer, history=history, hypothetical=placed)


def _taken_off(record: PodRecord) -> Change:
    def change(state: ClusterState) -> None:
        state.upsert("Pod", pod_of(record, "", objects.PodStatus(phase="Pending")))

    return change


def _happening(session: Session, step: Step, named: Collection[str]) -> Happening:
    considered = step.considered
    return Happening(
        action=step.action,
        what=step.what,
        node=session.view.nodes.name(step.node) if step.node >= 0 else "",
        reason=f"{step.reason.reason}: {step.reason.numbered}" if step.reason else "",
        nodes=[] if considered is None else _nodes(session, considered, step.node, named),
        node_count=0 if considered is None else len(session.view.nodes),
    )


def _nodes(session: Session, considered: Considered, chosen: int, named: Collection[str]) -> list[NodeScore]:
    """The verdicts on nodes: the chosen one first, then the others by score, those ruled out last."""
    names = [record.name for record in session.view.nodes.facts.records]
    why: dict[int, tuple[str, str]] = {}
    for plugin, cause, failed in considered.refused:
        why |= dict.fromkeys(np.flatnonzero(failed).tolist(), (plugin, cause))
    for cause, failed in considered.short:
        why |= dict.fromkeys(np.flatnonzero(failed).tolist(), ("", cause))
    total = sum(considered.scores.values(), np.zeros(len(names)))
    order = sorted(range(len(names)), key=lambda row: (row != chosen, row in why and row != chosen, -total[row], row))
    shown = [row for at, row in enumerate(order) if at < _MOST_NODES or names[row] in named]
    return [
        NodeScore(
            node=names[row],
            # What terminating pods still hold is promised, not lacking.
            plugin="" if row == chosen else why.get(row, ("", ""))[0],
            cause="" if row == chosen else why.get(row, ("", ""))[1],
            scores={plugin: float(scores[row]) for plugin, scores in considered.scores.items()},
            total=float(total[row]),
        )
        for row in shown
    ]
