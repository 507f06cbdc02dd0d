"""The evaluation of an expression, and its cost.

Costs resemble Kubernetes': 1 for a step, a tenth for each character that is read, the product of text and pattern for a
match. Operations that are free or cheap there but take time here cost more: logical operators, calls, elements of
lists, iterations of macros. Every cost is charged in advance, so that it bounds time (less than a microsecond per unit)
and memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from stromboli.kube.dra.cel.values import CostError

#: Budget for all devices of a session. Kubernetes allows 1,000,000 per device (CELSelectorExpressionMaxCost), of which
#: common selectors use 5 to 50.
MAX_COST = 250_000

#: variables by name
Variables: TypeAlias = Mapping[str, Any]


class Run:
    """The variables of an evaluation, and its remaining budget."""

    __slots__ = ("left", "variables")

    def __init__(self, variables: Variables, most: int) -> None:
        self.variables = variables
        self.left = most

    def spend(self, cost: int) -> None:
        """Charge for a step. Raises CostError."""
        self.left -= cost
        if self.left < 0:
            raise CostError("it exceeds the cost limit")

    def bound(self, name: str, value: Any, body: Evaluate) -> Any:
        """The value of an expression with a variable bound."""
        self.spend(1)
        outer = self.variables
        self.variables = {**outer, name: value}
        try:
            return body(self)
        finally:
            self.variables = outer


#: a compiled expression; raises CelError if it has no value, and CostError
Evaluate: TypeAlias = Callable[[Run], Any]


def characters(*texts: str) -> int:
    """The cost of reading texts."""
    return sum(map(len, texts)) // 10 + 1
