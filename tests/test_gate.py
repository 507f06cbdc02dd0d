"""Whatever an object holds, it is read or set aside by name and field, and everybody else is scheduled.

Hostile values go into every field that the code reads, taken from the types and schemas that objects are read with, and
into every annotation that is named in the source.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import inspect

import stromboli
from stromboli import gate
from stromboli.api import objects
from stromboli.api.crd_schema import open_api_schema
from stromboli.api.crds import KINDS
from stromboli.api.decisions import Bind
from stromboli.discovery import discover
from stromboli.engine import Engine
from stromboli.live.api_server.json import Decoder
from stromboli.live.observer import Observer
from stromboli.live.watch.mirror import Mirror
from stromboli.state.cluster import ClusterState, object_key
from tests.builders import NOON, READS
from tests.fuzz import tried

Field = tuple[int | str, ...]

DIGITS = "9" * 5000
STRINGS = (
    *("", " ", "²", "٣", "-", "-0", "1e400", "NaN", "Infinity", "9223372036854775807", "-9223372036854775808"),
    *("0000-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "10000-01-01T00:00:00Z"),
    *(DIGITS, "9" * 60 + "E", "0-99999999999", "100%", f"{DIGITS}%", "a,b;c", ";,:", "x" * 5000, "🌋", "a-b-²"),
    *("[" * 9999, '{"a":' * 9999, '{"a": 1e400}', f'{{"a": {DIGITS}}}', '{"g": {"cpu": "-1"}}', "{}", "null"),
)
NUMBERS = (0, -1, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 2**64, 1e300)
VALUES = (*STRINGS, *NUMBERS, True, None, [], {}, [None], {"a": None})
TYPES: dict[str, Any] = {
    "Pod": objects.Pod,
    "Node": objects.Node,
    "PriorityClass": objects.PriorityClass,
    **gate._SHAPES,
}
_KEYS = ("cpu", "example.com/x", "volcano.sh/gpu-number", "volcano.sh/vgpu-number")

_GROUP = {"scheduling.k8s.io/group-name": "odd"}
_AMOUNTS = {"cpu": "8", "memory": "8Gi", "pods": "110", "volcano.sh/gpu-number": "1", "volcano.sh/gpu-memory": "8"}
_CONTAINER = {"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
_CLAIM = {"resourceClaimName": "odd", "name": "c"}
_SPREAD = {
    "maxSkew": 1,
    "topologyKey": "zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {f"key-{number}": "" for number in range(256)}},
}
_MANY = 257
_PATTERN = {"type": "Node", "selector": {"regexMatch": {"pattern": "a"}}}
_PORTS = [{"containerPort": 1, "hostPort": number + 1} for number in range(_MANY)]
_TERM: dict[str, Any] = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
_NODES = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_TERM] * 129}}}
_PODS = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}] * _MANY}}
BASES: dict[str, Any] = {
    "Pod": {
        "metadata": {"name": "odd-a-1", "namespace": "default", "uid": "u", "annotations": _GROUP},
        "spec": {
            "schedulerName": "stromboli",
            "containers": [_CONTAINER],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "odd"}}],
            "resourceClaims": [_CLAIM],
        },
        "status": {"phase": "Pending"},
    },
    "Node": {"metadata": {"name": "odd"}, "status": {"allocatable": _AMOUNTS, "capacity": _AMOUNTS}},
    "HyperNode": {
        "metadata": {"name": "odd"},
        "spec": {"tier": 1, "members": [{"type": "Node", "selector": {"exactMatch": {"name": "n1"}}}]},
    },
    "Queue": {"metadata": {"name": "odd"}, "spec": {"weight": 1}, "status": {"state": "Open"}},
    "DeviceTaintRule": {"metadata": {"name": "odd"}, "spec": {"deviceSelector": {}, "taint": {"key": "k"}}},
    "ResourceSlice": {"metadata": {"name": "odd"}, "spec": {"driver": "d", "pool": {"name": "p"}}},
    "Numatopology": {
        "metadata": {"name": "n1"},
        "spec": {
            "cpuDetail": {"0": {"numa": "0", "socket": "0", "core": "0"}},
            "numares": {"cpu": {"allocatable": "0", "capacity": 1}},
            "resReserved": {"cpu": "0"},
            "policies": {"CPUManagerPolicy": "static", "TopologyManagerPolicy": "restricted"},
        },
    },
}
_NAMESPACED = ("PodGroup", "PersistentVolumeClaim", "ResourceClaim", "PodDisruptionBudget", "ResourceQuota")


def base(kind: str) -> Any:
    """A sound object of a kind."""
    namespace = {"namespace": "default"} if kind in _NAMESPACED else {}
    return copy.deepcopy(BASES.get(kind, {"metadata": {"name": "odd", **namespace}}))


def of_type(found: Any, path: Field = ()) -> Iterator[Field]:
    """The fields of a msgspec type that hold a value, as far down as it has any."""
    match found:
        case inspect.StructType(fields=fields):
            for each in fields:
                yield from of_type(each.type, (*path, each.encode_name))
        case inspect.UnionType(types=types):
            for each in types:
                if not isinstance(each, inspect.NoneType):
                    yield from of_type(each, path)
        case inspect.ListType(item_type=item):
            yield path
            yield from of_type(item, (*path, 0))
        case inspect.DictType(value_type=value):
            yield path
            for key in _KEYS:
                yield from of_type(value, (*path, key))
        case _:
            yield path


def of_schema(schema: Any, path: Field = ()) -> Iterator[Field]:
    """The fields of an OpenAPI schema, as paths."""
    yield path
    for name, each in schema.get("properties", {}).items():
        yield from of_schema(each, (*path, name))
    if isinstance(schema.get("additionalProperties"), dict):
        yield from of_schema(schema["additionalProperties"], (*path, "cpu"))
    if "items" in schema:
        yield from of_schema(schema["items"], (*path, 0))


def of_value(value: Any, path: Field = ()) -> Iterator[Field]:
    """The fields of an example, as paths."""
    yield path
    for key, each in value.items() if isinstance(value, dict) else ():
        yield from of_value(each, (*path, key))


def annotations() -> list[str]:
    """Every annotation or label that the source names."""
    source = "".join(path.read_text() for path in Path(stromboli.__file__).parent.rglob("*.py"))
    return sorted(
        set(re.findall(r'"((?:[a-z0-9.]+\.)?(?:volcano\.sh|k8s\.io|nvidia\.com)/[a-z-]+|sla-[a-z-]+)"', source))
    )


def fields() -> list[tuple[str, Field]]:
    """Everything that can be hostile: kinds and paths."""
    found = [(kind, path) for kind, type in TYPES.items() for path in of_type(inspect.type_info(type))]
    found += [(kind, path) for kind, model in KINDS.items() for path in of_schema(open_api_schema(model))]
    found += [("Numatopology", path) for path in of_value(BASES["Numatopology"])]
    marks = [("Pod", "labels"), *((kind, "annotations") for kind in ("Pod", "Node", "PodGroup", "Queue"))]
    found += [(kind, ("metadata", where, key)) for kind, where in marks for key in annotations()]
    # The API server writes names itself, or refuses those that are none.
    identity = [("metadata",), *(("metadata", part) for part in ("name", "namespace", "uid"))]
    return sorted({at for at in found if at[1] and at[1][:2] not in identity}, key=str)


def put(target: Any, path: Field, value: Any) -> Any:
    """Set a field, with everything on the way to it."""
    key, *rest = path
    if isinstance(key, int):
        items = target if isinstance(target, list) and target else [{}]
        return [put(items[0], tuple(rest), value) if rest else value, *items[1:]]
    held = target if isinstance(target, dict) else {}
    return held | {key: put(held.get(key), tuple(rest), value) if rest else value}


class Aside(Observer):
    """Keeps what was set aside."""

    def __init__(self) -> None:
        self.keys: list[tuple[str, str]] = []

    def malformed(self, kind: str, key: str) -> None:
        self.keys.append((kind, key))


class World:
    """A mirror that is fed as reflectors feed it."""

    def __init__(self) -> None:
        self.aside = Aside()
        self.problems: list[str] = []
        self.mirror = Mirror(ClusterState(["stromboli"], reads=READS), lambda urgent: None, self.aside)
        self.mirror.complain(lambda kind, key, uid, problem: self.problems.append(problem))
        for kind in ("PersistentVolumeClaim", "ResourceClaim", "PodGroup"):
            self.feed(kind, base(kind))
        group = {"metadata": {"name": "sound", "namespace": "default"}, "spec": {"minMember": 2}}
        affinity = {"nodeGroupAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": ["group"]}}
        self.feed("Queue", put({**base("Queue"), "metadata": {"name": "default"}}, ("spec", "affinity"), affinity))
        self.feed("PodGroup", {**group, "status": {"phase": "Inqueue"}})
        labels = {"volcano.sh/nodegroup-name": "group"}
        self.feed("Node", {**base("Node"), "metadata": {"name": "n1", "labels": labels}})
        for number in range(2):
            metadata = {"name": f"sound-{number}", "namespace": "default", "uid": f"sound-{number}"}
            metadata["annotations"] = {"scheduling.k8s.io/group-name": "sound"}
            spec = {"schedulerName": "stromboli", "containers": [_CONTAINER]}
            self.feed("Pod", {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})

    def feed(self, kind: str, manifest: Any) -> None:
        """An event about an object."""
        content = msgspec.json.encode(manifest)
        try:
            decoded = Decoder(TYPES[kind] if kind in ("Pod", "Node", "PriorityClass") else dict[str, Any]).decode(
                content
            )
        except msgspec.ValidationError as error:
            self.mirror.set_aside(kind, object_key(manifest), str(error))
        else:
            self.mirror.event(kind, "ADDED", decoded)

    def bound(self) -> set[str]:
        """Who gets a node in a session in which no plugin fails."""
        result = ENGINE.decide(self.mirror.state.snapshot(), now=NOON)
        assert not result.session.failures
        return {decision.name for decision in result.decisions if isinstance(decision, Bind)}


_SHARING = {"GPUSharingEnable": True, "VGPUEnable": False}
_ARGUMENTS: dict[str, dict[str, Any]] = {
    "deviceshare": {f"deviceshare.{key}": value for key, value in _SHARING.items()},
    "tdm": {"tdm.revocable-zone.rz": "00:00-23:59"},
}
_TIERS = [
    {"name": name, **({"arguments": _ARGUMENTS[name]} if name in _ARGUMENTS else {})}
    for name in sorted(set(discover().plugins) - {"extender", "capacity", "fairshare"})
]
ENGINE = Engine(
    yaml.safe_dump(
        {
            "actions": "enqueue, allocate, consolidation, preempt, reclaim, backfill, shuffle",
            "tiers": [{"plugins": _TIERS}],
        }
    )
)


@tried(30)
@given(st.deferred(lambda: st.sampled_from(fields())), st.sampled_from(VALUES))
@example(("Pod", ("status", "startTime")), "0000-01-01T00:00:00Z")
@example(("Pod", ("metadata", "annotations", "volcano.sh/network-topology-highest-tier")), DIGITS)
@example(("PodGroup", ("metadata", "annotations", "volcano.sh/jdb-min-available")), DIGITS)
@example(("Queue", ("metadata", "annotations", "volcano.sh/nodegroup-resource-limits")), "[" * 9999)
@example(("Node", ("metadata", "annotations", "volcano.sh/gpu-unhealthy-ids")), "²")
@example(("Node", ("metadata", "annotations", "volcano.sh/oversubscription-cpu")), "-9223372036854775808")
@example(("ResourceQuota", ("status", "used")), "null")
@example(("Pod", ("spec", "containers", 0, "ports", 0, "containerPort")), 2**64)
def test_no_value_of_any_field_keeps_others_from_being_scheduled(at: tuple[str, Field], value: Any) -> None:
    kind, path = at
    world = World()
    world.feed(kind, put(base(kind), path, value))
    assert {"sound-0", "sound-1"} <= world.bound()
    # Whatever it was, it is gone when the object is mended.
    world.feed(kind, base(kind))
    assert {"sound-0", "sound-1"} <= world.bound()
    assert not world.mirror._problems


_NOTES = ("metadata", "annotations")


@pytest.mark.parametrize(
    ("kind", "path", "value", "problem"),
    [
        ("Pod", ("spec", "containers", 0, "resources", "requests", "cpu"), "lots", "is not a Kubernetes quantity"),
        ("Pod", ("spec", "resources"), {"limits": {"cpu": "lots"}}, "is not a Kubernetes quantity"),
        ("Pod", ("spec", "overhead", "cpu"), "-1", "should not be negative, but is '-1'"),
        ("Pod", ("status", "startTime"), "soon", "should be an RFC 3339 time, not 'soon'"),
        ("Pod", ("spec", "topologySpreadConstraints"), [_SPREAD], "selects pods by 257 conditions, more than 256"),
        ("Pod", ("spec", "topologySpreadConstraints"), [_SPREAD | {"labelSelector": None}] * _MANY, "pods by 257"),
        ("Pod", ("spec", "affinity"), _PODS, "selects pods by 257 conditions, more than 256"),
        ("Pod", ("spec", "affinity"), _NODES, "selects nodes by 258 conditions, more than 256"),
        ("Pod", ("spec", "nodeSelector"), {f"k{n}": "" for n in range(_MANY)}, "selects nodes by 257 conditions"),
        ("Pod", ("spec", "tolerations"), [{"operator": "Exists"}] * _MANY, "has 257 tolerations, more than 256"),
        (
            "Pod",
            ("spec", "containers"),
            [{"ports": _PORTS[:200]}, {"ports": _PORTS[200:]}],
            "has 257 host ports",
        ),
        ("PodGroup", ("spec", "subGroupPolicy"), [{"name": "a"}] * _MANY, "has 257 entries, more than 256"),
        (
            "PodGroup",
            ("spec", "subGroupPolicy"),
            [{"name": "a", "matchLabelKeys": [str(n) for n in range(1_025)]}],
            "divides pods by 1025 keys and conditions, more than 1024",
        ),
        ("PodGroup", ("spec", "minTaskMember"), {f"r{n}": 1 for n in range(1_025)}, "has 1025 entries, more than 1024"),
        ("PodGroup", ("spec", "minResources"), {f"e.com/r{n}": 1 for n in range(1_025)}, "has 1025 entries"),
        ("PodGroup", (*_NOTES, "volcano.sh/task-topology-affinity"), "a;b," * 128 + "c", "has 257 entries"),
        ("Queue", ("spec", "deserved"), {f"e.com/r{n}": 1 for n in range(1_025)}, "has 1025 entries, more than 1024"),
        ("Queue", (*_NOTES, "volcano.sh/hierarchy"), "root" + "/a" * 64, "has 65 entries, more than 64"),
        ("Pod", (*_NOTES, "volcano.sh/vgpu-ids-new"), ":" * 1_024, "has 1025 entries, more than 1024"),
        ("Pod", (*_NOTES, "nvidia.com/use-gputype"), "," * 1_024, "has 1025 entries, more than 1024"),
        ("HyperNode", ("spec", "members"), [_PATTERN] * _MANY, "selects nodes by 257 patterns and conditions"),
        ("Node", ("status", "capacity", "example.com/x"), "1e400", "is not a Kubernetes quantity"),
        ("Queue", ("spec", "weight"), 2**40, "input should be less than"),
        ("PodGroup", ("status", "conditions"), [{"type": "x", "lastTransitionTime": "0000-01-01T00:00:00Z"}], "year"),
        ("ResourceClaim", ("spec", "devices", "requests"), [{"name": 5}], "Expected `str`, got `int`"),
        ("Pod", ("metadata", "annotations", "volcano.sh/cooldown-time"), DIGITS, "cannot be read: '999"),
        ("Queue", ("metadata", "annotations", "volcano.sh/hierarchy-weights"), "1/²", "cannot be read: '1/²'"),
    ],
)
def test_what_is_set_aside_is_named_with_its_field(kind: str, path: Field, value: Any, problem: str) -> None:
    world = World()
    world.feed(kind, put(base(kind), path, value))
    [told] = world.problems
    assert str(path[-1]) in told or path[0] in told
    assert problem in told
    [(set_aside, key)] = world.aside.keys
    assert set_aside == kind
    assert "odd" in key


def test_a_pod_that_is_set_aside_still_takes_up_its_node() -> None:
    world = World()
    odd = put(put(base("Pod"), ("spec", "nodeName"), "n1"), ("status", "phase"), "Running")
    requests = {"cpu": "7", "memory": "lots"}
    world.feed("Pod", put(odd, ("spec", "containers", 0, "resources", "requests"), requests))
    snapshot = world.mirror.state.snapshot()
    assert snapshot.nodes.used[0, snapshot.nodes.facts.index["n1"]] == 7000
    assert not world.bound()


def test_a_pod_without_a_node_is_not_placed_by_what_it_said_before() -> None:
    world = World()
    world.feed("Pod", base("Pod"))
    assert "default/odd-a-1" in world.mirror.state.pods.by_key
    world.feed("Pod", put(base("Pod"), ("status", "startTime"), "soon"))
    assert "default/odd-a-1" not in world.mirror.state.pods.by_key
    world.feed("Pod", base("Pod"))
    assert "default/odd-a-1" in world.mirror.state.pods.by_key


def test_what_is_nested_too_deep_where_nobody_reads_does_not_matter() -> None:
    manifest = msgspec.json.encode(put(base("Pod"), ("metadata", "managedFields"), "HERE"))
    deep = manifest.replace(b'"HERE"', b'{"f:a\\"[":' * 5_000 + b"1" + b"}" * 5_000)
    assert Decoder(objects.Pod).decode(deep) == Decoder(objects.Pod).decode(manifest)
