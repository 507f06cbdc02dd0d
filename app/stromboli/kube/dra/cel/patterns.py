"""Regular expressions in RE2: matching takes time linear in the text, and programs have bounded size."""

from __future__ import annotations

from stromboli.api import patterns
from stromboli.kube.dra.cel.run import characters
from stromboli.kube.dra.cel.values import CelError

#: cost of compiling a pattern that is not a literal
COMPILING = 40_000


class Pattern:
    """A compiled pattern. Raises CelError if it is invalid or too large."""

    __slots__ = ("_regexp", "_step")

    def __init__(self, text: str) -> None:
        try:
            self._regexp = patterns.compiled(text)
        except ValueError as error:
            raise CelError(str(error)) from None
        # Kubernetes estimates one instruction per four characters, and ignores repetitions such as {1000}.
        self._step: int = max(-(-len(text) // 4), self._regexp.programsize)

    def cost(self, text: str) -> int:
        """The cost of matching a text."""
        return characters(text) * self._step

    def found(self, text: str) -> bool:
        """Whether any part of a text matches."""
        return self._regexp.search(text) is not None
