"""What a change is held to: what it brings, and nothing that was there before."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from stromboli.api.documents import read_yaml
from stromboli.discovery import discover
from stromboli.explain.work import AbandonedError
from stromboli.simulation.admission import admit
from stromboli.simulation.changes import Changes, read_changes
from stromboli.simulation.manifests import load
from stromboli.simulation.run import feed
from stromboli.state.cluster import ClusterState, object_key
from tests.simulation.test_refusals import CASES, WORKLOADS, manifest

(_EVERYTHING,) = read_yaml(Path(__file__).with_name("everything.yaml").read_text())
#: an object of each kind that is kept as it is
OBJECTS = {each["kind"]: each for each in _EVERYTHING["items"] if "template" not in json.dumps(each)}
LABEL = {"metadata": {"labels": {"tried": "yes"}}}


def cluster(*documents: dict[str, Any]) -> ClusterState:
    """A cluster that has such objects, whatever an API server of today would say."""
    text = json.dumps({"kind": "List", "items": documents})
    loaded = load(["-"], io.BytesIO(text.encode()), lenient=True)
    state = ClusterState(("volcano",), reads=discover(None).reads)
    feed(state, admit(loaded, state.scheduler_names))
    return state


def change(state: ClusterState, document: dict[str, Any], more: dict[str, Any]) -> Changes:
    """A change that names the object and has more to say about it."""
    metadata = {key: value for key, value in document["metadata"].items() if key in ("name", "namespace")}
    written = {"kind": document["kind"], **more, "metadata": {**metadata, **more.get("metadata", {})}}
    return read_changes({"change": json.dumps(written)}, state)


@pytest.mark.parametrize("kind", OBJECTS)
def test_a_change_is_laid_over_what_is_there(kind: str) -> None:
    document = OBJECTS[kind]
    found = change(cluster(document), document, LABEL)
    assert found.problems == []
    ((_, given),) = ((of, obj) for of, obj in found.objects if of == kind)
    (_, known), *_ = load(["-"], io.BytesIO(json.dumps(document).encode())).objects
    assert object_key(given) == object_key(known)
    rest = {"spec", "value", "provisioner"} & document.keys()
    assert all(_part(given, part) == _part(known, part) for part in rest if kind not in ("Pod", "Node", "Queue"))


def _part(obj: Any, part: str) -> Any:
    return obj[part] if isinstance(obj, dict) else getattr(obj, part)


def _odd(kind: str, path: tuple[str, ...], value: Any) -> dict[str, Any]:
    document = manifest(kind, path, value)
    if kind == "Pod" and isinstance(document["spec"], dict):
        document["spec"]["schedulerName"] = "volcano"
    return document


#: what is refused and can still be in a cluster, whose definitions were others
ODD = [
    case
    for case in CASES
    if case.values[0] not in WORKLOADS
    and case.values[2] != ""
    and not load(["-"], io.BytesIO(json.dumps(_odd(*case.values)).encode()), lenient=True).problems
]


def test_clusters_may_have_much_that_is_refused() -> None:
    assert len(ODD) > 50


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("kind", "path", "value"), ODD)
def test_what_was_there_before_a_change_is_not_its_mistake(kind: str, path: tuple[str, ...], value: Any) -> None:
    document = _odd(kind, path, value)
    state = cluster(document)
    assert change(state, document, LABEL).problems == []
    assert change(state, document, {**LABEL, path[0]: document.get(path[0])}).problems == []


@pytest.mark.parametrize(
    ("document", "more", "problem"),
    [
        (
            {"kind": "Queue", "metadata": {"name": "q"}, "spec": {"weight": -1}},
            {"spec": {"weight": -2}},
            "spec.weight: Invalid value: -2",
        ),
        (
            {"kind": "Queue", "metadata": {"name": "q"}, "spec": {"deserved": {"cpu": 2}, "capability": {"cpu": 1}}},
            {"spec": {"deserved": {"cpu": 3}}},
            "spec.deserved.cpu: must not be above capability, but 3 is above 1",
        ),
        (
            {"kind": "Queue", "metadata": {"name": "q"}, "spec": {"weight": -1}},
            {"spec": {"wieght": 1}},
            "spec.wieght: unknown field, with the value 1, did you mean 'weight'?",
        ),
        (
            {"kind": "Node", "metadata": {"name": "n"}, "spec": {"taints": [{"key": "a", "effect": "Odd"}]}},
            {"spec": {"taints": [{"key": "a", "effect": "Odd"}, {"key": "b", "effect": "Odder"}]}},
            'spec.taints[1].effect: Unsupported value: "Odder"',
        ),
        (
            {"kind": "StorageClass", "metadata": {"name": "s"}, "newer": {"field": 1}},
            {"volumeBindingMode": "Later"},
            'volumeBindingMode: Unsupported value: "Later"',
        ),
    ],
)
def test_what_a_change_brings_is_refused(document: dict[str, Any], more: dict[str, Any], problem: str) -> None:
    state = cluster(document)
    assert change(state, document, LABEL).problems == []
    (told,) = change(state, document, more).problems
    assert told.startswith(f"change: document 1: {document['kind']} {document['metadata']['name']}: {problem}")


def test_a_kind_that_only_a_plugin_knows_is_told() -> None:
    state = cluster()
    gadget = {"kind": "Gadget", "metadata": {"name": "g", "namespace": "default"}}
    state.upsert("Gadget", gadget)
    assert change(state, gadget, LABEL).problems == [
        "change: document 1: Gadget default/g: kind: unknown kind 'Gadget'"
    ]


def test_a_label_is_taken_away_with_null() -> None:
    node = {"kind": "Node", "metadata": {"name": "n", "labels": {"a": "b", "c": "d"}}}
    found = change(cluster(node), node, {"metadata": {"labels": {"a": None}}})
    assert (found.problems, [obj.metadata.labels for _, obj in found.objects]) == ([], [{"c": "d"}])


def test_a_priority_class_is_a_change_and_gives_pods_their_priority() -> None:
    state = cluster({"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 5})
    spec = {"schedulerName": "volcano", "priorityClassName": "high", "containers": [{"name": "c"}]}
    pod = {"kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    classes = [{"kind": "PriorityClass", "metadata": {"name": name}, "value": 7} for name in ("high", "higher")]
    found = read_changes({"change": json.dumps({"kind": "List", "items": [pod, *classes]})}, state)
    assert found.problems == []
    assert [obj.spec.priority for kind, obj in found.objects if kind == "Pod"] == [7]
    found.apply(state)
    assert {name: state.priority_classes[name].value for name in ("high", "higher")} == {"high": 7, "higher": 7}
    other = json.dumps({**pod, "metadata": {"name": "other"}})
    assert [kind for kind, _ in read_changes({"change": other}, state).objects] == ["Pod", "PodGroup"]


def _deployment(replicas: int, note: int) -> dict[str, Any]:
    pod = {
        "metadata": {"labels": {"app": "a"}, "annotations": {"example.com/note": "x" * note}},
        "spec": {"schedulerName": "volcano", "containers": [{"name": "main", "image": "x"}]},
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "a"}}, "template": pod}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}


def test_each_pod_of_a_workload_is_counted_as_large_as_it_is() -> None:
    counted = list[int]()
    text = {"change": json.dumps(_deployment(50, 10_000))}
    read_changes(text, cluster(), counted.append)
    assert sum(counted) > 50 * 10_000

    def most(steps: int) -> None:
        counted.append(steps)
        if sum(counted) > 100_000:
            raise AbandonedError

    counted.clear()
    with pytest.raises(AbandonedError):
        read_changes(text, cluster(), most)
    assert len(counted) < 10
