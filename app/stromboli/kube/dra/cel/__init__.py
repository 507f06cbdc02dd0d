"""Selectors of devices: CEL, as far as they are written in it, at a bounded cost.

There are literals, lists, maps, `device.driver`, `device.attributes["DOMAIN"].NAME`, `device.capacity["DOMAIN"].NAME`,
the operators `! - + * / % == != < <= > >= in && || ?:`, `has`, `cel.bind`, the macros `all exists exists_one filter
map`, and the functions of strings, lists, quantities and versions that `functions` lists. What else there is in CEL is
refused by name. Patterns are RE2's. An expression is understood once and then asked about one device after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from stromboli.kube.dra.cel.parser import parse
from stromboli.kube.dra.cel.run import Evaluate, Run, Variables
from stromboli.kube.dra.cel.values import CelError, CostError

#: characters of an expression, by the API (CELSelectorExpressionMaxLength)
_LONGEST = 10 * 1024

__all__ = ["CelError", "CostError", "Program", "Run", "Variables", "compiled"]


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """An expression that was understood."""

    text: str
    _evaluate: Evaluate

    def evaluate(self, run: Run) -> Any:
        """The value. Raises CelError when there is none, and CostError when that takes more than the run may cost."""
        try:
            return self._evaluate(run)
        except RecursionError:
            raise CelError("it is nested too deeply") from None


def compiled(text: str) -> Program:
    """Understand an expression. Raises CelError, which says what in it is not supported."""
    program = _known(text)
    if isinstance(program, CelError):
        raise program
    return program


@lru_cache(maxsize=256)
def _known(text: str) -> Program | CelError:
    # What cannot be understood is kept, too: it is asked for as often.
    if len(text) > _LONGEST:
        return CelError(f"it has {len(text)} characters, more than {_LONGEST}")
    try:
        return Program(text, parse(text))
    except CelError as error:
        return error.with_traceback(None)
