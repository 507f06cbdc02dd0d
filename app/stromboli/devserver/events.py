"""One set of events under two APIs: stored as core/v1, and spelt otherwise for `events.k8s.io/v1`."""

from __future__ import annotations

from .resources import Object

#: core/v1 name -> events.k8s.io/v1 name
_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_CORE_NAMES = {name: core_name for core_name, name in _NAMES.items()}
_CORE_VERSION, _VERSION = "v1", "events.k8s.io/v1"


def to_core(event: Object) -> Object:
    """An event of either spelling in that of core/v1."""
    version = event.get("apiVersion", _VERSION)
    renamed = {_CORE_NAMES.get(name, name): value for name, value in event.items()}
    return {**renamed, "apiVersion": _CORE_VERSION if version == _VERSION else version}


def from_core(event: Object) -> Object:
    """A stored event in the spelling of events.k8s.io/v1."""
    return {**{_NAMES.get(name, name): value for name, value in event.items()}, "apiVersion": _VERSION}


def core_path(path: str) -> str:
    """The path of a field of events.k8s.io/v1 in a stored event."""
    first, *rest = path.split(".")
    return ".".join([_CORE_NAMES.get(first, first), *rest])
