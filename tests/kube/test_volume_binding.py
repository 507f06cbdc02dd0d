"""What a decision says of the claims that are bound before a pod: which volume each gets, or where one is made."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.api.decisions import Bind, VolumeUse
from stromboli.explain.rehearsal import advance
from stromboli.kube.storage import SELECTED_NODE
from stromboli.kube.volume_reservation import is_written_by_another
from stromboli.state.cluster import ClusterState
from tests import builders
from tests.kube.test_volumes import ZONE, claim, nodes_for, opened, place, pod, storage_class, volume

DRIVER = "csi.example.com"
POLICY = builders.policy("priority gang", "predicates")
MADE = storage_class("made", DRIVER)


def cluster(*objs: Any, minimum: int = 1) -> ClusterState:
    """Two nodes, and a group of the pods among some objects."""
    state = builders.state(
        [builders.node(f"n{i}", labels={"kubernetes.io/hostname": f"n{i}"}) for i in range(2)],
        builders.queue("default"),
        builders.pod_group("g", minimum),
        [obj for obj in objs if not isinstance(obj, dict)],
    )
    for obj in objs:
        if isinstance(obj, dict):
            state.upsert(obj["kind"], obj)
    return state


def decided(state: ClusterState, policy: str = POLICY) -> dict[str, tuple[str, dict[str, str]]]:
    """By pod its node, and the volume of each of its claims, empty where one is made."""
    decisions = builders.decide(state, policy).decisions
    binds = [each for each in decisions if isinstance(each, Bind)]
    return {bind.name: (bind.node, {use.name: use.volume for use in bind.volumes}) for bind in binds}


def test_a_decision_names_the_smallest_volume_that_suits_or_the_node() -> None:
    state = cluster(
        storage_class("local"), MADE,
        volume("large", "n1", "20Gi"), volume("fits", "n1", "6Gi"), volume("small", "n0", "1Gi"),
        claim("data"), claim("new", "made"), claim("bound", volume="v"),
        volume("v", claimRef={"namespace": "default", "name": "bound"}),
        pod("p", "data", "new", "bound"),
    )  # fmt: skip
    assert decided(state) == {"p": ("n1", {"data": "fits", "new": ""})}


def test_the_policy_says_how_long_it_may_take_and_whether_claims_are_bound_at_all() -> None:
    state = cluster(MADE, claim("new", "made"), pod("p", "new"))
    arguments = POLICY.replace("- name: predicates", "- {name: predicates, arguments: {%s}}")
    late = builders.decide(state, arguments % "volumebinding.bindTimeoutSeconds: 7").decisions
    (bind,) = (each for each in late if isinstance(each, Bind))
    assert list(bind.volumes) == [VolumeUse("default", "new", "", "", 7.0)]
    assert decided(state, arguments % "predicate.VolumeBindingEnable: false")["p"][1] == {}


def test_a_shared_claim_gets_one_volume_and_keeps_it_until_its_last_pod_goes() -> None:
    shared = [storage_class("local"), volume("v", "n1"), claim("data"), claim("other")]
    state = cluster(*shared, pod("p", "data"), pod("q", "data"), minimum=2)
    assert decided(state) == {"p": ("n1", {"data": "v"}), "q": ("n1", {"data": "v"})}
    session = opened(*shared, pod("p", "data"), pod("q", "data"), pod("r", "other"))
    first, second = place(session, "p", 1), place(session, "q", 1)
    first.discard()
    assert nodes_for(session, "r") == []
    second.discard()
    assert nodes_for(session, "r") == [1]


def test_a_gang_that_lacks_a_volume_takes_none() -> None:
    objs = [storage_class("local"), volume("v", "n1"), claim("c0"), claim("c1"), pod("p", "c0"), pod("q", "c1")]
    assert decided(cluster(*objs, minimum=2)) == {}
    both = decided(cluster(*objs, volume("w", "n0"), minimum=2))
    assert sorted(volume for _, uses in both.values() for volume in uses.values()) == ["v", "w"]


def test_nodes_for_which_no_volume_was_made_are_left_alone() -> None:
    refused = claim("new", "made")
    refused["metadata"]["annotations"]["stromboli.io/volume-refused-on"] = "n0,gone"
    state = cluster(MADE, refused, pod("p", "new"))
    assert decided(state) == {"p": ("n1", {"new": ""})}


def test_what_was_decided_is_there_in_the_next_session_of_a_simulation() -> None:
    state = cluster(storage_class("local"), volume("v", "n1"), claim("a"), claim("b"), pod("p", "a"), pod("q", "b"))
    first = builders.decide(state, POLICY).decisions
    advance(state, first, 0.0)
    assert sum(isinstance(each, Bind) for each in first) == 1
    assert decided(state) == {}


# -- published capacity ------------------------------------------------------------------------------------------------


def driver(*, publishes: bool = True) -> dict[str, Any]:
    return {"kind": "CSIDriver", "metadata": {"name": DRIVER}, "spec": {"storageCapacity": publishes}}


def capacity(name: str, zone: str | None, amount: str | None, of: str = "made", **more: Any) -> dict[str, Any]:
    topology = {} if zone is None else {"nodeTopology": {"matchLabels": {ZONE: zone}}}
    amounts = {} if amount is None else {"capacity": amount}
    metadata = {"name": name, "namespace": "storage"}
    return {
        "kind": "CSIStorageCapacity", "metadata": metadata, "storageClassName": of, **amounts, **topology, **more
    }  # fmt: skip


def reached(*objs: Any) -> list[int]:
    """Where a claim of 5 GiB can be made; the nodes are in the zones a, b and a."""
    return nodes_for(opened(MADE, claim("data", "made"), pod("p", "data"), *objs), "p")


def test_a_class_makes_volumes_where_its_driver_publishes_enough() -> None:
    assert reached(driver()) == []
    assert reached(driver(publishes=False)) == [0, 1, 2]
    assert reached(capacity("c", "a", "1Gi")) == [0, 1, 2]
    assert reached(driver(), capacity("c", "a", "5Gi"), capacity("d", "b", "4Gi")) == [0, 2]
    assert reached(driver(), capacity("c", "a", "5Gi", of="another")) == []
    assert reached(driver(), capacity("c", None, "5Gi")) == []
    assert reached(driver(), capacity("c", "b", None)) == []
    assert reached(driver(), capacity("c", "a", "50Gi", maximumVolumeSize="4Gi")) == []
    assert reached(driver(), capacity("c", "b", None, maximumVolumeSize="5Gi")) == [1]
    assert reached(driver(), capacity("c", "b", "1Gi", maximumVolumeSize="5Gi")) == [1]
    assert reached(driver(), capacity("c", "a", "no amount")) == []


def test_a_volume_that_is_there_needs_no_capacity() -> None:
    assert reached(driver(), volume("v", storageClassName="made")) == [0, 1, 2]


def test_pods_of_a_session_share_what_is_published() -> None:
    """Two of three claims of 5 GiB fit in the zone, and one more once another is given back."""
    claims = [claim(f"c{i}", "made") for i in range(3)]
    pods = [pod(f"p{i}", f"c{i}") for i in range(3)]
    session = opened(MADE, driver(), capacity("c", "a", "11Gi"), *claims, *pods)
    place(session, "p0", 0)
    second = place(session, "p1", 2)
    assert nodes_for(session, "p2") == []
    second.discard()
    assert nodes_for(session, "p2") == [0, 2]


@pytest.mark.parametrize(
    ("fields", "written"),
    [
        ({"f:metadata": {"f:annotations": {".": {}, f"f:{SELECTED_NODE}": {}}}}, True),
        ({"f:spec": {"f:claimRef": {"f:uid": {}}}}, True),
        (
            {
                "f:metadata": {"f:annotations": {"f:pv.kubernetes.io/bind-completed": {}}},
                "f:spec": {"f:volumeName": {}},
            },
            False,
        ),
        ({"f:status": {"f:phase": {}}}, False),
        ({}, False),
    ],
)
def test_who_wrote_a_reservation_is_told_by_field_managers(fields: dict[str, Any], written: bool) -> None:
    entries = [{"manager": "user"}, {"manager": "kube-scheduler", "fieldsV1": fields}]
    assert is_written_by_another({"metadata": {"managedFields": entries}}, "stromboli") is written
    assert not is_written_by_another({"metadata": {"managedFields": entries}}, "kube-scheduler")
    assert not is_written_by_another({"metadata": {}}, "stromboli")
