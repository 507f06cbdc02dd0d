"""What expressions of selectors are made of: values, functions and operators, each a function of the variables."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sized
from fractions import Fraction
from functools import total_ordering
from typing import Any, TypeAlias

from stromboli.api import quantity
from stromboli.api.errors import InvalidQuantityError, StromboliError

#: variables by name
Variables: TypeAlias = Mapping[str, Any]
#: an expression that was understood
Evaluate: TypeAlias = Callable[[Variables], Any]

#: how much may be left open in a pattern: matching takes polynomial time of the first degree times 2 to the second
_REPETITIONS, _ALTERNATIVES = 3, 8
#: characters of a version (as the API has it) or a pattern
_LONGEST = 64
#: what makes matching slower still: repeated groups, looking around, referring back
_TOO_COSTLY = re.compile(r"\)[*+?{]|\(\?[=!<P]")


class CelError(StromboliError):
    """An expression that cannot be understood, or has no answer for a device."""


@total_ordering
class Quantity:
    """A Kubernetes quantity."""

    __slots__ = ("value",)

    def __init__(self, value: Fraction) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.value == other.value

    def __lt__(self, other: Quantity) -> bool:
        return self.value < other.value

    def __hash__(self) -> int:
        return hash(self.value)


@total_ordering
class Version:
    """A semantic version, 2.0.0; what follows a `+` does not count."""

    __slots__ = ("_key",)
    _PATTERN = re.compile(r"([0-9]+)\.([0-9]+)\.([0-9]+)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")

    def __init__(self, text: str) -> None:
        match = self._PATTERN.fullmatch(text)
        if match is None or len(text) > _LONGEST:
            raise CelError(f"{text[:_LONGEST]!r} is not a semantic version")
        before = [(not part.isdigit(), int(part) if part.isdigit() else part) for part in (match[4] or "").split(".")]
        # A version comes after all that lead up to it.
        self._key = (int(match[1]), int(match[2]), int(match[3]), match[4] is None, before)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._key == other._key

    def __lt__(self, other: Version) -> bool:
        return self._key < other._key

    def __hash__(self) -> int:
        return hash(self._key[:4])


class Domains(dict[str, Mapping[str, Any]]):
    """Attributes by domain. A domain that a device does not use is empty."""

    def __missing__(self, domain: str) -> Mapping[str, Any]:
        return {}


# -- functions -------------------------------------------------------------------------------------------------------


def _quantity(text: str) -> Quantity:
    try:
        return Quantity(quantity.parse(text))
    except InvalidQuantityError as error:
        raise CelError(str(error)) from None


def _is_quantity(text: str) -> bool:
    try:
        quantity.parse(text)
    except InvalidQuantityError:
        return False
    return True


def _matches(text: str, pattern: str) -> bool:
    bare = re.sub(r"\\\D|\[[^\]]*\]", "x", pattern)
    repetitions, alternatives = sum(map(bare.count, "*+{")), sum(map(bare.count, "?|"))
    open_ended = repetitions > _REPETITIONS or alternatives > _ALTERNATIVES or len(pattern) > _LONGEST
    if open_ended or _TOO_COSTLY.search(bare) or "\\" in bare:
        raise CelError(f"the pattern {pattern!r} is not supported: it may take too long")
    try:
        return re.search(pattern, text) is not None
    except (re.error, OverflowError) as error:
        raise CelError(f"the pattern {pattern!r} is not valid: {error}") from None


def _compare(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def _size(value: Sized) -> int:
    return len(value)


_ORDERED = (Quantity, Version)
#: functions by name: the types of their arguments, what they do
GLOBALS: dict[str, tuple[tuple[Any, ...], Callable[..., Any]]] = {
    "quantity": ((str,), _quantity),
    "isQuantity": ((str,), _is_quantity),
    "semver": ((str,), Version),
    "size": (((str, list, dict),), _size),
    "string": ((str,), str),
}
#: the same for methods; the first argument is what they are called on
METHODS: dict[str, tuple[tuple[Any, ...], Callable[..., Any]]] = {
    "compareTo": ((_ORDERED, _ORDERED), _compare),
    "isGreaterThan": ((_ORDERED, _ORDERED), lambda left, right: left > right),
    "isLessThan": ((_ORDERED, _ORDERED), lambda left, right: left < right),
    "startsWith": ((str, str), str.startswith),
    "endsWith": ((str, str), str.endswith),
    "contains": ((str, str), str.__contains__),
    "matches": ((str, str), _matches),
    "lowerAscii": ((str,), str.lower),
    "upperAscii": ((str,), str.upper),
    "size": (((str, list, dict),), _size),
}


def call(name: str, types: tuple[Any, ...], function: Callable[..., Any], arguments: list[Evaluate]) -> Evaluate:
    """A function or method of these arguments, whose number and types are checked. Raises CelError."""
    if len(arguments) != len(types):
        raise CelError(f"{name} with {len(arguments)} arguments is not supported")

    def evaluate(variables: Variables) -> Any:
        values = [argument(variables) for argument in arguments]
        fits = all(isinstance(value, kind) for value, kind in zip(values, types, strict=True))
        if not fits or (types[0] is _ORDERED and len({type(value) for value in values}) > 1):
            raise CelError(f"{name} does not take {', '.join(map(_type, values))}")
        return function(*values)

    return evaluate


# -- operators -------------------------------------------------------------------------------------------------------


def _type(value: Any) -> str:
    names = {bool: "bool", int: "int", float: "double", str: "string", type(None): "null", list: "list"}
    return names.get(type(value), "map" if isinstance(value, dict) else type(value).__name__.lower())


def _equal(left: Any, right: Any) -> bool:
    # For Python true is 1; for CEL it is not.
    return bool(isinstance(left, bool) == isinstance(right, bool) and left == right)


def _ordered(left: Any, right: Any) -> bool:
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (left, right))
    return numbers or (type(left) is type(right) and isinstance(left, str | Quantity | Version))


def _member(value: Any, container: Any) -> bool:
    if isinstance(container, list):
        return any(_equal(value, each) for each in container)
    if isinstance(container, dict):
        return isinstance(value, str) and value in container
    raise CelError(f"in does not look into {_type(container)}")


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}
RELATIONS = ("==", "!=", "in", *_COMPARE)


def relation(operator: str, left: Evaluate, right: Evaluate) -> Evaluate:
    """The answer of a relation between two values."""
    if operator == "==":
        return lambda variables: _equal(left(variables), right(variables))
    if operator == "!=":
        return lambda variables: not _equal(left(variables), right(variables))
    if operator == "in":
        return lambda variables: _member(left(variables), right(variables))
    compare = _COMPARE[operator]

    def evaluate(variables: Variables) -> bool:
        a, b = left(variables), right(variables)
        if not _ordered(a, b):
            raise CelError(f"{operator} does not compare {_type(a)} with {_type(b)}")
        return compare(a, b)

    return evaluate


def truth(value: Any) -> bool:
    """A value that must be true or false."""
    if not isinstance(value, bool):
        raise CelError(f"{_type(value)} is neither true nor false")
    return value


def combined(terms: list[Evaluate], decisive: bool) -> Evaluate:
    """`||` when true is decisive, else `&&`. What decides outweighs errors in the other terms."""

    def evaluate(variables: Variables) -> bool:
        failed: CelError | None = None
        for term in terms:
            try:
                if truth(term(variables)) is decisive:
                    return decisive
            except CelError as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return not decisive

    return terms[0] if len(terms) == 1 else evaluate


def select(of: Evaluate, name: str) -> Evaluate:
    """A field of a map."""

    def evaluate(variables: Variables) -> Any:
        value = of(variables)
        if not isinstance(value, dict):
            raise CelError(f"{_type(value)} has no field {name}")
        if name not in value:
            raise CelError(f"no such key: {name}")
        return value[name]

    return evaluate


def index(of: Evaluate, key: Evaluate) -> Evaluate:
    """An entry of a list or map."""

    def evaluate(variables: Variables) -> Any:
        value, at = of(variables), key(variables)
        if isinstance(value, list) and type(at) is int and 0 <= at < len(value):
            return value[at]
        if isinstance(value, dict) and isinstance(at, str) and (at in value or isinstance(value, Domains)):
            return value[at]
        raise CelError(f"no such key: {at}")

    return evaluate


def has(of: Evaluate, name: str) -> Evaluate:
    """Whether a map has a field."""

    def evaluate(variables: Variables) -> bool:
        value = of(variables)
        return isinstance(value, dict) and name in value

    return evaluate


def listed(items: list[Evaluate]) -> Evaluate:
    """A list of values that are no lists themselves: comparing takes no longer than writing them down."""

    def evaluate(variables: Variables) -> list[Any]:
        values = [item(variables) for item in items]
        if any(isinstance(value, list | dict) for value in values):
            raise CelError("lists of lists or maps are not supported")
        return values

    return evaluate
