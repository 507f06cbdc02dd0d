"""The common base of the structs: decoding, metadata, and amounts of resources."""

from __future__ import annotations

from msgspec import Struct

from stromboli.api import keys, readers

Quantity = str | readers.Integer | float
ResourceList = dict[str, Quantity]


class Record(Struct, rename="camel", frozen=True, gc=False):
    """Base of the structs: camelCase in JSON, immutable, unknown fields skipped."""


class OwnerReference(Record, frozen=True):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    api_version: str = ""


class Metadata(Record, frozen=True):
    name: str = ""
    namespace: str | None = ""
    uid: str | None = ""
    resource_version: str | None = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None

    @property
    def key(self) -> str:
        """`NAMESPACE/NAME`, or the name alone."""
        return keys.key(self.namespace, self.name)
