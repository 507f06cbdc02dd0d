"""Changes to a cluster that are only tried: objects to add, change or remove, or another policy.

A document is an object, which is added or merged into the existing one of the same name; null removes a field. With
`$patch: delete` the object is removed. An existing workload is replaced as a whole, and its running pods stay as they
are. A document with `actions` or `tiers` is a policy.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

import msgspec

from stromboli.api.crds import KubeObject, PodGroup
from stromboli.api.documents import read_either
from stromboli.api.errors import DocumentError, MistakesError
from stromboli.api.objects import PodStatus
from stromboli.api.validation import readable, shown
from stromboli.engine import Engine
from stromboli.explain.rehearsal import Rehearsal, node_of, pod_of
from stromboli.explain.whatif import WhatIf, what_if
from stromboli.framework.runtime.node_questions import CALL, Watch
from stromboli.kube.quotas import Counted, amounts, common_name, counts, used_by
from stromboli.policy.queue_rules import QueueRule
from stromboli.simulation.admission import admit
from stromboli.simulation.lists import is_list, of_list
from stromboli.simulation.manifests import CLUSTER_KINDS, Loaded, Proposal, in_order, load_each
from stromboli.simulation.standing import Standing, Workloads
from stromboli.state.cluster import ClusterState, object_key
from stromboli.state.resource_names import resources_of
from stromboli.workloads import Family
from stromboli.workloads.amounts import formatted
from stromboli.workloads.labelled import id_of, object_of, stands_for_label

#: texts, by their source
Texts: TypeAlias = Mapping[str, str]
RulesOf: TypeAlias = Callable[[str | None], Sequence[QueueRule]]
"""The rules of a policy, given as text, by which workloads get their queues; None is the policy in force."""

_DELETE = "delete"
#: documents, objects, and as many pods of workloads
_MOST = 10_000
#: resources of nodes and queues: each is a column of all nodes
_MOST_RESOURCES = 256


@dataclass(slots=True)
class Changes:
    """Changes read from texts: objects and keys, by kind, and the text of a policy."""

    objects: list[tuple[str, Any]] = field(default_factory=list)
    removed: list[tuple[str, str]] = field(default_factory=list)
    policy: str | None = None
    #: workloads that are changed
    standing: list[Standing] = field(default_factory=list)
    #: why workloads, or parts of them, have no pods yet
    without_pods: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def apply(self, state: ClusterState) -> None:
        """Make the changes."""
        for kind, key in self.removed:
            state.delete(kind, key)
        with state.expecting(self.objects):
            for kind, obj in self.objects:
                state.upsert(kind, obj)

    @property
    def pods(self) -> list[str]:
        """The keys of the pods that are added or changed."""
        return [object_key(obj) for kind, obj in self.objects if kind == "Pod"]


def try_changes(texts: Texts, rehearsal: Rehearsal, engine: Callable[[str], Engine]) -> WhatIf:
    """Effects of the changes in some texts; those that cannot be used are among the problems.

    `engine` makes one of a policy. Raises PolicyError, and MistakesError when nothing of the texts can be used.
    """

    def by(policy: str | None) -> Engine:
        return rehearsal.engine if policy is None else engine(policy)

    changes = read_changes(texts, rehearsal.state, rehearsal.step, lambda policy: by(policy).policy.queue_rules)
    if changes.problems and not (changes.objects or changes.removed or changes.policy):
        raise MistakesError(changes.problems)
    other = None if changes.policy is None else by(changes.policy)
    found = what_if(rehearsal, changes.apply, engine=other, about=changes.pods)
    problems = [*changes.problems, *found.problems]
    return msgspec.structs.replace(found, without_pods=changes.without_pods, problems=problems)


def read_changes(
    texts: Texts, state: ClusterState, watch: Watch = lambda steps: None, rules: RulesOf = lambda policy: ()
) -> Changes:
    """Read changes to a state from texts of YAML or JSON; errors are in `problems`.

    `watch` is called for steps of the work, and may raise to abort it. New workloads get their queues by the `rules` of
    the policy among the texts, or of the one in force.
    """
    out, there = Changes(), Workloads(state)
    proposals: list[Proposal] = []
    for source, text in texts.items():
        try:
            for number, document in enumerate(read_either(text, json=source.endswith(".json")), 1):
                if number > _MOST:
                    return Changes(problems=[f"{source}: has more than {_MOST:,} documents"])
                watch(CALL)
                where = f"{source}: document {number}"
                for place, each in _flat(document, where, out.problems):
                    _sort(out, proposals, each, place, there)
        except DocumentError as error:
            out.problems.append(f"{source}: {error}")
    source = ", ".join(texts)
    _decode(out, proposals, source, state, watch, rules)
    if not (out.objects or out.removed or out.policy or out.problems):
        out.problems.append(f"{source}: no changes")
    return out


def _flat(document: Any, where: str, problems: list[str]) -> Iterable[tuple[str, Any]]:
    """The objects of a document, each after where it is."""
    if not is_list(document):
        return () if document is None else ((where, document),)
    items = document.get("items") or []
    if isinstance(items, list):
        return [(f"{where}: item {number}", of_list(document["kind"], item)) for number, item in enumerate(items, 1)]
    problems.append(f"{where}: items: should be a list, not {shown(items)}")
    return ()


def _sort(out: Changes, proposals: list[Proposal], document: Any, where: str, there: Workloads) -> None:
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
        _remove(out, document, where, there)
    elif (standing := there.of(document)) is not None:
        # An object of the API server would come with its pods.
        metadata = {key: value for key, value in document["metadata"].items() if key != "uid"}
        proposals.append(Proposal(where, {**document, "metadata": metadata}, begun=True))
        out.standing.append(standing)
    else:
        proposals.append(_proposal(where, document, there.state))


def _remove(out: Changes, document: dict[str, Any], where: str, there: Workloads) -> None:
    kind, key = str(document.get("kind")), _key(document)
    if document["$patch"] != _DELETE:
        out.problems.append(f"{where}: $patch: should be {_DELETE}, not {shown(document['$patch'])}")
    elif not key.rpartition("/")[2]:
        out.problems.append(f"{where}: {readable(kind)}: metadata.name: is required")
    elif (standing := there.of(document)) is not None:
        out.removed += standing.removed()
    elif key not in there.state.keys(kind):
        out.problems.append(f"{where}: there is no {readable(kind)} {readable(key)} to remove")
    else:
        out.removed.append((kind, key))


def _key(document: dict[str, Any]) -> str:
    """The key under which an object is known, if it is."""
    metadata = document.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    name = str(metadata.get("name", ""))
    return name if document.get("kind") in CLUSTER_KINDS else f"{metadata.get('namespace') or 'default'}/{name}"


def _proposal(where: str, document: dict[str, Any], state: ClusterState) -> Proposal:
    """A document laid over the object of its name, if it is there."""
    known = _known(str(document.get("kind")), _key(document), state)
    if known is None:
        return Proposal(where, document)
    return Proposal(where, _merged(known, document), _merged({}, document), known)


def _known(kind: str, key: str, state: ClusterState) -> dict[str, Any] | None:
    """The manifest of an existing object, as far as it was read."""
    found = _found(kind, key, state) if key in state.keys(kind) else None
    if isinstance(found, KubeObject):
        return found.model_dump(by_alias=True, exclude_unset=True, mode="json")
    if isinstance(found, msgspec.Struct):
        out: dict[str, Any] = _without_nothing(msgspec.to_builtins(found))
        return out
    return dict(found) if isinstance(found, dict) else None


def _found(kind: str, key: str, state: ClusterState) -> Any:
    """An existing object, None where its kind is not kept."""
    match kind:
        case "Pod":
            pod = state.record(key)
            return pod and pod_of(pod, pod.node_name, PodStatus(phase="Running" if pod.node_name else "Pending"))
        case "Node":
            node = state.nodes.record(key)
            return node and node_of(node)
        case "PodGroup":
            return state.pod_group(key)
    tables: dict[str, Mapping[str, Any]] = {
        "Queue": state.queues,
        "HyperNode": state.hyper_nodes,
        "PriorityClass": state.priority_classes,
    }
    return tables[kind][key] if kind in tables else state.objects[kind][key]


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


def _decode(
    out: Changes, proposals: list[Proposal], source: str, state: ClusterState, watch: Watch, rules: RulesOf
) -> None:
    changed = len(proposals) + len(out.removed)
    if changed > _MOST:
        out.problems.append(f"{source}: changes {changed:,} objects, more than {_MOST:,}")
        out.removed = []
        return
    if not proposals:
        return
    gone = {key for kind, key in out.removed if kind == "Node"}
    nodes = (node for node in state.nodes.records if node is not None and node.name not in gone)
    loaded = load_each(proposals, _MOST, watch, nodes)
    resources = {resource for kind, obj in loaded.objects for resource in resources_of(kind, obj)}
    if len(resources) > _MOST_RESOURCES:
        out.problems.append(f"{source}: names {len(resources):,} resources, more than {_MOST_RESOURCES}")
        out.removed = []
        return
    given = {(kind, object_key(obj)) for kind, obj in loaded.objects}
    # Removed objects, and the old parts of existing workloads, leave their part of the quotas.
    leaving = itertools.chain(out.removed, *(standing.removed() for standing in out.standing))
    there = [*_heeded(state, loaded), *_quotas(state, {key for kind, key in leaving if kind == "Pod"})]
    loaded.objects += [each for each in there if (each[0], object_key(each[1])) not in given]
    before = ((each.before or {}).get("spec") or {} for each in proposals)
    missed = {spec.get("priorityClassName", "") for spec in before}
    by = rules(out.policy)
    standing = _named_by_labels(loaded, state)
    admitted = admit(loaded, state.scheduler_names, missed, by, state.pod_group)
    out.problems += loaded.problems
    for kind, obj in in_order(admitted):
        # Existing priority classes, namespaces and queues stay as they are; pods may get a PodGroup, it a queue.
        known_queue = state.queues.get(obj.key) if kind == "Queue" else None
        made = kind == "Queue" and bool(by) and known_queue is None
        commanded = bool(loaded.commands) and kind == "Queue" and obj != known_queue
        stands = kind == "PodGroup" and (stands_for_label(obj.metadata.name) or obj.key in standing)
        joins = stands and obj.key in state.keys(kind)
        if (kind == "PodGroup" and not joins) or made or commanded or (kind, object_key(obj)) in given:
            out.objects.append((kind, obj))
    out.objects += [("PodGroup", group) for group in standing.values() if group is not None]
    for each in out.standing:
        out.objects, removed = each.continued(out.objects)
        out.removed += removed
    told = out.without_pods if out.objects or out.removed else out.problems
    told += loaded.empty.values()
    foreign = [obj for kind, obj in out.objects if kind == "Pod" and not obj.spec.node_name and not state.is_ours(obj)]
    names = ", ".join(sorted(state.scheduler_names))
    for obj in foreign:
        served = f"{obj.spec.scheduler_name} is not served here, but {names}"
        out.problems.append(f"{source}: Pod {obj.metadata.key}: spec.schedulerName: {served}")


def _heeded(state: ClusterState, loaded: Loaded) -> Iterator[tuple[str, Any]]:
    """Existing objects that affect the admission of new ones."""
    yield from (("PriorityClass", known) for known in state.priority_classes.values())
    yield from ((kind, known) for kind in ("Namespace", "LimitRange") for known in state.objects[kind].values())
    yield from (("Queue", known) for known in state.queues.values() if loaded.commands)


def _quotas(state: ClusterState, gone: Collection[str]) -> Iterator[tuple[str, Any]]:
    """The existing ResourceQuotas once some pods are gone, with their kind."""
    pods = [pod for key in gone if (pod := state.record(key)) is not None]
    for manifest in state.objects["ResourceQuota"].values():
        namespace = manifest["metadata"].get("namespace") or "default"
        mine = [pod for pod in pods if pod.namespace == namespace and counts(manifest, Counted.of(pod))]
        status, freed = manifest.get("status") or {}, used_by(mine)
        used = {name: most - freed.get(common_name(name), 0) for name, most in amounts(status.get("used")).items()}
        left = {name: formatted(max(Fraction(0), amount)) for name, amount in used.items()}
        yield "ResourceQuota", {**manifest, "status": {**status, "used": left}}


def _named_by_labels(loaded: Loaded, state: ClusterState) -> dict[str, PodGroup | None]:
    """The existing PodGroups of objects which labels of pods name, by key, each as a document changes it.

    The objects become known, so that pods join these groups.
    """
    given = {label: uid for uid, owner in loaded.owners.items() if (label := id_of(owner))}
    found: dict[str, PodGroup | None] = {}
    for group in filter(None, state.jobs.pod_groups):
        there = object_of(group)
        if there is None:
            continue
        uid, changed = there["metadata"]["uid"], loaded.owners.pop(given.get(id_of(there), ""), None)
        loaded.owners[uid] = there if changed is None else {**changed, "metadata": {**changed["metadata"], "uid": uid}}
        found[group.key] = None if changed is None else _followed(group, loaded.owners[uid], loaded)
    return found


def _followed(group: PodGroup, owner: dict[str, Any], loaded: Loaded) -> PodGroup:
    kind = loaded.kinds.of(owner)
    assert kind is not None
    changes = Family(owner, kind, kind.read(owner), loaded.kinds).changes(group)
    return PodGroup.parse(_merged(group.model_dump(by_alias=True, exclude_unset=True, mode="json"), changes))
