"""Claims that wait for their first consumer: bound as kube-scheduler does it, before any pod of their gang is."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import pytest

from tests.controlplane.cluster import eventually
from tests.e2e.audit import Audit
from tests.e2e.conftest import Start
from tests.e2e.provisioner import MERGE_PATCH, PROVISIONER, SELECTED_NODE, VOLUMES, Provisioner, volume
from tests.e2e.watch import PodWatch, Since
from tests.e2e.world import CORE, Object, World, pod

pytestmark = pytest.mark.e2e

_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
_STORAGE = "/apis/storage.k8s.io/v1"


class Disks:
    """Storage classes, volumes and claims of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.claims = f"{CORE}/namespaces/{world.namespace}/persistentvolumeclaims"

    def storage_class(self, name: str, provisioner: str = "kubernetes.io/no-provisioner", **more: Any) -> None:
        manifest = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer", "reclaimPolicy": "Retain"}
        self.world.create(_CLASSES, {"metadata": {"name": name}, **manifest, **more})

    def volumes(self, manifests: Sequence[Object]) -> None:
        self.world.create_all(VOLUMES, manifests)
        eventually(lambda: all(v["status"]["phase"] != "Pending" for v in self.world.items(VOLUMES)))

    def claim(self, name: str, storage_class: str, size: str = "5Gi") -> Object:
        spec = {"storageClassName": storage_class, "accessModes": ["ReadWriteOnce"]}
        return {"metadata": {"name": name}, "spec": {**spec, "resources": {"requests": {"storage": size}}}}

    def claim_all(self, manifests: Sequence[Object]) -> None:
        self.world.create_all(self.claims, manifests)

    def get(self, name: str) -> Object:
        return self.world.get(f"{self.claims}/{name}")

    def bound(self) -> dict[str, str]:
        """The volume of each claim that has one for good."""
        return {
            each["metadata"]["name"]: each["spec"]["volumeName"]
            for each in self.world.items(self.claims)
            if each["status"].get("phase") == "Bound"
        }

    def reserved(self) -> set[str]:
        """The volumes that name a claim, and the claims that name a node, without being bound."""
        free = [each for each in self.world.items(VOLUMES) if each["status"].get("phase") != "Bound"]
        waiting = [each for each in self.world.items(self.claims) if not each["spec"].get("volumeName")]
        selected = [each for each in waiting if SELECTED_NODE in each["metadata"].get("annotations", {})]
        return {each["metadata"]["name"] for each in [*selected, *(v for v in free if v["spec"].get("claimRef"))]}

    def clear(self) -> None:
        for path in (VOLUMES, _CLASSES, f"{_STORAGE}/csidrivers", f"{_STORAGE}/csinodes"):
            self.world.api.delete(path).raise_for_status()


@pytest.fixture
def disks(world: World) -> Iterator[Disks]:
    """Two nodes, a class of local volumes, and one of those that the provisioner makes."""
    found = Disks(world)
    world.nodes(2, cpu="32")
    found.storage_class("local")
    found.storage_class("made", PROVISIONER)
    yield found
    found.clear()


@pytest.fixture
def provisioner(disks: Disks) -> Iterator[Provisioner]:
    with Provisioner(disks.world.cluster, disks.world.namespace) as found:
        yield found


def mounting(name: str, *claims: str, group: str = "", **spec: Any) -> Object:
    volumes = [{"name": f"v{i}", "persistentVolumeClaim": {"claimName": each}} for i, each in enumerate(claims)]
    return pod(name, group, volumes=volumes, **spec)


def test_what_is_written_is_what_kube_scheduler_writes(
    world: World, disks: Disks, provisioner: Provisioner, start: Start
) -> None:
    """A volume that is there and one that is made, first for kube-scheduler's pods and then for ours."""

    def bound_by(scheduler: str) -> list[Object]:
        disks.volumes([volume(f"{scheduler}-disk", "node-1", "local")])
        disks.claim_all([disks.claim(f"{scheduler}-there", "local"), disks.claim(f"{scheduler}-made", "made")])
        names = [f"{scheduler}-there", f"{scheduler}-made"]
        world.pods([mounting(scheduler, *names, scheduler=scheduler)])
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
    world.pods([mounting(f"train-{n}", f"train-{n}", group="train") for n in range(4)])
    eventually(lambda: len(world.placed()) == 4)
    assert set(world.placed().values()) == {"node-1"}
    assert disks.reserved() == set()


def test_what_no_one_provisions_is_given_back_in_time(world: World, disks: Disks, start: Start, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(WITHIN_TWO_SECONDS)
    start("--policy", str(policy))
    disks.claim_all([disks.claim("data", "made")])
    world.pods([mounting("p", "data", nodeSelector={"kubernetes.io/hostname": "node-0"})])
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
    world.create(f"{_STORAGE}/csidrivers", {"metadata": {"name": PROVISIONER}, "spec": spec})
    for node, size in (("node-0", "1Gi"), ("node-1", "10Gi")):
        topology = {"matchLabels": {"kubernetes.io/hostname": node}}
        published = {"storageClassName": "made", "capacity": size, "nodeTopology": topology}
        place = f"{_STORAGE}/namespaces/{world.namespace}/csistoragecapacities"
        world.create(place, {"metadata": {"name": node}, **published})
    start()
    disks.claim_all([disks.claim(f"c{number}", "made", "4Gi") for number in range(3)])
    world.group("two", 2)
    world.pods([mounting(f"p{n}", f"c{n}", group="two") for n in range(2)])
    eventually(lambda: set(world.placed().values()) == {"node-1"} and len(world.placed()) == 2)
    world.api.patch(f"{place}/node-1", json={"capacity": "2Gi"}, headers=MERGE_PATCH).raise_for_status()
    world.pods([mounting("p2", "c2")])
    eventually(lambda: "free storage" in why(world, "p2"))


def why(world: World, name: str) -> str:
    found = world.get(f"{CORE}/namespaces/{world.namespace}/pods/{name}")["status"].get("conditions", ())
    return next((c.get("message", "") for c in found if c["type"] == "PodScheduled" and c["status"] == "False"), "")


def test_local_volumes_are_bound_under_volcanos_rules(world: World, disks: Disks, start: Start, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(f"compatibility: volcano\n{WITHIN_TWO_SECONDS}")
    start("--policy", str(policy))
    disks.volumes([volume("disk", "node-1", "local")])
    disks.claim_all([disks.claim("data", "local")])
    world.pods([mounting("p", "data")])
    eventually(lambda: world.placed() == {"p": "node-1"})
    assert disks.bound() == {"data": "disk"}


def test_the_service_is_killed_amid_fifty_gangs(
    world: World, disks: Disks, provisioner: Provisioner, start: Start, audit: Audit
) -> None:
    """Each of their pods has a local volume and one that is made."""
    world.nodes(8, cpu="64", prefix="disk")
    disks.volumes([volume(f"v{number}", f"disk-{number % 8}", "local") for number in range(440)])
    gangs = {f"gang-{g}": [f"gang-{g}-{n}" for n in range(8)] for g in range(50)}
    claims_of = {name: [f"{name}-there", f"{name}-made"] for names in gangs.values() for name in names}
    for group, names in gangs.items():
        world.group(group, len(names))
    disks.claim_all(
        [disks.claim(each, each.rpartition("-")[2].replace("there", "local")) for c in claims_of.values() for each in c]
    )
    with Order(disks) as order, PodWatch(world.cluster, world.namespace) as watch:
        first = start("--binds-per-second", "100")
        world.pods([mounting(n, *claims_of[n], group=group) for group, names in gangs.items() for n in names])
        watch.wait_bound(80)
        first.end(signal.SIGKILL)
        assert len(disks.bound()) < 800, "it was killed too late"
        assert disks.reserved() or len(disks.bound()) > 2 * len(watch.bound), "it was killed between two gangs"
        start()
        watch.wait_bound(400)
        order.check(claims_of)

    assert watch.moved == []
    assert max(audit.accepted(world.namespace).values()) == 1
    found = disks.bound()
    assert found.keys() == {each for claims in claims_of.values() for each in claims}
    assert len(set(found.values())) == 800
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
    world.pods([mounting(f"train-{n}", f"train-{n}", group="train") for n in range(4)])
    eventually(lambda: len(disks.reserved()) == 4)
    first.end(signal.SIGKILL)
    cordon(world, True)
    start()
    eventually(lambda: disks.reserved() == set())
    assert world.placed() == {}
    cordon(world, False)
    with Provisioner(world.cluster, world.namespace):
        eventually(lambda: len(world.placed()) == 4)


def cordon(world: World, on: bool) -> None:
    for node in world.items(f"{CORE}/nodes"):
        path = f"{CORE}/nodes/{node['metadata']['name']}"
        world.api.patch(path, json={"spec": {"unschedulable": on}}, headers=MERGE_PATCH).raise_for_status()


def node_of(volume: Object) -> str:
    (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    (node,) = term["matchExpressions"][0]["values"]
    return str(node)


class Order:
    """When, in versions of the whole cluster, claims were bound and pods were."""

    def __init__(self, disks: Disks) -> None:
        pods = f"{CORE}/namespaces/{disks.world.namespace}/pods"
        self._pods = Since(disks.world.cluster, pods, lambda each: bool(each["spec"].get("nodeName")))
        self._claims = Since(disks.world.cluster, disks.claims, is_bound)

    def __enter__(self) -> Self:
        self._pods.__enter__()
        self._claims.__enter__()
        return self

    def __exit__(self, *failure: Any) -> None:
        self._pods.__exit__(*failure)
        self._claims.__exit__(*failure)

    def check(self, claims_of: dict[str, list[str]]) -> None:
        """No pod was bound before its claims, nor before those of its gang."""
        eventually(lambda: self._pods.since.keys() >= claims_of.keys())
        eventually(lambda: all(each in self._claims.since for claims in claims_of.values() for each in claims))
        bound: dict[str, int] = {}
        for name, claims in claims_of.items():
            gang = name.rpartition("-")[0]
            bound[gang] = max(bound.get(gang, 0), *(self._claims.since[each] for each in claims))
        late = [name for name in claims_of if bound[name.rpartition("-")[0]] > self._pods.since[name]]
        assert late == []


def is_bound(claim: Object) -> bool:
    return "pv.kubernetes.io/bind-completed" in claim["metadata"].get("annotations", {})
