"""What pods ask for: containers, init containers, sidecars, overhead, the pod as a whole, and pods that are resized."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.api import objects
from stromboli.simulation.defaults import with_requests
from stromboli.simulation.manifests import decode
from stromboli.state.cluster import ClusterState
from stromboli.workloads.amounts import min_resources
from tests import builders
from tests.fuzz import tried

#: of each resource how an amount is written, and what an amount counts
RESOURCES = {"cpu": ("m", 1), "memory": ("", 1), "hugepages-2Mi": ("", 1000), "example.com/gpu": ("", 1000)}
POD_LEVEL = ("cpu", "memory", "hugepages-2Mi")
Amounts = dict[str, int]


# -- plain code ------------------------------------------------------------------------------------------------------


def counted(spec: Amounts, status: Mapping[str, Any] | None, infeasible: bool) -> Amounts:
    """What counts of a container, or of the pod as a whole, whose resize is under way."""
    if status is None:
        return spec
    asked = [status["actual"], status["allocated"], {} if infeasible else spec]
    return {name: max(each.get(name, 0) for each in asked) for name in RESOURCES if any(name in a for a in asked)}


def expected(drawn: Mapping[str, Any]) -> Amounts:
    """The most that runs at any time, moment by moment, then what the pod says as a whole, then overhead."""
    placed, infeasible = drawn["placed"], drawn["infeasible"]

    def holds(container: Mapping[str, Any], *, resizable: bool = True) -> Amounts:
        return counted(container["requests"], container["status"] if placed and resizable else None, infeasible)

    moments: list[list[Amounts]] = []
    running: list[Amounts] = []
    for container in drawn["init"]:
        own = holds(container, resizable=container["sidecar"])
        moments.append([*running, own])
        if container["sidecar"]:
            running.append(own)
    moments.append([*running, *map(holds, drawn["containers"])])
    out = {name: max(sum(each.get(name, 0) for each in moment) for moment in moments) for name in RESOURCES}
    whole = counted(drawn["whole"]["requests"], drawn["whole"]["status"] if placed else None, infeasible)
    out |= {name: whole.get(name, 0) for name in drawn["whole"]["requests"] if name in POD_LEVEL}
    for name, amount in drawn["overhead"].items():
        out[name] += amount
    return {name: amount * RESOURCES[name][1] for name, amount in out.items() if amount} | {"pods": 1}


# -- pods as the API server has them ---------------------------------------------------------------------------------


def written(amounts: Amounts) -> dict[str, str]:
    return {name: f"{amount}{RESOURCES[name][0]}" for name, amount in amounts.items()}


def manifest(drawn: Mapping[str, Any]) -> objects.Pod:
    def statuses(containers: list[Any], prefix: str) -> Iterator[dict[str, Any]]:
        for number, container in enumerate(containers):
            if container["status"] is not None:
                yield {"name": f"{prefix}{number}", **of_status(container["status"])}

    def of_status(status: Mapping[str, Any]) -> dict[str, Any]:
        requests = written(status["actual"])
        return {"resources": {"requests": requests}, "allocatedResources": written(status["allocated"])}

    def containers(some: list[Any], prefix: str) -> list[dict[str, Any]]:
        always = {"restartPolicy": "Always"}
        return [
            {"name": f"{prefix}{number}", "resources": {"requests": written(each["requests"])}}
            | (always if each.get("sidecar") else {})
            for number, each in enumerate(some)
        ]

    whole = drawn["whole"]
    reason = "Infeasible" if drawn["infeasible"] else "Deferred"
    conditions = [
        {"type": "PodResizeInProgress", "status": "True", "reason": ""},
        {"type": "PodResizePending", "status": "True", "reason": reason},
    ]
    spec = {
        "containers": containers(drawn["containers"], "c"),
        "initContainers": containers(drawn["init"], "i"),
        "overhead": written(drawn["overhead"]),
        "schedulerName": "stromboli",
        **({"resources": {"requests": written(whole["requests"])}} if whole["requests"] else {}),
        **({"nodeName": "n"} if drawn["placed"] else {}),
    }
    status = {
        "phase": "Running" if drawn["placed"] else "Pending",
        "conditions": conditions,
        "containerStatuses": list(statuses(drawn["containers"], "c")),
        "initContainerStatuses": list(statuses(drawn["init"], "i")),
        **(of_status(whole["status"]) if whole["status"] is not None else {}),
    }
    made: objects.Pod = decode("Pod", {"metadata": {"name": "p"}, "spec": spec, "status": status}, "p")
    return made


amounts = st.dictionaries(st.sampled_from(sorted(RESOURCES)), st.integers(0, 9), max_size=3)
statuses = st.none() | st.fixed_dictionaries({"actual": amounts, "allocated": amounts})
containers = st.fixed_dictionaries({"requests": amounts, "status": statuses})
pods = st.fixed_dictionaries(
    {
        "containers": st.lists(containers, min_size=1, max_size=2),
        "init": st.lists(
            st.fixed_dictionaries({"requests": amounts, "status": statuses, "sidecar": st.booleans()}), max_size=3
        ),
        "whole": containers,
        "overhead": amounts,
        "placed": st.booleans(),
        "infeasible": st.booleans(),
    }
)


@tried(20)
@given(st.lists(pods, min_size=1, max_size=3))
def test_a_pod_counts_as_plain_code_says_whatever_it_was_before(history: list[Any]) -> None:
    state = ClusterState(["stromboli"])
    state.upsert("Node", builders.node("n", resources=dict.fromkeys((*POD_LEVEL, "example.com/gpu"), "99")))
    for drawn in history:
        state.upsert("Pod", manifest(drawn))
        record, snapshot = state.record("default/p"), state.snapshot()
        assert record is not None
        assert dict(record.pod_class.request) == expected(drawn)
        used = dict(zip(snapshot.dimensions, snapshot.nodes.used[:, 0].tolist(), strict=True))
        assert {k: v for k, v in used.items() if v} == (expected(drawn) if drawn["placed"] else {})


# -- resizes ---------------------------------------------------------------------------------------------------------


def resized(name: str = "p", actual: str = "2", condition: str = "", **pod: Any) -> objects.Pod:
    """A pod on n1 that asks for 2 CPUs, of which `actual` are in force."""
    requests = {"cpu": actual, "memory": "1Gi"}
    status = {
        "containerStatuses": [{"name": "main", "resources": {"requests": requests}, "allocatedResources": requests}],
        "conditions": [{"type": "PodResizePending", "status": "True", "reason": condition}] if condition else [],
    }
    return builders.pod(name, cpu="2", node="n1", status=status, **pod)


def test_pods_share_a_class_while_they_count_the_same() -> None:
    cluster = builders.state(builders.node("n1"), builders.pod("waiting", cpu="2"), resized("same", actual="2000m"))
    cluster.upsert("Pod", resized("larger", actual="3"))
    cluster.upsert("Pod", resized("done"))
    classes = {name: cluster.record(f"default/{name}").pod_class for name in ("waiting", "same", "larger", "done")}  # type: ignore[union-attr]
    assert classes["waiting"] is classes["same"] is classes["done"]
    assert classes["larger"] is not classes["same"]
    cluster.upsert("Pod", resized("larger"))
    assert cluster.record("default/larger").pod_class is classes["same"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("actual", "condition", "cpu"),
    [("3", "", 3000), ("1", "", 2000), ("1", "Deferred", 2000), ("1", "Infeasible", 1000), ("3", "Infeasible", 3000)],
)
@pytest.mark.parametrize("plugin", ["proportion", "capacity", "fairshare"])
def test_a_resize_counts_on_the_node_and_in_the_queue(plugin: str, actual: str, condition: str, cpu: float) -> None:
    policy = builders.policy("priority gang", f"predicates {plugin}")
    cluster = builders.state(builders.node("n1"), builders.queue("default"), builders.pod_group("g", phase="Running"))
    cluster.upsert("Pod", builders.pod("p", "g", cpu="2", node="n1"))
    builders.decide(cluster, policy)
    cluster.upsert("Pod", resized("p", actual, condition, group="g"))
    view = builders.decide(cluster, policy).session
    assert view.view.nodes.used[0].tolist() == [cpu]
    assert view.report.queue("default").amounts["allocated"][0] == cpu


# -- pods that ask for something as a whole --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("containers", "whole", "requests"),
    [
        pytest.param([{}], {"limits": {"cpu": "2"}}, {"cpu": "2"}, id="limits"),
        pytest.param([{"cpu": "1"}, {"cpu": "500m"}], {"limits": {"cpu": "2"}}, {"cpu": "1500m"}, id="of containers"),
        pytest.param(
            [{"memory": "1Gi"}],
            {"limits": {"cpu": "2"}},
            {"cpu": "2", "memory": str(1 << 30)},
            id="of containers what has no limit",
        ),
        pytest.param([{"cpu": "1"}], {"requests": {"memory": "1Gi"}}, {"memory": "1Gi"}, id="nothing without limits"),
        pytest.param(
            [{"hugepages-2Mi": "4Mi"}],
            {"requests": {"cpu": "1"}},
            {"cpu": "1", "hugepages-2Mi": str(4 << 20)},
            id="huge pages",
        ),
    ],
)
def test_what_an_api_server_fills_in(
    containers: list[dict[str, str]], whole: dict[str, Any], requests: dict[str, str]
) -> None:
    spec = {
        "containers": [{"name": str(n), "resources": {"limits": each}} for n, each in enumerate(containers)],
        "resources": whole,
    }
    pod: objects.Pod = decode("Pod", {"metadata": {"name": "p"}, "spec": spec}, "p")
    filled = with_requests(pod.spec).resources
    assert filled is not None
    assert filled.requests == requests


@pytest.mark.parametrize(
    ("containers", "whole", "overhead", "scoring"),
    [
        pytest.param(2, {}, {}, (200.0, 400 * 1024 * 1024), id="each container"),
        pytest.param(2, {"cpu": "3"}, {}, (3000.0, 400 * 1024 * 1024), id="what the pod does not request"),
        pytest.param(2, {"cpu": "3", "memory": "1Gi"}, {}, (3000.0, 1 << 30), id="nothing"),
        pytest.param(1, {"cpu": "3"}, {"memory": "5"}, (3000.0, 5.0), id="not with overhead"),
    ],
)
def test_what_scores_assume(
    containers: int, whole: dict[str, str], overhead: dict[str, str], scoring: tuple[float, float]
) -> None:
    spec = {
        "containers": [{"name": str(number)} for number in range(containers)],
        "resources": {"requests": whole},
        "overhead": overhead,
    }
    state = ClusterState(["default-scheduler"])
    state.upsert("Pod", decode("Pod", {"metadata": {"name": "p"}, "spec": spec}, "p"))
    assert state.record("default/p").pod_class.scoring_request == scoring  # type: ignore[union-attr]


@pytest.mark.parametrize("plugin", ["proportion", "capacity", "fairshare"])
def test_queues_are_limited_in_what_pods_ask_for_as_a_whole(plugin: str) -> None:
    pods = builders.gang("g", 4, cpu="", memory="", whole={"cpu": "1500m"})
    limited = builders.queue("default", capability={"cpu": "4"})
    cluster = builders.state(builders.node("n1"), limited, builders.pod_group("g"), pods)
    bound = builders.decide(cluster, builders.policy("priority gang", f"predicates {plugin}")).session.bound
    assert len(bound) == 2


@pytest.mark.parametrize(("cpu", "bound"), [("6", {"default/p": "n1"}), ("7", {})])
def test_pods_of_other_schedulers_count_with_what_they_ask_for_as_a_whole(cpu: str, bound: dict[str, str]) -> None:
    cluster = builders.state(
        builders.node("n1"),
        builders.queue("default"),
        builders.pod_group("g"),
        builders.pod("p", "g", cpu="2"),
        builders.pod("other", cpu="1", node="n1", scheduler="default-scheduler", whole={"cpu": cpu}),
    )
    assert builders.decide(cluster, builders.policy("gang", "predicates")).session.bound == bound


def test_a_quota_counts_what_a_pod_asks_for_as_a_whole() -> None:
    spec = builders.pod("p", memory="", whole={"cpu": "3"}, overhead={"cpu": "100m", "memory": "5"}).spec
    assert min_resources(spec, 2) == {
        "count/pods": "2",
        "pods": "2",
        "cpu": "6200m",
        "requests.cpu": "6200m",
        "memory": "10",
        "requests.memory": "10",
    }
