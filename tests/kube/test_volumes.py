"""Volumes: where bound claims can go, what unbound ones get, and how many a node takes."""

from __future__ import annotations

from typing import Any

from stromboli.framework.session import Session
from stromboli.state.pods import PodRecord
from tests import builders

ZONE = "topology.kubernetes.io/zone"
POLICY = builders.policy("predicates", actions="enqueue")


def claim(name: str, storage_class: str = "local", volume: str = "", size: str = "5Gi", **spec: Any) -> dict[str, Any]:
    annotations = {"pv.kubernetes.io/bind-completed": "yes"} if volume else {}
    return {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {
            "storageClassName": storage_class,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
            **({"volumeName": volume} if volume else {}),
            **spec,
        },
    }


def volume(name: str, node: str = "", size: str = "10Gi", labels: Any = None, **spec: Any) -> dict[str, Any]:
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]}}  # fmt: skip
    return {
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "storageClassName": "local",
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            **({"nodeAffinity": affinity} if node else {}),
            **spec,
        },
        "status": {"phase": "Available"},
    }


def storage_class(name: str, provisioner: str = "kubernetes.io/no-provisioner", **more: Any) -> dict[str, Any]:
    mode = more.pop("mode", "WaitForFirstConsumer")
    metadata = {"name": name}
    return {
        "kind": "StorageClass", "metadata": metadata, "provisioner": provisioner, "volumeBindingMode": mode, **more
    }  # fmt: skip


def csi_node(name: str, count: int) -> dict[str, Any]:
    drivers = [{"name": "csi.example.com", "allocatable": {"count": count}}]
    return {"kind": "CSINode", "metadata": {"name": name}, "spec": {"drivers": drivers}}


def pod(name: str, *claims: str, node: str = "") -> Any:
    volumes = [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims]
    return builders.pod(name, "g", node=node, volumes=volumes)


def opened(*objs: Any, nodes: int = 3) -> Session:
    zones = ["a", "b", "a"]
    cluster = builders.state(
        [builders.node(f"n{i}", labels={ZONE: zones[i % 3]}) for i in range(nodes)],
        builders.queue("default"),
        builders.pod_group("g"),
        [obj for obj in objs if not isinstance(obj, dict)],
    )
    for obj in objs:
        if isinstance(obj, dict):
            key = "/".join(p for p in (obj["metadata"].get("namespace"), obj["metadata"]["name"]) if p)
            cluster.upsert(obj["kind"], obj)
            assert key in cluster.objects[obj["kind"]]
    return builders.decide(cluster, POLICY).session


def named(session: Session, name: str) -> PodRecord:
    return next(r for r in session.view.pods.records if r is not None and r.name == name)


def nodes_for(session: Session, name: str) -> list[int]:
    return [i for i, passes in enumerate(session.kernel.feasible(named(session, name)).tolist()) if passes]


def causes(session: Session, name: str) -> list[str]:
    return [cause for cause, _ in session.kernel.causes(named(session, name))]


def place(session: Session, name: str, node: int) -> Any:
    statement = session.statement()
    sub_job = next(iter(session.view.jobs["default/g"].sub_jobs.values()))
    statement.allocate(sub_job, (named(session, name),), (node,))
    return statement


def test_a_missing_claim_keeps_a_pod_from_all_nodes() -> None:
    session = opened(pod("p", "data"))
    assert nodes_for(session, "p") == []
    assert causes(session, "p") == ['persistentvolumeclaim "data" not found']


def test_an_unbound_claim_of_an_immediate_class_is_refused() -> None:
    session = opened(storage_class("now", "csi.example.com", mode="Immediate"), claim("data", "now"), pod("p", "data"))
    assert causes(session, "p") == ["pod has unbound immediate PersistentVolumeClaims"]


def test_a_bound_volume_pins_the_pod_to_its_node() -> None:
    session = opened(volume("v", node="n1"), claim("data", volume="v"), pod("p", "data"))
    assert nodes_for(session, "p") == [1]
    assert causes(session, "p") == ["node(s) didn't match PersistentVolume's node affinity"]


def test_a_bound_volume_that_is_gone() -> None:
    session = opened(claim("data", volume="v"), pod("p", "data"))
    assert nodes_for(session, "p") == []


def test_a_volume_with_a_zone_label_stays_in_its_zone() -> None:
    session = opened(volume("v", labels={ZONE: "b"}), claim("data", volume="v"), pod("p", "data"))
    assert nodes_for(session, "p") == [1]
    assert causes(session, "p") == ["node(s) had no available volume zone"]


def test_an_old_zone_label_of_a_volume_means_the_current_one_of_nodes_and_may_name_several() -> None:
    old = {"failure-domain.beta.kubernetes.io/zone": "b__c"}
    session = opened(volume("v", labels=old), claim("data", volume="v"), pod("p", "data"))
    assert nodes_for(session, "p") == [1]


def test_a_waiting_claim_goes_where_a_free_volume_suits_it() -> None:
    session = opened(
        storage_class("local"),
        volume("small", node="n0", size="1Gi"),
        volume("fits", node="n1"),
        volume("reserved", node="n2", claimRef={"name": "other", "namespace": "default"}),
        claim("data"),
        pod("p", "data"),
    )
    assert nodes_for(session, "p") == [1]
    assert causes(session, "p") == ["node(s) didn't find available persistent volumes to bind"]


def test_a_volume_that_is_reserved_for_the_claim_is_the_only_one() -> None:
    session = opened(
        storage_class("local"),
        volume("free", node="n1"),
        volume("mine", node="n2", claimRef={"name": "data", "namespace": "default"}),
        claim("data"),
        pod("p", "data"),
    )
    assert nodes_for(session, "p") == [2]


def test_two_claims_of_a_pod_need_two_volumes() -> None:
    session = opened(
        storage_class("local"),
        volume("a", node="n0"), volume("b", node="n1"), volume("c", node="n1"),
        claim("one"), claim("two"), pod("p", "one", "two"),
    )  # fmt: skip
    assert nodes_for(session, "p") == [1]


def test_a_volume_that_a_pod_of_this_session_gets_is_taken_until_it_is_given_back() -> None:
    session = opened(
        storage_class("local"),
        volume("v", node="n0"),
        claim("one"), claim("two"), pod("p", "one"), pod("q", "two"),
    )  # fmt: skip
    assert nodes_for(session, "q") == [0]
    statement = place(session, "p", 0)
    assert nodes_for(session, "q") == []
    statement.discard()
    assert nodes_for(session, "q") == [0]


def test_pods_that_share_a_waiting_claim_go_where_its_volume_is_made() -> None:
    session = opened(
        storage_class("made", "csi.example.com"), claim("data", "made"), pod("p", "data"), pod("q", "data")
    )
    assert nodes_for(session, "q") == [0, 1, 2]
    place(session, "p", 2)
    assert nodes_for(session, "q") == [2]


def test_a_class_makes_volumes_in_its_topologies_only() -> None:
    topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": ["a"]}]}]
    made = storage_class("made", "csi.example.com", allowedTopologies=topologies)
    session = opened(made, claim("data", "made"), pod("p", "data"))
    assert nodes_for(session, "p") == [0, 2]


def test_a_node_takes_only_so_many_volumes_and_a_shared_one_counts_once() -> None:
    def bound(name: str) -> list[dict[str, Any]]:
        csi = {"driver": "csi.example.com", "volumeHandle": name}
        return [volume(f"v-{name}", csi=csi), claim(name, volume=f"v-{name}")]

    session = opened(
        csi_node("n0", 1), csi_node("n1", 2), *bound("one"), *bound("two"),
        pod("r", "one", node="n0"), pod("p", "two"), pod("q", "one"), pod("s", "one", "two"),
    )  # fmt: skip
    assert nodes_for(session, "p") == [1, 2]
    assert causes(session, "p") == ["node(s) exceed max volume count"]
    assert nodes_for(session, "q") == [0, 1, 2]
    assert nodes_for(session, "s") == [1, 2]
    place(session, "p", 1)
    assert nodes_for(session, "q") == [0, 1, 2]


def ephemeral(name: str, *volumes: str) -> Any:
    """A pod with generic ephemeral volumes."""
    return builders.pod(name, "g", volumes=[{"name": v, "ephemeral": {}} for v in volumes])


def own_claim(pod: str, name: str, uid: str = "", **spec: Any) -> dict[str, Any]:
    """The claim of a pod's ephemeral volume as the controller makes it."""
    made = claim(f"{pod}-{name}", **spec)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid or f"uid-{pod}", "controller": True}
    made["metadata"]["ownerReferences"] = [owner]
    return made


def test_an_ephemeral_volume_is_where_its_claim_is_bound() -> None:
    session = opened(volume("v", node="n1"), own_claim("p", "scratch", volume="v"), ephemeral("p", "scratch"))
    assert nodes_for(session, "p") == [1]


def test_an_ephemeral_volume_waits_for_its_claim_to_be_made() -> None:
    session = opened(ephemeral("p", "scratch"))
    expected = 'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-scratch"'
    assert causes(session, "p") == [expected]
    assert nodes_for(session, "p") == []


def test_a_claim_that_was_made_for_another_pod_is_not_the_ephemeral_one() -> None:
    session = opened(
        volume("v"), own_claim("p", "scratch", uid="before", volume="v"), ephemeral("p", "scratch"),
        volume("w"), claim("q-scratch", volume="w"), ephemeral("q", "scratch"),
    )  # fmt: skip
    for name in "pq":
        expected = f"PVC default/{name}-scratch was not created for pod default/{name} (pod is not owner)"
        assert causes(session, name) == [expected]
        assert nodes_for(session, name) == []
