"""Writes what the embedded API server knows of Kubernetes' protobuf messages, from the source of its API types.

`python -m tests.devserver.protobuf_fields` writes `devserver/protobuf.json`. It takes the Go modules that the control
plane is built from: numbers and types are in their .proto files, names in JSON in the tags of their Go types.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stromboli.devserver.protobuf import FIELDS, SPECIAL, package_of
from stromboli.devserver.resources import ResourceTable
from tests.controlplane.build import HERE

_SCALARS = {"string": "s", "bytes": "b", "bool": "o", "int32": "i", "int64": "i", "double": "d"}
_MESSAGE = re.compile(r"^message (\w+) \{(.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^  (?:(optional|repeated) |map<string, (?=.*>))([\w.]+)>? (\w+) = (\d+);", re.MULTILINE)
_STRUCT = re.compile(r"^type (\w+) struct \{(.*?)^\}", re.MULTILINE | re.DOTALL)
_TAG = re.compile(r"(\S+)\s+`json:\"([^\"]*)\" protobuf:\"\w+,(\d+),")
#: the module and the folder of a package
_PLACES = {"meta.v1": ("k8s.io/apimachinery", "pkg/apis/meta/v1"), "runtime": ("k8s.io/apimachinery", "pkg/runtime")}


@dataclass(frozen=True)
class _Package:
    """The messages of a package and the tags of its Go types, each by number."""

    messages: dict[str, dict[int, tuple[str, str, str]]]
    tags: dict[str, dict[int, tuple[str, str]]]


def _module(name: str) -> Path:
    done = subprocess.run(
        ["go", "list", "-m", "-f", "{{.Dir}}", name], cwd=HERE, capture_output=True, text=True, check=True
    )
    return Path(done.stdout.strip())


def _read(package: str) -> _Package:
    module, folder = _PLACES.get(package, ("k8s.io/api", package.replace(".", "/")))
    place = _module(module) / folder
    proto = (place / "generated.proto").read_text()
    messages = {
        name: {int(number): (kind, type_, field) for kind, type_, field, number in _FIELD.findall(body)}
        for name, body in _MESSAGE.findall(proto)
    }
    go = "\n".join(path.read_text() for path in sorted(place.glob("*.go")) if "generated" not in path.name)
    tags = {
        name: {int(number): (type_, tag) for type_, tag, number in _TAG.findall(body)}
        for name, body in _STRUCT.findall(go)
    }
    return _Package(messages, tags)


def _resolved(type_: str, package: str) -> str:
    """`core.v1.PodSpec` for a message as a .proto file names it, or the letter of a scalar."""
    if type_ in _SCALARS:
        return _SCALARS[type_]
    if not type_.startswith("."):
        return f"{package}.{type_}"
    *path, name = type_.removeprefix(".k8s.io.").split(".")
    home = ".".join(each for each in path if each not in ("api", "apimachinery", "pkg", "apis"))
    return f"{home}.{name}"


def _fields(package: str, known: _Package, name: str) -> Iterator[tuple[int, str]]:
    for number, (kind, type_, field) in sorted(known.messages[name].items()):
        go_type, tag = known.tags.get(name, {}).get(number, ("", f"{field},omitempty"))
        json_name, _, rest = tag.partition(",")
        mark = "*" if kind == "repeated" else "" if kind else "%"
        mark += "~" if "inline" in rest else ""
        mark += "?" if go_type.startswith("*") or ("omitempty" not in rest and "inline" not in rest) else ""
        yield number, f"{json_name or field} {_resolved(type_, package)} {mark}".strip()


def fields() -> dict[str, dict[int, str]]:
    """By message and number: the name in JSON, the type and marks."""
    roots = {f"{package_of(each.api_version)}.{each.kind}" for each in ResourceTable()}
    todo = sorted(root for root in roots if not root.startswith("apiextensions."))
    todo += ["meta.v1.DeleteOptions", "policy.v1.Eviction", "core.v1.Binding"]
    packages: dict[str, _Package] = {}
    found: dict[str, dict[int, str]] = {}
    while todo:
        message = todo.pop()
        package, _, name = message.rpartition(".")
        if message in found or message in SPECIAL:
            continue
        known = packages.setdefault(package, packages.get(package) or _read(package))
        found[message] = dict(_fields(package, known, name))
        todo += [type_ for each in found[message].values() if "." in (type_ := each.split()[1])]
    return dict(sorted(found.items()))


def written() -> str:
    """The file, a message in each line."""
    lines = (f"{json.dumps(message)}: {json.dumps(of)}" for message, of in fields().items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    FIELDS.write_text(written())
    sys.stdout.write(f"{FIELDS}\n")
