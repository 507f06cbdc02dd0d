"""Keys of objects."""

from __future__ import annotations


def key(namespace: str | None, name: str) -> str:
    """`NAMESPACE/NAME`, or the name alone for a cluster-scoped object."""
    return f"{namespace}/{name}" if namespace else name


def namespace_of(key: str) -> str:
    """The namespace in `NAMESPACE/NAME`, empty without one."""
    return key.partition("/")[0] if "/" in key else ""
