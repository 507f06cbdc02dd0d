"""Request bodies in Kubernetes' protobuf, which typed clients such as `kubectl create job` send, as JSON objects.

The messages are described in `protobuf.json`, generated from the source of Kubernetes' API types: by message and field
number, the field's name in JSON, its type (a letter for scalars) and marks: `*` for a list, `%` for a map by name, `~`
for a message whose fields are inlined into the one around it, `?` for a field whose zero value is kept.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from .errors import bad_request, unsupported_media_type
from .resources import Object

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
FIELDS = Path(__file__).with_name("protobuf.json")

#: first bytes of each body
_MAGIC = b"k8s\x00"
_DEEPEST = 64

Wire: TypeAlias = int | bytes
"""A value as it is on the wire."""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    type: str
    marks: str


def decode(body: bytes) -> Object:
    """The object in the body of a request. Raises ApiError."""
    if not body.startswith(_MAGIC):
        raise bad_request("the body of the request is no protobuf of Kubernetes")
    try:
        unknown = dict(_wire(body[len(_MAGIC) :]))
        of_type = dict(_wire(_bytes(unknown[1])))
        version, kind = (_bytes(of_type.get(number, b"")).decode() for number in (1, 2))
        package = "meta.v1" if kind == "DeleteOptions" else package_of(version)
        if f"{package}.{kind}" not in _messages():
            raise unsupported_media_type(f"{MEDIA_TYPE} of {version} {kind}", ("application/json",))
        return {"apiVersion": version, "kind": kind, **_message(f"{package}.{kind}", _bytes(unknown.get(2, b"")), 0)}
    except (KeyError, IndexError, TypeError, ValueError, struct.error) as error:
        raise bad_request(f"the body of the request cannot be read: {error}") from error


def package_of(api_version: str) -> str:
    """The package of the messages of a group and version."""
    group, _, version = api_version.rpartition("/")
    return f"{group.partition('.')[0] or 'core'}.{version}"


@cache
def _messages() -> dict[str, dict[int, _Field]]:
    read: dict[str, dict[str, str]] = json.loads(FIELDS.read_text())
    return {
        message: {int(number): _Field(*(*said.split(), "")[:3]) for number, said in fields.items()}
        for message, fields in read.items()
    }


def _wire(data: bytes) -> Iterator[tuple[int, Wire]]:
    """The fields of a message, by number. Raises IndexError, ValueError and struct.error for other data."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        match key & 7:
            case 0:
                value, at = _varint(data, at)
                yield key >> 3, value
            case 2:
                length, at = _varint(data, at)
                if at + length > len(data):
                    raise IndexError("it ends too early")
                yield key >> 3, data[at : at + length]
                at += length
            case 1 | 5 as fixed:
                size = 8 if fixed == 1 else 4
                yield key >> 3, struct.pack(f"{size}s", data[at : at + size])
                at += size
            case other:
                raise ValueError(f"there is no wire type {other}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError("a number is too long")


def _bytes(value: Wire) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError("a number stands where a message should")
    return value


def _message(name: str, data: bytes, depth: int) -> Object:
    """A message as JSON; fields that are not known are left out."""
    if depth > _DEEPEST:
        raise ValueError("it is nested too deeply")
    fields, out = _messages()[name], dict[str, Any]()
    for number, value in _wire(data):
        field = fields.get(number)
        if field is None:
            continue
        if "%" in field.marks:
            entry = dict(_wire(_bytes(value)))
            key = _bytes(entry.get(1, b"")).decode()
            out.setdefault(field.name, {})[key] = _value(field.type, entry.get(2, b""), depth)
            continue
        read = _value(field.type, value, depth)
        if "*" in field.marks:
            out.setdefault(field.name, []).append(read)
        elif "~" in field.marks:
            out.update(read)
        elif read is not None and ("?" in field.marks or isinstance(read, dict) or read):
            out[field.name] = read
    return out


def _value(type_: str, value: Wire, depth: int) -> Any:
    if (special := SPECIAL.get(type_)) is not None:
        return special(_bytes(value))
    match type_:
        case "s":
            return _bytes(value).decode()
        case "b":
            return base64.b64encode(_bytes(value)).decode()
        case "o":
            return bool(value)
        case "d":
            return struct.unpack("<d", _bytes(value))[0]
        case "i":
            return _signed(value)
        case _:
            return _message(type_, _bytes(value), depth + 1)


def _signed(value: Wire) -> int:
    if isinstance(value, bytes):
        raise TypeError("a message stands where a number should")
    return value - 2**64 if value >= 2**63 else value


def _time(data: bytes) -> str | None:
    """A time in whole seconds, as clients write it; None for none."""
    fields = dict(_wire(data))
    return datetime.fromtimestamp(_signed(fields.get(1, 0)), UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if fields else None


def _micro_time(data: bytes) -> str | None:
    fields = dict(_wire(data))
    if not fields:
        return None
    moment = datetime.fromtimestamp(_signed(fields.get(1, 0)), UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{_signed(fields.get(2, 0)) // 1000:06d}Z"


def _duration(data: bytes) -> str:
    return f"{_signed(dict(_wire(data)).get(1, 0)) / 1e9:g}s"


def _int_or_string(data: bytes) -> int | str:
    fields = dict(_wire(data))
    return _bytes(fields.get(3, b"")).decode() if fields.get(1) else _signed(fields.get(2, 0))


def _raw(data: bytes) -> Any:
    text = dict(_wire(data)).get(1)
    return json.loads(_bytes(text)) if text else None


def _text(data: bytes) -> str:
    return _bytes(dict(_wire(data)).get(1, b"")).decode()


def _texts(data: bytes) -> list[str]:
    return [_bytes(value).decode() for _, value in _wire(data)]


#: messages that are something else in JSON
SPECIAL: dict[str, Callable[[bytes], Any]] = {
    "meta.v1.Time": _time,
    "meta.v1.MicroTime": _micro_time,
    "meta.v1.FieldsV1": _raw,
    "meta.v1.Duration": _duration,
    "runtime.RawExtension": _raw,
    "resource.Quantity": _text,
    "util.intstr.IntOrString": _int_or_string,
    "authentication.v1.ExtraValue": _texts,
    "authorization.v1.ExtraValue": _texts,
}
