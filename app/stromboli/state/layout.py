"""The numbering of a state's rows and classes, so that another state can be built with the same numbers.

Rows and classes are numbered by what came and went before. No decision follows from the numbers, but journals identify
pods by their rows, so a state that replays one must number its rows in the same way.

`laid_out` does that with placeholders, which occupy the numbers that the layout leaves free until all objects are in
the state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from stromboli.api import objects
from stromboli.api.resources import UNKNOWN
from stromboli.state.classes import PodClass
from stromboli.state.cluster import ClusterState

#: no key of an object begins with it
_VACANT = "\0"


@dataclass(frozen=True, slots=True)
class Layout:
    """The numbers of a state."""

    #: names of the dimensions in column order
    resources: Sequence[str]
    #: key of each job by its row, empty for a free one
    jobs: Sequence[str]
    #: whether each row of pods is in use
    pods: Sequence[bool]
    #: a pod of each class by its number, None for a free one
    classes: Sequence[objects.Pod | None]


@contextmanager
def laid_out(state: ClusterState, layout: Layout) -> Iterator[None]:
    """Number an empty state by a layout while objects are put into it, pods in the order of their rows."""
    state.give_columns(layout.resources)
    _take_job_rows(state, layout)
    classes = [state.classes.acquire(pod or _of_own_class(number)) for number, pod in enumerate(layout.classes)]
    _take_free_pod_rows(state, layout)
    yield
    _give_back_free_pod_rows(state, layout)
    for pod_class in classes:
        state.classes.release(pod_class)
    _give_back_free_job_rows(state, layout)
    _drop_columns(state, layout)


def _placeholder(row: int) -> str:
    """The key of the placeholder for a row that is to be free."""
    return f"{_VACANT}{row}"


def _take_job_rows(state: ClusterState, layout: Layout) -> None:
    """Give each job its row, and placeholders the rows between them."""
    for row, key in enumerate(layout.jobs):
        state.jobs.row(key or _placeholder(row))


def _give_back_free_job_rows(state: ClusterState, layout: Layout) -> None:
    for row, key in enumerate(layout.jobs):
        if not key:
            state.jobs.delete(_placeholder(row))


def _take_free_pod_rows(state: ClusterState, layout: Layout) -> None:
    """Have only the rows free that are to be used: a new pod gets the lowest free row, which then is its own."""
    for row in range(len(layout.pods)):
        state.pods.new_row(_placeholder(row))
    for row, used in enumerate(layout.pods):
        if used:
            state.pods.release(_placeholder(row))


def _give_back_free_pod_rows(state: ClusterState, layout: Layout) -> None:
    for row, used in enumerate(layout.pods):
        if not used:
            state.pods.release(_placeholder(row))


def _drop_columns(state: ClusterState, layout: Layout) -> None:
    """Keep the columns that nodes and queues name, and the one for all other resources where the layout has it."""
    state.offer(layout.resources, ())
    if UNKNOWN in layout.resources:
        # Pods that asked for such a resource may be gone; their column stays until other columns change.
        pod_class: PodClass = state.classes.acquire(_asking_for_more())
        state.fit_columns()
        state.classes.release(pod_class)


def _of_own_class(number: int) -> objects.Pod:
    """A pod of a class that no other pod has."""
    return _pod(objects.PodSpec(node_selector={_VACANT: str(number)}))


def _asking_for_more() -> objects.Pod:
    """A pod that asks for a resource that no node has."""
    asking = objects.ResourceRequirements(requests={f"{_VACANT}/": 1})
    return _pod(objects.PodSpec(containers=[objects.Container(resources=asking)]))


def _pod(spec: objects.PodSpec) -> objects.Pod:
    return objects.Pod(metadata=objects.Metadata(name=_VACANT), spec=spec)
