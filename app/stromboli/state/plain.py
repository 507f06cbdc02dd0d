"""Objects of kinds that only plugins read, as plain data by key, and which of them differ from snapshot to snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from functools import reduce
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

#: kinds with up to one object for each pod or node. They are kept as bytes, in a tenth of the memory, and decoded
#: whenever one is asked for.
_PACKED = frozenset(("PersistentVolume", "PersistentVolumeClaim", "ResourceClaim", "ResourceSlice", "VolumeAttachment"))
#: assumed depth of the caller's stack, which decoders add to the depth of the data
_CALLS = 400
#: changes that are remembered, beyond as many as there are objects
_SLACK = 1_000


class _Objects(Mapping[str, Any]):
    """Objects of a kind by key."""

    __slots__ = ("_held",)

    def __init__(self, held: dict[str, Any]) -> None:
        """`held` are the objects, or their packed form."""
        self._held = held

    def __getitem__(self, key: str) -> Any:
        held = self._held[key]
        return msgspec.msgpack.decode(held) if type(held) is bytes else held

    def __contains__(self, key: object) -> bool:
        return key in self._held

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)


class PlainObjects(_Objects):
    """The objects of a kind in one snapshot. They are shared and not changed."""

    __slots__ = ("_at", "_changes")

    def __init__(self, held: dict[str, Any], changes: list[str]) -> None:
        """`changes` are the keys that changed until now; more are added by and by."""
        super().__init__(held)
        self._changes = changes
        self._at = len(changes)

    def version(self, key: str) -> object:
        """Something that is the same thing as long as the object is the same; None when there is no object."""
        return self._held.get(key)

    def read(self, key: str, kind: type[T]) -> T:
        """An object as a struct. Raises KeyError and ValidationError."""
        held = self._held[key]
        if type(held) is bytes:
            return msgspec.msgpack.decode(held, type=kind, strict=False)
        return msgspec.convert(held, kind, strict=False)

    def changed_since(self, before: PlainObjects) -> list[str]:
        """The keys of objects that were changed, added or deleted since an earlier snapshot."""
        if before is self:
            return []
        was, now = before._held, self._held
        if before._changes is self._changes:
            keys = dict.fromkeys(self._changes[before._at : self._at])
            return [key for key in keys if was.get(key) is not now.get(key)]
        if was == now:
            return []
        changed = [key for key, held in now.items() if was.get(key) is not held]
        if len(was) + sum(key not in was for key in changed) != len(now):
            changed += [key for key in was if key not in now]
        return changed


NO_OBJECTS = PlainObjects({}, [])


class ObjectTable(_Objects, MutableMapping[str, Any]):
    """The objects of a kind as they are now."""

    __slots__ = ("_changes", "_frozen", "_packs")

    def __init__(self, kind: str) -> None:
        super().__init__({})
        self._packs = kind in _PACKED
        self._changes: list[str] = []
        self._frozen: PlainObjects | None = None

    def copy(self) -> ObjectTable:
        """An independent copy."""
        out = ObjectTable("")
        out._held, out._packs, out._frozen = self._held.copy(), self._packs, self._frozen
        return out

    def __setitem__(self, key: str, obj: Any) -> None:
        self._held[key] = _packed(obj) if self._packs else obj
        self._changed(key)

    def __delitem__(self, key: str) -> None:
        del self._held[key]
        self._changed(key)

    def frozen(self) -> PlainObjects:
        """The objects for a snapshot, the same ones while nothing changes."""
        if self._frozen is None:
            self._frozen = PlainObjects(self._held.copy(), self._changes)
            if len(self._changes) > len(self._held) + _SLACK:
                self._changes = []
        return self._frozen

    def _changed(self, key: str) -> None:
        self._changes.append(key)
        self._frozen = None


class ObjectTables(dict[str, ObjectTable]):
    """The tables by kind; one is made for each kind that is asked for."""

    def __missing__(self, kind: str) -> ObjectTable:
        self[kind] = made = ObjectTable(kind)
        return made


def _packed(obj: Any) -> Any:
    """The bytes of an object, the object itself where it has none or lies too deep for a decoder."""
    try:
        packed = msgspec.msgpack.encode(obj)
        if len(packed) > _CALLS:
            msgspec.msgpack.encode(reduce(lambda nested, _: [nested], range(_CALLS), obj))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return obj
    return packed
