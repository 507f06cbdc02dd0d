"""Settings of a workload by labels and annotations: on the workload, on its owner, or on its pods.

Each is looked up in one order: the workload itself, what owns it, what it owns, and the pod. Keys of Volcano come
before those of Kueue and KAI, and a field of the spec comes after both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from stromboli.api import crds, readers
from stromboli.api.errors import InvalidObjectError
from stromboli.api.validation import field_path, shown
from stromboli.state.pods import EVICTED_TOGETHER, QUEUE_ANNOTATION
from stromboli.workloads.paths import Object, at, described, items, labels, notes, seconds, text

MIN_MEMBER = ("scheduling.volcano.sh/group-min-member", "kai.scheduler/batch-min-member")
#: with this label Kueue suspends and resumes a workload
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
QUEUE = (QUEUE_ANNOTATION, "volcano.sh/queue-name", KUEUE_QUEUE, "kai.scheduler/queue")
PRIORITY_CLASS = ("ray.io/priority-class-name", "kueue.x-k8s.io/priority-class", "priorityClassName")
RUN_TIME = (crds.RUN_TIME, "kueue.x-k8s.io/max-exec-time-seconds")
PREEMPTABLE = "volcano.sh/preemptable"
PREEMPTIBILITY = "kai.scheduler/preemptibility"
TOPOLOGY_MODE = "volcano.sh/network-topology-mode"
TOPOLOGY_TIER = "volcano.sh/network-topology-highest-tier"
#: the keys of the highest tier, of Volcano and of KubeRay
TIERS = (TOPOLOGY_TIER, f"{TOPOLOGY_TIER}-allowed")
#: the topology mode of each annotation whose value is the name of a tier
TIER_NAMES = {
    "kueue.x-k8s.io/podset-required-topology": "hard",
    "kai.scheduler/topology-required-placement": "hard",
    "kueue.x-k8s.io/podset-preferred-topology": "soft",
    "kai.scheduler/topology-preferred-placement": "soft",
}
#: Kueue's annotations for the topology of parts of a gang
_SLICED = "kueue.x-k8s.io/podset-slice-required-topology"
_SLICES = (_SLICED, f"{_SLICED}-constraints")
#: where PodGroups of Kubernetes, and its Jobs, name labels of nodes that all pods share
_CONSTRAINTS = tuple(f"spec.{path}schedulingConstraints.topology" for path in ("", "scheduling."))
_DISRUPTED = "spec.scheduling.disruptionMode"
#: annotations of owners that a PodGroup inherits begin so
_INHERITED = ("volcano.sh/", crds.NODE_POOLS)
#: KAI's words -> Volcano's
_KAIS_WORDS = {"preemptible": "true", "non-preemptible": "false"}
#: annotations of pods that a PodGroup takes over
POD_ANNOTATIONS = (PREEMPTABLE, "volcano.sh/cooldown-time", "volcano.sh/revocable-zone", crds.NODE_POOLS)
POD_BUDGETS = ("volcano.sh/jdb-min-available", "volcano.sh/jdb-max-unavailable")
POD_LABELS = ("volcano.sh/preemptable", "volcano.sh/cooldown-time")


def said(objects: Iterable[Object], keys: Sequence[str]) -> tuple[Object, str, str] | None:
    """The first object with an annotation or label of these keys, the key and the value."""
    for obj in objects:
        noted, labelled = notes(obj), labels(obj)
        for key in keys:
            value = noted.get(key) or labelled.get(key)
            if isinstance(value, str) and value:
                return obj, key, value
    return None


def first(objects: Iterable[Object], keys: Sequence[str], path_of: Callable[[Object], str] = lambda _: "") -> str:
    """Value of a key, or in the spec at `path_of`, in the first object that has one; empty for none."""
    for obj in objects:
        found = said((obj,), keys)
        if found is not None:
            return found[2]
        in_spec = text(obj, path_of(obj))
        if in_spec:
            return in_spec
    return ""


def run_time(objects: Iterable[Object], path_of: Callable[[Object], str]) -> str:
    """Maximum run time by the first object that declares one, by a key or in its spec; empty where none does."""
    for obj in objects:
        found, in_spec = said((obj,), RUN_TIME), seconds(obj, path_of(obj))
        if found is not None or in_spec:
            return found[2] if found is not None else f"{in_spec}s"
    return ""


def min_member(owners: Iterable[Object]) -> int | None:
    """Number of pods that start together, by an owner's annotation; None without. Raises InvalidObjectError."""
    for owner in owners:
        for key in MIN_MEMBER:
            if key in notes(owner):
                return noted_count(owner, key)
    return None


def network_topology(objects: Iterable[Object]) -> Object:
    """Network topology of the pods. Raises InvalidObjectError."""
    for obj in objects:
        for path in _CONSTRAINTS:
            key = next((text(each, "key") for _, each in items(obj, path)), "")
            if key:
                return {"mode": "hard", "highestTierName": key}
        noted = {**labels(obj), **notes(obj)}
        topology: Object = {}
        if TOPOLOGY_MODE in noted:
            topology["mode"] = "soft" if noted[TOPOLOGY_MODE].lower() == "soft" else "hard"
        if tier := next((key for key in TIERS if key in noted), ""):
            topology["highestTierAllowed"] = noted_count(obj, tier)
        if topology:
            return topology
        for key, mode in TIER_NAMES.items():
            if noted.get(key):
                return {"mode": mode, "highestTierName": noted[key]}
    return {}


def unread_topology(objects: Iterable[Object]) -> str:
    """The annotation that says how close together parts of a gang are to be; empty for none."""
    found = said(objects, _SLICES)
    return found[1] if found is not None else ""


def inherited(owners: Iterable[Object], pod: Object) -> dict[str, str]:
    """The annotations that a PodGroup takes from the owners and a pod of its."""
    found: dict[str, str] = {}
    everyone = list(owners)
    for owner in everyone:
        for key, value in notes(owner).items():
            if key.startswith(_INHERITED):
                found.setdefault(key, value)
    # A Job that Kubernetes makes a PodGroup of says of it what that does.
    together = any(isinstance(at(owner, _DISRUPTED), dict) and "all" in at(owner, _DISRUPTED) for owner in everyone)
    if together:
        found[EVICTED_TOGETHER] = "true"
    agreed = _KAIS_WORDS.get(first([*everyone, pod], (PREEMPTIBILITY,)).lower())
    return {**({PREEMPTABLE: agreed} if agreed else {}), **found, **dict(_of_pod(notes(pod)))}


def _of_pod(noted: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for key in (*POD_ANNOTATIONS, *[budget for budget in POD_BUDGETS if budget in noted][:1]):
        if key in noted:
            yield key, noted[key]


def noted_count(obj: Object, key: str) -> int:
    """The number in an annotation, or in a label where there is no such annotation.

    Raises InvalidObjectError: a gang that begins with another number than was meant would be worse than none.
    """
    where, given = ("annotations", notes(obj)) if key in notes(obj) else ("labels", labels(obj))
    found = readers.count(given[key])
    if found is None:
        problem = f"should be a number from 0 to {readers.INT32}, not {shown(given[key])}"
        raise InvalidObjectError(described(obj), field_path(("metadata", where, key)), problem)
    return found
