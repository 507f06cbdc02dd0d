"""Small random clusters in which rules meet often: few labels, few values, all operators."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from stromboli.api import crds
from stromboli.engine import Engine
from stromboli.framework.session.session import Session
from stromboli.simulation.manifests import decode
from tests import builders
from tests.kube.oracle import World

HOST, ZONE = "kubernetes.io/hostname", "zone"
NAMESPACES = {"default": {"team": "a"}, "other": {"team": "b"}}


def _expression(keys: dict[str, list[str]], operators: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    def of(key: str, operator: str) -> st.SearchStrategy[dict[str, Any]]:
        values = st.lists(st.sampled_from(keys[key]), min_size=1, max_size=2, unique=True)
        if operator in ("Exists", "DoesNotExist"):
            values = st.just([])
        if operator in ("Gt", "Lt"):
            values = st.lists(st.sampled_from(["1", "2"]), min_size=1, max_size=1)
        return st.fixed_dictionaries({"key": st.just(key), "operator": st.just(operator), "values": values})

    return st.tuples(st.sampled_from(sorted(keys)), st.sampled_from(operators)).flatmap(lambda p: of(*p))


_NODE_KEYS = {ZONE: ["a", "b", "c"], "disk": ["ssd", "hdd"], "rank": ["1", "2", "3", "x"]}
_POD_KEYS = {"app": ["web", "db"], "tier": ["1", "2"]}
_SET = ["In", "NotIn", "Exists", "DoesNotExist"]

node_expressions = st.lists(_expression(_NODE_KEYS, [*_SET, "Gt", "Lt"]), max_size=2)
_fields = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.just("metadata.name"),
            "operator": st.sampled_from(["In", "NotIn"]),
            "values": st.sampled_from(["n0", "n1", "gone"]).map(lambda n: [n]),
        }
    ),
    max_size=1,
)
node_terms = st.fixed_dictionaries({"matchExpressions": node_expressions, "matchFields": _fields})
selectors = st.one_of(
    st.sampled_from(_POD_KEYS["app"]).map(lambda app: {"matchLabels": {"app": app}}),
    st.lists(_expression(_POD_KEYS, _SET), min_size=1, max_size=2).map(lambda e: {"matchExpressions": e}),
    st.sampled_from([{}, {"matchLabels": {}}, None]),
)
taints = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["k", "l"]),
        "value": st.sampled_from(["", "v"]),
        "effect": st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"]),
    }
)
tolerations = st.fixed_dictionaries(
    {},
    optional={
        "key": st.sampled_from(["k", "l", "node.kubernetes.io/unschedulable"]),
        "operator": st.sampled_from(["Exists", "Equal"]),
        "value": st.sampled_from(["", "v"]),
        "effect": st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"]),
    },
)
terms = st.one_of(
    st.fixed_dictionaries({"topologyKey": st.sampled_from([HOST, ZONE]), "labelSelector": selectors}),
    st.fixed_dictionaries(
        {"topologyKey": st.sampled_from([ZONE, "disk"]), "labelSelector": selectors},
        optional={
            "namespaces": st.lists(st.sampled_from(["default", "other"]), max_size=2, unique=True),
            "namespaceSelector": st.sampled_from([{}, {"matchLabels": {"team": "b"}}]),
        },
    ),
)
_weighted = st.fixed_dictionaries({"weight": st.integers(1, 9), "podAffinityTerm": terms})


def _pod_affinity(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    required = st.lists(terms, min_size=1, max_size=2)
    preferred = st.lists(_weighted, min_size=1, max_size=2)
    return st.one_of(
        required.map(lambda t: {kind: {"requiredDuringSchedulingIgnoredDuringExecution": t}}),
        preferred.map(lambda t: {kind: {"preferredDuringSchedulingIgnoredDuringExecution": t}}),
    )


_node_affinity = st.fixed_dictionaries(
    {},
    optional={
        "requiredDuringSchedulingIgnoredDuringExecution": st.fixed_dictionaries(
            {"nodeSelectorTerms": st.lists(node_terms, min_size=1, max_size=2)}
        ),
        "preferredDuringSchedulingIgnoredDuringExecution": st.lists(
            st.fixed_dictionaries({"weight": st.integers(1, 9), "preference": node_terms}), max_size=3
        ),
    },
)
constraints = st.fixed_dictionaries(
    {
        "maxSkew": st.integers(1, 2),
        "topologyKey": st.sampled_from([HOST, ZONE]),
        "whenUnsatisfiable": st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]),
        "labelSelector": selectors,
    },
    optional={
        "minDomains": st.integers(1, 3),
        "nodeAffinityPolicy": st.sampled_from(["Honor", "Ignore"]),
        "nodeTaintsPolicy": st.sampled_from(["Honor", "Ignore"]),
        "matchLabelKeys": st.just(["tier"]),
    },
)
_ports = st.lists(
    st.fixed_dictionaries(
        {"containerPort": st.just(80), "hostPort": st.sampled_from([80, 81])},
        optional={"protocol": st.sampled_from(["TCP", "UDP"]), "hostIP": st.sampled_from(["10.0.0.1", "10.0.0.2"])},
    ),
    min_size=1,
    max_size=2,
)
node_specs = st.fixed_dictionaries(
    {}, optional={"taints": st.lists(taints, max_size=2), "unschedulable": st.booleans()}
)
node_labels: st.SearchStrategy[dict[str, str]] = st.fixed_dictionaries(
    {ZONE: st.sampled_from(["a", "b"])},
    optional={key: st.sampled_from(values) for key, values in _NODE_KEYS.items() if key != ZONE},
) | st.just({})


def _spec(**parts: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=parts)


#: parts of a pod's spec that concern the node alone
node_rules = _spec(
    nodeSelector=st.dictionaries(st.just("disk"), st.sampled_from(["ssd", "hdd"]), max_size=1),
    tolerations=st.lists(tolerations, max_size=2),
    affinity=_spec(nodeAffinity=_node_affinity),
)
#: parts that concern other pods; `ports` are those of its container
pod_rules = st.one_of(
    _pod_affinity("podAffinity").map(lambda a: {"affinity": a}),
    _pod_affinity("podAntiAffinity").map(lambda a: {"affinity": a}),
    _ports.map(lambda p: {"ports": p}),
    st.just({}),
)
spread_rules = st.fixed_dictionaries(
    {"topologySpreadConstraints": st.lists(constraints, min_size=1, max_size=2)},
    optional={
        "nodeSelector": st.just({"disk": "ssd"}),
        "tolerations": st.lists(tolerations, max_size=1),
    },
)


@st.composite
def worlds(
    draw: st.DrawFn, rules: st.SearchStrategy[dict[str, Any]], *, tainted: bool = False
) -> tuple[World, dict[str, Any]]:
    """A cluster and a pod that has no place yet."""
    nodes: list[dict[str, Any]] = [
        {
            "metadata": {"name": f"n{i}", "labels": {HOST: f"n{i}", **draw(node_labels)}},
            "spec": draw(node_specs) if tainted else {},
            "status": {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"}},
        }
        for i in range(draw(st.integers(1, 4)))
    ]
    pods = [_pod(draw, f"p{i}", rules) for i in range(draw(st.integers(0, 5)))]
    placed = [(pod, draw(st.integers(0, len(nodes) - 1))) for pod in pods]
    for pod, where in placed:
        pod["spec"]["nodeName"] = nodes[where]["metadata"]["name"]
        pod["status"] = {"phase": "Running"}
        if draw(st.integers(0, 5)) == 0:
            pod["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z"
    return World(nodes, placed, NAMESPACES), _pod(draw, "new", rules)


def _pod(draw: st.DrawFn, name: str, rules: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    spec = draw(rules)
    container: dict[str, Any] = {"name": "main", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    if "ports" in spec:
        container["ports"] = spec["ports"]
        spec = {key: value for key, value in spec.items() if key != "ports"}
    return {
        "metadata": {
            "name": name,
            "namespace": draw(st.sampled_from(["default", "default", "other"])),
            "labels": {
                "app": draw(st.sampled_from(_POD_KEYS["app"])),
                **draw(st.fixed_dictionaries({}, optional={"tier": st.sampled_from(_POD_KEYS["tier"])})),
            },
            "annotations": {"scheduling.k8s.io/group-name": "group"},
        },
        "spec": {"schedulerName": "stromboli", "containers": [container], **spec},
        "status": {"phase": "Pending"},
    }


def opened(world: World, *pods: dict[str, Any], plugins: str = "predicates nodeorder") -> Session:
    """A session that sees a world and more pods, with plugins open and nothing decided."""
    objects = [decode("Node", node, "node") for node in world.nodes]
    objects += [decode("Pod", pod, "pod") for pod in (*(p for p, _ in world.placed), *pods)]
    cluster = builders.state(builders.queue("default"), objects)
    for namespace in {pod["metadata"]["namespace"] for pod in pods}:
        cluster.upsert(
            "PodGroup",
            crds.PodGroup.parse(
                {"metadata": {"name": "group", "namespace": namespace}, "spec": {"minMember": 1, "queue": "default"}}
            ),
        )
    for name, labels in world.namespaces.items():
        cluster.upsert("Namespace", {"kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    return _engine(plugins).decide(cluster.snapshot(), now=builders.NOON).session


@cache
def _engine(plugins: str) -> Engine:
    return Engine(builders.policy(plugins, actions="enqueue"))
