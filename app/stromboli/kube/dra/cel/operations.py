"""The nodes of compiled expressions besides functions: operators, macros and selections."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from stromboli.kube.dra.cel.functions import integer, ordered
from stromboli.kube.dra.cel.patterns import COMPILING, Pattern
from stromboli.kube.dra.cel.run import Evaluate, Run, characters
from stromboli.kube.dra.cel.values import CelError, kind, shown


class Constant:
    """A literal, which costs nothing."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self, run: Run) -> Any:
        return self.value


# -- logic -----------------------------------------------------------------------------------------------------------


def truth(value: Any) -> bool:
    """A value that must be a bool."""
    if type(value) is not bool:
        raise CelError(f"{kind(value)} is not a bool")
    return value


def negated(of: Evaluate) -> Evaluate:
    """`!`"""

    def evaluate(run: Run) -> bool:
        run.spend(1)
        return not truth(of(run))

    return evaluate


def conditional(condition: Evaluate, chosen: Evaluate, other: Evaluate) -> Evaluate:
    """`condition ? chosen : other`"""

    def evaluate(run: Run) -> Any:
        run.spend(1)
        return chosen(run) if truth(condition(run)) else other(run)

    return evaluate


def combined(terms: Sequence[Evaluate], *, decisive: bool) -> Evaluate:
    """`||` when true is decisive, else `&&`."""
    if len(terms) == 1:
        return terms[0]

    def evaluate(run: Run) -> bool:
        return _settled(run, (partial(term, run) for term in terms), decisive)

    return evaluate


def _settled(run: Run, answers: Iterable[Callable[[], Any]], decisive: bool) -> bool:
    """A decisive term takes precedence over errors in other terms."""
    failed: CelError | None = None
    for answer in answers:
        run.spend(1)
        try:
            if truth(answer()) is decisive:
                return decisive
        except CelError as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return not decisive


# -- relations -------------------------------------------------------------------------------------------------------

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}
RELATIONS = ("==", "!=", "in", *_COMPARE)


def relation(operator: str, left: Evaluate, right: Evaluate) -> Evaluate:
    """The result of a relation between two values."""
    relate: Callable[[Run, Any, Any], bool] = {"==": equal, "!=": _different, "in": _is_in}.get(
        operator, partial(_compared, operator)
    )
    return lambda run: relate(run, left(run), right(run))


def equal(run: Run, left: Any, right: Any) -> bool:
    """Whether two values are equal; values of different types are not, except for numbers."""
    if type(left) is str and type(right) is str:
        run.spend(min(len(left), len(right)) // 10 + 1)
        return left == right
    run.spend(1)
    kinds = kind(left), kind(right)
    if kinds == ("list", "list"):
        return len(left) == len(right) and all(equal(run, a, b) for a, b in zip(left, right, strict=True))
    if kinds == ("map", "map"):
        return len(left) == len(right) and all(key in right and equal(run, left[key], right[key]) for key in left)
    return bool((kinds[0] == kinds[1] or set(kinds) == {"int", "double"}) and left == right)


def _different(run: Run, left: Any, right: Any) -> bool:
    return not equal(run, left, right)


def _is_in(run: Run, value: Any, container: Any) -> bool:
    if kind(container) == "list":
        return any(equal(run, value, each) for each in container)
    if kind(container) != "map":
        raise CelError(f"in does not support {kind(container)}")
    run.spend(1)
    return kind(value) == "string" and value in container


def _compared(operator: str, run: Run, left: Any, right: Any) -> bool:
    if not ordered(left, right):
        raise CelError(f"{operator} does not compare {kind(left)} with {kind(right)}")
    run.spend(min(characters(left), characters(right)) if kind(left) == "string" else 1)
    return _COMPARE[operator](left, right)


# -- arithmetic ------------------------------------------------------------------------------------------------------


def _quotient(left: Any, right: Any) -> Any:
    if right == 0:
        if type(left) is int:
            raise CelError("division by zero")
        return math.nan if left == 0 or math.isnan(left) else math.copysign(math.inf, left) * math.copysign(1, right)
    if type(left) is float:
        return left / right
    whole = abs(left) // abs(right)
    return whole if (left < 0) == (right < 0) else -whole


def _remainder(left: Any, right: Any) -> Any:
    if right == 0:
        raise CelError("modulus by zero")
    return left - right * _quotient(left, right)


_NUMBERS = ("int", "double")
#: the operators by type
_ARITHMETIC: dict[str, tuple[Callable[[Any, Any], Any], tuple[str, ...]]] = {
    "+": (lambda left, right: left + right, (*_NUMBERS, "string", "list")),
    "-": (lambda left, right: left - right, _NUMBERS),
    "*": (lambda left, right: left * right, _NUMBERS),
    "/": (_quotient, _NUMBERS),
    "%": (_remainder, ("int",)),
}


def arithmetic(first: Evaluate, rest: Sequence[tuple[str, Evaluate]]) -> Evaluate:
    """Operators of one precedence, evaluated from the left."""

    def evaluate(run: Run) -> Any:
        value = first(run)
        for operator, operand in rest:
            value = _computed(run, operator, value, operand(run))
        return value

    return evaluate if rest else first


def _computed(run: Run, operator: str, left: Any, right: Any) -> Any:
    compute, types = _ARITHMETIC[operator]
    if kind(left) != kind(right) or kind(left) not in types:
        raise CelError(f"{operator} does not take {kind(left)} and {kind(right)}")
    match kind(left):
        case "string":
            run.spend(characters(left, right))
        case "list":
            run.spend(1 + len(left) + len(right))
        case _:
            run.spend(1)
    value = compute(left, right)
    return integer(value) if type(value) is int else value


def minus(of: Evaluate) -> Evaluate:
    """Unary `-`."""
    return lambda run: _computed(run, "*", value := of(run), -1 if type(value) is int else -1.0)


# -- patterns --------------------------------------------------------------------------------------------------------


def matches(text: Evaluate, pattern: Evaluate) -> Evaluate:
    """`matches`; a literal pattern is compiled once. Raises CelError if it is invalid."""
    if isinstance(pattern, Constant):
        known = Pattern(_text(pattern.value))
        return lambda run: _found(run, known, text(run))

    def evaluate(run: Run) -> bool:
        value, written = text(run), _text(pattern(run))
        run.spend(COMPILING + characters(written))
        return _found(run, Pattern(written), value)

    return evaluate


def _found(run: Run, pattern: Pattern, value: Any) -> bool:
    run.spend(pattern.cost(_text(value)))
    return pattern.found(value)


def _text(value: Any) -> str:
    if type(value) is not str:
        raise CelError(f"matches does not take {kind(value)}")
    return value


# -- parts and wholes ------------------------------------------------------------------------------------------------


def variable(name: str) -> Evaluate:
    """The value of a name."""

    def evaluate(run: Run) -> Any:
        run.spend(1)
        if name not in run.variables:
            raise CelError(f"undeclared reference to {name}")
        return run.variables[name]

    return evaluate


def select(of: Evaluate, name: str) -> Evaluate:
    """A field of a map."""

    def evaluate(run: Run) -> Any:
        value = of(run)
        run.spend(1)
        if kind(value) != "map":
            raise CelError(f"{kind(value)} has no field {name}")
        try:
            return value[name]
        except KeyError:
            raise CelError(f"no such key: {name}") from None

    return evaluate


def index(of: Evaluate, key: Evaluate) -> Evaluate:
    """An entry of a list or map."""

    def evaluate(run: Run) -> Any:
        value, at = of(run), key(run)
        run.spend(1)
        if kind(value) == "list" and type(at) is int and 0 <= at < len(value):
            return value[at]
        if kind(value) == "map" and type(at) is str:
            with suppress(KeyError):
                return value[at]
        raise CelError(f"no such key: {shown(at)}")

    return evaluate


def has(of: Evaluate, name: str) -> Evaluate:
    """Whether a map has a field."""

    def evaluate(run: Run) -> bool:
        value = of(run)
        run.spend(1)
        return kind(value) == "map" and name in value

    return evaluate


def listed(items: Sequence[Evaluate]) -> Evaluate:
    """A list of expressions."""
    if all(isinstance(item, Constant) for item in items):
        known = [item.value for item in items if isinstance(item, Constant)]
        return _made(lambda run: known, 10)
    return _made(lambda run: [item(run) for item in items], 10 + len(items))


def mapped(entries: Sequence[tuple[Evaluate, Evaluate]]) -> Evaluate:
    """A map with string keys."""

    def make(run: Run) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key, value in entries:
            name = key(run)
            if type(name) is not str:
                raise CelError(f"{kind(name)} as the key of a map is not supported")
            out[name] = value(run)
        return out

    return _made(make, 30 + len(entries))


def _made(make: Evaluate, cost: int) -> Evaluate:
    def evaluate(run: Run) -> Any:
        run.spend(cost)
        return make(run)

    return evaluate


# -- macros ----------------------------------------------------------------------------------------------------------


def bind(name: str, value: Evaluate, body: Evaluate) -> Evaluate:
    """`cel.bind(NAME, VALUE, EXPRESSION)`: the value of EXPRESSION with NAME bound to VALUE."""
    return lambda run: run.bound(name, value(run), body)


def _items(run: Run, of: Evaluate) -> list[Any]:
    """The elements of a list or the keys of a map."""
    value = of(run)
    if kind(value) not in ("list", "map"):
        raise CelError(f"{kind(value)} has no elements")
    run.spend(len(value))
    return list(value)


def every(of: Evaluate, name: str, body: Evaluate) -> Evaluate:
    """`all`"""
    return lambda run: _settled(run, (partial(run.bound, name, each, body) for each in _items(run, of)), False)


def exists(of: Evaluate, name: str, body: Evaluate) -> Evaluate:
    """`exists`"""
    return lambda run: _settled(run, (partial(run.bound, name, each, body) for each in _items(run, of)), True)


def exists_one(of: Evaluate, name: str, body: Evaluate) -> Evaluate:
    """`exists_one`"""
    return lambda run: sum([truth(run.bound(name, each, body)) for each in _items(run, of)]) == 1


def filtered(of: Evaluate, name: str, body: Evaluate) -> Evaluate:
    """`filter`"""
    return lambda run: [each for each in _items(run, of) if truth(run.bound(name, each, body))]


def transformed(of: Evaluate, name: str, *bodies: Evaluate) -> Evaluate:
    """`map`, over the elements that satisfy the first of two expressions if there are two."""
    chosen = filtered(of, name, bodies[0]) if len(bodies) > 1 else of
    return lambda run: [run.bound(name, each, bodies[-1]) for each in _items(run, chosen)]


#: macros by name: their nodes, and the allowed numbers of expressions
MACROS: dict[str, tuple[Callable[..., Evaluate], tuple[int, ...]]] = {
    "all": (every, (1,)),
    "exists": (exists, (1,)),
    "exists_one": (exists_one, (1,)),
    "filter": (filtered, (1,)),
    "map": (transformed, (1, 2)),
}
