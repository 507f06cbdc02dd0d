"""Cluster state: whatever order events come in, the columns hold what the objects say."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stromboli.api.pod_state import PodState
from stromboli.api.resources import CPU, PODS
from stromboli.state.cluster import ClusterState, object_key
from tests.builders import gang, node, pod, pod_group, queue, state


def used_cpu(cluster: ClusterState) -> dict[str, float]:
    """Used milli-CPU by node."""
    nodes = cluster.snapshot().nodes
    return {name: nodes.used[CPU, i] for name, i in nodes.facts.index.items()}


def test_pods_of_other_schedulers_count_only_on_nodes() -> None:
    cluster = state(
        node("n1"), pod("theirs", scheduler="default-scheduler"), pod("on", scheduler="other", node="n1", cpu="2")
    )
    assert list(cluster.pods.by_key) == ["default/on"]
    assert used_cpu(cluster) == {"n1": 2000}


def test_a_pod_that_ends_frees_its_node_and_stays_in_its_job() -> None:
    cluster = state(node("n1"), pod_group("job"), pod("job-0", "job", node="n1"))
    cluster.upsert("Pod", pod("job-0", "job", node="n1", phase="Succeeded"))
    assert used_cpu(cluster) == {"n1": 0}
    assert cluster.pods.state[0] == PodState.Succeeded
    assert cluster.pods.job[0] == cluster.jobs.by_key["default/job"]


def test_pods_on_a_node_that_comes_later_or_goes() -> None:
    cluster = state(pod("early", node="n1", cpu="3"))
    assert cluster.snapshot().nodes.used.shape[1] == 0
    cluster.upsert("Node", node("n1"))
    assert used_cpu(cluster) == {"n1": 3000}
    cluster.delete("Node", "n1")
    cluster.delete("Pod", "default/early")
    cluster.upsert("Node", node("n1"))
    assert used_cpu(cluster) == {"n1": 0}


def test_a_terminating_pod_holds_its_place() -> None:
    cluster = state(node("n1"), pod("going", node="n1", deleted=True))
    nodes = cluster.snapshot().nodes
    assert nodes.used[CPU, 0] == nodes.releasing[CPU, 0] == 1000


def test_an_assumed_binding_is_confirmed_or_taken_back() -> None:
    cluster = state(node("n1"), pod("a"), pod("b"))
    cluster.assume("default/a", "n1")
    cluster.assume("default/b", "n1")
    assert used_cpu(cluster) == {"n1": 2000}
    # A change that does not show the binding yet leaves the assumption.
    cluster.upsert("Pod", pod("a", labels={"seen": "again"}))
    assert cluster.assumed == {"default/a": "n1", "default/b": "n1"}
    cluster.upsert("Pod", pod("a", node="n1"))
    cluster.forget("default/b")
    assert cluster.assumed == {}
    assert used_cpu(cluster) == {"n1": 1000}
    assert cluster.pods.state[cluster.pods.by_key["default/b"]] == PodState.Pending


def test_a_binding_that_went_elsewhere_is_counted_there() -> None:
    cluster = state(node("n1"), node("n2"), pod("a"))
    cluster.assume("default/a", "n1")
    cluster.upsert("Pod", pod("a", node="n2"))
    assert used_cpu(cluster) == {"n1": 0, "n2": 1000}


def test_replace_drops_what_the_list_does_not_have() -> None:
    cluster = state(node("n1"), gang("job", 3, node="n1"))
    dropped = cluster.replace("Pod", [pod("job-1", "job", node="n1"), pod("job-9", "job")], object_key)
    assert dropped == ["default/job-0", "default/job-2"]
    assert used_cpu(cluster) == {"n1": 1000}
    assert sorted(cluster.pods.by_key) == ["default/job-1", "default/job-9"]


def test_identity_classes_ignore_names_and_keep_what_matters() -> None:
    cluster = state(
        gang("one", 3),
        pod("prio", priority=7),
        pod("token", volumes=[{"name": "kube-api-access-x7f2p", "projected": {}}]),
        pod("bigger", cpu="2"),
        pod("picky", nodeSelector={"disk": "ssd"}),
        pod("zone", annotations={"volcano.sh/revocable-zone": "*"}),
    )
    classes = {record.name: record.pod_class.id for record in cluster.pods.records if record is not None}
    assert classes["one-0"] == classes["one-2"] == classes["prio"] == classes["token"]
    assert len({classes[name] for name in ("one-0", "bigger", "picky", "zone")}) == 4


def test_a_resource_that_a_node_offers_later_widens_every_column() -> None:
    cluster = state(node("n1"), pod("plain", node="n1"))
    narrow = cluster.snapshot()
    cluster.upsert("Node", node("n2", resources={"nvidia.com/gpu": "4"}))
    cluster.upsert("Pod", pod("gpu", node="n2", resources={"nvidia.com/gpu": "1"}))
    wide = cluster.snapshot()
    assert wide.dimensions == ("cpu", "memory", "pods", "nvidia.com/gpu")
    assert wide.nodes.allocatable[3].tolist() == [0, 4000]
    assert wide.nodes.used[3].tolist() == [0, 1000]
    assert wide.requests.shape[1] == 4
    assert narrow.requests.shape[1] == narrow.nodes.used.shape[0] == 3


def test_jobs_without_pods_and_podgroup_are_forgotten() -> None:
    cluster = state(queue("default"), pod_group("job"), gang("job", 2))
    cluster.delete("PodGroup", "default/job")
    assert "default/job" in cluster.jobs.by_key
    cluster.delete("Pod", "default/job-0")
    cluster.delete("Pod", "default/job-1")
    assert cluster.jobs.by_key == {}
    cluster.upsert("PodGroup", pod_group("next"))
    assert cluster.jobs.by_key == {"default/next": 0}


events = st.lists(
    st.tuples(
        st.sampled_from(["pod", "pod-gone", "node", "node-gone", "assume", "forget"]),
        st.integers(0, 3),
        st.integers(0, 2),
        st.sampled_from(["Pending", "Running", "Succeeded"]),
    ),
    max_size=40,
)


@given(events)
def test_whatever_happens_a_node_holds_what_its_pods_request(log: list[tuple[str, int, int, str]]) -> None:
    cluster = ClusterState()
    for what, which, where, phase in log:
        name, place = f"p{which}", f"n{where}"
        match what:
            case "pod":
                at = place if phase != "Pending" or where else ""
                cluster.upsert("Pod", pod(name, node=at, phase=phase, cpu=str(which + 1)))
            case "pod-gone":
                cluster.delete("Pod", f"default/{name}")
            case "node":
                cluster.upsert("Node", node(place))
            case "node-gone":
                cluster.delete("Node", place)
            case "assume":
                cluster.assume(f"default/{name}", place)
            case "forget":
                cluster.forget(f"default/{name}")
    snapshot = cluster.snapshot()
    expected = np.zeros_like(snapshot.nodes.used)
    for record in snapshot.pods.records:
        if record is None or snapshot.pods.state[record.row] == PodState.Succeeded:
            continue
        at = snapshot.nodes.facts.index.get(cluster.assumed.get(record.key) or record.node_name, -1)
        assert at == snapshot.pods.node[record.row]
        if at >= 0:
            expected[:, at] += snapshot.requests[record.pod_class.id]
    np.testing.assert_array_equal(snapshot.nodes.used, expected)
    assert (snapshot.nodes.used[PODS] >= 0).all()


def test_a_fork_goes_on_apart() -> None:
    cluster = state(node("n1"), queue("a"), pod_group("job", queue="a"), gang("job", 2), pod("on", node="n1", cpu="2"))
    fork = cluster.fork()
    fork.delete("Pod", "default/on")
    fork.upsert("Node", node("n2", resources={"example.com/gpu": "1"}))
    fork.upsert("PodGroup", pod_group("other"))
    fork.delete("Queue", "a")
    fork.assume("default/job-0", "n2")
    assert used_cpu(fork) == {"n1": 0, "n2": 1000}
    assert used_cpu(cluster) == {"n1": 2000}
    assert (list(cluster.queues), list(cluster.jobs.by_key), cluster.assumed) == (["a"], ["default/job"], {})
    assert cluster.snapshot().dimensions == ("cpu", "memory", "pods")


def test_objects_that_nobody_touched_are_those_of_the_snapshot_before() -> None:
    cluster = state()
    for kind in ("PersistentVolume", "StorageClass"):
        cluster.upsert(kind, {"metadata": {"name": "a"}})
    before = cluster.snapshot().objects
    cluster.upsert("PersistentVolume", {"metadata": {"name": "b"}})
    cluster.delete("StorageClass", "a")
    cluster.upsert("CSINode", {"metadata": {"name": "n1"}})
    after, same = cluster.snapshot().objects, cluster.snapshot().objects
    assert {kind: sorted(objs) for kind, objs in before.items()} == {"PersistentVolume": ["a"], "StorageClass": ["a"]}
    assert {kind: sorted(objs) for kind, objs in after.items() if objs} == {
        "PersistentVolume": ["a", "b"],
        "CSINode": ["n1"],
    }
    assert all(same[kind] is objs for kind, objs in after.items())


def test_columns_of_many_objects_are_added_once() -> None:
    """What a state is fed with costs what is in it, and not that times the number of resources."""
    nodes = [("Node", node(f"n{number}", resources={f"example.com/r{number}": "1"})) for number in range(50)]
    state, fitted = ClusterState(["stromboli"]), []
    fit = state.fit_columns
    state.fit_columns = lambda: fitted.append(fit())  # type: ignore[method-assign]
    with state.expecting(nodes):
        for kind, obj in nodes:
            state.upsert(kind, obj)
    assert len(fitted) == 1
    assert len(state.dimensions) == 3 + 50
    assert state.nodes.allocatable[state.dimensions.index["example.com/r7"]].sum() == 1_000
