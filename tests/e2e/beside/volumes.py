"""Claims that wait for their consumer, claims of one pod, and limits of attached volumes."""

from __future__ import annotations

from tests.controlplane.cluster import eventually
from tests.e2e.beside.scene import STORAGE, Scene, claim_spec, mounting
from tests.e2e.provisioner import PROVISIONER
from tests.e2e.world import CORE, Object

ONE_POD: Object = {"accessModes": ["ReadWriteOncePod"]}


def the_smallest_volume_that_fits(at: Scene) -> None:
    at.nodes("a")
    at.storage_class("local")
    for name, size in (("large", "20Gi"), ("fitting", "6Gi"), ("small", "4Gi")):
        at.volume(name, "a", size)
    at.claim("data")
    at.pod("p", volumes=mounting("data"))


def both_volumes_on_one_node(at: Scene) -> None:
    at.nodes("a", "b")
    at.storage_class("local")
    for name, node in (("a0", "a"), ("b0", "b"), ("b1", "b")):
        at.volume(name, node)
    at.claim("one")
    at.claim("two")
    at.pod("p", volumes=mounting("one", "two"))


def claims_that_select_volumes(at: Scene) -> None:
    at.nodes("a", "b")
    at.storage_class("local")
    at.volume("slow", "a", labels={"speed": "slow"})
    at.volume("fast", "b", labels={"speed": "fast"})
    at.claim("data", selector={"matchLabels": {"speed": "fast"}})
    at.pod("p", volumes=mounting("data"))


def the_mode_of_a_volume(at: Scene) -> None:
    at.nodes("a", "b")
    at.storage_class("local")
    at.volume("files", "a")
    at.volume("blocks", "b", volumeMode="Block")
    at.claim("data", volumeMode="Block")
    device = {"name": "main", "image": "example.com/x:1", "volumeDevices": [{"name": "v0", "devicePath": "/dev/x"}]}
    at.pod("p", volumes=mounting("data"), containers=[device])


def access_modes_that_no_volume_has(at: Scene) -> None:
    at.nodes("a")
    at.storage_class("local")
    at.volume("one", "a")
    at.claim("data", accessModes=["ReadWriteMany"])
    at.pod("p", volumes=mounting("data"))


def a_volume_that_is_kept_for_another_claim(at: Scene) -> None:
    at.nodes("a", "b")
    at.storage_class("local")
    reference = {"namespace": at.world.namespace, "name": "theirs"}
    at.volume("kept", "a", "5Gi", claimRef=reference)
    at.volume("free", "b", "9Gi")
    at.claim("data")
    at.pod("p", volumes=mounting("data"))


def a_volume_that_is_kept_for_this_claim(at: Scene) -> None:
    at.nodes("a", "b")
    at.storage_class("local")
    at.volume("fitting", "a", "5Gi")
    at.volume("kept", "b", "9Gi", claimRef={"namespace": at.world.namespace, "name": "data"})
    at.claim("data")
    at.pod("p", volumes=mounting("data"))


def a_claim_that_is_not_there(at: Scene) -> None:
    at.nodes("a")
    at.pod("p", volumes=mounting("missing"))


def a_claim_that_does_not_wait_and_is_not_bound(at: Scene) -> None:
    at.nodes("a")
    at.storage_class("now", volumeBindingMode="Immediate")
    at.claim("data", storage_class="now")
    at.pod("p", volumes=mounting("data"))


def topologies_of_a_class(at: Scene) -> None:
    at.node("b", zone="two")
    topologies_of_a_class_that_no_node_has(at)


def topologies_of_a_class_that_no_node_has(at: Scene) -> None:
    at.node("a", zone="one")
    allowed = [{"matchLabelExpressions": [{"key": "zone", "values": ["two"]}]}]
    at.storage_class("made", PROVISIONER, allowedTopologies=allowed)
    at.claim("data", storage_class="made")
    at.pod("p", volumes=mounting("data"))


def storage_that_only_one_node_has(at: Scene) -> None:
    at.nodes("a", "b")
    driver = {"attachRequired": False, "storageCapacity": True}
    at.world.create(f"{STORAGE}/csidrivers", {"metadata": {"name": PROVISIONER}, "spec": driver})
    at.storage_class("made", PROVISIONER)
    place = f"{STORAGE}/namespaces/{at.world.namespace}/csistoragecapacities"
    for node, size, largest in (("a", "100Gi", "2Gi"), ("b", "6Gi", "6Gi")):
        topology = {"matchLabels": {"kubernetes.io/hostname": node}}
        told = {"storageClassName": "made", "capacity": size, "maximumVolumeSize": largest, "nodeTopology": topology}
        at.world.create(place, {"metadata": {"name": node}, **told})
    at.claim("data", storage_class="made")
    at.pod("p", volumes=mounting("data"))


def zones_of_a_bound_volume(at: Scene) -> None:
    zone = "topology.kubernetes.io/zone"
    at.node("a", **{zone: "one"})
    at.node("b", **{zone: "two"})
    at.bound_claim("data", "b", nodeAffinity=None, labels={zone: "two__three"})
    at.pod("p", volumes=mounting("data"))
    at.pod("q", on="a", volumes=mounting("data"))


def a_claim_of_one_pod_that_is_taken(at: Scene) -> None:
    at.nodes("a", "b")
    at.bound_claim("data", "a", nodeAffinity=None, **ONE_POD)
    at.placed("holder", "a", volumes=mounting("data"))
    at.pod("p", volumes=mounting("data"))


def a_claim_of_one_pod_that_has_ended(at: Scene) -> None:
    at.nodes("a")
    at.bound_claim("data", "a", **ONE_POD)
    at.placed("holder", "a", volumes=mounting("data"), restartPolicy="Never")
    at.tell("holder", phase="Succeeded")
    at.pod("p", volumes=mounting("data"))


def a_claim_of_one_pod_for_two(at: Scene) -> None:
    at.nodes("a")
    at.storage_class("local")
    at.volume("v", "a", accessModes=ONE_POD["accessModes"])
    at.claim("data", **ONE_POD)
    at.pod("p", volumes=mounting("data"))
    at.pod("q", volumes=mounting("data"))


def as_many_volumes_as_a_node_takes(at: Scene) -> None:
    at.nodes("a", "b")
    at.csi_node("a", 1)
    at.csi_node("b", 1)
    for name in ("one", "two", "three"):
        at.bound_claim(name, "a", nodeAffinity=None)
    at.placed("holder", "a", volumes=mounting("one"))
    at.pod("p", volumes=mounting("two"))
    at.pod("q", volumes=mounting("three"))


def a_volume_that_is_there_counts_once(at: Scene) -> None:
    at.nodes("a")
    at.csi_node("a", 1)
    at.bound_claim("data", "a", accessModes=["ReadWriteMany"])
    at.placed("holder", "a", volumes=mounting("data"))
    at.pod("p", volumes=mounting("data"))


def a_volume_that_is_still_attached(at: Scene) -> None:
    at.nodes("a", "b")
    at.csi_node("a", 1)
    at.csi_node("b", 1)
    at.bound_claim("old", "a", nodeAffinity=None)
    at.bound_claim("new", "a", nodeAffinity=None)
    spec = {"attacher": "csi.example.com", "nodeName": "a", "source": {"persistentVolumeName": "v-old"}}
    at.world.create(f"{STORAGE}/volumeattachments", {"metadata": {"name": "old"}, "spec": spec})
    at.pod("p", volumes=mounting("new"))


def a_driver_without_a_limit(at: Scene) -> None:
    at.nodes("a")
    at.csi_node("a", None)
    for name in ("one", "two"):
        at.bound_claim(name, "a")
    at.pod("p", volumes=mounting("one", "two"))


def the_limit_of_another_driver(at: Scene) -> None:
    at.nodes("a")
    at.csi_node("a", 1, driver="other.example.com")
    for name in ("one", "two"):
        at.bound_claim(name, "a")
    at.pod("p", volumes=mounting("one", "two"))


def disks_of_a_cloud_count_for_its_driver(at: Scene) -> None:
    at.nodes("a", "b")
    for node, count in (("a", 1), ("b", 2)):
        at.csi_node(node, count, driver="ebs.csi.aws.com")
        key = "storage.alpha.kubernetes.io/migrated-plugins"
        patch = {"metadata": {"annotations": {key: "kubernetes.io/aws-ebs"}}}
        headers = {"Content-Type": "application/merge-patch+json"}
        at.world.api.patch(f"{STORAGE}/csinodes/{node}", json=patch, headers=headers).raise_for_status()
    disks = [{"name": f"v{i}", "awsElasticBlockStore": {"volumeID": f"vol-{i}"}} for i in range(2)]
    at.pod("p", volumes=disks)


def volumes_that_are_to_be_made_count(at: Scene) -> None:
    at.nodes("a", "b")
    at.csi_node("a", 1, driver=PROVISIONER)
    at.csi_node("b", 3, driver=PROVISIONER)
    at.storage_class("made", PROVISIONER)
    template = {"spec": claim_spec(storage_class="made")}
    scratch = [{"name": f"s{i}", "ephemeral": {"volumeClaimTemplate": template}} for i in range(2)]
    at.pod("p", volumes=scratch)


def a_volume_of_the_pods_own(at: Scene) -> None:
    at.nodes("a", "b")
    at.storage_class("local")
    at.volume("disk", "b")
    at.pod("p", volumes=[{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": claim_spec()}}}])


def a_claim_that_has_the_name_of_the_pods_own(at: Scene) -> None:
    at.nodes("a")
    at.storage_class("local")
    at.volume("disk", "a")
    at.claim("p-scratch")
    at.pod("p", volumes=[{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": claim_spec()}}}])


def a_claim_whose_node_is_selected(at: Scene) -> None:
    at.nodes("a", "b")
    at.storage_class("made", PROVISIONER)
    place = f"{CORE}/namespaces/{at.world.namespace}/persistentvolumeclaims"
    annotations = {"volume.kubernetes.io/selected-node": "b"}
    at.world.create(
        place, {"metadata": {"name": "data", "annotations": annotations}, "spec": claim_spec(storage_class="made")}
    )
    at.pod("p", volumes=mounting("data"))


def a_claim_that_is_going(at: Scene) -> None:
    at.nodes("a")
    at.storage_class("local")
    at.volume("disk", "a")
    place = f"{CORE}/namespaces/{at.world.namespace}/persistentvolumeclaims"
    metadata = {"name": "data", "finalizers": ["example.com/kept"]}
    at.world.create(place, {"metadata": metadata, "spec": claim_spec()})
    at.world.api.delete(f"{place}/data").raise_for_status()
    at.pod("p", volumes=mounting("data"))
    headers = {"Content-Type": "application/merge-patch+json"}
    at.world.api.patch(f"{place}/data", json={"metadata": {"finalizers": None}}, headers=headers).raise_for_status()
    eventually(lambda: at.world.items(place) == [])
