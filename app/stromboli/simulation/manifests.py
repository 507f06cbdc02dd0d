"""Reading manifests: YAML and JSON files, folders, lists of kubectl, and scenario files.

Each mistake is reported in one line with file, document, object, field and value, and the rest is still read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from stromboli import gate
from stromboli.api import crds, keys, objects
from stromboli.api.documents import read_either, read_value
from stromboli.api.errors import DocumentError, InvalidObjectError
from stromboli.api.validation import describe, did_you_mean, readable, shown
from stromboli.framework.runtime.node_questions import CALL, Watch
from stromboli.simulation import refusals, schema, workloads
from stromboli.simulation.claims import TEMPLATES
from stromboli.simulation.defaults import generated_names
from stromboli.simulation.files import LARGEST_FILE, UnreadableFileError, bounded_text, files, read_text
from stromboli.simulation.lists import RawList, is_list, of_list, read_json
from stromboli.state.cluster import object_key
from stromboli.state.nodes import NodeFacts, NodeRecord
from stromboli.state.queue_states import BUS
from stromboli.workloads import Kind, Kinds, known_kinds
from stromboli.workloads.gangs import suspended
from stromboli.workloads.model import is_workload_kind, parse
from stromboli.workloads.native import as_pod_group, is_native
from stromboli.workloads.paths import text

#: kinds that are decoded for the core; plugins read the others as plain data
_TYPED: Mapping[str, type[msgspec.Struct]] = {
    "Pod": objects.Pod,
    "Node": objects.Node,
    "PriorityClass": objects.PriorityClass,
    "RuntimeClass": objects.RuntimeClass,
}
#: kinds that do not belong to a namespace
CLUSTER_KINDS = frozenset(
    (
        *("CSIDriver", "CSINode", "ClusterTrainingRuntime", "DeviceClass", "DeviceTaintRule", "HyperNode", "Namespace"),
        *("Node", "NodeShard", "Numatopology", "PersistentVolume", "PriorityClass", "Queue", "ResourceSlice"),
        *("RuntimeClass", "StorageClass", "VolumeAttachment"),
    )
)
#: steps that reading a byte of an object takes
_A_BYTE = 2
_NAME = re.compile(r"[a-z0-9]([-_.a-z0-9]{0,251}[a-z0-9])?")
#: the order in which objects are fed, as recorded scenarios expect
_FEED_ORDER = (
    "Node",
    "Numatopology",
    "HyperNode",
    "Pod",
    "PodGroup",
    "Queue",
    "PriorityClass",
    "ResourceQuota",
)
_RANKS = {kind: rank for rank, kind in enumerate(_FEED_ORDER)}


@dataclass(slots=True)
class Loaded:
    """Objects that were read, as (kind, object), and a line for each that could not be read."""

    objects: list[tuple[str, Any]] = field(default_factory=list)
    scenarios: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    #: problems that an API server would report of new objects, which are read all the same
    doubts: list[str] = field(default_factory=list)
    #: where each object and workload was read, and what was, by type and key
    places: dict[tuple[str, str], tuple[str, Any]] = field(default_factory=dict)
    #: makers of the pods of files, as written, by uid
    owners: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: why pods are not made before others of their workload run, by their keys
    later: dict[str, str] = field(default_factory=dict)
    #: why nothing became of workloads, and why pods are not made, by key
    empty: dict[str, str] = field(default_factory=dict)
    forbidden: dict[str, str] = field(default_factory=dict)
    #: by kind, namespace or none, and name
    templates: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)
    #: Volcano's Commands, in order
    commands: list[dict[str, Any]] = field(default_factory=list)
    #: the kinds of workloads, with those that files add
    kinds: Kinds = field(default_factory=known_kinds, compare=False)

    def without_pods(self) -> dict[str, str]:
        """The workloads that have no pods, such as those that are suspended, in a sentence each, by key."""
        found = ((owner, self.kinds.of(owner)) for owner in self.owners.values())
        told = ((_key_of(owner), suspended(owner, kind.row)) for owner, kind in found if kind is not None)
        return self.empty | {key: sentence for key, sentence in told if sentence}


def _key_of(manifest: dict[str, Any]) -> str:
    return keys.key(manifest["metadata"].get("namespace") or "default", manifest["metadata"]["name"])


@dataclass(slots=True)
class Proposal:
    """An object that is to be added or changed."""

    where: str
    #: as it would be
    manifest: Any
    #: of an existing one: what of it was written, and what it was before
    written: dict[str, Any] = field(default_factory=dict)
    before: dict[str, Any] | None = None
    #: whether it is a workload with pods
    begun: bool = False


def in_order(objects: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Objects with their kinds, kind by kind in the order in which a state is fed, others last."""
    return sorted(objects, key=lambda entry: _RANKS.get(entry[0], len(_RANKS)))


def load(
    paths: list[str],
    stdin: BinaryIO,
    *,
    lenient: bool = False,
    largest: int = LARGEST_FILE,
    most_pods: int = workloads.MOST_PODS,
) -> Loaded:
    """Read files of at most `largest` bytes, folders of them, and `-` for `stdin`.

    If lenient, fields and kinds that are not known pass, and values that an API server would refuse. Workloads may
    stand for `most_pods`.
    """
    reader = _Reader(lenient, most_pods)
    for name in paths:
        try:
            if name == "-":
                reader.read("standard input", bounded_text("standard input", stdin, largest))
                continue
            for path in files(Path(name)):
                reader.read_file(path, largest)
        except UnreadableFileError as error:
            reader.loaded.problems.append(str(error))
    reader.finish()
    return reader.loaded


def load_each(proposals: Iterable[Proposal], most_pods: int, watch: Watch, nodes: Iterable[NodeRecord] = ()) -> Loaded:
    """Read objects that are to be added or changed; `watch` is told of each that is made of them, and may raise.

    `nodes` are added to them.
    """
    reader = _Reader(lenient=False, most_pods=most_pods, watch=watch, nodes=nodes)
    for proposal in proposals:
        reader.proposal(proposal)
    reader.finish()
    return reader.loaded


def decode(kind: str, manifest: Any, where: str, *, lenient: bool = False) -> Any:
    """The typed object of a manifest. Raises InvalidObjectError, which names the field and the value."""
    type_ = schema.type_of(kind)
    if type_ is None:
        of = f" of {shown(manifest.get('apiVersion'))}" if kind in schema.OTHER_KINDS else ""
        raise InvalidObjectError(where, "kind", f"unknown kind {shown(kind)}{of}{did_you_mean(kind, schema.KINDS)}")
    schema.check(type_, manifest, where, lenient=lenient)
    manifest = _placed(kind, manifest, where)
    obj: Any = manifest
    if kind in crds.KINDS:
        obj = crds.KINDS[kind].parse(manifest, where)
    elif kind in _TYPED:
        obj = schema.converted(manifest, _TYPED[kind], where)
    try:
        return gate.read(kind, obj)
    except InvalidObjectError as error:
        raise InvalidObjectError(where, error.path, error.problem) from None


def _placed(kind: str, manifest: dict[str, Any], where: str) -> dict[str, Any]:
    """The manifest with a name that Kubernetes takes, in the namespace `default` if it names none."""
    metadata = manifest.get("metadata") or {}
    for key in ("name", "namespace"):
        value = metadata.get(key)
        if value is not None and not _NAME.fullmatch(value):
            problem = f"should be lower-case letters, digits, - and ., not {shown(value)}"
            raise InvalidObjectError(where, f"metadata.{key}", problem)
    if not metadata.get("name"):
        raise InvalidObjectError(where, "metadata.name", "is required")
    if kind in CLUSTER_KINDS:
        return manifest
    return {**manifest, "metadata": {**metadata, "namespace": metadata.get("namespace") or "default"}}


class _Reader:
    """Sorts the content of documents into objects, scenarios and problems."""

    def __init__(
        self, lenient: bool, most_pods: int, watch: Watch | None = None, nodes: Iterable[NodeRecord] = ()
    ) -> None:
        self._lenient = lenient
        self._watch = watch
        self.loaded = Loaded()
        self._there = nodes
        loaded, known = self.loaded, (self._is_taken, lambda: self._nodes, most_pods)
        self._workloads = workloads.Expansion(loaded.owners, loaded.kinds, *known, runtimes=loaded.templates)
        #: objects of kinds that a file may tell of that is still to be read, and workloads that may refer to one in it
        self._later: list[tuple[str, Any]] = []
        self._finished = False
        self._named = generated_names()

    def read_file(self, path: Path, largest: int) -> None:
        try:
            self.read(str(path), read_text(path, largest))
        except UnreadableFileError as error:
            self.loaded.problems.append(str(error))

    def read(self, source: str, text: str) -> None:
        """Read all documents of a text."""
        try:
            for number, document in enumerate(read_either(text, json=source.endswith(".json"), of_json=read_json), 1):
                self._document(source, number, document)
        except DocumentError as error:
            self.loaded.problems.append(f"{source}: {error}")

    def _document(self, source: str, number: int, document: Any) -> None:
        if document is None:
            return
        if isinstance(document, dict) and "kind" not in document and not {"objects", "config"}.isdisjoint(document):
            self.loaded.scenarios.append(document | {"source": source})
        elif isinstance(document, RawList):
            self._list(f"{source}: document {number}", document.kind, document.items)
        else:
            self.manifest(f"{source}: document {number}", document)

    def manifest(self, where: str, manifest: Any) -> None:
        """Read the objects of one document, or of a part of one."""
        try:
            self._read(where, manifest)
        except InvalidObjectError as error:
            self.loaded.problems.append(str(error))

    def proposal(self, proposal: Proposal) -> None:
        """Read an object as it would be. What was wrong with it already is not reported."""
        if proposal.before is None:
            if proposal.begun:
                self._workloads.begun.add((proposal.manifest["kind"], _key_of(proposal.manifest)))
            self.manifest(proposal.where, proposal.manifest)
            return
        kind = proposal.written["kind"]
        named, type_ = describe(kind, proposal.written), schema.type_of(kind)
        try:
            if type_:
                schema.check(type_, proposal.written, f"{proposal.where}: {named}")
            self._add(kind, proposal.manifest, proposal.where, named, proposal.before)
        except InvalidObjectError as error:
            self.loaded.problems.append(str(error))

    def _read(self, where: str, manifest: Any) -> None:
        if isinstance(manifest, dict) and "kind" not in manifest and "tiers" in manifest:
            raise InvalidObjectError(where, "", "is a policy, which --policy takes")
        if not isinstance(manifest, dict) or not isinstance(manifest.get("kind"), str):
            raise InvalidObjectError(where, "kind", f"an object with a kind is needed, not {shown(manifest)}")
        manifest = self._named(manifest)
        kind = manifest["kind"]
        if is_native(manifest):
            self._native(manifest, where)
            return
        if is_list(manifest):
            self._list(where, kind, manifest.get("items"))
            return
        workload = self._workloads.type_of(manifest)
        if workload is not None and self._waits(manifest):
            self._later.append((where, manifest))
        elif workload is not None:
            self._expand(workload, manifest, where)
        elif kind in TEMPLATES:
            self._runtime(kind, manifest, where)
        elif kind == "Command" and text(manifest, "apiVersion").startswith(f"{BUS}/"):
            schema.check("Command", manifest, f"{where}: {describe(kind, manifest)}", lenient=self._lenient)
            self.loaded.commands.append(manifest)
        elif is_workload_kind(manifest):
            self.loaded.kinds.add(Kind.of(parse(manifest, f"{where}: {describe(kind, manifest)}")))
        else:
            self._object(kind, manifest, where)

    def _object(self, kind: str, manifest: dict[str, Any], where: str) -> None:
        """Read an object from which nothing is made."""
        unmade, other = self._workloads.unmade(kind, manifest), schema.is_other(manifest)
        if not self._finished and (unmade or (schema.type_of(kind) is None and not other)):
            self._later.append((where, manifest))
        elif unmade:
            raise InvalidObjectError(f"{where}: {describe(kind, manifest)}", *unmade)
        elif not (other or (self._lenient and schema.type_of(kind) is None)):
            self._add(kind, manifest, where, describe(kind, manifest))

    def _waits(self, manifest: Any) -> bool:
        """Whether a workload is made when all files are read: it, or what it wraps, may refer to what is in any."""
        kind = self.loaded.kinds.of(manifest)
        if self._finished or kind is None:
            return False
        return bool(kind.row.maker) or any(part.whole for part in kind.row.makes)

    def _runtime(self, kind: str, manifest: Any, where: str) -> None:
        """Read the runtimes of TrainJobs, and pods from which claims are made."""
        schema.check("Workload", manifest, where, lenient=self._lenient)
        meta = _placed(kind, manifest, where)["metadata"]
        self._workloads.runtimes[kind, "" if kind in CLUSTER_KINDS else meta["namespace"], meta["name"]] = manifest

    def finish(self) -> None:
        """Read the objects that had to wait for all files."""
        self._finished = True
        for where, manifest in self._later:
            self.manifest(where, manifest)
        self.loaded.later, self.loaded.empty = self._workloads.later, self._workloads.empty

    def _list(self, where: str, kind: str, items: Any) -> None:
        if not isinstance(items, list | None):
            raise InvalidObjectError(where, "items", f"should be a list, not {shown(items)}")
        for number, item in enumerate(items or (), 1):
            if isinstance(item, msgspec.Raw):
                try:
                    item = read_value(bytes(item).decode())
                except DocumentError as error:
                    self.loaded.problems.append(f"{where}: item {number}: {error}")
                    continue
            self.manifest(f"{where}: item {number}", of_list(kind, item))

    def _expand(self, workload: str, manifest: dict[str, Any], place: str) -> None:
        kind = manifest["kind"]
        named = describe(kind, manifest)
        where = f"{place}: {named}"
        schema.check(workload, manifest, where, lenient=self._lenient)
        placed = _placed(kind, manifest, where)
        if not self._lenient:
            workloads.check_counts(manifest, where)
        self._refuse(workload, placed, placed, where)
        if self._is_new(f"{workload} {kind}", placed, place, named):
            for made_kind, made in self._workloads.expand(placed, where):
                self._add(made_kind, made, place, named)

    def _native(self, manifest: dict[str, Any], place: str) -> None:
        """Read one of Kubernetes' own PodGroups."""
        named = describe("PodGroup", manifest)
        where = f"{place}: {named}"
        schema.check("NativePodGroup", manifest, where, lenient=self._lenient)
        try:
            found = as_pod_group(_placed("PodGroup", manifest, where))
        except InvalidObjectError as error:
            raise InvalidObjectError(where, error.path, error.problem) from None
        self._add("PodGroup", found, place, named)

    def _add(
        self, kind: str, manifest: dict[str, Any], place: str, named: str, before: dict[str, Any] | None = None
    ) -> None:
        """Read an object; `named` is it in messages, or the workload that it is of."""
        where = f"{place}: {named}"
        if self._watch is not None:
            # A workload stands for many pods, each as large as its template.
            self._watch(CALL + _A_BYTE * len(msgspec.json.encode(manifest)))
        obj = decode(kind, manifest, where, lenient=self._lenient or before is not None)
        self._refuse(kind, manifest, obj, where, before)
        if self._is_new(kind, obj, place, named):
            self.loaded.objects.append((kind, obj))

    def _refuse(self, type_: str, manifest: dict[str, Any], *rest: Any) -> None:
        """Refuse an object that the API server would, or, if lenient, take note of it. Raises InvalidObjectError."""
        try:
            if not (self._lenient and text(manifest, "metadata.uid")):
                refusals.check(type_, manifest, *rest)
        except InvalidObjectError as error:
            if not self._lenient:
                raise
            self.loaded.doubts.append(f"{error}, for which an API server refuses it")

    def _is_new(self, type_: str, obj: Any, place: str, named: str) -> bool:
        """Whether nothing of its type and name was read before. Dumps may overlap: what is the same is no mistake.

        Raises InvalidObjectError for another of the same name.
        """
        key = object_key(obj)
        first, known = self.loaded.places.setdefault((type_, key), (place, obj))
        if known is obj:
            return True
        if self._lenient and known == obj:
            return False
        problem = f"{type_.rpartition(' ')[2]} {readable(key)} is given twice, first in {first}"
        raise InvalidObjectError(f"{place}: {named}", "metadata.name", problem)

    def _is_taken(self, key: str) -> bool:
        """Whether a pod has this key."""
        return ("Pod", key) in self.loaded.places

    @cached_property
    def _nodes(self) -> NodeFacts:
        """All nodes, once all files are read."""
        read = [NodeRecord.of(obj) for kind, obj in self.loaded.objects if kind == "Node"]
        return NodeFacts(list({node.name: node for node in [*self._there, *read]}.values()))
