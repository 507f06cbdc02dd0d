"""What an API server with the chart's CustomResourceDefinitions would refuse is refused of files, too."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

import pytest

from stromboli import simulation
from stromboli.api import crd_schema
from stromboli.api.documents import read_yaml
from stromboli.simulation.manifests import Loaded, load
from tests.cli.conftest import stromboli

Fields = tuple[str, ...]
Schema = Mapping[str, Any]
_MANY = "[]"
DEFINITIONS = {definition.model.__name__: definition.model for definition in crd_schema.DEFINITIONS}
SCHEMAS: dict[str, Schema] = {kind: crd_schema.open_api_schema(model) for kind, model in DEFINITIONS.items()}
#: what of Kubernetes' kinds and of workloads is bounded, of which the types are known elsewhere
BOUNDS: dict[str, Schema] = next(read_yaml(files(simulation).joinpath("kubernetes_bounds.yaml").read_text()))["kinds"]
WORKLOADS = {
    **{f"V1{kind}": ("apps/v1", kind) for kind in ("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet")},
    "V1ReplicationController": ("v1", "ReplicationController"),
    "V1Job": ("batch/v1", "Job"),
    "VolcanoJob": ("batch.volcano.sh/v1alpha1", "Job"),
    "KubeflowJob": ("kubeflow.org/v1", "PyTorchJob"),
    "RayCluster": ("ray.io/v1", "RayCluster"),
}
#: of fields that have to be there, and nothing more is said of them
PLAIN = {"key": "a", "capacity": {"storage": 1}, "resources": {"requests": {"storage": 1}}}


def type_of(schema: Schema) -> str | None:
    """Of a schema that does not say it, by what it bounds."""
    hints = {"object": ("properties", "additionalProperties"), "array": ("items",), "integer": ("minimum",)}
    hints["string"] = ("enum", "minLength")
    return schema.get("type") or next(
        (name for name, keys in hints.items() if not schema.keys().isdisjoint(keys)), None
    )


def example(schema: Schema) -> Any:
    """The least that a schema takes."""
    if type_of(schema) == "object":
        known = schema.get("properties", {})
        needed = [*schema.get("required", ()), *list(known)[: schema.get("minProperties", 0)]]
        roles = {"worker": example(schema["additionalProperties"])} if schema.get("minProperties") and not known else {}
        return roles | {name: example(known[name]) if name in known else PLAIN[name] for name in needed}
    if type_of(schema) == "array":
        return [example(schema["items"])] * schema.get("minItems", 0)
    if "enum" in schema:
        return schema["enum"][0]
    if type_of(schema) == "string":
        return "2024-01-01T00:00:00Z" if schema.get("format") == "date-time" else "a"
    return False if schema.get("type") == "boolean" else schema.get("minimum", 1)


def fields(schema: Schema, path: Fields = ()) -> Iterator[tuple[Fields, Schema]]:
    """All fields with their schemas, of the templates of workloads none below the spec, which is a pod's."""
    yield path, schema
    if path[-2:] == ("template", "spec"):
        return
    for name, inner in schema.get("properties", {}).items():
        if path or name not in ("apiVersion", "kind", "metadata"):
            yield from fields(inner, (*path, name))
    if isinstance(schema.get("additionalProperties"), dict):
        yield from fields(schema["additionalProperties"], (*path, "cpu"))
    if "items" in schema:
        yield from fields(schema["items"], (*path, _MANY))


def with_value(schema: Schema, path: Fields, value: Any) -> Any:
    """The least that a schema takes, with a value somewhere in it."""
    if not path:
        return value
    name, *rest = path
    if name == _MANY:
        return [with_value(schema["items"], tuple(rest), value)]
    inner = schema.get("properties", {}).get(name) or schema["additionalProperties"]
    whole = {} if schema.get("minProperties") else example(schema)
    return {**whole, name: with_value(inner, tuple(rest), value)}


def refused(schema: Schema) -> Iterator[Any]:
    """Values of the right type that are out of bounds."""
    if "enum" in schema:
        yield "NoneSuch"
    elif schema.get("x-kubernetes-int-or-string"):
        yield from [-1, "much", *(["1" * (schema["maxLength"] + 1)] if "maxLength" in schema else [])]
    elif type_of(schema) == "integer":
        yield from [schema["minimum"] - 1] if "minimum" in schema else []
        yield from [schema["maximum"] + 1] if "maximum" in schema else []
    elif type_of(schema) == "string":
        yield from ["a" * (schema["maxLength"] + 1)] if "maxLength" in schema else []
        yield from [""] if schema.get("minLength") else []
        yield from ["Not_A_Name!", "a\n"] if "pattern" in schema else []
    elif type_of(schema) == "object":
        if "maxProperties" in schema and "additionalProperties" in schema:
            yield {f"example.com/r{number}": "1" for number in range(schema["maxProperties"] + 1)}
    elif type_of(schema) == "array":
        yield from [[]] if schema.get("minItems") else []


def manifest(kind: str, path: Fields, value: Any) -> dict[str, Any]:
    body = with_value(SCHEMAS[kind] if kind in SCHEMAS else BOUNDS[kind], path, value)
    if kind in SCHEMAS:
        body["apiVersion"] = DEFINITIONS[kind].model_fields["api_version"].default
    elif kind in WORKLOADS:
        body["apiVersion"], kind = WORKLOADS[kind]
    return {**body, "kind": kind, "metadata": {"name": "a"}}


def read(document: dict[str, Any], *, lenient: bool = False) -> Loaded:
    return load(["-"], io.BytesIO(json.dumps(document).encode()), lenient=lenient)


CASES = [
    pytest.param(kind, path, value, id=f"{kind}-{'.'.join(path)}-{number}")
    for kind, schema in (SCHEMAS | BOUNDS).items()
    for path, inner in fields(schema)
    for number, value in enumerate(refused(inner))
]


def test_the_definitions_bound_many_fields() -> None:
    assert len(CASES) > 60


@pytest.mark.parametrize(("kind", "path", "value"), CASES)
def test_what_is_out_of_bounds_is_refused_and_named(kind: str, path: Fields, value: Any) -> None:
    (problem,) = read(manifest(kind, path, value)).problems
    last = next(name for name in reversed(path) if name != _MANY)
    own = WORKLOADS[kind][1] if kind in WORKLOADS else kind
    assert problem.startswith(f"standard input: document 1: {own} a: {path[0]}")
    assert last in problem
    assert "\n" not in problem


@pytest.mark.parametrize(
    ("kind", "path", "missing"),
    [
        pytest.param(kind, path, name, id=f"{kind}-{'.'.join((*path, name))}")
        for kind, schema in BOUNDS.items()
        for path, inner in fields(schema)
        for name in inner.get("required", ())
    ],
)
@pytest.mark.parametrize("null", [False, True])
def test_what_is_missing_is_refused_and_named(kind: str, path: Fields, missing: str, null: bool) -> None:
    inner = dict(fields(BOUNDS[kind]))[path]
    rest = example(inner) | {missing: None}
    found = read(manifest(kind, path, rest if null else {key: rest[key] for key in rest if key != missing}))
    (problem,) = found.problems
    assert ".".join((*path, missing)).replace(".[]", "[0]") in problem.replace(": Object missing required field `", ".")


@pytest.mark.parametrize("kind", sorted(BOUNDS.keys() - {"KubeflowJob"}))
def test_the_least_that_is_needed_is_taken(kind: str) -> None:
    assert not read(manifest(kind, (), example(BOUNDS[kind]))).problems


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        pytest.param(kind, path, inner[bound], id=f"{kind}-{'.'.join(path)}-{bound}")
        for kind, schema in (SCHEMAS | BOUNDS).items()
        for path, inner in fields(schema)
        for bound in ("minimum", "maximum")
        if bound in inner and type_of(inner) == "integer"
    ],
)
def test_what_is_on_a_bound_is_taken(kind: str, path: Fields, value: Any) -> None:
    assert not read(manifest(kind, path, value)).problems


@pytest.mark.parametrize(
    ("kind", "name", "spec", "problem"),
    [
        ("Queue", "a", {"parent": "a"}, "spec.parent: a queue cannot be its own parent"),
        ("Queue", "root", {"parent": "a"}, "spec.parent: the root queue has no parent, not 'a'"),
        (
            "Queue", "a", {"deserved": {"nvidia.com/gpu": 9}, "capability": {"nvidia.com/gpu": "8"}},
            "spec.deserved[nvidia.com/gpu]: must not be above capability, but 9 is above 8",
        ),
        (
            "Queue", "a", {"guarantee": {"resource": {"memory": "2Gi"}}, "deserved": {"memory": "1Gi"}},
            "spec.guarantee.resource.memory: must not be above deserved, but 2Gi is above 1Gi",
        ),
        (
            "Queue", "a", {"deserved": {"cpu": 1}, "lendingLimit": {"cpu": 2}},
            "spec.lendingLimit.cpu: must not be above deserved, but 2 is above 1",
        ),
        (
            "Queue", "a", {"guarantee": {"resource": {"cpu": "1500m"}}, "capability": {"cpu": 1}},
            "spec.guarantee.resource.cpu: must not be above capability, but 1.5 is above 1",
        ),
        (
            "PodGroup", "default/a", {"networkTopology": {"highestTierAllowed": 1, "highestTierName": "rack"}},
            "spec.networkTopology: only one of highestTierAllowed and highestTierName may be given",
        ),
        (
            "PodGroup", "default/a",
            {"subGroupPolicy": [
                {"name": "p", "networkTopology": {"highestTierAllowed": 1, "highestTierName": "rack"}},
            ]},
            "spec.subGroupPolicy[0].networkTopology: only one of highestTierAllowed and highestTierName may be given",
        ),
    ],
)  # fmt: skip
def test_fields_that_do_not_go_together_are_named(kind: str, name: str, spec: dict[str, Any], problem: str) -> None:
    *namespace, own = name.split("/")
    metadata = {"name": own, **({"namespace": namespace[0]} if namespace else {})}
    document = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": kind, "metadata": metadata, "spec": spec}
    assert read(document).problems == [f"standard input: document 1: {kind} {name}: {problem}"]
    assert not read(document, lenient=True).problems


def pod(**spec: Any) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}]} | spec}


def asking(requests: dict[str, Any], limits: dict[str, Any] | None = None) -> dict[str, Any]:
    return pod(containers=[{"name": "c", "resources": {"requests": requests, "limits": limits}}])


def selecting(operator: str, values: list[str] | None) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": "zone", "operator": operator, "values": values}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return pod(affinity={"nodeAffinity": required})


def as_a_whole(requests: dict[str, Any], limits: dict[str, Any], **container: Any) -> dict[str, Any]:
    containers = [{"name": "c", "resources": {"requests": container}}, {"name": "d"}]
    return pod(containers=containers, resources={"requests": requests, "limits": limits})


VALUES = (
    "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]"
    ".matchExpressions[0].values"
)
RESOURCES = "spec.containers[0].resources"
NO_CLAIM = "needs volumeClaimName, of a claim that exists, or volumeClaim, by which one is made"
NO_RESOURCE = "is not a resource: all but cpu, memory, ... have a domain, such as nvidia.com/gpu"


def made(kind: str, name: str = "a", **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": name}, **fields}


def tasks(*of: dict[str, Any], **spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "c"}]}}
    spec["tasks"] = [{"template": template, **task} for task in of]
    return {"apiVersion": "batch.volcano.sh/v1alpha1", **made("Job", spec=spec)}


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (asking({"gpu": 1}), f"{RESOURCES}.requests.gpu: 'gpu' {NO_RESOURCE}"),
        (asking({}, {"nvidia/gpu ": 1}), f"{RESOURCES}.limits[nvidia/gpu ]: 'nvidia/gpu ' {NO_RESOURCE}"),
        (asking({"requests.cpu": 1}), f"{RESOURCES}.requests[requests.cpu]: 'requests.cpu' {NO_RESOURCE}"),
        (asking({"nvidia.com/gpu": 0.5}), f"{RESOURCES}.requests[nvidia.com/gpu]: should be a whole number, not 0.5"),
        (asking({}, {"a.b/c": "500m"}), f"{RESOURCES}.limits[a.b/c]: should be a whole number, not '500m'"),
        (asking({"cpu": 2}, {"cpu": 1}), f"{RESOURCES}.requests.cpu: must not be above limits, but 2 is above 1"),
        (
            {"apiVersion": "apps/v1", **made("Deployment", spec={"template": {"spec": asking({"Cpu": 1})["spec"]}})},
            f"spec.template.{RESOURCES}.requests.Cpu: 'Cpu' {NO_RESOURCE}",
        ),
        (as_a_whole({"cpu": 2}, {"cpu": 1}), "spec.resources.requests.cpu: must not be above limits, but 2 is above 1"),
        (
            as_a_whole({"ephemeral-storage": 2}, {}),
            "spec.resources.requests.ephemeral-storage: cannot be requested for a pod as a whole: only cpu, memory "
            "and hugepages-... can",
        ),
        (
            as_a_whole({}, {"cpu": "1"}, cpu="1500m"),
            "spec.resources.requests.cpu: must not be above limits, but 1.5 is above 1",
        ),
        (
            as_a_whole({"cpu": "1"}, {}, cpu="1500m"),
            "spec.resources.requests.cpu: must not be below what containers request, 1.5, but is 1",
        ),
        (
            pod(tolerations=[{"effect": "NoSchedule"}]),
            "spec.tolerations[0].operator: should be Exists where no key is given",
        ),
        (selecting("In", None), f"{VALUES}: In needs some"),
        (selecting("NotIn", []), f"{VALUES}: NotIn needs some"),
        (selecting("Exists", ["a"]), f"{VALUES}: Exists takes none, not ['a']"),
        (selecting("Gt", ["a"]), f"{VALUES}: Gt needs one whole number, not ['a']"),
        (selecting("Lt", ["1", "2"]), f"{VALUES}: Lt needs one whole number, not ['1', '2']"),
        (made("PriorityClass", value=2_000_000_000), "value: must not be above 1000000000, but is 2000000000"),
        (
            made("PriorityClass", "system-a"),
            "metadata.name: names that begin with system- are Kubernetes' own, not 'system-a'",
        ),
        (made("PriorityClass", "system-node-critical", value=1), "value: should be 2000001000 in this class, not 1"),
        (
            made("PodDisruptionBudget", spec={"minAvailable": 1, "maxUnavailable": "5%"}),
            "spec: only one of minAvailable and maxUnavailable may be given",
        ),
        (made("Queue", spec={"capability": {"cpus": 4}}), f"spec.capability.cpus: 'cpus' {NO_RESOURCE}"),
        (made("Queue", spec={"deserved": {"gpu": 4}}), f"spec.deserved.gpu: 'gpu' {NO_RESOURCE}"),
        (made("Node", status={"allocatable": {"gpu": 4}}), f"status.allocatable.gpu: 'gpu' {NO_RESOURCE}"),
        (tasks({"replicas": 2}, minAvailable=3), "spec.minAvailable: must not be above replicas, but 3 is above 2"),
        (
            tasks({"name": "ps"}, {"name": "worker", "dependsOn": {"name": ["pss"]}}),
            "spec.tasks[1].dependsOn.name: there is no task 'pss', did you mean 'ps'?",
        ),
        (tasks({}, {"minAvailable": 2}), "spec.tasks[1].minAvailable: must not be above replicas, but 2 is above 1"),
        (tasks({"name": "w"}, {"name": "w"}), "spec.tasks: 2 tasks have the name 'w'"),
        (
            tasks({"name": "a", "dependsOn": {"name": ["b"]}}, {"name": "b", "dependsOn": {"name": ["a"]}}),
            "spec.tasks: tasks wait for each other: a, b, a",
        ),
        (tasks({"name": "a", "dependsOn": "b"}), "spec.tasks[0].dependsOn: should be a mapping, not 'b'"),
        (tasks({}, volumes=[{"mountPath": "/a"}]), f"spec.volumes[0]: {NO_CLAIM}"),
        (
            tasks({}, volumes=[{"mountPath": "/a", "volumeClaimName": claim} for claim in "cd"]),
            "spec.volumes[1].mountPath: another volume is mounted at '/a'",
        ),
        (
            {"apiVersion": "kubeflow.org/v1", **made("TFJob", spec={})},
            "spec: needs the replicas of its roles, such as pytorchReplicaSpecs",
        ),
    ],
)  # fmt: skip
def test_what_kubernetes_refuses_is_named(document: dict[str, Any], problem: str) -> None:
    (told,) = read(document).problems
    assert told.partition(f"{document['kind']} ")[2].partition(": ")[2] == problem


@pytest.mark.parametrize(
    "document",
    [
        asking({"cpu": "0.5", "memory": 1e9, "ephemeral-storage": 1, "hugepages-2Mi": "4Mi"}, {"cpu": "500m"}),
        asking({"nvidia.com/gpu": "1", "volcano.sh/gpu-memory": 4096, "nvidia.com/mig-1g.5gb": 2.0, "a.b/C_d": 1}),
        asking({"kubernetes.io/batch-cpu": "1500m"}),
        pod(tolerations=[{"operator": "Exists"}, {"key": "a", "effect": ""}]),
        pod(tolerations=[{"key": "a", "operator": "", "value": "b"}]),
        pod(initContainers=None, affinity=None, tolerations=None, schedulingGates=[], ephemeralContainers=[]),
        selecting("Gt", ["-5"]),
        selecting("DoesNotExist", None),
        made("PriorityClass", value=1_000_000_000),
        made("PriorityClass", "system-cluster-critical", value=2_000_000_000),
        made("PriorityClass", "below", value=-2_147_483_648),
        made("PodDisruptionBudget", spec={"maxUnavailable": "5%", "minAvailable": None}),
        tasks({"name": "a", "replicas": 0}, {"name": "b", "minAvailable": 1}, minAvailable=1),
        made("Node", spec={"taints": None}),
        made("Node", status={"capacity": {"pods": 9, "hugepages-1Gi": 0, "attachable-volumes-csi-d": 5, "a.b/c": 1}}),
        made("Queue", spec={"capability": {"limits.cpu": 4, "count/pods": 9, "pods": 9, "ephemeral-storage": "1Gi"}}),
        made("Service", spec={"ports": "odd"}),
        {"apiVersion": "batch/v1", **made("CronJob", spec={})},
    ],
)  # fmt: skip
def test_what_is_odd_and_good_is_taken(document: dict[str, Any]) -> None:
    assert not read(document).problems
    assert not read({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": [document]}).problems


def test_objects_of_unknown_kinds_pass_where_dumps_are_read() -> None:
    assert not read(made("Gadget", spec={"containers": []}), lenient=True).problems
    assert not read(made("Pod", spec={}), lenient=True).problems


def test_expressions_that_are_not_valid_are_named() -> None:
    path = ("spec", "members", _MANY, "selector", "regexMatch", "pattern")
    (problem,) = read(manifest("HyperNode", path, "(")).problems
    assert "HyperNode a: spec.members[0].selector.regexMatch.pattern: the pattern '(' is not valid" in problem


def test_each_rule_of_the_definitions_is_known_to_files() -> None:
    about = {rule["message"] for rules in crd_schema.RULES.values() for rule in rules}
    assert about == {
        "a queue cannot be its own parent",
        "the root queue has no parent",
        "deserved must not be above capability",
        "guarantee must not be above deserved",
        "guarantee must not be above capability",
        "lendingLimit must not be above deserved",
        "only one of highestTierAllowed and highestTierName may be given",
        "pattern must be a regular expression (RE2)",
    }


def test_a_change_is_held_to_the_same_bounds_and_named_by_its_document(tmp_path: Fields) -> None:
    cluster, change = tmp_path / "cluster.json", tmp_path / "change.yaml"
    cluster.write_text(json.dumps(manifest("Queue", (), {})))
    change.write_text(
        "kind: Queue\nmetadata: {name: default}\n---\n" + json.dumps(manifest("Queue", ("spec", "weight"), -1))
    )
    result = stromboli("whatif", "-f", change, "--on", cluster)
    assert result.exit_code == 2
    assert "change.yaml: document 2: Queue a: spec.weight: Invalid value: -1" in result.stderr
