"""Write the queues and PodGroups of KAI-Scheduler as those that Stromboli reads. It needs nothing but Python.

    kubectl get nodes,pods,priorityclasses,queues.scheduling.run.ai,podgroups.scheduling.run.ai -A -o json > kai.json
    python examples/from_kai.py < kai.json > cluster.json
    python examples/from_kai.py --queues < kai.json > queues.json

The first file is for `stromboli simulate`, the second, with the queues alone, for `kubectl apply`. What is not carried
over is said on standard error.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

Object = dict[str, Any]

KAI = "scheduling.run.ai/"
VOLCANO = "scheduling.volcano.sh/v1beta1"
FAIR_SHARE = "stromboli.io/fair-share"
GROUP, QUEUE = "scheduling.k8s.io/group-name", "scheduling.volcano.sh/queue-name"
PREEMPTABLE = "volcano.sh/preemptable"
#: KAI's annotation of a pod with its PodGroup, and the labels with its queue
KAI_GROUP, KAI_QUEUES = "pod-group-name", ("kai.scheduler/queue", "runai/queue")
FRACTIONS = ("gpu-fraction", "gpu-memory")
#: by KAI's name of a resource, its name here and the unit of KAI's numbers
RESOURCES = {"cpu": ("cpu", "m"), "memory": ("memory", "M"), "gpu": ("nvidia.com/gpu", "")}
#: what a queue has that does not name it
PRIORITY = 100


def queue(of: Object) -> Object:
    """A queue with its shares in the annotation, resource by resource: KAI has numbers for each."""
    spec = of.get("spec") or {}
    shares = {
        name: share((spec.get("resources") or {}).get(theirs) or {}, unit) for theirs, (name, unit) in RESOURCES.items()
    }
    priority = spec.get("priority")
    own: Object = {"priority": PRIORITY if priority is None else priority, "parent": spec.get("parentQueue")}
    own |= {field: spec.get(field) for field in ("preemptMinRuntime", "reclaimMinRuntime")}
    return {
        "apiVersion": VOLCANO,
        "kind": "Queue",
        "metadata": {"name": of["metadata"]["name"], "annotations": {FAIR_SHARE: json.dumps(shares)}},
        "spec": {key: value for key, value in own.items() if value not in (None, "")},
        "status": {"state": "Open"},
    }


def share(of: Object, unit: str) -> Object:
    """Quota, limit and weight of one resource; what KAI's queue does not name is nothing, and -1 is no bound."""

    def bound(value: float) -> str:
        return "unlimited" if value == -1 else f"{value:.3f}".rstrip("0").rstrip(".") + unit

    return {
        "quota": bound(of.get("quota", 0)),
        "limit": bound(of.get("limit", 0)),
        "weight": of.get("overQuotaWeight", 0),
    }


def pod_group(of: Object, running: bool) -> Object:
    """A PodGroup; whether it may be evicted is a label here."""
    meta, spec = of["metadata"], of.get("spec") or {}
    kept = {key: spec[key] for key in ("queue", "priorityClassName") if spec.get(key)}
    yields = {"preemptible": "true", "non-preemptible": "false"}.get(spec.get("preemptibility", ""))
    labels = {PREEMPTABLE: yields} if yields else {}
    return {
        "apiVersion": VOLCANO,
        "kind": "PodGroup",
        "metadata": {
            **{key: meta[key] for key in ("name", "namespace", "uid", "creationTimestamp") if key in meta},
            "labels": labels,
        },
        "spec": {"minMember": spec.get("minMember", 1), **kept},
        "status": {"phase": "Running" if running else "Pending"},
    }


def pod(of: Object) -> Object:
    """A pod that says in annotations what KAI's annotation and label say."""
    meta = of["metadata"]
    annotations, labels = dict(meta.get("annotations") or {}), meta.get("labels") or {}
    if annotations.get(KAI_GROUP):
        annotations[GROUP] = annotations[KAI_GROUP]
    for label in KAI_QUEUES:
        if label in labels:
            annotations.setdefault(QUEUE, labels[label])
    return {**of, "metadata": {**meta, "annotations": annotations}}


def converted(items: Iterable[Object]) -> Iterator[Object]:
    """All objects, KAI's in other words."""
    items = list(items)
    pods = [each for each in items if each["kind"] == "Pod"]
    running = {group_of(each) for each in pods if (each.get("spec") or {}).get("nodeName")}
    for each in items:
        kai = str(each.get("apiVersion", "")).startswith(KAI)
        if each["kind"] == "Pod":
            yield pod(each)
        elif kai and each["kind"] == "Queue":
            yield queue(each)
        elif kai and each["kind"] == "PodGroup":
            key = each["metadata"].get("namespace", ""), each["metadata"]["name"]
            yield pod_group(each, key in running)
        elif not kai:
            yield each


def group_of(pod: Object) -> tuple[str, str]:
    meta = pod["metadata"]
    return meta.get("namespace", ""), (meta.get("annotations") or {}).get(KAI_GROUP, "")


def lost(items: Iterable[Object]) -> Counter[str]:
    """What is not carried over, by what it is."""
    found: Counter[str] = Counter()
    for each in items:
        spec, annotations = each.get("spec") or {}, each["metadata"].get("annotations") or {}
        if each["kind"] == "Pod" and any(key in annotations for key in FRACTIONS):
            found["pods that ask for a part of a GPU: they count as asking for none"] += 1
        if str(each.get("apiVersion", "")).startswith(KAI) and each["kind"] == "PodGroup":
            found["PodGroups with sub groups: their minMember counts"] += bool(spec.get("subGroups"))
            constraint = spec.get("topologyConstraint") or {}
            found["PodGroups with a topology: write HyperNodes and networkTopology"] += bool(constraint)
    return +found


def main() -> None:
    items = json.load(sys.stdin)["items"]
    for what, number in lost(items).items():
        sys.stderr.write(f"not carried over: {number} {what}\n")
    found = list(converted(items))
    if "--queues" in sys.argv[1:]:
        found = [each for each in found if each["kind"] == "Queue" and each["apiVersion"] == VOLCANO]
    json.dump({"apiVersion": "v1", "kind": "List", "items": found}, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
