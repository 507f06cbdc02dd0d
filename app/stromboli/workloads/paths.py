"""Reading what is at a path of an object; what is absent on the way is None."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from stromboli.api import readers
from stromboli.api.errors import InvalidObjectError
from stromboli.api.validation import describe, shown

Object: TypeAlias = dict[str, Any]


def at(obj: object, path: str) -> Any:
    """The value at a path, None where there is none; the empty path is nowhere."""
    if not path:
        return None
    for key in path.split("."):
        if not isinstance(obj, dict):
            return None
        obj = obj.get(key)
    return obj


def mapping(obj: object, path: str) -> Object:
    """The mapping at a path, empty where there is none."""
    found = at(obj, path)
    return found if isinstance(found, dict) else {}


def text(obj: object, path: str) -> str:
    """The text at a path, empty where there is none."""
    found = at(obj, path)
    return found if isinstance(found, str) else ""


def count(owner: Object, obj: object, path: str, default: int | None = None) -> int | None:
    """The number of pods at a path of an object, or of a part of one.

    Raises InvalidObjectError, which names the owner, for what is none: a gang that starts with another number than was
    meant would be worse than none.
    """
    found = at(obj, path)
    if found is None:
        return default
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= readers.INT32:
        problem = f"should be a number from 0 to {readers.INT32}, not {shown(found)}"
        raise InvalidObjectError(described(owner), path, problem)
    return found


def seconds(obj: object, path: str) -> int | None:
    """The number of seconds at a path; None where there is none, or not more than 0."""
    found = at(obj, path)
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else None


def items(obj: object, path: str) -> Iterator[tuple[str, Object]]:
    """The entries of a list or mapping at a path; those of a list have no key."""
    found = at(obj, path)
    pairs = found.items() if isinstance(found, dict) else (("", each) for each in found or ())
    for key, entry in pairs if isinstance(found, dict | list) else ():
        yield key, entry if isinstance(entry, dict) else {}


def labels(obj: object) -> Mapping[str, str]:
    """The labels of an object."""
    return mapping(obj, "metadata.labels")


def notes(obj: object) -> Mapping[str, str]:
    """The annotations of an object."""
    return mapping(obj, "metadata.annotations")


def described(owner: Object) -> str:
    """Kind and key of an owner, for messages."""
    return describe(owner.get("kind") or "owner", owner)
