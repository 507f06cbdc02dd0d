"""Volumes: where bound claims can go, what unbound ones get, and how many a node takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from stromboli.api import objects
from stromboli.api.decisions import Bind, Evict
from stromboli.framework.session.session import Session
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
    return {
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "storageClassName": "local",
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            **({"nodeAffinity": affinity("kubernetes.io/hostname", node)} if node else {}),
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


def csi_node(name: str, count: int, migrated: str = "", driver: str = "csi.example.com") -> dict[str, Any]:
    drivers = [{"name": driver, "allocatable": {"count": count}}]
    annotations = {"storage.alpha.kubernetes.io/migrated-plugins": migrated} if migrated else {}
    return {"kind": "CSINode", "metadata": {"name": name, "annotations": annotations}, "spec": {"drivers": drivers}}


def affinity(key: str, value: str) -> dict[str, Any]:
    """Of a volume that nodes reach which have a label."""
    expressions = [{"key": key, "operator": "In", "values": [value]}]
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}


def pod(name: str, *claims: str, node: str = "") -> Any:
    return builders.pod(name, "g", node=node, volumes=pod_volumes(*claims))


def pod_volumes(*claims: str) -> list[dict[str, Any]]:
    return [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims]


def opened(*objs: Any, nodes: int = 3, labels: Mapping[str, dict[str, str]] = {}) -> Session:
    """A session on nodes n0 and n2 in zone a, and n1 in zone b, with further labels by node."""
    zones = ["a", "b", "a"]
    cluster = builders.state(
        [builders.node(f"n{i}", labels={ZONE: zones[i % 3], **labels.get(f"n{i}", {})}) for i in range(nodes)],
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


@pytest.mark.parametrize("expressions", [[], [{"key": ZONE, "operator": "In", "values": ["a"]}]])
def test_volumes_know_nodes_by_their_labels_only(expressions: list[dict[str, Any]]) -> None:
    """As in kube-scheduler, which ignores the fields of a volume's affinity."""
    term = {
        "matchExpressions": expressions,
        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
    }
    named = {"required": {"nodeSelectorTerms": [term]}}
    bound = volume("v", nodeAffinity=named), claim("data", volume="v"), pod("p", "data")
    free = volume("w", nodeAffinity=named), claim("new"), storage_class("local"), pod("q", "new")
    session = opened(*bound, *free)
    assert nodes_for(session, "p") == nodes_for(session, "q") == ([0, 2] if expressions else [0, 1, 2])


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


def ephemeral(name: str, *volumes: str, node: str = "") -> Any:
    """A pod with generic ephemeral volumes."""
    return builders.pod(name, "g", node=node, volumes=[{"name": v, "ephemeral": {}} for v in volumes])


def own_claim(pod: str, name: str, uid: str = "", **spec: Any) -> dict[str, Any]:
    """The claim of a pod's ephemeral volume as the controller makes it."""
    made = claim(f"{pod}-{name}", **spec)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid or f"uid-{pod}", "controller": True}
    made["metadata"]["ownerReferences"] = [owner]
    return made


def test_a_driver_may_ask_for_nodes_that_have_it() -> None:
    """Whether the claim is bound, its volume is still to be made, or the driver took it over; n2 has no CSINode."""
    other = {"kind": "CSINode", "metadata": {"name": "n1"}, "spec": {"drivers": [{"name": "other.example.com"}]}}
    nodes = [{**csi_node("n0", 5), "spec": {"drivers": [{"name": "csi.example.com"}]}}, other]
    bound = volume("v", csi={"driver": "csi.example.com", "volumeHandle": "v-1"}), claim("data", volume="v")
    waiting = storage_class("made", "csi.example.com"), claim("data", "made")
    for objs in (bound, waiting):
        session = opened(pod("p", "data"), *objs, *nodes, csi_driver(prevents=True))
        assert nodes_for(session, "p") == [0]
        assert causes(session, "p") == ["node(s) did not have the CSI driver csi.example.com"]
        assert nodes_for(opened(pod("p", "data"), *objs, *nodes, csi_driver(prevents=False)), "p") == [0, 1, 2]
        assert nodes_for(opened(pod("p", "data"), *objs, csi_driver(prevents=True)), "p") == []
    assert nodes_for(opened(pod("p"), *nodes, csi_driver(prevents=True)), "p") == [0, 1, 2]


def csi_driver(*, prevents: bool) -> dict[str, Any]:
    spec = {"preventPodSchedulingIfMissing": prevents}
    return {"kind": "CSIDriver", "metadata": {"name": "csi.example.com"}, "spec": spec}


def test_the_pool_of_a_ceph_image_is_rbd_unless_it_is_named() -> None:
    def using(name: str, node: str = "", **pool: str) -> Any:
        disk = {"monitors": ["m"], "image": "x", **pool}
        return builders.pod(name, "g", node=node, volumes=[{"name": "disk", "rbd": disk}])

    assert nodes_for(opened(using("there", "n0", pool="rbd"), using("p")), "p") == [1, 2]
    assert nodes_for(opened(using("there", "n0", pool="other"), using("p")), "p") == [0, 1, 2]


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


@pytest.mark.parametrize("driver", ["csi.example.com", "other.example.com"])
def test_where_a_pod_has_the_claim_of_another_no_volumes_are_counted(driver: str) -> None:
    data = claim("data", volume="v"), volume("v", csi={"driver": driver, "volumeHandle": "v"})
    session = opened(
        *(csi_node("n0", 9), disk_limits("n1", None), *data, claim("q-scratch"), own_claim("own", "scratch")),
        *(ephemeral("q", "scratch", node="n0"), ephemeral("own", "scratch", node="n2")),
        *(ephemeral("unlimited", "scratch", node="n1"), claim("unlimited-scratch"), csi_node("n2", 9, driver="third")),
        *(pod("p", "data"), inline("r", iscsi=ISCSI)),
    )
    assert nodes_for(session, "p") == [1, 2]
    assert causes(session, "p") == [
        "node(s) whose volumes cannot be counted for an ephemeral volume whose claim is not its pod's"
    ]
    assert nodes_for(session, "r") == [0, 1, 2]
    session.statement().evict(named(session, "q"), "preempt")
    assert nodes_for(session, "p") == [0, 1, 2]


def inline(name: str, node: str = "", **disk: Any) -> Any:
    """A pod that names a disk itself."""
    return builders.pod(name, "g", node=node, volumes=[{"name": f"of-{name}", **disk}])


def test_a_claim_for_one_pod_is_in_use_anywhere_until_its_pod_is_gone() -> None:
    session = opened(
        volume("v"), claim("data", volume="v", accessModes=["ReadWriteOncePod"]),
        pod("p", "data"), pod("q", "data"),
        builders.pod("r", "g", namespace="other", node="n0", volumes=pod_volumes("data")),
    )  # fmt: skip
    assert nodes_for(session, "q") == [0, 1, 2]
    statement = place(session, "p", 1)
    assert nodes_for(session, "q") == []
    expected = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use"
    assert causes(session, "q") == [f"{expected} by another pod"]
    statement.discard()
    assert nodes_for(session, "q") == [0, 1, 2]


def test_one_pod_of_a_gang_gets_the_claim_that_one_pod_may_use() -> None:
    cluster = builders.state(
        [builders.node("n0"), builders.node("n1")],
        builders.queue("default"),
        builders.pod_group("g", min_member=1),
        [pod("p", "data"), pod("q", "data")],
    )
    for each in (volume("v"), claim("data", volume="v", accessModes=["ReadWriteOncePod"])):
        cluster.upsert(each["kind"], each)
    bound = [
        d for d in builders.decide(cluster, builders.policy("gang", "predicates")).decisions if isinstance(d, Bind)
    ]
    assert len(bound) == 1


def test_of_pods_of_lower_priority_the_one_that_has_the_claim_to_itself_is_evicted() -> None:
    mounts, values = pod_volumes("data"), {"low": 1, "high": 100}
    cluster = builders.state(
        [builders.node("n0", cpu="1"), builders.node("n1", cpu="1")],
        builders.queue("default"),
        [objects.PriorityClass(objects.Metadata(name), value=value) for name, value in values.items()],
        [builders.pod_group(name, 0, phase="Running", priorityClassName="low") for name in ("other", "user")],
        builders.pod("a", "other", node="n0"), builders.pod("b", "user", node="n1", volumes=mounts),
        builders.pod_group("wants", priorityClassName="high"), builders.pod("c", "wants", volumes=mounts),
    )  # fmt: skip
    for each in (volume("v"), claim("data", volume="v", accessModes=["ReadWriteOncePod"])):
        cluster.upsert(each["kind"], each)
    policy = builders.policy("priority gang conformance predicates", actions="preempt")
    decisions = builders.decide(cluster, policy).decisions
    assert [each.name for each in decisions if isinstance(each, Evict)] == ["b"]


def test_volcano_lets_pods_share_what_one_may_use() -> None:
    cluster = builders.state(
        [builders.node("n0")], builders.queue("default"), builders.pod_group("g"), [inline("p", "n0", iscsi=ISCSI)]
    )
    cluster.upsert("Pod", inline("q", iscsi=ISCSI))
    for compatibility, nodes in (("strict", []), ("volcano", [0])):
        policy = f"{POLICY}\ncompatibility: {compatibility}\n"
        assert nodes_for(builders.decide(cluster, policy).session, "q") == nodes


ISCSI = {"iqn": "iqn.2026-01.com.example:disk", "targetPortal": "10.0.0.1:3260", "lun": 0}


def test_a_zonal_disk_is_where_the_driver_that_took_it_over_says_that_the_zone_is() -> None:
    aws = "topology.ebs.csi.aws.com/zone"
    session = opened(
        csi_node("n0", 5, "kubernetes.io/gce-pd,kubernetes.io/aws-ebs"), csi_node("n1", 5, "kubernetes.io/gce-pd"),
        volume("v", awsElasticBlockStore={"volumeID": "vol-1"}, nodeAffinity=affinity(ZONE, "a")),
        claim("data", volume="v"), pod("p", "data"), labels={"n0": {aws: "b"}, "n1": {aws: "a"}, "n2": {aws: "b"}},
    )  # fmt: skip
    # n0 has a driver for which it is in zone b; n1 is in zone b and n2 in zone a by their own labels.
    assert nodes_for(session, "p") == [2]


def test_a_zone_that_only_has_to_exist_is_that_of_the_node_for_a_driver_that_took_a_disk_over() -> None:
    anywhere = {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "Exists"}]}]}}
    disk = volume("v", awsElasticBlockStore={"volumeID": "vol-1"}, nodeAffinity=anywhere)
    session = opened(csi_node("n0", 5, "kubernetes.io/aws-ebs"), disk, claim("data", volume="v"), pod("p", "data"))
    assert nodes_for(session, "p") == [0, 1, 2]


BLOB = {"azureDisk": {"diskName": "d", "diskURI": "https://a.blob.core.windows.net/c/d.vhd", "kind": "Shared"}}
MANAGED = {"azureDisk": {"diskName": "d", "diskURI": "/subscriptions/s/disks/d", "kind": "Managed"}}
ODD_EBS = {"awsElasticBlockStore": {"volumeID": "aws://a/disk"}}
UNHANDLED = pytest.mark.parametrize("disk", [BLOB, ODD_EBS], ids=["blob", "ebs"])


def disk_limits(name: str, count: int | None) -> dict[str, Any]:
    """The CSINode of a node that takes so many disks of Azure and of others; None for no limits."""
    amounts = {} if count is None else {"allocatable": {"count": count}}
    drivers = [{"name": driver, **amounts} for driver in ("disk.csi.azure.com", "csi.example.com")]
    return {"kind": "CSINode", "metadata": {"name": name}, "spec": {"drivers": drivers}}


@UNHANDLED
def test_a_disk_that_no_driver_handles_goes_where_no_driver_is(disk: dict[str, Any]) -> None:
    """kube-scheduler fails to count it wherever there is a CSINode, whatever the limits."""
    session = opened(disk_limits("n0", 9), disk_limits("n1", None), inline("p", **disk), inline("q", **MANAGED))
    assert nodes_for(session, "p") == [2]
    assert causes(session, "p") == ["node(s) whose CSI driver cannot handle an inline volume of the pod"]
    assert nodes_for(session, "q") == [0, 1, 2]


@UNHANDLED
def test_where_it_lies_no_other_volumes_can_be_counted(disk: dict[str, Any]) -> None:
    data = claim("data", volume="v"), volume("v", csi={"driver": "csi.example.com", "volumeHandle": "v"})
    session = opened(
        *(disk_limits("n0", 9), disk_limits("n1", None), *data),
        *(inline(f"odd-{number}", f"n{number}", **disk) for number in range(3)),
        *(pod("p", "data"), inline("q", **MANAGED), inline("r", iscsi=ISCSI), inline("moved", **disk)),
    )
    assert nodes_for(session, "p") == nodes_for(session, "q") == [1, 2]
    assert nodes_for(session, "r") == [0, 1, 2]


def test_a_disk_that_is_placed_in_the_session_counts_at_once() -> None:
    session = opened(disk_limits("n0", 9), inline("p", **BLOB), inline("q", **MANAGED))
    assert nodes_for(session, "q") == [0, 1, 2]
    statement = place(session, "p", 0)
    assert nodes_for(session, "q") == [1, 2]
    statement.discard()
    assert nodes_for(session, "q") == [0, 1, 2]


def test_a_claimed_blob_counts_for_no_limit_and_is_unreachable_where_its_plugin_migrated() -> None:
    claimed = claim("data", volume="v"), volume("v", **BLOB)
    migrated = csi_node("n1", 1, "kubernetes.io/azure-disk")
    session = opened(disk_limits("n0", 0), migrated, *claimed, pod("p", "data"))
    assert nodes_for(session, "p") == [0, 2]
    assert causes(session, "p") == ["node(s) didn't match PersistentVolume's node affinity"]
    managed = claim("data", volume="v"), volume("v", **MANAGED)
    assert nodes_for(opened(disk_limits("n0", 0), migrated, *managed, pod("p", "data")), "p") == [1, 2]
