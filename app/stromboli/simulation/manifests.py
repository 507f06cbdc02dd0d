"""Reading manifests: plain YAML files, folders, lists of kubectl, and scenario files.

Whatever is wrong is said in one line with file, document, object, field and value, and the rest is still read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import msgspec
import yaml

from stromboli.api import crds, objects
from stromboli.api.errors import InvalidObjectError, InvalidQuantityError
from stromboli.api.resources import amount, is_scheduled

#: kinds that are decoded for the core
_TYPED: Mapping[str, type[msgspec.Struct]] = {
    "Pod": objects.Pod,
    "Node": objects.Node,
    "PriorityClass": objects.PriorityClass,
}
#: kinds that plugins read as plain data
PLAIN_KINDS = frozenset(
    (
        "CSINode",
        "DeviceClass",
        "Namespace",
        "NodeShard",
        "Numatopology",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "PodDisruptionBudget",
        "ResourceClaim",
        "ResourceQuota",
        "ResourceSlice",
        "StorageClass",
    )
)
#: the order in which objects are fed, as recorded scenarios expect
FEED_ORDER = (
    "Node",
    "Numatopology",
    "HyperNode",
    "Pod",
    "PodGroup",
    "Queue",
    "PriorityClass",
    "ResourceQuota",
)


@dataclass(slots=True)
class Loaded:
    """Objects that were read, as (kind, object), and the lines that say what could not be."""

    objects: list[tuple[str, Any]] = field(default_factory=list)
    scenarios: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def load(paths: list[str], stdin: TextIO) -> Loaded:
    """Read files, folders (their .yaml, .yml and .json files, in order of name) and `-` for `stdin`."""
    loaded = Loaded()
    for source, text in _texts(paths, stdin, loaded.problems):
        for number, document in _documents(source, text, loaded.problems):
            if isinstance(document, dict) and "objects" in document and "config" in document:
                loaded.scenarios.append(document | {"source": source})
            else:
                _read(f"{source}: document {number}", document, loaded)
    return loaded


def decode(kind: str, manifest: Any, where: str) -> Any:
    """The typed object of a manifest. Raises InvalidObjectError, which names the field and the value."""
    if kind in crds.KINDS:
        return crds.KINDS[kind].parse(manifest, where)
    if kind in _TYPED:
        try:
            decoded = msgspec.convert(manifest, _TYPED[kind], strict=False)
        except msgspec.ValidationError as error:
            problem, _, path = str(error).partition(" - at `$.")
            raise InvalidObjectError(where, path.rstrip("`"), problem) from None
        _check_quantities(decoded, where)
        return decoded
    return manifest


def _texts(paths: list[str], stdin: TextIO, problems: list[str]) -> Iterator[tuple[str, str]]:
    for name in paths:
        if name == "-":
            yield "standard input", stdin.read()
            continue
        path = Path(name)
        files = sorted(p for p in path.iterdir() if p.suffix in (".yaml", ".yml", ".json")) if path.is_dir() else [path]
        for file in files:
            try:
                yield str(file), file.read_text()
            except (OSError, UnicodeDecodeError) as error:
                problems.append(f"{file}: {getattr(error, 'strerror', None) or error}")


def _documents(source: str, text: str, problems: list[str]) -> Iterator[tuple[int, Any]]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        for number, document in enumerate(yaml.load_all(text, Loader=loader), 1):
            if document is not None:
                yield number, document
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = f": line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problems.append(f"{source}{at}: not valid YAML: {getattr(error, 'problem', None) or error}")
    except ValueError as error:
        problems.append(f"{source}: not valid YAML: {error}")


def _read(where: str, manifest: Any, loaded: Loaded) -> None:
    if not isinstance(manifest, dict) or not isinstance(manifest.get("kind"), str):
        loaded.problems.append(f"{where}: kind: an object with a kind is needed, not {_short(manifest)}")
        return
    kind = manifest["kind"]
    if kind == "List" or (kind.endswith("List") and isinstance(manifest.get("items"), list)):
        for number, item in enumerate(manifest.get("items") or (), 1):
            if isinstance(item, dict) and "kind" not in item and kind != "List":
                item = {"kind": kind.removesuffix("List"), **item}
            _read(f"{where}: item {number}", item, loaded)
        return
    if kind not in _TYPED and kind not in crds.KINDS and kind not in PLAIN_KINDS:
        loaded.problems.append(f"{where}: kind: unknown kind {kind!r}")
        return
    try:
        loaded.objects.append((kind, decode(kind, manifest, f"{where}: {describe(kind, manifest)}")))
    except InvalidObjectError as error:
        loaded.problems.append(str(error))


def describe(kind: str, manifest: Mapping[str, Any]) -> str:
    """An object for messages: its kind and key."""
    metadata = manifest.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    return " ".join([kind, "/".join(str(metadata[k]) for k in ("namespace", "name") if metadata.get(k))]).strip()


def _check_quantities(obj: Any, where: str) -> None:
    lists: list[tuple[str, objects.ResourceList | None]] = []
    if isinstance(obj, objects.Node):
        lists = [("status.allocatable", obj.status.allocatable), ("status.capacity", obj.status.capacity)]
    elif isinstance(obj, objects.Pod):
        lists = [("spec.overhead", obj.spec.overhead)]
        for group in ("containers", "init_containers"):
            for index, container in enumerate(getattr(obj.spec, group) or ()):
                path = f"spec.{'containers' if group == 'containers' else 'initContainers'}[{index}].resources"
                if container.resources is not None:
                    lists.append((f"{path}.requests", container.resources.requests))
                    lists.append((f"{path}.limits", container.resources.limits))
    for path, amounts in lists:
        for name, value in (amounts or {}).items():
            try:
                if is_scheduled(name) and amount(name, value) < 0:
                    raise InvalidObjectError(where, f"{path}.{name}", f"{value!r} is negative")
            except InvalidQuantityError as error:
                raise InvalidObjectError(where, f"{path}.{name}", str(error)) from None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
