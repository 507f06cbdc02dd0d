"""Changes to a cluster that are tried and not made: objects to add, change or remove, or another policy.

A document is an object, which is added or, where one of its name is there, laid over that; null removes a field. With
`$patch: delete` the object is removed. A document with `actions` or `tiers` is a policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from stromboli.api.documents import read_either
from stromboli.api.errors import DocumentError, MistakesError
from stromboli.api.objects import PodStatus
from stromboli.api.validation import readable, shown
from stromboli.engine import Engine
from stromboli.explain.rehearsal import Rehearsal, node_of, pod_of
from stromboli.explain.whatif import WhatIf, what_if
from stromboli.simulation.admission import admit
from stromboli.simulation.manifests import CLUSTER_KINDS, in_order, load_each, of_list
from stromboli.state.cluster import ClusterState, object_key

#: what was written, by where it is from
Texts: TypeAlias = Mapping[str, str]

_DELETE = "delete"
#: objects, and as many pods of workloads
_MOST = 10_000
_MADE_WHERE_MISSING = frozenset(("root", "default"))


@dataclass(slots=True)
class Changes:
    """What was read: objects and keys, by kind, and the text of a policy."""

    objects: list[tuple[str, Any]] = field(default_factory=list)
    removed: list[tuple[str, str]] = field(default_factory=list)
    policy: str | None = None
    problems: list[str] = field(default_factory=list)

    def apply(self, state: ClusterState) -> None:
        """Make the changes."""
        for kind, key in self.removed:
            state.delete(kind, key)
        for kind, obj in self.objects:
            state.upsert(kind, obj)

    @property
    def pods(self) -> list[str]:
        """The keys of the pods that are added or changed."""
        return [object_key(obj) for kind, obj in self.objects if kind == "Pod"]


def try_changes(texts: Texts, rehearsal: Rehearsal, engine: Callable[[str], Engine]) -> WhatIf:
    """What would be otherwise after the changes in some texts; what of it cannot be used is among the problems.

    `engine` makes one of a policy. Raises PolicyError, and MistakesError when nothing of the texts can be used.
    """
    changes = read_changes(texts, rehearsal.state)
    if changes.problems and not (changes.objects or changes.removed or changes.policy):
        raise MistakesError(changes.problems)
    other = None if changes.policy is None else engine(changes.policy)
    found = what_if(rehearsal, changes.apply, engine=other, about=changes.pods)
    return msgspec.structs.replace(found, problems=[*changes.problems, *found.problems])


def read_changes(texts: Texts, state: ClusterState) -> Changes:
    """Read changes to a state from texts of YAML or JSON; what is wrong is in `problems`."""
    out = Changes()
    manifests: list[tuple[str, dict[str, Any]]] = []
    for source, text in texts.items():
        try:
            for number, document in enumerate(read_either(text, json=source.endswith(".json")), 1):
                where = f"{source}: document {number}"
                for place, each in _flat(document, where, out.problems):
                    _sort(out, manifests, each, place, state)
        except DocumentError as error:
            out.problems.append(f"{source}: {error}")
    source = ", ".join(texts)
    _decode(out, manifests, source, state)
    if not (out.objects or out.removed or out.policy or out.problems):
        out.problems.append(f"{source}: no changes")
    return out


def _flat(document: Any, where: str, problems: list[str]) -> Iterable[tuple[str, Any]]:
    """The objects of a document, each after where it is."""
    kind = document.get("kind") if isinstance(document, dict) else None
    if not (kind == "List" or (isinstance(kind, str) and kind.endswith("List") and "items" in document)):
        return () if document is None else ((where, document),)
    items = document.get("items") or []
    if isinstance(items, list):
        return [(f"{where}: item {number}", of_list(kind, item)) for number, item in enumerate(items, 1)]
    problems.append(f"{where}: items: should be a list, not {shown(items)}")
    return ()


def _sort(
    out: Changes, manifests: list[tuple[str, dict[str, Any]]], document: Any, where: str, state: ClusterState
) -> None:
    if not isinstance(document, dict):
        out.problems.append(f"{where}: an object or a policy is needed, not {shown(document)}")
    elif "kind" not in document and not {"actions", "tiers"}.isdisjoint(document):
        if out.policy is not None:
            out.problems.append(f"{where}: a second policy: only one can be tried")
            return
        # JSON is YAML, and what is read from it again is the same.
        out.policy = msgspec.json.encode(document).decode()
    elif not isinstance(document.get("kind", ""), str):
        out.problems.append(f"{where}: kind: should be text, not {shown(document['kind'])}")
    elif "$patch" in document and "kind" not in document:
        out.problems.append(f"{where}: kind: is required")
    elif "$patch" in document:
        _remove(out, document, where, state)
    else:
        manifests.append((where, _laid_over(document, state)))


def _remove(out: Changes, document: dict[str, Any], where: str, state: ClusterState) -> None:
    kind, key = str(document.get("kind")), _key(document)
    if document["$patch"] != _DELETE:
        out.problems.append(f"{where}: $patch: should be {_DELETE}, not {shown(document['$patch'])}")
    elif not key.rpartition("/")[2]:
        out.problems.append(f"{where}: {readable(kind)}: metadata.name: is required")
    elif key not in state.keys(kind):
        out.problems.append(f"{where}: there is no {readable(kind)} {readable(key)} to remove")
    else:
        out.removed.append((kind, key))


def _key(document: dict[str, Any]) -> str:
    """The key under which an object is known, if it is."""
    metadata = document.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    name = str(metadata.get("name", ""))
    return name if document.get("kind") in CLUSTER_KINDS else f"{metadata.get('namespace') or 'default'}/{name}"


def _laid_over(document: dict[str, Any], state: ClusterState) -> dict[str, Any]:
    known = _known(str(document.get("kind")), _key(document), state)
    return document if known is None else _merged(known, document)


def _known(kind: str, key: str, state: ClusterState) -> dict[str, Any] | None:
    """The manifest of an object that is there, as far as it was read."""
    if key not in state.keys(kind):
        return None
    found: dict[str, Any]
    if kind in ("Queue", "PodGroup"):
        model = state.queues[key] if kind == "Queue" else state.pod_group(key)
        assert model is not None
        return model.model_dump(by_alias=True, exclude_unset=True, mode="json")
    if kind == "Node" and (node := state.nodes.record(key)) is not None:
        found = msgspec.to_builtins(node_of(node))
    elif kind == "Pod" and (pod := state.record(key)) is not None:
        found = msgspec.to_builtins(
            pod_of(pod, pod.node_name, PodStatus(phase="Running" if pod.node_name else "Pending"))
        )
    elif kind in state.objects and isinstance(state.objects[kind][key], dict):
        return dict(state.objects[kind][key])
    else:
        return None
    out: dict[str, Any] = _without_nothing(found)
    return out


def _without_nothing(value: Any) -> Any:
    """Plain data without fields that are null or empty texts, which objects that were read are full of."""
    if isinstance(value, dict):
        return {key: _without_nothing(each) for key, each in value.items() if each not in (None, "")}
    return [_without_nothing(each) for each in value] if isinstance(value, list) else value


def _merged(known: Any, change: Any) -> Any:
    """A JSON merge patch applied."""
    if not isinstance(change, dict):
        return change
    base = known if isinstance(known, dict) else {}
    rest = {key: value for key, value in base.items() if change.get(key, ...) is not None}
    return rest | {key: _merged(base.get(key), value) for key, value in change.items() if value is not None}


def _decode(out: Changes, manifests: list[tuple[str, dict[str, Any]]], source: str, state: ClusterState) -> None:
    changed = len(manifests) + len(out.removed)
    if changed > _MOST:
        out.problems.append(f"{source}: changes {changed:,} objects, more than {_MOST:,}")
        out.removed = []
        return
    if not manifests:
        return
    loaded = load_each(manifests, most_pods=_MOST)
    loaded.objects += [("PriorityClass", known) for known in state.priority_classes.values()]
    named = {obj.key for kind, obj in loaded.objects if kind == "Queue"}
    admitted = admit(loaded, state.scheduler_names)
    out.problems += loaded.problems
    for kind, obj in in_order(admitted):
        made = kind == "Queue" and obj.key in _MADE_WHERE_MISSING and obj.key not in named
        if not made and kind != "PriorityClass":
            out.objects.append((kind, obj))
    foreign = [obj for kind, obj in out.objects if kind == "Pod" and not obj.spec.node_name and not state.is_ours(obj)]
    names = ", ".join(sorted(state.scheduler_names))
    for obj in foreign:
        served = f"{obj.spec.scheduler_name} is not served here, but {names}"
        out.problems.append(f"{source}: Pod {obj.metadata.key}: spec.schedulerName: {served}")
