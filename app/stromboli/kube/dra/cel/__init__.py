"""CEL device selectors, in a subset of the language and with bounded cost.

Supported are literals, lists, maps, `device.driver`, `device.attributes["DOMAIN"].NAME`,
`device.capacity["DOMAIN"].NAME`, the operators `! - + * / % == != < <= > >= in && || ?:`, `has`, `cel.bind`, the macros
`all exists exists_one filter map`, and the functions of strings, lists, quantities and versions in `functions`.
Everything else is rejected by name. Patterns have RE2's syntax. An expression is compiled once and then evaluated for
one device after another.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from stromboli.kube.dra.cel.parser import parse
from stromboli.kube.dra.cel.run import Evaluate, Run, Variables
from stromboli.kube.dra.cel.values import CelError, CostError

#: the API's limit on the length of an expression (CELSelectorExpressionMaxLength)
_LONGEST = 10 * 1024

__all__ = ["CelError", "CostError", "Program", "Run", "Variables", "compiled"]


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A compiled expression."""

    text: str
    _evaluate: Evaluate

    def evaluate(self, run: Run) -> Any:
        """The value. Raises CelError if there is none, and CostError if the evaluation exceeds the run's budget."""
        try:
            return self._evaluate(run)
        except RecursionError:
            raise CelError("it is nested too deeply") from None


def compiled(text: str) -> Program:
    """Compile an expression. Raises CelError, which names the unsupported part."""
    program = _known(text)
    if isinstance(program, CelError):
        raise program
    return program


@lru_cache(maxsize=256)
def _known(text: str) -> Program | CelError:
    # Errors are cached too: invalid expressions are compiled as often as valid ones.
    if len(text) > _LONGEST:
        return CelError(f"it has {len(text)} characters, more than {_LONGEST}")
    try:
        return Program(text, parse(text))
    except CelError as error:
        return error.with_traceback(None)
