"""By what objects are known."""

from __future__ import annotations


def key(namespace: str | None, name: str) -> str:
    """`NAMESPACE/NAME`, or the name alone of what has no namespace."""
    return f"{namespace}/{name}" if namespace else name
