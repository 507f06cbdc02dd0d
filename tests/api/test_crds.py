"""Reading the custom resources, writing them back, and the CRDs generated from them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from stromboli.api import crd_schema
from stromboli.api.crds import (
    KINDS,
    HyperNode,
    NetworkTopology,
    PodGroup,
    PodGroupCondition,
    PodGroupPhase,
    PodGroupStatus,
    Queue,
    dumped,
)
from stromboli.api.errors import InvalidObjectError

QUEUE: dict[str, Any] = {
    "apiVersion": "scheduling.volcano.sh/v1beta1",
    "kind": "Queue",
    "metadata": {
        "name": "research",
        "uid": "1",
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "generation": 7,
    },
    "spec": {
        "weight": 3,
        "capability": {"cpu": 4, "nvidia.com/gpu": "8"},
        "deserved": {"memory": "1.5Gi"},
        "guarantee": {"resource": {"cpu": "500m"}},
        "reclaimable": False,
        "parent": "root",
        "priority": 5,
        "affinity": {"nodeGroupAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": ["gpu"]}},
    },
    "status": {"state": "Open", "allocated": {"cpu": "1"}, "inqueue": 2},
}
POD_GROUP: dict[str, Any] = {
    "apiVersion": "scheduling.volcano.sh/v1beta1",
    "kind": "PodGroup",
    "metadata": {"name": "train", "namespace": "team", "labels": {"a": "b"}},
    "spec": {
        "minMember": 3,
        "minTaskMember": {"worker": 2},
        "queue": "research",
        "priorityClassName": "high",
        "minResources": {"cpu": "3"},
        "networkTopology": {"mode": "soft", "highestTierAllowed": 2},
        "subGroupPolicy": [
            {
                "name": "stage",
                "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
                "matchLabelKeys": ["stage"],
                "subGroupSize": 2,
                "networkTopology": {"highestTierName": "rack"},
            }
        ],
    },
    "status": {
        "phase": "Inqueue",
        "conditions": [
            {
                "type": "Unschedulable",
                "status": "True",
                "transitionID": "s-1",
                "lastTransitionTime": "2026-01-02T03:04:05Z",
                "observedGeneration": 4,
            }
        ],
    },
}
HYPER_NODE: dict[str, Any] = {
    "apiVersion": "topology.volcano.sh/v1alpha1",
    "kind": "HyperNode",
    "metadata": {"name": "rack-1"},
    "spec": {
        "tier": 1,
        "tierName": "rack",
        "members": [
            {"type": "Node", "selector": {"exactMatch": {"name": "node-1"}}},
            {"type": "Node", "selector": {"regexMatch": {"pattern": "^node-2"}}},
            {"type": "HyperNode", "selector": {"labelMatch": {"matchLabels": {"rack": "1"}}}},
        ],
    },
    "status": {"nodeCount": 3},
}


class TestRead:
    def test_queue(self) -> None:
        queue = Queue.parse(QUEUE)
        assert queue.key == "research"
        assert queue.metadata.creation_timestamp == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
        assert queue.metadata.generation == 7
        assert queue.spec.capability == {"cpu": 4, "nvidia.com/gpu": "8"}
        assert queue.spec.guarantee.resource == {"cpu": "500m"}
        assert queue.spec.affinity.node_group_affinity is not None
        assert queue.spec.affinity.node_group_affinity.required == ["gpu"]
        assert (queue.status.state, queue.status.inqueue) == ("Open", 2)

    def test_pod_group(self) -> None:
        group = PodGroup.parse(POD_GROUP)
        assert group.key == "team/train"
        assert group.spec.min_task_member == {"worker": 2}
        assert group.spec.network_topology == NetworkTopology(mode="soft", highest_tier_allowed=2)
        (policy,) = group.spec.sub_group_policy
        assert (policy.match_label_keys, policy.sub_group_size, policy.min_sub_groups) == (["stage"], 2, 0)
        assert group.status.conditions[0].transition_id == "s-1"

    def test_hyper_node(self) -> None:
        node = HyperNode.parse(HYPER_NODE)
        exact, regex, label = [member.selector for member in node.spec.members]
        assert exact.exact_match is not None
        assert exact.exact_match.name == "node-1"
        assert regex.regex_match is not None
        assert regex.regex_match.pattern == "^node-2"
        assert label.label_match is not None
        assert label.label_match.match_labels == {"rack": "1"}

    def test_what_absent_fields_mean(self) -> None:
        queue = Queue.parse({"metadata": {"name": "q"}})
        assert (queue.spec.weight, queue.spec.reclaimable, queue.spec.deserved, queue.status.state) == (
            0,
            None,
            None,
            "",
        )
        group = PodGroup.parse({"metadata": {"name": "g"}})
        assert (group.spec.min_member, group.spec.queue, group.spec.min_resources, group.status.phase) == (
            0,
            "default",
            None,
            "",
        )
        assert NetworkTopology().mode == "hard"

    def test_null_is_absent(self) -> None:
        nothing = {"minMember": None, "queue": None, "minResources": None, "minTaskMember": None}
        metadata = {"name": "g", "namespace": None, "creationTimestamp": None, "labels": None}
        group = PodGroup.parse({"metadata": metadata, "spec": nothing, "status": None})
        assert group == PodGroup.parse({"metadata": {"name": "g"}})
        assert "queue" not in group.spec.model_fields_set

    def test_unknown_fields_pass(self) -> None:
        group = PodGroup.parse({**POD_GROUP, "spec": {**POD_GROUP["spec"], "novel": {"a": 1}}, "extra": 1})
        assert group == PodGroup.parse(POD_GROUP)

    def test_yaml_timestamps(self) -> None:
        manifest = yaml.safe_load("metadata: {name: q, creationTimestamp: 2026-01-02T03:04:05Z}")
        assert Queue.parse(manifest).metadata.creation_timestamp == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def _queue(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "q"}, "spec": spec}


def _group(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "g", "namespace": "team"}, "spec": spec}


def _hyper_node(member: Any) -> dict[str, Any]:
    return {"metadata": {"name": "h"}, "spec": {"tier": 1, "members": [member]}}


HINT = "is not a Kubernetes quantity (such as 500m, 2, 1.5Gi or 1e3)"


@pytest.mark.parametrize(
    ("kind", "manifest", "message"),
    [
        ("Queue", [], "Queue: input should be a mapping, not []"),
        ("Queue", {"spec": {}}, "Queue: metadata: is required"),
        ("Queue", {"metadata": {}}, "Queue: metadata.name: is required"),
        ("Queue", {"metadata": {"name": None}}, "Queue: metadata.name: is required"),
        (
            "Queue",
            {"kind": "Pod", "metadata": {"name": "q"}},
            "Queue q: kind: input should be 'Queue', not 'Pod'",
        ),
        (
            "Queue",
            {"metadata": {"name": "q", "labels": {"a": 1}}},
            "Queue q: metadata.labels.a: input should be a valid string, not 1",
        ),
        ("Queue", _queue(weight="ten"), "Queue q: spec.weight: input should be a valid integer, not 'ten'"),
        ("Queue", _queue(weight=True), "Queue q: spec.weight: input should be a valid integer, not True"),
        (
            "Queue",
            _queue(weight=2**31),
            "Queue q: spec.weight: input should be less than or equal to 2147483647, not 2147483648",
        ),
        (
            "Queue",
            _queue(reclaimable="yes"),
            "Queue q: spec.reclaimable: input should be a valid boolean, not 'yes'",
        ),
        (
            "Queue",
            _queue(dequeueStrategy="lifo"),
            "Queue q: spec.dequeueStrategy: input should be 'fifo' or 'traverse', not 'lifo'",
        ),
        (
            "Queue",
            _queue(capability=[1]),
            "Queue q: spec.capability: input should be a valid dictionary, not [1]",
        ),
        (
            "Queue",
            _queue(capability={"nvidia.com/gpu": "1x"}),
            f"Queue q: spec.capability[nvidia.com/gpu]: '1x' {HINT}",
        ),
        ("Queue", _queue(deserved={"cpu": [1]}), "Queue q: spec.deserved.cpu: should be a quantity, not [1]"),
        (
            "Queue",
            _queue(deserved={"cpu": True}),
            "Queue q: spec.deserved.cpu: should be a quantity, not True",
        ),
        (
            "Queue",
            _queue(guarantee={"resource": {"memory": "-1Gi"}}),
            "Queue q: spec.guarantee.resource.memory: should not be negative, but is '-1Gi'",
        ),
        (
            "PodGroup",
            _group(minResources={"cpu": "1 Gi"}),
            f"PodGroup team/g: spec.minResources.cpu: '1 Gi' {HINT}, did you mean 1Gi?",
        ),
        (
            "PodGroup",
            _group(minTaskMember={"worker": "2"}),
            "PodGroup team/g: spec.minTaskMember.worker: input should be a valid integer, not '2'",
        ),
        (
            "PodGroup",
            _group(subGroupPolicy=[{}, {"subGroupSize": 1.5}]),
            "PodGroup team/g: spec.subGroupPolicy[1].subGroupSize: input should be a valid integer, not 1.5",
        ),
        (
            "PodGroup",
            _group(networkTopology={"mode": "Hard"}),
            "PodGroup team/g: spec.networkTopology.mode: input should be 'hard' or 'soft', not 'Hard'",
        ),
        ("HyperNode", {"metadata": {"name": "h"}}, "HyperNode h: spec: is required"),
        (
            "HyperNode",
            _hyper_node({"type": "node", "selector": {"exactMatch": {"name": "n"}}}),
            "HyperNode h: spec.members[0].type: input should be 'Node' or 'HyperNode', not 'node'",
        ),
        (
            "HyperNode",
            _hyper_node({"type": "Node", "selector": {}}),
            "HyperNode h: spec.members[0].selector: exactly one of exactMatch, regexMatch and labelMatch must be set",
        ),
        ("HyperNode", _hyper_node({"type": "Node"}), "HyperNode h: spec.members[0].selector: is required"),
    ],
)
def test_a_mistake_is_named_in_one_line(kind: str, manifest: Any, message: str) -> None:
    with pytest.raises(InvalidObjectError) as caught:
        KINDS[kind].parse(manifest)
    assert str(caught.value) == message


def test_where_and_path_of_an_error() -> None:
    with pytest.raises(InvalidObjectError) as caught:
        Queue.parse(_queue(weight="x" * 1000), where="queues.yaml, document 3")
    assert (caught.value.where, caught.value.path) == ("queues.yaml, document 3", "spec.weight")
    assert len(str(caught.value)) < 200, "long values are cut"


class TestWrite:
    @pytest.mark.parametrize("manifest", [QUEUE, POD_GROUP, HYPER_NODE], ids=lambda manifest: manifest["kind"])
    def test_back_to_the_manifest(self, manifest: dict[str, Any]) -> None:
        assert KINDS[manifest["kind"]].parse(manifest).manifest() == manifest

    def test_only_what_was_set(self) -> None:
        status = PodGroupStatus(phase=PodGroupPhase.Running, running=0)
        assert dumped(status) == {"phase": "Running", "running": 0}
        assert type(dumped(status)["phase"]) is str

    def test_conditions(self) -> None:
        when = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
        condition = PodGroupCondition(type="Scheduled", status="True", transition_id="s", last_transition_time=when)
        assert dumped(condition) == {
            "type": "Scheduled",
            "status": "True",
            "transitionID": "s",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        }

    def test_a_status_equals_another_of_the_same_content(self) -> None:
        assert PodGroupStatus(phase="Pending", failed=0) == PodGroupStatus(phase=PodGroupPhase.Pending)

    def test_recorded_objects(self, conformance_data: Path) -> None:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        manifests = [
            manifest
            for path in sorted(conformance_data.glob("*/*.yaml"))[::10]
            for manifest in yaml.load(path.read_text(), Loader=loader)["objects"]
            if manifest["kind"] in KINDS
        ]
        assert len(manifests) > 100
        assert [KINDS[manifest["kind"]].parse(manifest).manifest() for manifest in manifests] == manifests


class TestDefinitions:
    def test_written_to_a_directory(self, tmp_path: Path) -> None:
        crd_schema.main(str(tmp_path / "new"))
        assert {path.name: path.read_text() for path in (tmp_path / "new").iterdir()} == crd_schema.files()

    @pytest.mark.parametrize("definition", crd_schema.DEFINITIONS, ids=lambda definition: definition.model.__name__)
    def test_every_field_is_in_the_schema_and_structural(self, definition: crd_schema.Definition) -> None:
        crd = crd_schema.custom_resource_definition(definition)
        (version,) = crd["spec"]["versions"]
        schema = version["schema"]["openAPIV3Schema"]
        assert version["subresources"] == {"status": {}}
        assert crd["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
        for path, node in _nodes("", schema):
            assert "$ref" not in node, path
            assert "type" in node or node.get("x-kubernetes-int-or-string"), path
            assert not {"title", "exclusiveMaximum", "const"} & set(node), path
            assert None not in node.get("enum", []), path

    def test_defaults_are_those_of_the_api_server(self) -> None:
        def defaults(definition: crd_schema.Definition) -> dict[str, Any]:
            schema = crd_schema.open_api_schema(definition.model)
            return {path: node["default"] for path, node in _nodes("", schema) if "default" in node}

        queue, group, hyper_node = map(defaults, crd_schema.DEFINITIONS)
        assert queue == {".spec": {}, ".spec.weight": 1, ".spec.dequeueStrategy": "traverse"}
        assert group == {
            ".spec": {},
            ".spec.queue": "default",
            ".spec.networkTopology.mode": "hard",
            ".spec.subGroupPolicy[].networkTopology.mode": "hard",
            ".spec.subGroupPolicy[].subGroupSize": 1,
            ".spec.subGroupPolicy[].minSubGroups": 0,
        }
        assert hyper_node == {}


def _nodes(path: str, schema: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    found = [(path, schema)]
    for name, child in schema.get("properties", {}).items():
        found += _nodes(f"{path}.{name}", child)
    if isinstance(schema.get("additionalProperties"), dict):
        found += _nodes(f"{path}.*", schema["additionalProperties"])
    if "items" in schema:
        found += _nodes(f"{path}[]", schema["items"])
    return found
