"""The ledger of a session: the columns that operations change, and the plugins that are notified.

Everything that happens to pods and nodes in a session goes through `apply` and `undo`, so what plugins and actions read
in the `View` always reflects the operations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from stromboli.api.pod_state import PodState
from stromboli.api.resources import Vector
from stromboli.framework.cluster.nodes import NodeLedger
from stromboli.framework.plugin.base import Plugin
from stromboli.framework.plugin.operation import Kind, Operation
from stromboli.framework.runtime.failures import PluginLeftError
from stromboli.framework.runtime.points import Points
from stromboli.state.pods import PodRecord
from stromboli.state.snapshot import PodColumns


class Ledger:
    """Applies operations to the columns of a session, undoes them, and tells plugins of both."""

    __slots__ = ("_nodes", "_on_failure", "_pods", "_points", "_taken_by", "changes", "evicts", "left", "tried")

    def __init__(
        self,
        pods: PodColumns,
        nodes: NodeLedger,
        points: Points,
        on_failure: Callable[[BaseException, str, Plugin], None],
    ) -> None:
        """`on_failure` gets an error, the point that raised it and the plugin, and disables the plugin."""
        self._pods = pods
        self._nodes = nodes
        self._points = points
        self._on_failure = on_failure
        #: amounts that a pod takes on its node, by class
        self._taken_by: dict[int, Vector] = {}
        #: whether a pod was evicted in this session, if only to try it
        self.evicts = False
        #: whether a plugin failed since that was last raised
        self.left = False
        #: number of changes of pods' states and of notifications of plugins
        self.changes = 0
        #: the last discarded try of each pod, by row
        self.tried: dict[int, Operation] = {}

    def apply(self, operation: Operation) -> None:
        """Put an operation into effect."""
        if operation.kind is Kind.Evict:
            self.evicts = True
            self._move(operation, operation.before, PodState.Releasing)
            self._release(operation, +1)
            self.tell("on_deallocate", operation)
            return
        self._move(operation, _before(operation), _after(operation))
        _set(self._pods.node, operation.pods, operation.nodes[0] if len(operation.pods) == 1 else operation.nodes)
        self._count_on_nodes(operation, +1)
        self.tell("on_allocate", operation)

    def undo(self, operation: Operation) -> None:
        """Take back an operation that is in effect."""
        if operation.kind is Kind.Evict:
            self._move(operation, PodState.Releasing, operation.before)
            self._release(operation, -1)
            self.tell("on_allocate", operation)
            return
        self._move(operation, _after(operation), _before(operation))
        _set(self._pods.node, operation.pods, operation.origin)
        self._count_on_nodes(operation, -1)
        self.tell("on_deallocate", operation)

    def bind(self, operation: Operation) -> None:
        """Turn allocated pods into bound ones: the allocation is decided."""
        self._move(operation, PodState.Allocated, PodState.Binding)

    def settle(self, operation: Operation) -> None:
        """Show a pod that was promised another place as what it is: terminating where it was. Amounts stay."""
        self._move(operation, PodState.Pipelined, PodState.Releasing)
        _set(self._pods.node, operation.pods, operation.origin)

    def tell(self, point: str, *subject: object) -> None:
        """Notify every plugin that takes part; a failing one is disabled."""
        self.changes += 1
        for plugin, error in self._points.notify(point, *subject):
            self._on_failure(error, point, plugin)
            self.left = True

    def raise_if_left(self) -> None:
        """Raises PluginLeftError when a plugin failed since the last call."""
        left, self.left = self.left, False
        if left and not self._points.closed:
            raise PluginLeftError

    def _move(self, operation: Operation, old: PodState, new: PodState) -> None:
        self.changes += 1
        _set(self._pods.state, operation.pods, int(new))
        if operation.job is not None and operation.sub_job is not None:
            operation.job.move(operation.sub_job, old, new, operation.pods)

    def _release(self, operation: Operation, sign: int) -> None:
        if operation.nodes[0] >= 0:
            self._nodes.release(operation.nodes[0], operation.request, sign)

    def _count_on_nodes(self, operation: Operation, sign: int) -> None:
        if operation.kind is Kind.Pipeline:
            scoring = operation.pods[0].pod_class.scoring_request
            for node in operation.nodes:
                self._nodes.promise(node, operation.request, scoring, sign)
        elif len(operation.nodes) == 1:
            self._nodes.occupy(operation.nodes[0], self._taken(operation), sign)
        else:
            for node, count in Counter(operation.nodes).items():
                self._nodes.occupy(node, self._taken(operation), sign * count)

    def _taken(self, operation: Operation) -> Vector:
        """The amounts that each pod of an operation takes on its node."""
        pod_class = operation.pods[0].pod_class
        taken = self._taken_by.get(pod_class.id)
        if taken is None:
            taken = self._nodes.taken(operation.request, pod_class.scoring_request)
            self._taken_by[pod_class.id] = taken
        return taken


def _set(column: NDArray[Any], pods: Sequence[PodRecord], value: int | Sequence[int]) -> None:
    """Change the rows of some pods."""
    if len(pods) == 1:
        # A scalar takes a third of the time of a list or slice of one.
        column[pods[0].row] = value
    else:
        column[[pod.row for pod in pods]] = value


def _before(operation: Operation) -> PodState:
    """The state of pods before they get a place."""
    return PodState.Pending if operation.origin < 0 else PodState.Releasing


def _after(operation: Operation) -> PodState:
    """The state of pods once they have it."""
    return PodState.Allocated if operation.kind is Kind.Allocate else PodState.Pipelined
