"""Compares the cluster's CustomResourceDefinitions with ours: which objects that ours accept do they reject?

Clusters that have Volcano's definitions keep them. The API server silently drops fields that these do not know, and
refuses values that they bound more tightly; both are reported before they surprise a user.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

Manifest: TypeAlias = Mapping[str, Any]

#: marks a definition as ours
PART_OF = "app.kubernetes.io/part-of"
OURS = "stromboli"

#: lower bounds, and upper bounds
_LOWER = ("minimum", "minLength", "minItems", "minProperties")
_UPPER = ("maximum", "maxLength", "maxItems", "maxProperties")


def is_ours(definition: Manifest) -> bool:
    """Whether a definition of a cluster is one of ours, no matter what applied it."""
    return bool((definition["metadata"].get("labels") or {}).get(PART_OF) == OURS)


def narrower(found: Manifest, ours: Manifest) -> list[str]:
    """Fields that a cluster's definition drops or refuses in our objects, a line each."""
    if found["spec"]["scope"] != ours["spec"]["scope"]:
        return [f"its objects are {found['spec']['scope']}, not {ours['spec']['scope']}"]
    lines = []
    for version in ours["spec"]["versions"]:
        served = next((each for each in found["spec"]["versions"] if each["name"] == version["name"]), None)
        if served is None or not served.get("served"):
            lines.append(f"version {version['name']} is not served")
        else:
            lines += _fields("", _schema(served), _schema(version))
    return lines


def _schema(version: Manifest) -> Manifest:
    schema: Manifest = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    return schema


def _fields(path: str, found: Manifest, ours: Manifest) -> Iterator[str]:
    yield from _values(path, found, ours)
    properties = found.get("properties") or {}
    for name, wanted in (ours.get("properties") or {}).items():
        below = f"{path}.{name}".lstrip(".")
        if name in properties:
            yield from _fields(below, properties[name], wanted)
        elif not (found.get("x-kubernetes-preserve-unknown-fields") or found.get("additionalProperties")):
            yield f"{below} is dropped"
    for name in sorted(set(found.get("required") or ()) - set(ours.get("required") or ())):
        yield f"{path}.{name} is required".lstrip(".")
    for part, below in (("items", f"{path}[]"), ("additionalProperties", f"{path}.*")):
        if isinstance(found.get(part), Mapping) and isinstance(ours.get(part), Mapping):
            yield from _fields(below, found[part], ours[part])


def _values(path: str, found: Manifest, ours: Manifest) -> Iterator[str]:
    """Values of a field that our definition accepts and the one found in the cluster does not."""
    if found.get("enum") and (missing := [each for each in ours.get("enum") or () if each not in found["enum"]]):
        yield f"{path} may not be {' or '.join(map(str, missing))}"
    if found.get("enum") and not ours.get("enum"):
        yield f"{path} may only be {', '.join(map(str, found['enum']))}"
    for bounds, word, sign in ((_LOWER, "at least", 1), (_UPPER, "at most", -1)):
        for name in bounds:
            bound = found.get(name)
            if bound is not None and (ours.get(name) is None or sign * bound > sign * ours[name]):
                yield f"{path} must have {name} {bound}" if name[3:] != "imum" else f"{path} must be {word} {bound}"
