"""The states of queues: as Volcano's Commands ask for, and as follows from the queues above.

A queue that is closed with its parent has the annotation of Volcano's controller and reopens with the parent; a queue
that was closed itself stays closed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stromboli.api.crds import CLOSED_BY_PARENT, SCHEDULING, Queue, QueueState

#: the API group of Commands
BUS = "bus.volcano.sh"
#: the target state of each action of a Command
ACTIONS = {"OpenQueue": QueueState.Open, "CloseQueue": QueueState.Closing}
_CLOSED = frozenset((QueueState.Closed, QueueState.Closing))
_ROOT = "root"


def is_closed(queue: Queue) -> bool:
    """Whether a queue was closed by a user, rather than with its parent."""
    return queue.status.state in _CLOSED


def is_as(queue: Queue, state: str) -> bool:
    """Whether a queue has the wanted state already."""
    return bool(queue.status.state) and is_closed(queue) == (state == QueueState.Closing)


def next_state(state: str, pod_groups: int) -> str:
    """The state that follows: a new queue is Open, and a Closing queue without PodGroups is Closed."""
    if not state:
        return QueueState.Open
    if state == QueueState.Closing and pod_groups == 0:
        return QueueState.Closed
    return state


def with_parents(queues: Mapping[str, Queue], queue: Queue) -> str:
    """The state that a queue gets from its ancestors; empty if it needs no change."""
    above = closed_above(queues, queue)
    closed = is_closed(queue)
    if above and not closed:
        return QueueState.Closing
    if not above and closed and queue.closed_by_parent:
        return QueueState.Open
    return ""


def closed_above(queues: Mapping[str, Queue], queue: Queue) -> str:
    """The name of the nearest closed ancestor, empty if there is none."""
    seen, name = {queue.key}, queue.spec.parent
    while name and name != _ROOT and name not in seen:
        seen.add(name)
        above = queues.get(name)
        if above is None:
            return ""
        if is_closed(above):
            return name
        name = above.spec.parent
    return ""


def refusal(queues: Mapping[str, Queue], queue: Queue, state: str) -> str:
    """Why a queue cannot be opened or closed; empty if it can."""
    if state == QueueState.Closing:
        return "the root queue cannot be closed" if queue.key == _ROOT else ""
    above = closed_above(queues, queue)
    return f"its ancestor, queue {above}, is closed" if above else ""


def commanded(command: Mapping[str, Any]) -> tuple[str, str] | None:
    """The target queue of a Command and the state to set, empty for an unknown action.

    None for a Command that targets something else.
    """
    target = command.get("target")
    if not isinstance(target, Mapping) or (target.get("apiVersion"), target.get("kind")) != (SCHEDULING, "Queue"):
        return None
    return str(target.get("name")), ACTIONS.get(str(command.get("action")), "")


def obeyed(queues: Mapping[str, Queue], commands: Iterable[Mapping[str, Any]]) -> dict[str, Queue]:
    """The queues after Commands were carried out one by one, including the effects on descendant queues."""
    found = dict(queues)
    for name, state in filter(None, map(commanded, commands)):
        queue = found.get(name)
        if queue is not None and state and not refusal(found, queue, state):
            found[name] = _as(queue, state, by_parent=False)
            for each in list(found.values()):
                found[each.key] = _as(each, with_parents(found, each), by_parent=True)
    return found


def _as(queue: Queue, state: str, *, by_parent: bool) -> Queue:
    """A queue in a state; as it is for none."""
    if not state or is_as(queue, state):
        return queue
    marked = str(by_parent and state == QueueState.Closing).lower()
    metadata = queue.metadata.model_copy(
        update={"annotations": {**queue.metadata.annotations, CLOSED_BY_PARENT: marked}}
    )
    status = queue.status.model_copy(update={"state": QueueState(state)})
    return queue.model_copy(update={"metadata": metadata, "status": status})
