"""Errors that name what is wrong: the object, the field and the offending value."""

from __future__ import annotations


class StromboliError(Exception):
    """Base of every error that is meant to be read by a user."""


class InvalidQuantityError(StromboliError, ValueError):
    """A Kubernetes quantity that cannot be parsed."""

    def __init__(self, value: object) -> None:
        shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:57]}..."
        super().__init__(f"{shown} is not a Kubernetes quantity (such as 500m, 2, 1.5Gi or 1e3)")
        self.value = value


class InvalidObjectError(StromboliError):
    """A Kubernetes object that cannot be used; `where` names it, `path` the field."""

    def __init__(self, where: str, path: str, problem: str) -> None:
        super().__init__(f"{where}: {path}: {problem}" if path else f"{where}: {problem}")
        self.where = where
        self.path = path
        self.problem = problem


class PolicyError(StromboliError):
    """A scheduling policy that cannot be used; `problems` holds a line for each mistake."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems
