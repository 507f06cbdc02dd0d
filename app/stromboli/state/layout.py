"""How a state numbers what it knows, to be taken down and made again elsewhere.

Numbers of rows and classes follow from a long history. No decision is made by them; but whoever wants to see the very
same state again, number by number, lays it out before filling it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stromboli.api import objects

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


def vacant(row: int) -> str:
    """The key of what holds a row that is to be free."""
    return f"{_VACANT}{row}"


def stand_in(number: int) -> objects.Pod:
    """A pod of a class that nobody else has."""
    return _pod(objects.PodSpec(node_selector={_VACANT: str(number)}))


def asking_for_more() -> objects.Pod:
    """A pod that asks for what nobody offers."""
    asking = objects.ResourceRequirements(requests={f"{_VACANT}/": 1})
    return _pod(objects.PodSpec(containers=[objects.Container(resources=asking)]))


def _pod(spec: objects.PodSpec) -> objects.Pod:
    return objects.Pod(metadata=objects.Metadata(name=_VACANT), spec=spec)
