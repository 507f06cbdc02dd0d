"""Arguments in another form: `"0.5"` for 0.5, `"true"` for true, 10.0 for 10, as ConfigMaps and Helm write them.

A string is read as a scalar only where the model rejects a string, so text fields get it as written.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from stromboli.api.documents import Scalar, plain
from stromboli.api.readers import number

Model = TypeVar("Model", bound=BaseModel)

#: replacing one string may uncover errors in others, which validators had hidden
_ROUNDS = 8
#: Go's strconv.ParseBool, and YAML's booleans of one letter
_BOOLEANS = {**dict.fromkeys(("1", "t", "T", "y", "Y"), True), **dict.fromkeys(("0", "f", "F", "n", "N"), False)}


def validated(model: type[Model], arguments: Mapping[str, Any]) -> Model:
    """The model of arguments in which strings may stand for the scalars that they would be without quotes, and whole
    floats for integers.

    Raises ValidationError.
    """
    given: Mapping[str, Any] = arguments
    for _ in range(_ROUNDS):
        try:
            return model.model_validate(given)
        except ValidationError as error:
            given = _unshared(given)
            if not _replace_scalars(given, error):
                raise
    return model.model_validate(given)


def _replace_scalars(arguments: Any, error: ValidationError) -> bool:
    """Replace rejected strings and floats that are scalars of the expected type; returns whether there were any."""
    replaced = False
    for detail in error.errors(include_url=False, include_context=False):
        at = _place(arguments, detail["loc"]) if isinstance(detail["input"], str | float) else None
        if at is None or detail["type"] == "extra_forbidden":
            continue
        holder, key = at
        # Another member of a union may have replaced it already.
        given = holder[key]
        value = None
        if isinstance(given, str):
            value = _READERS.get(detail["type"], _anything)(given)
        elif isinstance(given, float) and detail["type"] in _INTEGERS:
            value = _whole(given)
        if value is not None:
            holder[key] = value
            replaced = True
    return replaced


def _place(arguments: Any, loc: Sequence[int | str]) -> tuple[Any, Hashable] | None:
    """Container and key of the string or float that an error is about; None if it is about none.

    A location may continue behind the scalar, with the member of a union. Where a validator collects dotted keys into
    one mapping, the path ends like the policy's key.
    """
    holder = arguments
    for part in loc:
        key = _written(holder, part)
        try:
            value = holder[key]
        except (LookupError, TypeError):
            break
        if isinstance(value, str | float):
            return holder, key
        holder = value
    path = ".".join(map(str, loc))
    for key, value in arguments.items():
        if path and isinstance(value, str | float) and f".{key}".endswith(f".{path}"):
            return arguments, key
    return None


def _written(holder: Any, name: int | str) -> int | str:
    """A name as a mapping has it, which may differ in upper and lower case."""
    if not isinstance(holder, Mapping) or name in holder:
        return name
    return next((key for key in holder if str(key).casefold() == str(name).casefold()), name)


def _scalar(text: str) -> Scalar:
    try:
        return plain(text)
    except ValueError:
        return None


def boolean(text: str) -> bool | None:
    """The boolean that YAML or Go's strconv.ParseBool reads; None for others."""
    value = _BOOLEANS.get(text, _scalar(text))
    return value if isinstance(value, bool) else None


def _integer(text: str) -> int | None:
    value = _number(text)
    return _whole(value) if isinstance(value, float) else value


def _whole(value: float) -> int | None:
    return int(value) if value.is_integer() else None


def _number(text: str) -> float | None:
    value = _scalar(text)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else number(text)


def _anything(text: str) -> Scalar:
    value = _scalar(text)
    return None if isinstance(value, str) else value


_INTEGERS = ("int_type", "int_parsing")
#: by type of error
_READERS: Mapping[str, Callable[[str], Scalar]] = {
    **dict.fromkeys(("bool_type", "bool_parsing"), boolean),
    **dict.fromkeys(_INTEGERS, _integer),
    **dict.fromkeys(("float_type", "float_parsing"), _number),
}


def _unshared(value: Any) -> Any:
    """A copy in which each container occurs once, also where YAML aliases shared one."""
    if isinstance(value, Mapping):
        return {key: _unshared(item) for key, item in value.items()}
    return [_unshared(item) for item in value] if isinstance(value, list) else value
