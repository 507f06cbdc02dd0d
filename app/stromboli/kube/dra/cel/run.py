"""One evaluation of an expression, and what it costs.

Costs are counted much as Kubernetes counts them: 1 for a step, a tenth for each character that is looked at, the
product of text and pattern for a match. What is free or cheap there and takes time here costs more: logical operators,
calls, elements of lists, turns of macros. All is paid for before it is done, so that the cost bounds time (less than a
microsecond for 1) and memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from stromboli.kube.dra.cel.values import CostError

#: What an expression may cost for all devices of a session together. Kubernetes gives it 1,000,000 for each device
#: (CELSelectorExpressionMaxCost), of which those in use cost 5 to 50.
MAX_COST = 250_000

#: variables by name
Variables: TypeAlias = Mapping[str, Any]


class Run:
    """The variables of an evaluation, and what it may still cost."""

    __slots__ = ("left", "variables")

    def __init__(self, variables: Variables, most: int) -> None:
        self.variables = variables
        self.left = most

    def spend(self, cost: int) -> None:
        """Pay for a step. Raises CostError."""
        self.left -= cost
        if self.left < 0:
            raise CostError("it costs too much")

    def bound(self, name: str, value: Any, body: Evaluate) -> Any:
        """What an expression is while a name stands for a value."""
        self.spend(1)
        outer = self.variables
        self.variables = {**outer, name: value}
        try:
            return body(self)
        finally:
            self.variables = outer


#: an expression that was understood; raises CelError when it has no answer and CostError
Evaluate: TypeAlias = Callable[[Run], Any]


def characters(*texts: str) -> int:
    """What it costs to look at texts."""
    return sum(map(len, texts)) // 10 + 1
