"""Regular expressions as RE2 matches them: in time that is linear in the text, by programs of bounded size."""

from __future__ import annotations

from stromboli.api import patterns
from stromboli.kube.dra.cel.run import characters
from stromboli.kube.dra.cel.values import CelError

#: what it costs to compile a pattern that was not written down but computed
COMPILING = 40_000


class Pattern:
    """A pattern that was compiled. Raises CelError when it is not valid or too large."""

    __slots__ = ("_regexp", "_step")

    def __init__(self, text: str) -> None:
        try:
            self._regexp = patterns.compiled(text)
        except ValueError as error:
            raise CelError(str(error)) from None
        # Kubernetes takes every four characters for an instruction, and does not see what {1000} makes of them.
        self._step: int = max(-(-len(text) // 4), self._regexp.programsize)

    def cost(self, text: str) -> int:
        """What it costs to look for it."""
        return characters(text) * self._step

    def found(self, text: str) -> bool:
        """Whether any part of a text matches."""
        return self._regexp.search(text) is not None
