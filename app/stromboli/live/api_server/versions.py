"""Compares resourceVersions of objects and lists, and reads which versions an API group has."""

from __future__ import annotations

from typing import Any

from stromboli.workloads.paths import Object, items, text


def version_of(obj: Any) -> str:
    """The resourceVersion of an object, decoded with a schema or without; empty if it has none."""
    if isinstance(obj, dict):
        return str(obj["metadata"].get("resourceVersion") or "")
    return obj.metadata.resource_version or ""


def is_older(version: str, than: str) -> bool:
    """Whether one version precedes another; only numeric versions can be compared."""
    return version.isdecimal() and than.isdecimal() and (len(version), version) < (len(than), than)


def versions_of(group: Object) -> list[str]:
    """The versions of an API group, the preferred one first; it may not have all kinds of the group."""
    others = (text(each, "version") for _, each in items(group, "versions"))
    return list(dict.fromkeys(filter(None, (text(group, "preferredVersion.version"), *others))))
