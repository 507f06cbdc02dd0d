"""Errors that name the object, the field and the invalid value."""

from __future__ import annotations

import msgspec

from stromboli.api.validation import shown


class StromboliError(Exception):
    """Base of every error that is meant to be read by a user."""


class InvalidQuantityError(StromboliError, ValueError):
    """A Kubernetes quantity that cannot be parsed."""

    def __init__(self, value: object) -> None:
        super().__init__(f"{shown(value)} is not a Kubernetes quantity (such as 500m, 2, 1.5Gi or 1e3)")
        self.value = value


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
