"""Additions that a cluster would make to manifests before a session sees them.

The API server's defaults, the priorities of pods by their class, the queues that the service makes, and a PodGroup for
each pod that is in none.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from stromboli import gate
from stromboli.api import crds, keys, objects
from stromboli.api.crds import QueueState
from stromboli.api.errors import StromboliError
from stromboli.api.validation import did_you_mean, nearest, readable
from stromboli.api.words import counted
from stromboli.policy.queue_rules import QueueRule
from stromboli.simulation.claims import VolumeClaims, with_claims
from stromboli.simulation.defaults import SYSTEM_PRIORITIES, with_allocatable
from stromboli.simulation.manifests import Loaded
from stromboli.simulation.permission import Permitted
from stromboli.state.cluster import object_key
from stromboli.state.pods import group_of as job_of
from stromboli.state.queue_states import obeyed
from stromboli.workloads import Family, family_of, is_bare, label_of, labelled_family
from stromboli.workloads.groups import controller, owners_of
from stromboli.workloads.labelled import KIND, Label, id_of
from stromboli.workloads.model import Starts
from stromboli.workloads.names import is_by_hand, workload_of
from stromboli.workloads.native import OfPods, completed, group_of, in_native_group, native_key

#: the scheduler names that are served where nothing says otherwise
USUAL_NAMES = ("stromboli", "volcano")
_DEFAULT_QUEUE = "default"
_ROOT_QUEUE = "root"
#: phases of pods that hold nothing any longer
_FINISHED = ("Succeeded", "Failed")
#: names for which a similar one is looked for, which is slow for many
_MOST_HINTS = 20


def admit(
    loaded: Loaded,
    scheduler_names: Collection[str],
    missed: Collection[str] = frozenset(),
    rules: Sequence[QueueRule] = (),
    group_of: Callable[[str], crds.PodGroup | None] = lambda key: None,
) -> list[tuple[str, Any]]:
    """The loaded objects as a cluster would have them; refused ones are added to the problems.

    `missed` are priority classes that are known to be missing, and `group_of` finds existing PodGroups by key.
    Workloads get their queues by `rules`, if there are any.
    """
    priorities = _Priorities(obj for kind, obj in loaded.objects if kind == "PriorityClass")
    admitted: list[tuple[str, Any]] = []
    namespaces = {obj["metadata"]["name"]: obj for kind, obj in loaded.objects if kind == "Namespace"}
    written = {obj.key: obj for kind, obj in loaded.objects if kind == "PodGroup"}
    groups, natives = _Groups(loaded, namespaces, rules, written), _NativeGroups(namespaces, rules)
    run_times, volumes = _RunTimes(groups.declared), VolumeClaims(loaded.objects, loaded.owners)
    for kind, obj in Permitted(loaded, priorities.applied).made():
        if kind == "Pod":
            pod = obj
            if pod.spec.scheduler_name in scheduler_names and is_bare(pod):
                pod = groups.joined(pod)
            else:
                pod = in_native_group(pod, lambda key: written.get(key) or group_of(key))
                natives.see(pod)
                run_times.see(pod)
            obj, of_volumes = volumes.made_for(pod)
            obj, claims = with_claims(obj, loaded.templates)
            admitted += [(claim["kind"], claim) for claim in (*of_volumes, *claims)]
        elif kind == "Queue":
            obj = _open(obj)
        elif kind == "Node":
            obj = with_allocatable(obj)
        if kind != "RuntimeClass":
            admitted.append((kind, obj))
    admitted = [
        (kind, run_times.completed(natives.completed(obj)) if kind == "PodGroup" else obj) for kind, obj in admitted
    ]
    if loaded.later:
        unmade = _never_made(admitted, loaded.later, lambda key: groups.made.get(key) or group_of(key))
        admitted = [(kind, obj) for kind, obj in admitted if kind != "Pod" or object_key(obj) not in unmade]
    admitted += [("PodGroup", group) for key, group in groups.made.items() if key not in written]
    loaded.problems += [*_unread(loaded), *_without_class(loaded, {*priorities.names, *missed})]
    found = [*admitted, *_missing_queues(loaded, groups.wanted), *_missing_classes(loaded)]
    return _commanded(found, loaded.commands) if loaded.commands else found


def astray(loaded: Loaded) -> Iterator[str]:
    """A line for each missing node that pods are on. Kubernetes accepts such pods; they count nowhere."""
    nodes = {obj.metadata.name for kind, obj in loaded.objects if kind == "Node"}
    running = (obj for kind, obj in loaded.objects if kind == "Pod" and obj.status.phase not in _FINISHED)
    named = (("Pod", pod, pod.spec.node_name) for pod in running)
    yield from _not_there(loaded, "spec.nodeName", "Node", nodes, named)


def misspelt_schedulers(loaded: Loaded) -> set[str]:
    """Names of schedulers that are much like those that are served here where nothing says otherwise."""
    named = {obj.spec.scheduler_name or "" for kind, obj in loaded.objects if kind == "Pod"}
    return {
        name
        for name in named
        if name not in USUAL_NAMES and not name.startswith(USUAL_NAMES) and nearest(name, USUAL_NAMES, 0.8)
    }


def unserved(loaded: Loaded) -> Iterator[str]:
    """A line for each of those, which no scheduler serves."""
    misspelt = misspelt_schedulers(loaded)
    pods = [obj for kind, obj in loaded.objects if kind == "Pod" and obj.spec.scheduler_name in misspelt]
    named = (("Pod", pod, pod.spec.scheduler_name) for pod in pods)
    yield from _not_there(loaded, "spec.schedulerName", "scheduler", USUAL_NAMES, named)


def _not_there(
    loaded: Loaded, path: str, kind: str, there: Collection[str], named: Iterable[tuple[str, Any, str | None]]
) -> Iterator[str]:
    """A line for each thing that objects name at a path and that is not there; `named` has kind, object and name."""
    naming: dict[str, list[tuple[str, str]]] = {}
    for of, obj, name in named:
        if name and name not in there:
            naming.setdefault(name, []).append((of, object_key(obj)))
    for number, (name, (first, *others)) in enumerate(naming.items()):
        where = f"{loaded.places[first][0]}: " if first in loaded.places else ""
        more = f", which {len(others)} more name" if others else ""
        hint = did_you_mean(name, there) if number < _MOST_HINTS else ""
        yield f"{where}{' '.join(first)}: {path}: there is no {kind} {readable(name)}{more}{hint}"


def _unread(loaded: Loaded) -> Iterator[str]:
    """A line for each annotation that has no effect because it cannot be read."""
    found: dict[str, list[tuple[str, str]]] = {}
    for kind, obj in loaded.objects:
        for line in gate.unread(kind, obj):
            found.setdefault(line, []).append((kind, object_key(obj)))
    for line, (first, *others) in found.items():
        where = f"{loaded.places[first][0]}: " if first in loaded.places else ""
        more = f", in {counted(len(others), 'more object')} as well" if others else ""
        yield f"{where}{' '.join(first)}: {line}{more}"


def _never_made(
    admitted: Sequence[tuple[str, Any]], later: Collection[str], group_of: Callable[[str], crds.PodGroup | None]
) -> Collection[str]:
    """The keys of pods that wait for others of their group to run, which wait for them: they are never made."""
    written = {obj.key: obj for kind, obj in admitted if kind == "PodGroup"}
    jobs = {object_key(obj): job_of(obj.metadata) for kind, obj in admitted if kind == "Pod"}
    there = Counter(job for key, job in jobs.items() if key not in later)
    asked = {job: written.get(job) or group_of(job) for job in set(jobs.values())}
    least = {job: group.spec.min_member for job, group in asked.items() if group is not None and is_by_hand(group)}
    return {key for key, job in jobs.items() if key in later and there[job] < least.get(job, 0)}


class _Priorities:
    """Priority of pods by their class, and whether they may preempt."""

    def __init__(self, classes: Iterator[objects.PriorityClass]) -> None:
        self._values: dict[str, int] = dict(SYSTEM_PRIORITIES)
        self._preemption_policies: dict[str, str | None] = {}
        #: the class of pods that name none
        self._default = ""
        for each in classes:
            self._values[each.metadata.name] = each.value
            self._preemption_policies[each.metadata.name] = each.preemption_policy
            if each.global_default:
                self._default = each.metadata.name

    @property
    def names(self) -> Collection[str]:
        """The classes that there are."""
        return self._values

    def applied(self, pod: objects.Pod) -> objects.Pod:
        if pod.spec.priority is not None:
            return pod
        name = pod.spec.priority_class_name or self._default
        value = self._values.get(name)
        if value is None:
            return pod
        preempts = pod.spec.preemption_policy or self._preemption_policies.get(name)
        spec = replace(pod.spec, priority=value, priority_class_name=name, preemption_policy=preempts)
        return replace(pod, spec=spec)


class _Groups:
    """The PodGroups that the service would make."""

    def __init__(
        self, loaded: Loaded, namespaces: Mapping[str, Any], rules: Sequence[QueueRule], written: Collection[str]
    ) -> None:
        """`written` has the keys of the existing PodGroups."""
        self._loaded = loaded
        self._namespaces = namespaces
        self._rules = rules
        self._written = written
        self._families: dict[str, Family] = {}
        #: messages so far, since the pods of an owner have the same problem
        self._told: set[str] = set()
        #: by key
        self.made: dict[str, crds.PodGroup] = {}
        #: the parents of queues that rules make, by name
        self.wanted: dict[str, str] = {}

    def joined(self, pod: objects.Pod) -> objects.Pod:
        """A pod in its PodGroup."""
        meta = pod.metadata
        pod = replace(pod, metadata=replace(meta, uid=meta.uid or f"{meta.namespace}-{meta.name}"))
        try:
            family = self._family(pod)
            key = f"{meta.namespace}/{family.name(pod)}"
            if key not in self.made:
                manifest = family.manifest(pod)
                manifest["metadata"]["creationTimestamp"] = meta.creation_timestamp
                assigned = family.assigned(pod)
                if assigned.create:
                    self.wanted[assigned.queue] = assigned.parent
                made = self.made[key] = crds.PodGroup.parse(manifest, f"Pod {meta.key}: its PodGroup")
                for line in gate.unread("PodGroup", made):
                    self._tell(f"{workload_of(made) or f'Pod/{meta.name}'} in {meta.namespace}: {line}")
        except StromboliError as error:
            self._tell(str(error))
            return replace(pod, metadata=meta)
        annotations = {**(meta.annotations or {}), **family.annotations(pod)}
        return replace(pod, metadata=replace(meta, annotations=annotations))

    def declared(self, pod: objects.Pod) -> float:
        """The maximum run time of a pod in seconds, by its owners; infinite where none is set."""
        try:
            family = self._family(pod)
            gang = family.workload.gang(family.part(pod))
            return crds.run_time(family.said.get(crds.RUN_TIME) or (gang.run_time if gang else None) or "")
        except (StromboliError, ValueError):
            return math.inf

    def _tell(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            self._loaded.problems.append(line)

    def _family(self, pod: objects.Pod) -> Family:
        manager, known, label = controller(pod), self._loaded.owners, label_of(pod, self._loaded.kinds)
        if label is not None:
            return self._labelled(pod, label)
        family = self._families.get(manager.uid) if manager is not None else None
        if family is None:
            others = [each.uid for each in pod.metadata.owner_references or () if each is not manager]
            owners = list(owners_of(pod, lambda reference: known.get(reference.uid)))
            beside = [known[uid] for uid in others if uid in known]
            namespace = self._namespaces.get(pod.metadata.namespace or "default")
            family = family_of(pod, owners, self._loaded.kinds, beside, namespace, self._rules)
            if manager is not None:
                self._families[manager.uid] = family
                self._tell_missing(pod, manager, family)
        return family

    def _tell_missing(self, pod: objects.Pod, manager: objects.OwnerReference, family: Family) -> None:
        """Tell of a workload that is not there, as in a dump without it, where its PodGroup does not tell all of it."""
        kind = self._loaded.kinds.get(manager.api_version, manager.kind)
        if family.owner is not None or pod.spec.node_name or kind is None or kind.row.starts is not Starts.together:
            return
        namespace = pod.metadata.namespace or "default"
        if kind.row.role_labels or keys.key(namespace, family.name(pod)) not in self._written:
            named = f"{manager.kind} {keys.key(namespace, manager.name)}"
            why = f"{named} is not among the files, so the gang of its pods is not known"
            self._loaded.empty.setdefault(named, why)

    def _labelled(self, pod: objects.Pod, label: Label) -> Family:
        """The group that a label names. Raises StromboliError for one that stands for an object that is not there."""
        family = self._families.get(label.id)
        if family is None:
            known, kinds = self._loaded.owners, self._loaded.kinds
            namespace = self._namespaces.get(label.namespace)
            owners = list(owners_of(pod, lambda reference: known.get(reference.uid)))
            if label.reference is None:
                family = labelled_family(pod, label, owners, kinds, namespace, self._rules)
            else:
                named = next((each for each in known.values() if id_of(each) == label.id), None)
                if named is None:
                    what = f"{KIND} {label.name} of {label.reference.api_version}"
                    raise StromboliError(f"Pod {pod.metadata.key}: label {label.key}: there is no {what}")
                family = family_of(pod, [named], kinds, owners, namespace, self._rules)
            self._families[label.id] = family
        return family


class _RunTimes:
    """Maximum run time of the jobs of existing PodGroups, by the owner of their pods."""

    def __init__(self, declared: Callable[[objects.Pod], float]) -> None:
        self._declared = declared
        #: the longest of each, in seconds, by key
        self._longest: dict[str, float] = {}
        #: by the uid of the pods' manager
        self._known: dict[str, float] = {}

    def see(self, pod: objects.Pod) -> None:
        """Take note of a member's owner."""
        manager, key = controller(pod), job_of(pod.metadata)
        if manager is not None and manager.uid not in self._known:
            self._known[manager.uid] = self._declared(pod)
        seconds = math.inf if manager is None else self._known[manager.uid]
        self._longest[key] = max(seconds, self._longest.get(key, 0.0))

    def completed(self, group: crds.PodGroup) -> crds.PodGroup:
        """A group with the run time, where it does not declare a shorter one."""
        seconds, meta = self._longest.get(group.key, math.inf), group.metadata
        if seconds >= (group.run_time or math.inf):
            return group
        annotations = {**meta.annotations, crds.RUN_TIME: f"{seconds:g}s"}
        return group.model_copy(update={"metadata": meta.model_copy(update={"annotations": annotations})})


class _NativeGroups:
    """Fields that Kubernetes' own PodGroups leave to their namespaces and pods."""

    def __init__(self, namespaces: Mapping[str, Any], rules: Sequence[QueueRule]) -> None:
        self._namespaces, self._rules = namespaces, rules
        #: values in the pods of each, by key
        self._of_pods: dict[str, OfPods] = {}

    def see(self, pod: objects.Pod) -> None:
        """Take note of a member's settings."""
        if pod.spec.scheduling_group is not None:
            key = keys.key(pod.metadata.namespace or "default", group_of(pod))
            self._of_pods[key] = self._of_pods.get(key, OfPods()).seen(pod)

    def completed(self, group: crds.PodGroup) -> crds.PodGroup:
        """A group, completed if it is one of these."""
        if not native_key(group.key):
            return group
        namespace = self._namespaces.get(group.metadata.namespace) or {}
        return completed(group, namespace, self._of_pods.get(group.key, OfPods()), self._rules)


def _open(queue: crds.Queue) -> crds.Queue:
    """A queue as it is once the API server has given it a weight and the service has opened it."""
    if "weight" not in queue.spec.model_fields_set:
        queue = queue.model_copy(update={"spec": queue.spec.model_copy(update={"weight": 1})})
    if not queue.status.state:
        queue = queue.model_copy(update={"status": queue.status.model_copy(update={"state": QueueState.Open})})
    return queue


def _commanded(found: list[tuple[str, Any]], commands: Sequence[Mapping[str, Any]]) -> list[tuple[str, Any]]:
    """Objects with their kinds, with the queues as Commands have them."""
    queues = obeyed({obj.key: obj for kind, obj in found if kind == "Queue"}, commands)
    return [(kind, queues[obj.key] if kind == "Queue" else obj) for kind, obj in found]


def _missing_queues(loaded: Loaded, wanted: Mapping[str, str]) -> Iterator[tuple[str, crds.Queue]]:
    """The queues that the service makes where there are none; `wanted` has the parents of those of rules, by name."""
    there = {obj.key for kind, obj in loaded.objects if kind == "Queue"}
    specs: dict[str, dict[str, Any]] = {_ROOT_QUEUE: {"reclaimable": False}, _DEFAULT_QUEUE: {}}
    specs = {**{name: {"parent": parent} if parent else {} for name, parent in wanted.items()}, **specs}
    for name, spec in specs.items():
        if name not in there:
            yield "Queue", _open(crds.Queue.parse({"metadata": {"name": name}, "spec": {"reclaimable": True, **spec}}))


def _missing_classes(loaded: Loaded) -> Iterator[tuple[str, objects.PriorityClass]]:
    """The classes that every cluster has."""
    there = {obj.metadata.name for kind, obj in loaded.objects if kind == "PriorityClass"}
    for name, value in SYSTEM_PRIORITIES.items():
        if name not in there:
            yield "PriorityClass", objects.PriorityClass(metadata=objects.Metadata(name=name), value=value)


def _without_class(loaded: Loaded, names: Collection[str]) -> Iterator[str]:
    """A line for each class that is named and not there, by which jobs, and pods that are new, have no priority."""
    named = (
        (kind, obj, obj.spec.priority_class_name)
        for kind, obj in loaded.objects
        if kind == "PodGroup" or (kind == "Pod" and obj.spec.priority is None)
    )
    yield from _not_there(loaded, "spec.priorityClassName", "PriorityClass", names, named)
