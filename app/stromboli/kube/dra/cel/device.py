"""A device as expressions read it. Reads are recorded: devices with equal values for these reads get the same
result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

#: the keys that lead to a value of a device; a path to a map stands for its whole content
Path: TypeAlias = tuple[str, ...]

_ABSENT = "absent"


class DeviceView:
    """A map of a device, or the device itself."""

    __slots__ = ("_notes", "_path", "_values")

    def __init__(self, values: Mapping[str, Any], notes: dict[Path, None], path: Path = ()) -> None:
        self._values = values
        self._notes = notes
        self._path = path

    def __getitem__(self, key: str) -> Any:
        path = (*self._path, key)
        try:
            value = self._values[key]
        except KeyError:
            self._notes[path] = None
            raise
        if isinstance(value, dict):
            return DeviceView(value, self._notes, path)
        self._notes[path] = None
        return value

    def __contains__(self, key: str) -> bool:
        self._notes[(*self._path, key)] = None
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        self._notes[self._path] = None
        return iter(self._values)

    def __len__(self) -> int:
        self._notes[self._path] = None
        return len(self._values)


def value_at(device: Any, path: Path) -> Any:
    """The value at a path of a device, as a hashable key; values of different types differ."""
    for key in path:
        if not isinstance(device, dict) or key not in device:
            return _ABSENT
        device = device[key]
    return _frozen(device)


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return frozenset((key, _frozen(each)) for key, each in value.items())
    return type(value), value
