"""The three patch formats. All are copy-on-write: the target is never changed, untouched parts are shared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from .errors import bad_request, patch_failed

# -- JSON patch (RFC 6902) --------------------------------------------------------------------------


def json_patch(document: Any, operations: Any) -> Any:
    """Applies the operations in order; Invalid (422) when one of them, a `test` included, does not hold."""
    if not isinstance(operations, list):
        raise bad_request("a JSON patch must be a list of operations")
    for operation in operations:
        document = _apply_operation(document, operation)
    return document


def _apply_operation(document: Any, operation: Mapping[str, Any]) -> Any:
    try:
        kind, path = operation["op"], _tokens(operation["path"])
    except (KeyError, TypeError) as missing:
        raise patch_failed(f"operation {operation!r} lacks {missing}") from missing
    match kind:
        case "add":
            return _edit(document, path, _adder(operation.get("value")))
        case "remove":
            return _edit(document, path, _remover)
        case "replace":
            return _edit(document, path, _replacer(operation.get("value")))
        case "copy":
            return _edit(document, path, _adder(_lookup(document, _tokens(operation["from"]))))
        case "move":
            source = _tokens(operation["from"])
            moved = _lookup(document, source)
            return _edit(_edit(document, source, _remover), path, _adder(moved))
        case "test":
            _check(document, path, operation)
            return document
        case _:
            raise patch_failed(f"unexpected kind: {kind!r}")


def _tokens(pointer: str) -> list[str]:
    if pointer and not pointer.startswith("/"):
        raise patch_failed(f"invalid JSON pointer {pointer!r}")
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def _check(document: Any, path: Sequence[str], operation: Mapping[str, Any]) -> None:
    wanted = operation.get("value")
    try:
        found = _lookup(document, path)
    except Exception:
        if wanted is None:
            return
        raise
    if found != wanted:
        raise patch_failed(f"testing value {operation['path']} failed: test failed")


def _lookup(node: Any, path: Sequence[str]) -> Any:
    for token in path:
        node = node[_index(node, token)]
    return node


def _index(node: Any, token: str) -> Any:
    """The key or index that `token` names in `node`; it must exist."""
    if isinstance(node, dict) and token in node:
        return token
    if isinstance(node, list) and token.isdigit() and int(token) < len(node):
        return int(token)
    raise patch_failed(f"missing path element {token!r}: doc is missing key")


def _edit(node: Any, path: Sequence[str], edit: Callable[[Any, str], Any]) -> Any:
    """A copy of `node` in which the container that holds the last token of `path` has been edited."""
    if not path:
        return edit({"": node}, "")[""]
    if len(path) == 1:
        return edit(node, path[0])
    index = _index(node, path[0])
    copy = node.copy()
    copy[index] = _edit(node[index], path[1:], edit)
    return copy


def _adder(value: Any) -> Callable[[Any, str], Any]:
    def add(node: Any, token: str) -> Any:
        if isinstance(node, dict):
            return {**node, token: value}
        if not isinstance(node, list) or (token != "-" and not token.isdigit()):
            raise patch_failed(f"cannot add {token!r} to a {type(node).__name__}")
        position = len(node) if token == "-" else int(token)
        if position > len(node):
            raise patch_failed(f"index {position} is out of bounds")
        return [*node[:position], value, *node[position:]]

    return add


def _replacer(value: Any) -> Callable[[Any, str], Any]:
    def replace(node: Any, token: str) -> Any:
        # As API servers do, and unlike the RFC, a key that is not there is set.
        if isinstance(node, dict):
            return {**node, token: value}
        index = _index(node, token)
        return [*node[:index], value, *node[index + 1 :]]

    return replace


def _remover(node: Any, token: str) -> Any:
    index = _index(node, token)
    copy = node.copy()
    del copy[index]
    return copy


# -- merge patch (RFC 7386) -------------------------------------------------------------------------


def merge_patch(target: Any, patch: Any) -> Any:
    """Objects are merged key by key, null removes a key, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


# -- strategic merge patch --------------------------------------------------------------------------

#: list field -> its merge keys; the first present one identifies an element
_MERGE_KEYS: Mapping[str, tuple[str, ...]] = {
    "addresses": ("type",),
    "conditions": ("type",),
    "containers": ("name",),
    "env": ("name",),
    "ephemeralContainers": ("name",),
    "hostAliases": ("ip",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "podIPs": ("ip",),
    "ports": ("containerPort", "port"),
    "resourceClaims": ("name",),
    "schedulingGates": ("name",),
    "secrets": ("name",),
    "topologySpreadConstraints": ("topologyKey",),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
_MERGED_PRIMITIVES = frozenset({"finalizers"})
_DELETE_FROM = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"
_Identity: TypeAlias = tuple[Any, ...]


def strategic_merge(target: Mapping[str, Any] | None, patch: Mapping[str, Any]) -> dict[str, Any]:
    """A merge patch that also merges the lists of built-in types whose elements have an identity."""
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    merged = dict(target or {})
    for key, value in patch.items():
        if key.startswith(_DELETE_FROM):
            field = key.removeprefix(_DELETE_FROM)
            merged[field] = [item for item in merged.get(field) or () if item not in value]
        elif key.startswith(_ORDER):
            field = key.removeprefix(_ORDER)
            merged[field] = _merge_list(field, merged.get(field) or [], patch.get(field) or [], value)
        elif key.startswith("$") or _ORDER + key in patch:
            continue
        elif value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge_field(key, merged.get(key), value)
    if "$retainKeys" in patch:
        merged = {key: value for key, value in merged.items() if key in patch["$retainKeys"]}
    return merged


def _merge_field(field: str, current: Any, value: Any) -> Any:
    if isinstance(value, dict):
        return strategic_merge(current if isinstance(current, dict) else None, value)
    if isinstance(value, list) and (field in _MERGE_KEYS or field in _MERGED_PRIMITIVES):
        return _merge_list(field, current or [], value, value)
    return value


def _merge_list(field: str, current: list[Any], patch: list[Any], order: Sequence[Any]) -> list[Any]:
    """Merges elements of the same identity; `order` says in which order the elements that it names come."""
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if "$patch" not in item]
    elements = {_identity(field, item): item for item in current}
    for item in patch:
        identity = _identity(field, item)
        if not isinstance(item, dict):
            elements[identity] = item
        elif item.get("$patch") == "delete":
            elements.pop(identity, None)
        else:
            elements[identity] = strategic_merge(elements.get(identity), item)
    present = [_identity(field, item) for item in current]
    wanted = [identity for item in order if (identity := _identity(field, item)) in elements]
    return [elements[identity] for identity in _interleave(wanted, present) if identity in elements]


def _interleave(wanted: Sequence[_Identity], present: Sequence[_Identity]) -> list[_Identity]:
    """All identities in the order `wanted`; those that it does not name stay before what they were before."""
    ranks = {identity: rank for rank, identity in enumerate(present)}
    others = [identity for identity in present if identity not in wanted]
    merged: list[_Identity] = []
    for identity in wanted:
        while others and ranks[others[0]] < ranks.get(identity, -1):
            merged.append(others.pop(0))
        merged.append(identity)
    return merged + others


def _identity(field: str, item: Any) -> _Identity:
    """Merge keys that identify an element of a list; ports are also told apart by protocol."""
    if not isinstance(item, dict):
        return (item,)
    for key in _MERGE_KEYS.get(field, ()):
        if key in item:
            return (item[key], item.get("protocol", "TCP")) if field == "ports" else (item[key],)
    raise bad_request(f"map: {item} does not contain declared merge key of {field}")
