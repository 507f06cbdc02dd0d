"""Which of two states of an object, or of two lists, is the older one."""

from __future__ import annotations

from typing import Any


def version_of(obj: Any) -> str:
    """The resourceVersion of an object, decoded with a schema or without; empty when it has none."""
    if isinstance(obj, dict):
        return str(obj["metadata"].get("resourceVersion") or "")
    return obj.metadata.resource_version or ""


def is_older(version: str, than: str) -> bool:
    """Versions of one server are numbers that grow; of others nothing is known."""
    return version.isdecimal() and than.isdecimal() and (len(version), version) < (len(than), than)
