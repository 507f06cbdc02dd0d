"""docs/kubernetes.md has every field of the kinds that scheduling reads, and denies none that is read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, get_args, get_type_hints

import msgspec

from stromboli import gate
from stromboli.api import objects
from tests.simulation.kubernetes_types import DESCRIBED

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "kubernetes.md").read_text()
TABLE = json.loads((ROOT / "app" / "stromboli" / "simulation" / "kubernetes_types.json").read_text())
#: kinds that only stand for pods
WORKLOADS = {"DaemonSet", "Deployment", "Job", "ReplicaSet", "ReplicationController", "StatefulSet"}
#: what is read of kinds that the state takes typed; the gate knows it of others
TYPED = {each.__name__: each for each in (objects.Pod, objects.Node, objects.PriorityClass, objects.RuntimeClass)}

Types: TypeAlias = Mapping[str, Mapping[str, str]]


def named(type_: str) -> str:
    """What the page calls a type."""
    return re.sub(r"^([A-Z][a-z]+)?V1((alpha|beta)\d)?", "", type_)


#: the types of the kinds that the page is about
KINDS = {kind: type_ for kind, type_ in TABLE["kinds"].items() if kind not in WORKLOADS}
KINDS |= {named(type_): type_ for type_ in DESCRIBED}


@dataclass
class Section:
    """What the page says of the fields of a type, or of several."""

    #: path -> what Stromboli does with it
    rows: dict[str, str] = field(default_factory=dict)
    neither: set[str] = field(default_factory=set)
    #: those that a type has
    met: set[str] = field(default_factory=set)

    @property
    def paths(self) -> set[str]:
        """All that it has; `.*` at the end stands for everything below."""
        return self.rows.keys() | self.neither

    def denies(self, path: str) -> bool:
        """Whether a field is said not to be read."""
        return path in self.neither or self.rows.get(path, "").startswith("not read")


def sections(page: str) -> dict[str, Section]:
    """The sections of the page by the names of their types."""
    found: dict[str, Section] = {}
    for names, body in re.findall(r"^### (.*?)$(.*?)(?=^##|\Z)", page, re.DOTALL | re.MULTILINE):
        section = Section()
        for paths, ours in re.findall(r"^\| (`[^|]*) \|[^|]*\| ([^|]*) \|$", body, re.MULTILINE):
            section.rows |= dict.fromkeys(re.findall(r"`([^`]+)`", paths), ours)
        for listed in re.findall(r"Not read by either: (.*?)\.(?=\s)", body, re.DOTALL):
            section.neither |= set(re.findall(r"`([^`]+)`", listed))
        found |= dict.fromkeys(names.split(", "), section)
    return found


class Comparison:
    """A page beside the types of the API, and beside the structs that say what is read of them."""

    def __init__(self, page: str, types: Types) -> None:
        self._types = types
        self._sections = sections(page)
        self._pending: list[tuple[str, Any]] = []
        #: what is wrong, in order
        self.problems = sorted(self._compared())

    def _compared(self) -> Iterator[str]:
        self._pending += [(type_, TYPED.get(kind) or gate.shape(kind)) for kind, type_ in KINDS.items()]
        seen = set()
        while self._pending:
            type_, record = self._pending.pop()
            if (type_, record) not in seen:
                seen.add((type_, record))
                section = self._sections.get(named(type_))
                yield from [f"{named(type_)} is missing"] if section is None else self._of(section, type_, record, "")
        for name, section in self._sections.items():
            yield from (f"{name} has no {path}" for path in section.paths - section.met)

    def _of(self, section: Section, type_: str, record: Any, prefix: str) -> Iterator[str]:
        """What is wrong with the fields of a type, of which a struct, or None, says what is read."""
        read = _read(record)
        for name, of in self._types[type_].items():
            path, inner, nested = prefix + name, of.lstrip("[]{}"), read.get(name)
            if not prefix and type_ in KINDS.values() and name in ("apiVersion", "kind", "metadata"):
                self._pending += [(inner, nested)] if name == "metadata" else []
                continue
            below = any(each.startswith(f"{path}.") for each in section.paths) and f"{path}.*" not in section.paths
            if below and path not in section.paths:
                yield from self._of(section, inner, nested, f"{path}.")
                continue
            said = f"{path}.*" if f"{path}.*" in section.paths else path
            if said not in section.paths:
                yield f"{named(type_)} lacks {path}"
            elif name in read and section.denies(said):
                yield f"{named(type_)} says that {path} is not read"
            elif said == path and inner in self._types and path not in section.neither:
                self._pending.append((inner, nested))
            section.met.add(said)


def _read(record: Any) -> dict[str, Any]:
    """The fields that are read, each with the struct that says what of it, None where nothing does."""
    if record is None:
        return {}
    hints = get_type_hints(record)
    return {each.encode_name: next(_structs(hints[each.name]), None) for each in msgspec.structs.fields(record)}


def _structs(hint: Any) -> Iterator[Any]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
    for each in get_args(hint):
        yield from _structs(each)


def test_every_field_is_on_the_page_and_those_that_are_read_are_said_to_be() -> None:
    assert Comparison(PAGE, TABLE["types"]).problems == []


def test_a_field_that_is_new_gone_or_denied_is_found() -> None:
    pod = TABLE["types"]["V1PodSpec"]
    new = {**TABLE["types"], "V1PodSpec": {**pod, "planet": "text"}}
    assert Comparison(PAGE, new).problems == ["PodSpec lacks planet"]
    gone = {**TABLE["types"], "V1PodSpec": {name: of for name, of in pod.items() if name != "nodeSelector"}}
    assert Comparison(PAGE, gone).problems == ["PodSpec has no nodeSelector"]
    row = next(line for line in PAGE.splitlines() if line.startswith("| `nodeSelector` |"))
    denied = PAGE.replace(row, "| `nodeSelector` | labels | not read |")
    assert Comparison(denied, TABLE["types"]).problems == ["PodSpec says that nodeSelector is not read"]
