"""Compares resourceVersions of objects and lists."""

from __future__ import annotations

from typing import Any


def version_of(obj: Any) -> str:
    """The resourceVersion of an object, decoded with a schema or without; empty if it has none."""
    if isinstance(obj, dict):
        return str(obj["metadata"].get("resourceVersion") or "")
    return obj.metadata.resource_version or ""


def is_older(version: str, than: str) -> bool:
    """Whether one version precedes another; only numeric versions can be compared."""
    return version.isdecimal() and than.isdecimal() and (len(version), version) < (len(than), than)
