"""Problems of a queue's place in the tree that keep its jobs from being scheduled."""

from __future__ import annotations

from collections.abc import Mapping

from stromboli.api.crds import Condition
from stromboli.api.reasons import Actionable, Reason, Stage
from stromboli.framework.cluster.job import Queue
from stromboli.framework.plugin.report import Report

ROOT = "root"
_MISCONFIGURED = "QueueMisconfigured"
#: limit on the depth of a tree, which is traversed recursively
MOST_LEVELS = 64


def not_a_leaf(queue: Queue) -> Reason:
    """Only leaves can run jobs."""
    return Reason(
        Stage.Admission,
        "QueueNotALeaf",
        f"queue {queue.name} has child queues; jobs run in queues without children",
        Actionable.User,
    )


def no_root() -> Reason:
    """The root queue is missing."""
    return _misconfigured("there is no queue root")


def unknown_parent(queue: Queue) -> Reason:
    """Its parent does not exist."""
    return _misconfigured(f"the parent of queue {queue.name}, {queue.parent}, does not exist")


def cycle(queue: Queue) -> Reason:
    """Its parents form a circle."""
    return _misconfigured(f"queue {queue.name} is its own ancestor")


def too_deep(queue: Queue) -> Reason:
    """A queue that is too deep in the tree."""
    return _misconfigured(f"queue {queue.name} has more than {MOST_LEVELS} queues above it")


def detached(queue: Queue, queues: Mapping[str, Queue]) -> Reason | None:
    """Why a queue's ancestors do not lead to the root. A circle beyond the depth limit is reported as too deep."""
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
    """Its share cannot be read."""
    return _misconfigured(f"queue {queue.name}: {problem}")


def report_misconfigured(report: Report, queue: Queue, why: Reason | None) -> None:
    """Tell a queue why nothing can be scheduled in it, where its spec or those of its ancestors are the cause."""
    if why is not None and why.reason == _MISCONFIGURED:
        said = Condition(type="Misconfigured", status="True", reason=why.reason, message=why.message)
        report.queue_condition(queue.name, said)


def _misconfigured(message: str) -> Reason:
    return Reason(Stage.Admission, _MISCONFIGURED, message, Actionable.Admin)
