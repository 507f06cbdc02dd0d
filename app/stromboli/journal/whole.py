"""The whole content of a state at one moment, as written at the beginning of a segment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from stromboli.journal import changes, wire
from stromboli.journal.pods import class_of, whole_of
from stromboli.journal.redaction import Redaction
from stromboli.state.classes import PodClass
from stromboli.state.cluster import ClusterState
from stromboli.state.nodes import NodeRecord
from stromboli.state.pods import PodRecord, StateColumn

#: number of objects that are written together
_PART = 5_000


@dataclass(frozen=True, slots=True)
class Whole:
    """References to it: it is never changed."""

    resources: list[str]
    jobs: list[str]
    classes: list[PodClass | None]
    #: by row, and the state of each
    pods: list[PodRecord | None]
    states: StateColumn
    assumed: dict[str, str]
    nodes: list[NodeRecord]
    #: any other objects, with their kinds
    others: list[tuple[str, Any]]
    #: keys of PodGroups among them that were deleted while there are pods that name them
    left: list[str]

    def layout(self, remembered: wire.Remembered) -> wire.Layout:
        """Numbering of the state that `parts` is about."""
        return wire.Layout(
            self.resources,
            self.jobs,
            [row for row, record in enumerate(self.pods) if record is None],
            [number for number, pod_class in enumerate(self.classes) if pod_class is None],
            remembered,
        )

    def parts(self, redaction: Redaction) -> Iterator[list[wire.Change]]:
        """All of it, a part after the other."""
        yield wire.together([class_of(pod_class) for pod_class in self.classes if pod_class is not None])
        rest: Iterator[wire.Written] = chain(
            (changes.node(record, redaction) for record in self.nodes),
            (changes.object_(kind, obj, redaction) for kind, obj in self.others),
            (
                whole_of(record, state)
                for record, state in zip(self.pods, self.states.tolist(), strict=True)
                if record is not None
            ),
        )
        while part := list(islice(rest, _PART)):
            yield wire.together(part)
        rows = {record.key: record.row for record in self.pods if record is not None}
        yield wire.together([wire.Assumed(rows[key], node) for key, node in self.assumed.items() if key in rows])
        yield wire.together([wire.Gone("PodGroup", key) for key in self.left])


def whole_of_state(state: ClusterState) -> Whole:
    """Everything that a state knows now."""
    pods = state.pods
    others: list[tuple[str, Any]] = []
    for kind, table in (
        ("PriorityClass", state.priority_classes),
        ("Queue", state.queues),
        ("HyperNode", state.hyper_nodes),
    ):
        others += ((kind, obj) for obj in table.values())
    others += (("PodGroup", group) for group in state.jobs.pod_groups if group is not None)
    others += (("PodGroup", group) for group in state.jobs.left.values())
    others += ((kind, obj) for kind, objs in state.objects.items() for obj in objs.values())
    return Whole(
        state.dimensions.names.copy(),
        state.jobs.keys,
        [each if each.id >= 0 else None for each in state.classes.classes],
        pods.records.copy(),
        pods.state[: pods.size].copy(),
        state.assumed.copy(),
        [record for row in state.nodes.order if (record := state.nodes.records[row]) is not None],
        others,
        [group.key for group in state.jobs.left.values()],
    )
