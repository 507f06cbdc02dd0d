"""By what objects are known."""

from __future__ import annotations


def key(namespace: str | None, name: str) -> str:
    """`NAMESPACE/NAME`, or the name alone of what has no namespace."""
    return f"{namespace}/{name}" if namespace else name


def namespace_of(key: str) -> str:
    """The namespace in `NAMESPACE/NAME`, "" when it is the key of nothing."""
    return key.partition("/")[0] if "/" in key else ""
