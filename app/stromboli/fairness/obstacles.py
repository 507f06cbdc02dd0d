"""Why nothing can be scheduled in a queue of a tree."""

from __future__ import annotations

from stromboli.api.reasons import Actionable, Reason, Stage
from stromboli.framework.job import Queue


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
    return Reason(Stage.Admission, "QueueMisconfigured", "there is no queue root", Actionable.Admin)


def unknown_parent(queue: Queue) -> Reason:
    """It names a parent that is not there."""
    return Reason(
        Stage.Admission,
        "QueueMisconfigured",
        f"the parent of queue {queue.name}, {queue.parent}, does not exist",
        Actionable.Admin,
    )


def cycle(queue: Queue) -> Reason:
    """Following the parents leads back to it."""
    return Reason(Stage.Admission, "QueueMisconfigured", f"queue {queue.name} is its own ancestor", Actionable.Admin)


def misconfigured(queue: Queue, problem: str) -> Reason:
    """It says something of its share that cannot be read."""
    return Reason(Stage.Admission, "QueueMisconfigured", f"queue {queue.name}: {problem}", Actionable.Admin)
