"""Keys and names of objects."""

from __future__ import annotations

import re

#: the API group of Kubernetes' own PodGroups
NATIVE_GROUP = "scheduling.k8s.io"
_SUFFIX = f".podgroups.{NATIVE_GROUP}"
_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")


def key(namespace: str | None, name: str) -> str:
    """`NAMESPACE/NAME`, or the name alone for a cluster-scoped object."""
    return f"{namespace}/{name}" if namespace else name


def namespace_of(key: str) -> str:
    """The namespace in `NAMESPACE/NAME`, empty without one."""
    return key.partition("/")[0] if "/" in key else ""


def is_name(text: str) -> bool:
    """Whether a text is a valid object name.

    The API server does not validate references to objects, which may contain a path elsewhere.
    """
    return _NAME.fullmatch(text) is not None


def inner_name(name: str) -> str:
    """The name or key under which a PodGroup of Kubernetes' own is known: those of Volcano may have the same one."""
    return f"{name}{_SUFFIX}"


def outer_name(name: str) -> str | None:
    """The name or key of the PodGroup of Kubernetes' own that is known under one; None for those of Volcano."""
    return name.removesuffix(_SUFFIX) if name.endswith(_SUFFIX) else None
