"""What nobody uses any longer is forgotten: classes, columns and rows are as many as there are users."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.api.decisions import Bind
from stromboli.api.resources import CPU, MEMORY, UNKNOWN
from stromboli.state.cluster import ClusterState
from tests.builders import decide, node, pod, pod_group, policy, queue, state
from tests.perf.soak_memory import Churn, sizes


def offered(cluster: ClusterState) -> list[str]:
    """The dimensions beside those that are always there."""
    return list(cluster.snapshot().dimensions[3:])


def test_only_what_is_offered_or_limited_is_a_column() -> None:
    names = {f"example.com/r{number}": "1" for number in range(1000)}
    cluster = state(node("n1"), queue("q", capability={"example.com/limited": "1"}))
    for number in range(3):
        cluster.upsert("Pod", pod(f"p{number}", resources={f"{name}-{number}": "1" for name in names}))
    assert offered(cluster) == ["example.com/limited", UNKNOWN]
    cluster.upsert("Node", node("n1", resources={"example.com/r1-1": "2"}))
    assert offered(cluster) == ["example.com/limited", "example.com/r1-1", UNKNOWN]
    for number in range(3):
        cluster.delete("Pod", f"default/p{number}")
    cluster.delete("Queue", "q")
    cluster.delete("Node", "n1")
    assert offered(cluster) == []


def test_a_pod_that_asks_for_what_nobody_offers_waits_for_a_node_that_does() -> None:
    cluster = state(
        node("n1"), queue("default"), pod_group("job"), pod("job-0", "job", resources={"example.com/fpga": "1"})
    )
    text = policy("gang predicates")
    reason = decide(cluster, text).session.view.trace.jobs["default/job"]
    assert (reason.reason, reason.message) == ("NeverFits", "no node is large enough in example.com/fpga")
    cluster.upsert("Node", node("n2", resources={"example.com/fpga": "1"}))
    assert [bind.node for bind in decide(cluster, text).decisions if isinstance(bind, Bind)] == ["n2"]


def test_amounts_survive_that_their_resource_is_offered_no_longer() -> None:
    gpu = {"example.com/gpu": "4"}
    cluster = state(node("n1", resources=gpu), pod("p", node="n1", resources={"example.com/gpu": "3"}))
    assert cluster.snapshot().nodes.used[3].tolist() == [3000]
    cluster.upsert("Node", node("n1"))
    assert offered(cluster) == [UNKNOWN]
    assert cluster.snapshot().nodes.used[3].tolist() == [3000]
    cluster.upsert("Node", node("n1", resources=gpu))
    assert offered(cluster) == ["example.com/gpu"]
    assert cluster.snapshot().nodes.used[3].tolist() == [3000]
    cluster.delete("Pod", "default/p")
    assert not cluster.snapshot().nodes.used.any()


def test_the_number_of_a_class_that_is_gone_is_used_again_and_older_snapshots_do_not_mind() -> None:
    cluster = state(pod("a", cpu="1"), pod("b", cpu="2"))
    before = cluster.snapshot()
    cluster.delete("Pod", "default/a")
    cluster.upsert("Pod", pod("c", cpu="3"))
    after = cluster.snapshot()
    assert [found.id for found in after.classes] == [0, 1]
    assert [requested(before, name) for name in ("a", "b")] == [1000, 2000]
    assert [requested(after, name) for name in ("b", "c")] == [2000, 3000]


def test_labels_that_no_node_has_share_a_column() -> None:
    facts = state(node("n1", labels={"zone": "a"})).snapshot().nodes.facts
    assert {id(facts.label(f"key-{number}")) for number in range(100)} == {id(facts.label("other"))}
    assert facts.label("zone").tolist() == [0]
    assert (facts.label("other").tolist(), facts.label_values("other")) == ([-1], {})


def test_a_node_is_counted_exactly_after_a_pod_with_more_than_floats_can_tell_apart() -> None:
    cluster = state(node("n1"), pod("small", node="n1", cpu="1m", memory="1"))
    cluster.upsert("Pod", pod("giant", node="n1", cpu="9223372036854775807", memory="9223372036854775807"))
    cluster.upsert("Pod", pod("giant", node="n1", phase="Failed", cpu="9223372036854775807"))
    nodes = cluster.snapshot().nodes
    assert nodes.used[[CPU, MEMORY], 0].tolist() == nodes.scoring[:, 0].tolist() == [1, 1]


@pytest.mark.exhaustive
def test_a_long_churn_leaves_no_more_than_its_first_pods() -> None:
    churn = Churn()
    churn.run(2_000)
    before = sizes(churn.state)
    churn.run(6_000)
    assert sizes(churn.state) == before
    churn.drain()
    assert sizes(churn.state) == {**dict.fromkeys(before, 0), "columns": 1}


def requested(snapshot: Any, name: str) -> float:
    """The milli-CPU that a pod requests."""
    [row] = [record.row for record in snapshot.pods.records if record is not None and record.name == name]
    assert snapshot.classes[snapshot.pods.pod_class[row]] is snapshot.pods.records[row].pod_class
    return float(snapshot.requests[snapshot.pods.pod_class[row], CPU])
