"""Why nothing can be scheduled in a queue of a tree."""

from __future__ import annotations

from collections.abc import Mapping

from stromboli.api.reasons import Actionable, Reason, Stage
from stromboli.framework.job import Queue

ROOT = "root"
#: whoever walks down a tree calls itself for each level
MOST_LEVELS = 64


def not_a_leaf(queue: Queue) -> Reason:
    """Jobs run in leaves only."""
    return Reason(
        Stage.Admission,
        "QueueNotALeaf",
        f"queue {queue.name} has child queues; jobs run in queues without children",
        Actionable.User,
    )


def no_root() -> Reason:
    """A tree needs its root."""
    return _misconfigured("there is no queue root")


def unknown_parent(queue: Queue) -> Reason:
    """It names a parent that is not there."""
    return _misconfigured(f"the parent of queue {queue.name}, {queue.parent}, does not exist")


def cycle(queue: Queue) -> Reason:
    """Following the parents leads back to it."""
    return _misconfigured(f"queue {queue.name} is its own ancestor")


def too_deep(queue: Queue) -> Reason:
    """There are more queues above it than anybody means to have."""
    return _misconfigured(f"queue {queue.name} has more than {MOST_LEVELS} queues above it")


def detached(queue: Queue, queues: Mapping[str, Queue]) -> Reason | None:
    """Why a queue's parents do not lead to the root. Of a circle that is too large it is said that it is too deep."""
    seen, at = {queue.name}, queue
    while at.parent not in ("", ROOT):
        above = queues.get(at.parent)
        if above is None:
            return unknown_parent(at)
        if above.name in seen:
            return cycle(queue if above is queue else at)
        if len(seen) >= MOST_LEVELS:
            return too_deep(queue)
        seen.add(above.name)
        at = above
    return None


def misconfigured(queue: Queue, problem: str) -> Reason:
    """It says something of its share that cannot be read."""
    return _misconfigured(f"queue {queue.name}: {problem}")


def _misconfigured(message: str) -> Reason:
    return Reason(Stage.Admission, "QueueMisconfigured", message, Actionable.Admin)
