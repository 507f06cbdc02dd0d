"""Representations of objects, lists and watch events: in full, as metadata only, or as a table.

The client chooses by its Accept header. Only JSON is spoken.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from .errors import not_acceptable
from .events import from_core
from .resources import EVENTS_V1, Resource
from .store import Stored, encode
from .tables import cells, columns

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Representation(Protocol):
    """Bytes of JSON for the objects of one resource."""

    def object(self, stored: Stored) -> bytes:
        """One object, alone or in a watch event."""

    def list(self, items: Sequence[Stored], metadata: dict[str, Any]) -> bytes:
        """A list under its own metadata: resourceVersion, continue, remainingItemCount."""

    def bookmark(self, version: int, *, initial_events_end: bool) -> bytes:
        """The object of a BOOKMARK event."""


class Full:
    """Objects as they are stored."""

    def __init__(self, resource: Resource) -> None:
        self._resource = resource

    def object(self, stored: Stored) -> bytes:
        return stored.raw

    def list(self, items: Sequence[Stored], metadata: dict[str, Any]) -> bytes:
        return self.list_of(b",".join([stored.raw for stored in items]), metadata)

    def list_of(self, joined: bytes, metadata: dict[str, Any]) -> bytes:
        """The list whose items are already joined by commas."""
        head = {
            "kind": f"{self._resource.kind}List",
            "apiVersion": self._resource.api_version,
            "metadata": metadata,
        }
        return b'%s,"items":[%s]}\n' % (encode(head)[:-1], joined)

    def bookmark(self, version: int, *, initial_events_end: bool) -> bytes:
        metadata = _bookmark_metadata(version, initial_events_end)
        return encode({"kind": self._resource.kind, "apiVersion": self._resource.api_version, "metadata": metadata})


class EventsV1:
    """Stored events as `events.k8s.io/v1` spells them."""

    def __init__(self, resource: Resource) -> None:
        self._full = Full(resource)

    def object(self, stored: Stored) -> bytes:
        return encode(from_core(stored.body))

    def list(self, items: Sequence[Stored], metadata: dict[str, Any]) -> bytes:
        return self._full.list_of(b",".join([self.object(stored) for stored in items]), metadata)

    def bookmark(self, version: int, *, initial_events_end: bool) -> bytes:
        return self._full.bookmark(version, initial_events_end=initial_events_end)


class MetadataOnly:
    """`meta/v1 PartialObjectMetadata`."""

    def object(self, stored: Stored) -> bytes:
        return encode(_partial(stored.body["metadata"]))

    def list(self, items: Sequence[Stored], metadata: dict[str, Any]) -> bytes:
        listed = [_partial(stored.body["metadata"]) for stored in items]
        kind = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
        return encode({**kind, "metadata": metadata, "items": listed})

    def bookmark(self, version: int, *, initial_events_end: bool) -> bytes:
        return encode(_partial(_bookmark_metadata(version, initial_events_end)))


class Table:
    """`meta/v1 Table`, for `kubectl get`."""

    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        self._columns_sent = False

    def object(self, stored: Stored) -> bytes:
        return self._table([self._row(stored)], {"resourceVersion": str(stored.version)})

    def list(self, items: Sequence[Stored], metadata: dict[str, Any]) -> bytes:
        return self._table([self._row(stored) for stored in items], metadata)

    def bookmark(self, version: int, *, initial_events_end: bool) -> bytes:
        metadata = _bookmark_metadata(version, initial_events_end)
        return self._table([{"cells": [], "object": _partial(metadata)}], {"resourceVersion": str(version)})

    def _row(self, stored: Stored) -> dict[str, Any]:
        return {"cells": cells(self._resource, stored.body), "object": _partial(stored.body["metadata"])}

    def _table(self, rows: Iterable[dict[str, Any]], metadata: dict[str, Any]) -> bytes:
        # In a watch only the first table carries the columns.
        shown = None if self._columns_sent else columns(self._resource)
        self._columns_sent = True
        head = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
        return encode({**head, "columnDefinitions": shown, "rows": rows})


def negotiate(resource: Resource, accept: str) -> Representation:
    """The first representation in the client's list that the server has; NotAcceptable (406) if none."""
    for media_range in accept.split(",") if accept else ["*/*"]:
        kind, *parameters = (part.strip() for part in media_range.split(";"))
        if kind not in ("application/json", "application/*", "*/*"):
            continue
        wanted = dict(parameter.split("=", 1) for parameter in parameters if "=" in parameter)
        match wanted.get("as"):
            case None:
                return EventsV1(resource) if resource.key == EVENTS_V1 else Full(resource)
            case "Table" if wanted.get("v") == "v1":
                return Table(resource)
            case "PartialObjectMetadata" | "PartialObjectMetadataList" if wanted.get("v") == "v1":
                return MetadataOnly()
    raise not_acceptable(["application/json"])


def _partial(metadata: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}


def _bookmark_metadata(version: int, initial_events_end: bool) -> dict[str, Any]:
    metadata: dict[str, Any] = {"resourceVersion": str(version), "creationTimestamp": None}
    if initial_events_end:
        metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
    return metadata
