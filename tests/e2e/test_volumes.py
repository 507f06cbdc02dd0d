"""Claims that wait for their first consumer: bound as kube-scheduler does it, before any pod of their gang is."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from stromboli.live.binding import volumes
from tests.controlplane.cluster import eventually
from tests.e2e.audit import Audit
from tests.e2e.conftest import Start
from tests.e2e.disks import STORAGE, Disks, Order, node_of, pod_with_claims
from tests.e2e.provisioner import MERGE_PATCH, PROVISIONER, SELECTED_NODE, VOLUMES, Provisioner, volume
from tests.e2e.watch import PodWatch
from tests.e2e.world import CORE, Object, World, pod

pytestmark = pytest.mark.e2e


def test_what_is_written_is_what_kube_scheduler_writes(
    world: World, disks: Disks, provisioner: Provisioner, start: Start
) -> None:
    """A volume that is there and one that is made, first for kube-scheduler's pods and then for ours."""

    def bound_by(scheduler: str) -> list[Object]:
        disks.volumes([volume(f"{scheduler}-disk", "node-1", "local")])
        disks.claim_all([disks.claim(f"{scheduler}-there", "local"), disks.claim(f"{scheduler}-made", "made")])
        names = [f"{scheduler}-there", f"{scheduler}-made"]
        world.pods([pod_with_claims(scheduler, *names, scheduler=scheduler)])
        eventually(lambda: world.placed().get(scheduler) == "node-1")
        given = world.get(f"{VOLUMES}/{scheduler}-disk")
        ref = given["spec"]["claimRef"]
        assert ref.pop("uid") == disks.get(names[0])["metadata"]["uid"]
        assert ref.pop("resourceVersion")
        assert ref.pop("name") == names[0]
        claims = [disks.get(name)["metadata"]["annotations"] for name in names]
        # The controller of volumes adds for whom a volume is made, sooner or later.
        written = [{k: v for k, v in each.items() if "provisioner" not in k} for each in claims]
        return [given["metadata"]["annotations"], ref, *written]

    world.cluster.start_scheduler()
    try:
        theirs = bound_by("default-scheduler")
    finally:
        world.cluster.stop_scheduler()
    start()
    assert bound_by("stromboli") == theirs


def test_a_gang_waits_for_the_last_of_its_volumes(
    world: World, disks: Disks, provisioner: Provisioner, start: Start
) -> None:
    """Those that are made, of its ephemeral volumes as well."""
    start()
    provisioner.takes = 0.3
    world.group("train", 4)
    template = {"spec": disks.claim("", "made")["spec"]}
    scratch = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]
    with Order(disks) as order, PodWatch(world.cluster, world.namespace) as watch:
        world.pods([pod(f"train-{number}", "train", volumes=scratch) for number in range(4)])
        watch.wait_bound(4)
        eventually(lambda: len(disks.bound()) == 4)
        order.check({f"train-{number}": [f"train-{number}-scratch"] for number in range(4)})


def test_a_provisioner_that_refuses_sends_the_gang_elsewhere(
    world: World, disks: Disks, provisioner: Provisioner, start: Start
) -> None:
    provisioner.refusing = {"node-0"}
    start()
    world.group("train", 4)
    disks.claim_all([disks.claim(f"train-{number}", "made") for number in range(4)])
    world.pods([pod_with_claims(f"train-{n}", f"train-{n}", group="train") for n in range(4)])
    eventually(lambda: len(world.placed()) == 4)
    assert set(world.placed().values()) == {"node-1"}
    assert disks.reserved() == set()


@pytest.mark.parametrize("way", ["deleted", "tainted"])
def test_a_gang_whose_node_goes_while_its_volumes_are_made_starts_all_the_same(
    world: World, disks: Disks, start: Start, way: str
) -> None:
    """Its claims name the other node, before any provisioner was at work."""
    start()
    node = f"{CORE}/nodes/node-0"
    cordon(world, True, "node-1")
    world.group("train", 3)
    disks.claim_all([disks.claim(f"train-{number}", "made") for number in range(3)])
    world.pods([pod_with_claims(f"train-{n}", f"train-{n}", group="train") for n in range(3)])
    eventually(lambda: len(disks.reserved()) == 3)
    cordon(world, False, "node-1")
    if way == "deleted":
        world.api.delete(node).raise_for_status()
    else:
        taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
        world.api.patch(node, json={"spec": {"taints": [taint]}}, headers=MERGE_PATCH).raise_for_status()
    eventually(lambda: {each["metadata"]["annotations"].get(SELECTED_NODE) for each in disks.all()} == {"node-1"})
    with Provisioner(world.cluster, world.namespace):
        eventually(lambda: len(world.placed()) == 3, 60)
    assert set(world.placed().values()) == {"node-1"}


def test_a_gang_of_which_a_pod_is_gated_reserves_nothing(
    world: World, disks: Disks, provisioner: Provisioner, start: Start
) -> None:
    start()
    world.group("train", 2)
    disks.claim_all([disks.claim(f"train-{number}", "made") for number in range(2)])
    gates = [{"name": "example.com/quota"}]
    world.pods([pod_with_claims("train-0", "train-0", group="train")])
    world.pods([pod_with_claims("train-1", "train-1", group="train", schedulingGates=gates)])
    eventually(lambda: world.condition("train", "Unschedulable") != {})
    assert provisioner.asked == {}
    gated = f"{CORE}/namespaces/{world.namespace}/pods/train-1"
    world.api.patch(gated, json={"spec": {"schedulingGates": []}}, headers=MERGE_PATCH).raise_for_status()
    eventually(lambda: len(world.placed()) == 2)


def test_what_no_one_provisions_is_given_back_in_time(world: World, disks: Disks, start: Start, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(WITHIN_TWO_SECONDS)
    start("--policy", str(policy))
    disks.claim_all([disks.claim("data", "made")])
    world.pods([pod_with_claims("p", "data", nodeSelector={"kubernetes.io/hostname": "node-0"})])
    eventually(lambda: disks.reserved() == {"data"})
    eventually(lambda: disks.reserved() == set())
    assert world.placed() == {}
    with Provisioner(world.cluster, world.namespace):
        eventually(lambda: world.placed() == {"p": "node-0"}, 60)


WITHIN_TWO_SECONDS = """
actions: "enqueue, allocate"
tiers:
  - plugins: [{name: priority}, {name: gang}]
  - plugins: [{name: predicates, arguments: {volumebinding.bindTimeoutSeconds: 2}}, {name: nodeorder}]
"""


def test_published_capacity_is_heeded(world: World, disks: Disks, provisioner: Provisioner, start: Start) -> None:
    """Of two nodes one has storage for two of three pods, each of which asks for 4 GiB; it is published for each."""
    spec = {"attachRequired": False, "storageCapacity": True}
    world.create(f"{STORAGE}/csidrivers", {"metadata": {"name": PROVISIONER}, "spec": spec})
    for node, size in (("node-0", "1Gi"), ("node-1", "10Gi")):
        topology = {"matchLabels": {"kubernetes.io/hostname": node}}
        published = {"storageClassName": "made", "capacity": size, "nodeTopology": topology}
        place = f"{STORAGE}/namespaces/{world.namespace}/csistoragecapacities"
        world.create(place, {"metadata": {"name": node}, **published})
    start()
    disks.claim_all([disks.claim(f"c{number}", "made", "4Gi") for number in range(3)])
    world.group("two", 2)
    world.pods([pod_with_claims(f"p{n}", f"c{n}", group="two") for n in range(2)])
    eventually(lambda: set(world.placed().values()) == {"node-1"} and len(world.placed()) == 2)
    world.api.patch(f"{place}/node-1", json={"capacity": "2Gi"}, headers=MERGE_PATCH).raise_for_status()
    world.pods([pod_with_claims("p2", "c2")])
    eventually(lambda: "free storage" in why(world, "p2"))


@pytest.mark.parametrize("left", [0, 1])
def test_storage_that_runs_out_once_a_node_is_chosen_sends_pods_elsewhere(
    world: World, disks: Disks, provisioner: Provisioner, start: Start, left: int
) -> None:
    """All pods of the gang, or only that whose volume is not made; what is published tells of plenty all the time."""
    spec = {"attachRequired": False, "storageCapacity": True}
    world.create(f"{STORAGE}/csidrivers", {"metadata": {"name": PROVISIONER}, "spec": spec})
    place = f"{STORAGE}/namespaces/{world.namespace}/csistoragecapacities"
    world.create(
        place, {"metadata": {"name": "all"}, "storageClassName": "made", "capacity": "1Ti", "nodeTopology": {}}
    )
    provisioner.room = {"node-0": left}
    cordon(world, True, "node-1")
    start()
    disks.claim_all([disks.claim(f"train-{number}", "made") for number in range(2)])
    world.group("train", 2)
    with Order(disks) as order:
        world.pods([pod_with_claims(f"train-{n}", f"train-{n}", group="train") for n in range(2)])
        eventually(lambda: len(provisioner.asked) == 2)
        assert world.placed() == {}
        cordon(world, False, "node-1")
        eventually(lambda: sorted(world.placed().values()) == ["node-0"] * left + ["node-1"] * (2 - left))
        order.check({f"train-{number}": [f"train-{number}"] for number in range(2)})
    assert disks.reserved() == set()


def test_a_gang_waits_whole_for_a_node_that_took_the_first_of_its_volumes_along(
    world: World, disks: Disks, provisioner: Provisioner, start: Start
) -> None:
    provisioner.room = {"node-0": 1}
    cordon(world, True, "node-1")
    start()
    disks.claim_all([disks.claim(f"train-{number}", "made") for number in range(2)])
    world.group("train", 2)
    world.pods([pod_with_claims(f"train-{n}", f"train-{n}", group="train") for n in range(2)])
    eventually(lambda: len(disks.bound()) == 1)
    lost = f"{CORE}/nodes/node-0"
    world.api.delete(lost).raise_for_status()
    world.api.delete("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-0")
    cordon(world, False, "node-1")
    eventually(lambda: "PersistentVolume's node affinity" in why(world, "train-0") + why(world, "train-1"))
    assert world.placed() == {}
    assert disks.reserved() == set()
    world.nodes(1, cpu="32")
    eventually(lambda: sorted(world.placed().values()) == ["node-0", "node-1"], 60)


def test_of_a_claim_that_is_shared_with_another_scheduler_only_what_is_ours_is_given_back(
    world: World, disks: Disks, start: Start, tmp_path: Path
) -> None:
    """kube-scheduler's pod may not go where our pod's volume was to be made, and may once our pod has given up."""

    def selected(claim: str) -> str | None:
        node: str | None = disks.get(claim)["metadata"].get("annotations", {}).get(SELECTED_NODE)
        return node

    def on(node: str) -> dict[str, str]:
        return {"kubernetes.io/hostname": node}

    policy = tmp_path / "policy.yaml"
    policy.write_text(WITHIN_TWO_SECONDS)
    service = start("--policy", str(policy))
    disks.claim_all([disks.claim("shared", "made")])
    world.pods([pod_with_claims("ours", "shared", nodeSelector=on("node-0"))])
    eventually(lambda: selected("shared") == "node-0")
    world.pods([pod_with_claims("theirs", "shared", scheduler="default-scheduler", nodeSelector=on("node-1"))])
    world.cluster.start_scheduler()
    try:
        eventually(lambda: selected("shared") == "node-1", 60)
        # For so long it is left to its provisioner.
        time.sleep(volumes._ON_ITS_WAY + 2)
        assert selected("shared") == "node-1"
        # kube-scheduler would soon write it again.
        assert f"claim={world.namespace}/shared node=node-1" not in service.text
        with Provisioner(world.cluster, world.namespace):
            eventually(lambda: world.placed().get("theirs") == "node-1", 60)
    finally:
        world.cluster.stop_scheduler()


def why(world: World, name: str) -> str:
    found = world.get(f"{CORE}/namespaces/{world.namespace}/pods/{name}")["status"].get("conditions", ())
    return next((c.get("message", "") for c in found if c["type"] == "PodScheduled" and c["status"] == "False"), "")


def test_local_volumes_are_bound_under_volcanos_rules(world: World, disks: Disks, start: Start, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(f"compatibility: volcano\n{WITHIN_TWO_SECONDS}")
    start("--policy", str(policy))
    disks.volumes([volume("disk", "node-1", "local")])
    disks.claim_all([disks.claim("data", "local")])
    world.pods([pod_with_claims("p", "data")])
    eventually(lambda: world.placed() == {"p": "node-1"})
    assert disks.bound() == {"data": "disk"}


def test_the_service_is_killed_amid_many_gangs(
    world: World, disks: Disks, provisioner: Provisioner, start: Start, audit: Audit
) -> None:
    """Each of their pods has a local volume and one that is made."""
    world.nodes(8, cpu="64", prefix="disk")
    disks.volumes([volume(f"v{number}", f"disk-{number % 8}", "local") for number in range(176)])
    gangs = {f"gang-{g}": [f"gang-{g}-{n}" for n in range(8)] for g in range(20)}
    claims_of = {name: [f"{name}-there", f"{name}-made"] for names in gangs.values() for name in names}
    for group, names in gangs.items():
        world.group(group, len(names))
    disks.claim_all(
        [disks.claim(each, each.rpartition("-")[2].replace("there", "local")) for c in claims_of.values() for each in c]
    )
    with Order(disks) as order, PodWatch(world.cluster, world.namespace) as watch:
        first = start("--binds-per-second", "40")
        world.pods([pod_with_claims(n, *claims_of[n], group=group) for group, names in gangs.items() for n in names])
        watch.wait_bound(32)
        first.end(signal.SIGKILL)
        assert len(disks.bound()) < 320, "it was killed too late"
        assert disks.reserved() or len(disks.bound()) > 2 * len(watch.bound), "it was killed between two gangs"
        start()
        watch.wait_bound(160)
        order.check(claims_of)

    assert watch.moved == []
    assert max(audit.accepted(world.namespace).values()) == 1
    found = disks.bound()
    assert found.keys() == {each for claims in claims_of.values() for each in claims}
    assert len(set(found.values())) == 320
    assert disks.reserved() == set()
    nodes = {each["metadata"]["name"]: node_of(each) for each in world.items(VOLUMES)}
    for name, node in world.placed().items():
        assert {nodes[found[each]] for each in claims_of[name]} == {node}


def test_what_was_written_for_a_gang_that_finds_no_place_is_given_back(
    world: World, disks: Disks, start: Start
) -> None:
    """The service is killed while the volumes of a gang are to be made, and its nodes are gone for the next one."""
    first = start()
    world.group("train", 4)
    disks.claim_all([disks.claim(f"train-{number}", "made") for number in range(4)])
    world.pods([pod_with_claims(f"train-{n}", f"train-{n}", group="train") for n in range(4)])
    eventually(lambda: len(disks.reserved()) == 4)
    first.end(signal.SIGKILL)
    cordon(world, True)
    start()
    eventually(lambda: disks.reserved() == set())
    assert world.placed() == {}
    cordon(world, False)
    with Provisioner(world.cluster, world.namespace):
        eventually(lambda: len(world.placed()) == 4)


def cordon(world: World, on: bool, *nodes: str) -> None:
    """Cordon nodes, all without names, or take that back."""
    for name in nodes or [node["metadata"]["name"] for node in world.items(f"{CORE}/nodes")]:
        path = f"{CORE}/nodes/{name}"
        world.api.patch(path, json={"spec": {"unschedulable": on}}, headers=MERGE_PATCH).raise_for_status()
