"""Errors that name the object, the field and the invalid value."""

from __future__ import annotations

import os
import re

import msgspec

from stromboli.api.validation import shown

#: amounts of memory as they are written elsewhere; longer texts are none
_UNIT = re.compile(r"(?P<number>[0-9]+(\.[0-9]+)?) ?(?P<unit>[kmgtpe])i?b?", re.IGNORECASE)
_LONGEST = 30


class StromboliError(Exception):
    """Base of every error that is meant to be read by a user."""


def in_words(error: object) -> str:
    """An error in words, never empty; one of a connection without those of the HTTP library, such as `ssl:default`."""
    cause = getattr(error, "os_error", None)
    if isinstance(cause, OSError) and cause.errno:
        # Negative numbers come from name resolution, and the system has no messages for them.
        return os.strerror(cause.errno) if cause.errno > 0 else str(cause.strerror)
    return str(error) or repr(error)


class InvalidQuantityError(StromboliError, ValueError):
    """A Kubernetes quantity that cannot be parsed."""

    def __init__(self, value: object) -> None:
        self.value = value
        #: the quantity that may have been meant by another way to write units, empty for none
        self.meant = _meant(value)
        meant = f", did you mean {self.meant}?" if self.meant else ""
        super().__init__(f"{shown(value)} is not a Kubernetes quantity (such as 500m, 2, 1.5Gi or 1e3){meant}")


def _meant(value: object) -> str:
    """`10Gi` for 10GB, 10 gb, 10GiB and 10g."""
    written = _UNIT.fullmatch(value[:_LONGEST]) if isinstance(value, str) else None
    return f"{written['number']}{written['unit'].upper()}i" if written else ""


class DocumentError(StromboliError, ValueError):
    """A text that is not valid YAML or JSON, or exceeds a limit; `line` and `column` count from 1, 0 if unknown."""

    def __init__(self, problem: str, line: int = 0, column: int = 0) -> None:
        super().__init__(f"line {line}, column {column}: {problem}" if line else problem)
        self.line = line
        self.column = column


class InvalidObjectError(StromboliError):
    """A Kubernetes object that cannot be used; `where` names it, `path` the field."""

    def __init__(self, where: str, path: str, problem: str) -> None:
        super().__init__(f"{where}: {path}: {problem}" if path else f"{where}: {problem}")
        self.where = where
        self.path = path
        self.problem = problem


class MistakesError(StromboliError):
    """A text that cannot be used; `problems` has one line per error."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class PolicyError(MistakesError):
    """A scheduling policy that cannot be used."""


def misfit(error: msgspec.ValidationError, where: str) -> InvalidObjectError:
    """The error of msgspec for a value that does not decode as a struct."""
    problem, _, path = str(error).partition(" - at `$.")
    return InvalidObjectError(where, path.rstrip("`"), problem)
