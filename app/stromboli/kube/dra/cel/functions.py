"""The functions and methods of expressions: their types, costs and implementations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from stromboli.api import quantity
from stromboli.api.errors import InvalidQuantityError
from stromboli.kube.dra.cel.run import Evaluate, Run, characters
from stromboli.kube.dra.cel.values import CelError, Quantity, Version, kind, shown

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
#: cost of a call beyond that of its implementation
_CALL = 2
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_DOUBLE = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
_TO_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_TO_UPPER = {lower: upper for upper, lower in _TO_LOWER.items()}


class Function(NamedTuple):
    """A function for some argument types; a method's first argument is its receiver."""

    #: type names as `kind` returns them, separated by blanks
    types: str
    do: Callable[..., Any]
    #: computed from the arguments
    cost: Callable[..., int] = lambda *_: 1


def call(name: str, overloads: Iterable[Function], arguments: list[Evaluate]) -> Evaluate:
    """Call the overload for the types of the arguments. Raises CelError."""
    by_types = {each.types: each for each in overloads if len(each.types.split()) == len(arguments)}
    if not by_types:
        raise CelError(f"{name} with {len(arguments)} arguments is not supported")

    def evaluate(run: Run) -> Any:
        values = [argument(run) for argument in arguments]
        types = " ".join(map(kind, values))
        function = by_types.get(types)
        if function is None:
            raise CelError(f"{name} does not take {types.replace(' ', ', ')}")
        run.spend(_CALL + function.cost(*values))
        return function.do(*values)

    return evaluate


# -- conversions -----------------------------------------------------------------------------------------------------


def integer(value: int) -> int:
    """A 64-bit integer. Raises CelError."""
    if INT_MIN <= value <= INT_MAX:
        return value
    raise CelError("integer overflow")


def _integer_of(value: str | float) -> int:
    if isinstance(value, str):
        if not _INTEGER.fullmatch(value):
            raise CelError(f"{shown(value)} is not an integer")
    elif not INT_MIN <= value <= INT_MAX:
        raise CelError("integer overflow")
    return integer(int(value))


def _double_of(value: str) -> float:
    if len(value) > 64 or not _DOUBLE.fullmatch(value):
        raise CelError(f"{shown(value)} is not a number")
    return float(value)


def _read(text: str) -> int:
    """The cost of parsing a text as a number, a quantity or a version."""
    return 5 + characters(text)


def _quantity(text: str) -> Quantity:
    try:
        return Quantity(quantity.parse(text))
    except InvalidQuantityError as error:
        raise CelError(str(error)) from None


def _is(make: Callable[[Any], Any]) -> Callable[[Any], bool]:
    def test(value: Any) -> bool:
        try:
            make(value)
        except CelError:
            return False
        return True

    return test


def _whole(value: Quantity) -> int:
    if value.value.denominator != 1:
        raise CelError("the quantity is not an integer")
    return integer(value.value.numerator)


def _sum(value: Quantity, other: Quantity | int) -> Quantity:
    return Quantity(value.value + (other.value if isinstance(other, Quantity) else other))


def _difference(value: Quantity, other: Quantity | int) -> Quantity:
    return Quantity(value.value - (other.value if isinstance(other, Quantity) else other))


# -- texts and lists -------------------------------------------------------------------------------------------------


def _substring(text: str, start: int, end: int | None = None) -> str:
    end = len(text) if end is None else end
    if not 0 <= start <= end <= len(text):
        raise CelError("index out of range")
    return text[start:end]


def _replaced(text: str, old: str, new: str) -> int:
    return characters(text) + text.count(old) * characters(new)


def _texts(values: list[Any]) -> list[str]:
    if not all(type(value) is str for value in values):
        raise CelError("join takes a list of strings")
    return values


def _joined(values: list[Any], separator: str = "") -> int:
    return characters(*_texts(values)) + len(values) * characters(separator)


def _in_order(values: list[Any]) -> Iterator[tuple[Any, Any]]:
    for left, right in pairwise(values):
        if not ordered(left, right):
            raise CelError(f"{kind(left)} and {kind(right)} cannot be compared")
        yield left, right


def _extreme(choose: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    def extreme(values: list[Any]) -> Any:
        if not values:
            raise CelError("the list is empty")
        list(_in_order(values))
        return choose(values)

    return extreme


def _total(values: list[Any]) -> int | float:
    if {kind(value) for value in values} not in ({"int"}, {"double"}, set()):
        raise CelError("sum takes a list of numbers of one type")
    total = sum(values)
    return integer(total) if type(total) is int else total


def _length(values: list[Any]) -> int:
    # Comparing strings costs by their length.
    return len(values) + sum(characters(value) for value in values if type(value) is str)


def ordered(left: Any, right: Any) -> bool:
    """Whether two values can be compared with `<`."""
    kinds = {kind(left), kind(right)}
    return kinds <= {"int", "double"} or (len(kinds) == 1 and kinds <= {"string", "quantity", "semver", "bool"})


def _compare(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


# -- the tables ------------------------------------------------------------------------------------------------------

_SIZE = tuple(Function(of, len) for of in ("string", "list", "map"))
_ORDERED = ("quantity quantity", "semver semver")

GLOBALS: dict[str, tuple[Function, ...]] = {
    "quantity": (Function("string", _quantity, _read),),
    "isQuantity": (Function("string", _is(_quantity), _read),),
    "semver": (Function("string", Version, _read),),
    "isSemver": (Function("string", _is(Version), _read),),
    "size": _SIZE,
    "int": (
        Function("int", int),
        Function("double", _integer_of),
        Function("string", _integer_of, _read),
    ),
    "double": (
        Function("double", float),
        Function("int", float),
        Function("string", _double_of, _read),
    ),
    "string": (
        Function("string", str),
        Function("int", str),
        Function("double", lambda value: f"{value:g}"),
        Function("bool", lambda value: str(value).lower()),
    ),
}
METHODS: dict[str, tuple[Function, ...]] = {
    "compareTo": tuple(Function(of, _compare) for of in _ORDERED),
    "isGreaterThan": tuple(Function(of, lambda left, right: left > right) for of in _ORDERED),
    "isLessThan": tuple(Function(of, lambda left, right: left < right) for of in _ORDERED),
    "sign": (Function("quantity", lambda value: _compare(value.value, 0)),),
    "isInteger": (Function("quantity", _is(_whole)),),
    "asInteger": (Function("quantity", _whole),),
    "asApproximateFloat": (Function("quantity", lambda value: float(value.value)),),
    "add": (Function("quantity quantity", _sum), Function("quantity int", _sum)),
    "sub": (Function("quantity quantity", _difference), Function("quantity int", _difference)),
    "major": (Function("semver", lambda value: value.release[0]),),
    "minor": (Function("semver", lambda value: value.release[1]),),
    "patch": (Function("semver", lambda value: value.release[2]),),
    "startsWith": (Function("string string", str.startswith, characters),),
    "endsWith": (Function("string string", str.endswith, characters),),
    "contains": (Function("string string", str.__contains__, lambda text, part: characters(text) * characters(part)),),
    "lowerAscii": (Function("string", lambda text: text.translate(_TO_LOWER), characters),),
    "upperAscii": (Function("string", lambda text: text.translate(_TO_UPPER), characters),),
    "trim": (Function("string", str.strip, characters),),
    "charAt": (Function("string int", lambda text, at: _substring(text, at, min(at + 1, len(text)))),),
    "substring": (
        Function("string int", _substring, lambda text, *_: characters(text)),
        Function("string int int", _substring, lambda text, *_: characters(text)),
    ),
    "replace": (Function("string string string", str.replace, _replaced),),
    "split": (
        Function(
            "string string",
            lambda text, by: text.split(by) if by else list(text),
            lambda text, by: len(text) + characters(text),
        ),
    ),
    "join": (
        Function("list", lambda values: "".join(values), _joined),
        Function("list string", lambda values, by: by.join(values), _joined),
    ),
    "indexOf": (Function("string string", str.find, lambda text, part: characters(text) * characters(part)),),
    "lastIndexOf": (Function("string string", str.rfind, lambda text, part: characters(text) * characters(part)),),
    "isSorted": (Function("list", lambda values: all(not b < a for a, b in _in_order(values)), _length),),
    "min": (Function("list", _extreme(min), _length),),
    "max": (Function("list", _extreme(max), _length),),
    "sum": (Function("list", _total, _length),),
    "size": _SIZE,
}
