"""The schema of manifests: every field of the kinds that are read, with its type.

The API server would refuse or drop invalid fields of a manifest; it does not check files, so a misspelt limit would be
silently missing. Types are named as in `kubernetes_types.json`, which has Kubernetes' own, and `other_types.yaml`:
`text`, `integer`, `boolean`, `time`, `quantity`, `any`, or the name of a mapping with known fields; `[]` before them
means a list, `{}` a mapping with any keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache
from importlib import resources
from typing import Any, TypeAlias, TypeVar, get_args, get_origin

import msgspec
from pydantic import BaseModel

from stromboli.api import crds, quantity
from stromboli.api.documents import read_yaml
from stromboli.api.errors import InvalidObjectError, InvalidQuantityError, misfit
from stromboli.api.validation import did_you_mean, field_path, shown

Fields: TypeAlias = Mapping[str, str]
T = TypeVar("T")
Check: TypeAlias = Callable[[Any], None]


class _Table(msgspec.Struct, frozen=True):
    """`kubernetes_types.json`."""

    kinds: dict[str, str]
    types: dict[str, dict[str, str]]
    others: frozenset[str]


_DATA = resources.files(__package__)
_KUBERNETES = msgspec.json.decode(_DATA.joinpath("kubernetes_types.json").read_bytes(), type=_Table)
#: kinds of Kubernetes that do not bear on scheduling
OTHER_KINDS = _KUBERNETES.others - crds.KINDS.keys()
#: kinds of others, as far as their fields are read
_FOREIGN: Mapping[str, Fields] = next(read_yaml(_DATA.joinpath("other_types.yaml").read_text()))


class _MistakeError(Exception):
    """Something is wrong; `path` grows on the way out."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.path: list[int | str] = []


def check(type_: str, value: object, where: str, *, lenient: bool = False) -> None:
    """Raise InvalidObjectError at the first field that has the wrong type or, unless lenient, is not known.

    For another project's object of a kind of the same name that is its version: its fields are others.
    """
    if type_ in crds.KINDS and isinstance(value, dict):
        ours, version = crds.KINDS[type_].model_fields["api_version"].default, value.get("apiVersion")
        if version and version != ours:
            raise InvalidObjectError(where, "apiVersion", f"should be {ours}, not {shown(version)}")
    try:
        _check(type_, lenient)(value)
    except _MistakeError as mistake:
        raise InvalidObjectError(where, field_path(reversed(mistake.path)), str(mistake)) from None


def converted(value: object, type_: type[T], where: str) -> T:
    """A checked value as a struct. Raises InvalidObjectError where something that it needs is missing."""
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        raise misfit(error, where) from None


#: kinds that are read as they are
KINDS = frozenset((*_KUBERNETES.kinds, *crds.KINDS, "Numatopology", "NodeShard", "ProvisioningRequest"))


def type_of(kind: str) -> str | None:
    """The type of the objects of a kind; None when it is not known."""
    return _KUBERNETES.kinds.get(kind) or (kind if kind in KINDS else None)


def is_other(manifest: Mapping[str, Any]) -> bool:
    """Whether an object is of a kind of Kubernetes that does not bear on scheduling.

    Others have kinds of these names, too, such as the Service of Knative.
    """
    group, slash, _ = str(manifest.get("apiVersion") or "").partition("/")
    own = not slash or "." not in group or group.endswith(".k8s.io")
    return own and manifest["kind"] in OTHER_KINDS


@cache
def _fields(type_: str) -> Fields:
    return _KUBERNETES.types.get(type_) or _FOREIGN.get(type_) or _models()[type_]


@cache
def _models() -> dict[str, Fields]:
    """The fields of the custom resources' models, whose values pydantic checks."""
    found: dict[str, Fields] = {}
    for model in crds.KINDS.values():
        _collect(model, found)
    return found


def _collect(model: type[BaseModel], found: dict[str, Fields]) -> str:
    fields = found[model.__name__] = {}
    for name, info in model.model_fields.items():
        fields[info.alias or name] = "V1ObjectMeta" if name == "metadata" else _annotated(info.annotation, found)
    return model.__name__


def _annotated(annotation: Any, found: dict[str, Fields]) -> str:
    """The type of a field that is a model, or a list of models; `any` for the others."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation.__name__ if annotation.__name__ in found else _collect(annotation, found)
    if annotation == crds.Quantity:
        return "quantity"
    prefix = {list: "[]", dict: "{}"}.get(get_origin(annotation), "")
    inner = {_annotated(argument, found) for argument in get_args(annotation)} - {"any"}
    return prefix + inner.pop() if inner else "any"


@cache
def _check(type_: str, lenient: bool) -> Check:
    if type_.startswith("[]"):
        return _each(_check(type_[2:], lenient))
    if type_.startswith("{}"):
        return _values(_check(type_[2:], lenient))
    return _SCALARS.get(type_) or _mapping(type_, lenient)


def _each(check_item: Check) -> Check:
    def check_list(value: Any) -> None:
        if not isinstance(value, list):
            raise _MistakeError(f"should be a list, not {shown(value)}")
        for index, item in enumerate(value):
            try:
                if item is None:
                    raise _MistakeError("should not be null")
                check_item(item)
            except _MistakeError as mistake:
                mistake.path.append(index)
                raise

    return check_list


def _values(check_value: Check) -> Check:
    def check_mapping(value: Any) -> None:
        if not isinstance(value, dict):
            raise _MistakeError(f"should be a mapping, not {shown(value)}")
        for key, item in value.items():
            try:
                check_value(item)
            except _MistakeError as mistake:
                mistake.path.append(key)
                raise

    return check_mapping


def _mapping(type_: str, lenient: bool) -> Check:
    #: made when they are first needed: types contain themselves
    checks: dict[str, Check] = {}

    def check_fields(value: Any) -> None:
        if not isinstance(value, dict):
            raise _MistakeError(f"should be a mapping, not {shown(value)}")
        for key, item in value.items():
            if item is None:
                continue
            try:
                (checks.get(key) or field(key, item))(item)
            except _MistakeError as mistake:
                mistake.path.append(key)
                raise

    def field(key: str, value: Any) -> Check:
        known = _fields(type_)
        if key not in known:
            if lenient:
                return _any
            raise _MistakeError(f"unknown field, with the value {shown(value)}{did_you_mean(key, known)}")
        checks[key] = made = _check(known[key], lenient)
        return made

    return check_fields


def _any(value: Any) -> None:
    pass


def _text(value: Any) -> None:
    if type(value) is not str:
        raise _MistakeError(f"should be text, not {shown(value)}")


def _boolean(value: Any) -> None:
    if type(value) is not bool:
        raise _MistakeError(f"should be true or false, not {shown(value)}")


def _integer(value: Any) -> None:
    if type(value) is not int:
        raise _MistakeError(f"should be a whole number of 64 bits, not {shown(value)}")


def _quantity(value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _MistakeError(f"should be a quantity, not {shown(value)}")
    try:
        amount = quantity.parse(value)
    except InvalidQuantityError as error:
        raise _MistakeError(str(error)) from None
    if amount < 0:
        raise _MistakeError(f"{shown(value)} is negative")
    if amount >= 2**63:
        raise _MistakeError(f"should be less than 2^63, not {shown(value)}")


def _time(value: Any) -> None:
    try:
        if datetime.fromisoformat(value).tzinfo is not None:
            return
    except (TypeError, ValueError):
        pass
    raise _MistakeError(f"should be an RFC 3339 time, not {shown(value)}")


_SCALARS: Mapping[str, Check] = {
    "any": _any,
    "text": _text,
    "boolean": _boolean,
    "integer": _integer,
    "quantity": _quantity,
    "time": _time,
}
