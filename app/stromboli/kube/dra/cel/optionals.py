"""Optional values: `a.?b` and `a[?b]` stand for an entry if there is one, and do not fail without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stromboli.kube.dra.cel.operations import Constant
from stromboli.kube.dra.cel.run import Evaluate, Run
from stromboli.kube.dra.cel.values import CelError, Maybe, kind

NOTHING = Maybe(())


def entry(of: Evaluate, key: Evaluate) -> Evaluate:
    """`of.?key` or `of[?key]`"""

    def evaluate(run: Run) -> Maybe:
        value, at = of(run), key(run)
        run.spend(1)
        if isinstance(value, Maybe):
            if not value.some:
                return NOTHING
            value = value.some[0]
        if kind(value) == "map":
            return Maybe((value[at],)) if type(at) is str and at in value else NOTHING
        if kind(value) == "list":
            return Maybe((value[at],)) if type(at) is int and 0 <= at < len(value) else NOTHING
        raise CelError(f"{kind(value)} has no entries")

    return evaluate


def followed(of: Evaluate, step: Callable[[Evaluate], Evaluate]) -> Evaluate:
    """`of.name` or `of[key]` where `of` is optional: the step is taken if there is a value."""

    def evaluate(run: Run) -> Any:
        value = of(run)
        run.spend(1)
        if not isinstance(value, Maybe):
            return step(Constant(value))(run)
        return Maybe((step(Constant(value.some[0]))(run),)) if value.some else NOTHING

    return evaluate


def _has_value(value: Maybe, run: Run) -> bool:
    return bool(value.some)


def _value(value: Maybe, run: Run) -> Any:
    if not value.some:
        raise CelError("the optional value is missing")
    return value.some[0]


def _or_value(value: Maybe, run: Run, other: Evaluate) -> Any:
    return value.some[0] if value.some else other(run)


def _or(value: Maybe, run: Run, other: Evaluate) -> Any:
    return value if value.some else other(run)


#: each with the number of its arguments, which are evaluated if there is no value
METHODS: dict[str, tuple[int, Callable[..., Any]]] = {
    "hasValue": (0, _has_value),
    "value": (0, _value),
    "orValue": (1, _or_value),
    "or": (1, _or),
}


def method(name: str, of: Evaluate, arguments: Sequence[Evaluate]) -> Evaluate:
    """A method of an optional value. Raises CelError."""
    count, do = METHODS[name]
    if len(arguments) != count:
        raise CelError(f"{name} with {len(arguments)} arguments is not supported")

    def evaluate(run: Run) -> Any:
        value = of(run)
        run.spend(1)
        if not isinstance(value, Maybe):
            raise CelError(f"{kind(value)} is not optional")
        return do(value, run, *arguments)

    return evaluate


def made(name: str, arguments: Sequence[Evaluate]) -> Evaluate:
    """`optional.of(value)` or `optional.none()`. Raises CelError."""
    if (name, len(arguments)) not in (("of", 1), ("none", 0)):
        raise CelError(f"optional.{name} with {len(arguments)} arguments is not supported")

    def evaluate(run: Run) -> Maybe:
        run.spend(1)
        return Maybe(tuple(argument(run) for argument in arguments))

    return evaluate
