"""Claims that wait for their first consumer are bound before their pods, and nothing stays reserved for nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from stromboli.engine import Engine
from stromboli.explain.jobs import explain_pod
from stromboli.kube.storage import SELECTED_NODE
from stromboli.kube.volume_reservation import BY_CONTROLLER
from stromboli.live.binding import avoided_nodes, reserving, volumes
from stromboli.live.service import Service
from tests.kube.test_volumes import claim, storage_class, volume
from tests.live.cluster import Cluster
from tests.live.conftest import StartService, until

_VOLUMES = "/api/v1/persistentvolumes"
_CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
_PODS = "/api/v1/namespaces/default/pods"
_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
PROVISIONER = "csi.example.com"
HELD_TO_NODE = {"nodeSelector": {"kubernetes.io/hostname": "n0"}}


class Controllers:
    """Bind claims to the volumes that name them, as Kubernetes does, and make volumes for those that name a node."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.binding = self.provisioning = True
        #: nodes for which no volume is made, and those for which one is made elsewhere
        self.refusing: set[str] = set()
        self.elsewhere: dict[str, str] = {}
        #: of each claim the nodes that it named
        self.asked: dict[str, list[str]] = {}

    async def run(self) -> None:
        while True:
            await asyncio.to_thread(self._look)
            await asyncio.sleep(0.05)

    def _look(self) -> None:
        for found in self._cluster.items(_CLAIMS):
            name, spec = found["metadata"]["name"], found["spec"]
            node = (found["metadata"].get("annotations") or {}).get(SELECTED_NODE)
            if not node or spec.get("volumeName"):
                continue
            asked = self.asked.setdefault(name, [])
            if asked[-1:] != [node]:
                asked.append(node)
            if node in self.refusing:
                deselect(self._cluster, name)
            elif self.provisioning and f"pv-{name}" not in names(self._cluster, _VOLUMES):
                made = volume(f"pv-{name}", self.elsewhere.get(node, node), storageClassName="made")
                made["spec"]["claimRef"] = {"namespace": "default", "name": name, "uid": found["metadata"]["uid"]}
                self._cluster.create(_VOLUMES, made)
        for found in self._cluster.items(_VOLUMES) if self.binding else ():
            ref, phase = found["spec"].get("claimRef"), (found.get("status") or {}).get("phase")
            if ref and phase != "Bound" and ref["name"] in names(self._cluster, _CLAIMS):
                bind(self._cluster, found["metadata"]["name"], ref["name"])


def bind(cluster: Cluster, volume: str, claim: str) -> None:
    cluster.patch(f"{_VOLUMES}/{volume}/status", {"status": {"phase": "Bound"}})
    done = {"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": volume}}
    cluster.patch(f"{_CLAIMS}/{claim}", done)


def deselect(cluster: Cluster, claim: str) -> None:
    cluster.patch(f"{_CLAIMS}/{claim}", {"metadata": {"annotations": {SELECTED_NODE: None}}})


def names(cluster: Cluster, path: str) -> list[str]:
    return [each["metadata"]["name"] for each in cluster.items(path)]


@pytest.fixture
def cluster(cluster: Cluster) -> Cluster:
    """Two nodes, a class of local volumes and one of those that are made on demand."""
    for name in ("n0", "n1"):
        cluster.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {"kubernetes.io/hostname": name}}})
    cluster.create(_CLASSES, storage_class("local"))
    cluster.create(_CLASSES, storage_class("made", PROVISIONER))
    return cluster


@pytest.fixture
async def controllers(cluster: Cluster) -> AsyncIterator[Controllers]:
    found = Controllers(cluster)
    running = asyncio.create_task(found.run())
    yield found
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def engine(text: str | None) -> Engine:
    return Engine()


def claimed(cluster: Cluster, name: str, *classes: str, group: str = "", **spec: Any) -> None:
    """A pod with a claim of each class, called after both."""
    made = [f"{name}-{number}" for number in range(len(classes))]
    for each, of in zip(made, classes, strict=True):
        cluster.create(_CLAIMS, claim(each, of))
    mounting(cluster, name, *made, group=group, **spec)


def claimed_gang(cluster: Cluster, size: int) -> None:
    """The gang `train` of `t0`, `t1` and so on, each with a volume that is to be made."""
    cluster.group("train", size)
    for number in range(size):
        claimed(cluster, f"t{number}", "made", group="train")


def mounting(cluster: Cluster, name: str, *claims: str, group: str = "", **spec: Any) -> None:
    mounted = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
    cluster.pod(name, group, volumes=mounted, **spec)


def local(cluster: Cluster, name: str, node: str) -> None:
    made = volume(name, node)
    cluster.create(_VOLUMES, made)
    cluster.patch(f"{_VOLUMES}/{name}/status", {"status": {"phase": "Available"}})


def volume_of(cluster: Cluster, name: str) -> str:
    found: str = cluster.get(f"{_CLAIMS}/{name}")["spec"].get("volumeName", "")
    return found


def selected(cluster: Cluster, name: str) -> str | None:
    return (cluster.get(f"{_CLAIMS}/{name}")["metadata"].get("annotations") or {}).get(SELECTED_NODE)


def reserved(cluster: Cluster) -> list[str]:
    """The volumes that name a claim, and the claims that name a node, without being bound."""
    free = [each for each in cluster.items(_VOLUMES) if (each.get("status") or {}).get("phase") != "Bound"]
    waiting = [each for each in cluster.items(_CLAIMS) if not each["spec"].get("volumeName")]
    held = [each["metadata"]["name"] for each in free if each["spec"].get("claimRef")]
    return held + [each["metadata"]["name"] for each in waiting if selected(cluster, each["metadata"]["name"])]


async def test_a_pod_is_bound_once_its_claims_are(
    cluster: Cluster, start: StartService, controllers: Controllers
) -> None:
    """One of a volume that is there, on one node only, and before it one of a volume that is made for that node."""
    local(cluster, "disk", "n1")
    controllers.binding = False
    service = await start(engine)
    claimed(cluster, "p", "local", "made")
    await until(lambda: selected(cluster, "p-1") == "n1")
    session, record = Engine().decide(service.state.snapshot(), now=0).session, service.state.record("default/p")
    assert record is not None
    why = explain_pod(session, record).message
    assert why.startswith("it is bound to n1 once it has the volume of claim p-0 (waited for since 20")
    assert f"and the volume of claim p-1, which {PROVISIONER} is to make (waited for since 20" in why
    await until(lambda: "pv-p-1" in names(cluster, _VOLUMES))
    assert "disk" not in reserved(cluster)
    bind(cluster, "pv-p-1", "p-1")
    await until(lambda: "disk" in reserved(cluster))
    given = cluster.get(f"{_VOLUMES}/disk")
    uid = cluster.get(f"{_CLAIMS}/p-0")["metadata"]["uid"]
    assert given["metadata"]["annotations"] == {BY_CONTROLLER: "yes"}
    assert {name: given["spec"]["claimRef"][name] for name in ("apiVersion", "kind", "namespace", "name", "uid")} == {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": "p-0", "uid": uid,
    }  # fmt: skip
    assert cluster.pods() == {"p": ""}
    bind(cluster, "disk", "p-0")
    await until(lambda: cluster.pods() == {"p": "n1"})


async def test_no_pod_of_a_gang_is_bound_before_all_claims_are(
    cluster: Cluster, start: StartService, controllers: Controllers
) -> None:
    controllers.binding = False
    await start(engine)
    claimed_gang(cluster, 3)
    await until(lambda: len(names(cluster, _VOLUMES)) == 3)
    bind(cluster, "pv-t0-0", "t0-0")
    bind(cluster, "pv-t1-0", "t1-0")
    await until(lambda: volume_of(cluster, "t1-0") != "")
    assert cluster.count("POST", "/binding") == 0
    controllers.binding = True
    await until(lambda: cluster.all_bound(3))


async def test_a_shared_claim_is_bound_once_and_its_pods_follow(
    cluster: Cluster, start: StartService, controllers: Controllers
) -> None:
    local(cluster, "disk", "n1")
    local(cluster, "other", "n0")
    cluster.create(_CLAIMS, claim("shared"))
    await start(engine)
    cluster.group("train", 2)
    for name in ("t0", "t1"):
        mounting(cluster, name, "shared", group="train")
    await until(lambda: cluster.all_bound(2))
    assert len(set(cluster.pods().values())) == 1
    assert sum(bool(each["spec"].get("claimRef")) for each in cluster.items(_VOLUMES)) == 1


async def test_a_provisioner_that_refuses_sends_the_whole_gang_elsewhere(
    cluster: Cluster, start: StartService, controllers: Controllers
) -> None:
    controllers.refusing = {"n0"}
    controllers.provisioning = False
    await start(engine)
    claimed_gang(cluster, 2)
    await until(lambda: all(selected(cluster, f"t{number}-0") == "n1" for number in range(2)))
    assert cluster.pods() == {"t0": "", "t1": ""}
    controllers.provisioning = True
    await until(lambda: cluster.pods() == {"t0": "n1", "t1": "n1"})


async def test_a_pod_follows_no_volume_to_a_node_where_its_other_one_is_refused(
    cluster: Cluster, start: StartService, controllers: Controllers
) -> None:
    """Nor does a provisioner that was asked and has not refused lose its claim because another one's was."""
    for node in ("n0", "n1"):
        local(cluster, f"disk-{node}", node)
    controllers.refusing = {"n0"}
    controllers.provisioning = False
    cluster.create(_CLASSES, storage_class("slow", PROVISIONER))
    await start(engine)
    cluster.group("train", 2)
    claimed(cluster, "t0", "local", "made", group="train", **HELD_TO_NODE)
    claimed(cluster, "t1", "slow", group="train", nodeSelector={"kubernetes.io/hostname": "n1"})
    await until(lambda: "FailedBinding" in cluster.reasons())
    assert selected(cluster, "t1-0") == "n1"
    assert not any(each["spec"].get("claimRef") for each in cluster.items(_VOLUMES))
    mounting(cluster, "p", "t0-0", "t0-1")
    cluster.delete(f"{_PODS}/t0")
    controllers.provisioning = True
    await until(lambda: cluster.pods()["p"] == "n1")


async def test_the_only_node_is_tried_again(
    cluster: Cluster, start: StartService, controllers: Controllers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(avoided_nodes, "_REFUSED", (0.1, 0.2))
    controllers.refusing = {"n0"}
    await start(engine)
    claimed(cluster, "p", "made", **HELD_TO_NODE)
    await until(lambda: "FailedBinding" in cluster.reasons())
    assert reserved(cluster) == []
    controllers.refusing.clear()
    await until(lambda: cluster.pods() == {"p": "n0"})


async def test_what_was_not_bound_in_time_is_given_back(
    cluster: Cluster, start: StartService, controllers: Controllers
) -> None:
    """A volume that is there, and one that is to be made; what is bound by then stays."""
    controllers.binding = controllers.provisioning = False
    local(cluster, "disk", "n0")
    await start(lambda text: Engine(WITHIN_A_SECOND))
    cluster.group("train", 2)
    claimed(cluster, "t0", "made", group="train")
    claimed(cluster, "t1", "made", group="train")
    claimed(cluster, "p", "local")
    await until(lambda: len(reserved(cluster)) == 3)
    await until(lambda: reserved(cluster) == [])
    assert BY_CONTROLLER not in (cluster.get(f"{_VOLUMES}/disk")["metadata"].get("annotations") or {})
    assert cluster.pods() == {"t0": "", "t1": "", "p": ""}


WITHIN_A_SECOND = """
actions: "enqueue, allocate"
tiers:
  - plugins: [{name: priority}, {name: gang}]
  - plugins: [{name: predicates, arguments: {volumebinding.bindTimeoutSeconds: 1}}, {name: nodeorder}]
"""


async def test_a_volume_that_somebody_else_takes_is_replaced(
    cluster: Cluster, start: StartService, controllers: Controllers
) -> None:
    local(cluster, "disk", "n0")
    local(cluster, "other", "n1")
    cluster.create(_CLAIMS, claim("theirs", volume=""))
    uid = cluster.get(f"{_CLAIMS}/theirs")["metadata"]["uid"]
    await start(engine)
    with cluster.held("PATCH", "/persistentvolumes/"):
        claimed(cluster, "p", "local")
        await until(lambda: any("/persistentvolumes/" in path for path, _ in cluster.proxy.requests))
        wanted = next(path for path, _ in cluster.proxy.requests if "/persistentvolumes/" in path)
        cluster.patch(wanted, {"spec": {"claimRef": {"namespace": "default", "name": "theirs", "uid": uid}}})
    await until(lambda: cluster.all_bound(1))
    assert {volume_of(cluster, "p-0"), volume_of(cluster, "theirs")} == {"disk", "other"}


async def test_a_volume_that_cannot_be_reached_takes_its_pod_along(
    cluster: Cluster, start: StartService, controllers: Controllers
) -> None:
    """It was made for another node than asked: the claim is bound, and the pod goes where it is."""
    controllers.elsewhere = {"n0": "n1"}
    await start(engine)
    claimed(cluster, "p", "made")
    await until(lambda: cluster.pods() == {"p": "n1"})


async def test_a_pod_that_is_deleted_while_its_volume_is_made_holds_nothing(
    cluster: Cluster, start: StartService, controllers: Controllers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its gang is not bound in part."""
    monkeypatch.setattr(volumes, "_ON_ITS_WAY", 0.5)
    controllers.provisioning = False
    await start(engine)
    claimed_gang(cluster, 2)
    await until(lambda: len(reserved(cluster)) == 2)
    cluster.delete(f"{_PODS}/t0")
    await until(lambda: reserved(cluster) == [])
    assert cluster.pods() == {"t1": ""}


async def test_a_gang_waits_for_members_without_claims_too(
    cluster: Cluster, start: StartService, controllers: Controllers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When one of them goes while a volume is made, nothing stays held, and the gang is not bound in part."""
    monkeypatch.setattr(volumes, "_ON_ITS_WAY", 0.5)
    controllers.provisioning = False
    await start(engine)
    cluster.group("train", 3)
    claimed(cluster, "t0", "made", group="train")
    for name in ("t1", "t2"):
        cluster.pod(name, "train")
    await until(lambda: reserved(cluster) == ["t0-0"])
    cluster.delete(f"{_PODS}/t2")
    await until(lambda: reserved(cluster) == [])
    controllers.provisioning = True
    cluster.pod("t2", "train")
    await until(lambda: cluster.all_bound(3))


@pytest.mark.parametrize("refused", [False, True])
@pytest.mark.parametrize("later", ["t2", "t3"])
async def test_no_later_member_of_a_gang_starts_before_its_volumes_are_bound(
    cluster: Cluster, start: StartService, controllers: Controllers, later: str, refused: bool
) -> None:
    """One that comes again, or is above the minimum: it is decided alone, and needs no volume."""
    controllers.provisioning = False
    service = await start(engine)
    cluster.group("train", 3)
    for name in ("t0", "t1"):
        claimed(cluster, name, "made", group="train", **HELD_TO_NODE)
    with cluster.held("PATCH", "/persistentvolumeclaims/t1-0", status=403 if refused else 0):
        cluster.pod("t2", "train")
        await until(lambda: reserved(cluster) == ["t0-0"])
        if later == "t2":
            cluster.delete(f"{_PODS}/t2")
            await until(lambda: service.state.record("default/t2") is None)
        cluster.pod(later, "train")
        await until(lambda: f"default/{later}" in service.state.assumed)
        await asyncio.sleep(0.1)
    if refused or later == "t2":
        await until(lambda: "FailedBinding" in cluster.reasons())
    assert cluster.count("POST", "/binding") == 0
    controllers.provisioning = True
    await until(lambda: cluster.all_bound(len(cluster.pods())))


@pytest.mark.parametrize("least", [1, 2])
async def test_a_gang_that_may_run_as_it_is_waits_for_no_volume_of_another_member(
    cluster: Cluster, start: StartService, controllers: Controllers, least: int
) -> None:
    controllers.provisioning = False
    await start(engine)
    cluster.group("train", least)
    for number in range(least):
        cluster.pod(f"t{number}", "train")
    await until(lambda: cluster.all_bound(least))
    claimed(cluster, "slow", "made", group="train")
    await until(lambda: reserved(cluster) == ["slow-0"])
    cluster.pod("quick", "train")
    await until(lambda: cluster.pods()["quick"] != "")
    assert cluster.pods()["slow"] == ""


async def test_no_pod_is_bound_whose_claim_is_lost_while_bindings_are_sent(
    cluster: Cluster, start: StartService, controllers: Controllers
) -> None:
    service = await start(engine, bind_connections=1)
    with cluster.held("POST", "/binding"):
        claimed_gang(cluster, 3)
        await until(lambda: any(path.endswith("/binding") for path, _ in cluster.proxy.requests))
        (first,) = (path.split("/")[-2] for path, _ in cluster.proxy.requests if path.endswith("/binding"))
        lost = next(f"t{number}" for number in range(3) if f"t{number}" != first)
        cluster.delete(f"{_CLAIMS}/{lost}-0")
        await until(lambda: f"default/{lost}-0" not in service.state.objects["PersistentVolumeClaim"])
    await until(lambda: cluster.pods()[first] != "")
    await asyncio.sleep(0.2)
    assert cluster.pods()[lost] == ""
    cluster.delete(f"{_VOLUMES}/pv-{lost}-0")
    cluster.create(_CLAIMS, claim(f"{lost}-0", "made"))
    await until(lambda: cluster.all_bound(3))


async def test_a_provisioner_is_asked_for_no_node_that_is_gone(
    cluster: Cluster, start: StartService, controllers: Controllers
) -> None:
    controllers.provisioning = False
    await start(engine)
    claimed_gang(cluster, 2)
    await until(lambda: len(reserved(cluster)) == 2)
    node = selected(cluster, "t0-0")
    cluster.delete(f"/api/v1/nodes/{node}")
    await until(lambda: selected(cluster, "t0-0") != node)
    controllers.provisioning = True
    await until(lambda: cluster.all_bound(2))
    assert node not in cluster.pods().values()


async def test_a_claim_that_is_lost_while_others_are_waited_for_keeps_its_gang(
    cluster: Cluster, start: StartService, controllers: Controllers
) -> None:
    controllers.binding = False
    service = await start(engine)
    claimed_gang(cluster, 2)
    await until(lambda: len(names(cluster, _VOLUMES)) == 2)
    bind(cluster, "pv-t0-0", "t0-0")
    claims = service.state.objects["PersistentVolumeClaim"]
    await until(lambda: claims["default/t0-0"]["spec"].get("volumeName", "") != "")
    await asyncio.sleep(0.1)
    cluster.delete(f"{_CLAIMS}/t0-0")
    await until(lambda: "FailedBinding" in cluster.reasons())
    bind(cluster, "pv-t1-0", "t1-0")
    assert cluster.count("POST", "/binding") == 0
    cluster.delete(f"{_VOLUMES}/pv-t0-0")
    controllers.binding = True
    cluster.create(_CLAIMS, claim("t0-0", "made"))
    await until(lambda: cluster.all_bound(2))


async def test_a_volume_that_is_being_given_is_given_to_nobody_else(
    cluster: Cluster, start: StartService, controllers: Controllers
) -> None:
    """Not before the API server has it either."""
    local(cluster, "disk", "n0")
    service = await start(engine)
    with cluster.held("PATCH", "/persistentvolumes/disk"), cluster.held("PATCH", "/persistentvolumes/more"):
        claimed(cluster, "first", "local")
        await until(lambda: "default/first" in service.state.assumed)
        claimed(cluster, "second", "local")
        await until(lambda: service.state.record("default/second") is not None)
        local(cluster, "more", "n1")
        await until(lambda: "default/second" in service.state.assumed)
        assert service.state.assumed["default/second"] == "n1"
    await until(lambda: cluster.pods() == {"first": "n0", "second": "n1"})


async def test_what_a_former_leader_left_is_given_back(
    cluster: Cluster, start: StartService, controllers: Controllers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But not what other schedulers' pods use, what nobody uses, and what a user wrote."""
    monkeypatch.setattr(volumes, "LATE", 0.1)
    monkeypatch.setattr(volumes, "_ON_ITS_WAY", 0.2)
    controllers.binding = controllers.provisioning = False
    for name, changes in (("p", {"cpu": "100"}), ("theirs", {"schedulerName": "else"})):
        claimed(cluster, name, "local", "made", **changes)
        give(cluster, f"disk-{name}", f"{name}-0", "n0", {BY_CONTROLLER: "yes"})
        cluster.patch(f"{_CLAIMS}/{name}-1", {"metadata": {"annotations": {SELECTED_NODE: "n0"}}})
    cluster.create(_CLAIMS, claim("unused", "made"))
    cluster.patch(f"{_CLAIMS}/unused", {"metadata": {"annotations": {SELECTED_NODE: "n0"}}})
    claimed(cluster, "user", "local", cpu="100")
    give(cluster, "disk-user", "user-0", "n0", {})
    await start(engine)
    others = {"disk-theirs", "theirs-1", "unused", "disk-user"}
    await until(lambda: set(reserved(cluster)) == others)


async def test_what_was_left_for_no_pod_is_given_back_for_the_next_one(
    cluster: Cluster, start: StartService, controllers: Controllers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node that the claim names is gone, and so was its pod when the service started."""
    monkeypatch.setattr(volumes, "LATE", 0.1)
    controllers.provisioning = False
    cluster.create(_CLAIMS, claim("data", "made"))
    cluster.patch(f"{_CLAIMS}/data", {"metadata": {"annotations": {SELECTED_NODE: "gone"}}})
    await start(engine)
    # What it leaves to others is looked at once.
    await asyncio.sleep(0.3)
    assert selected(cluster, "data") == "gone"
    mounting(cluster, "p", "data")
    await until(lambda: selected(cluster, "data") != "gone")
    controllers.provisioning = True
    await until(lambda: cluster.all_bound(1))


@pytest.mark.parametrize("missing", ["class", "pod"])
async def test_what_was_left_is_given_back_although_its_class_or_pod_was_missing_when_it_was_due(
    cluster: Cluster,
    start: StartService,
    controllers: Controllers,
    monkeypatch: pytest.MonkeyPatch,
    missing: str,
) -> None:
    """A volume that names a claim, and a claim that names a node on which its pod cannot be."""
    monkeypatch.setattr(volumes, "LATE", 0.1)
    monkeypatch.setattr(volumes, "_ON_ITS_WAY", 0.2)
    controllers.binding = controllers.provisioning = False

    def pods() -> None:
        mounting(cluster, "p", "p-0", "p-1", cpu="100")

    for number, name in enumerate(("local", "made")):
        cluster.create(_CLAIMS, claim(f"p-{number}", name))
    give(cluster, "disk", "p-0", "n0", {BY_CONTROLLER: "yes"})
    cluster.patch(f"{_CLAIMS}/p-1", {"metadata": {"annotations": {SELECTED_NODE: "n0"}}})
    if missing == "class":
        pods()
        for name in ("local", "made"):
            cluster.delete(f"{_CLASSES}/{name}")
    await start(engine)
    await asyncio.sleep(0.5)
    assert set(reserved(cluster)) == {"disk", "p-1"}
    if missing == "class":
        cluster.create(_CLASSES, storage_class("local"))
        cluster.create(_CLASSES, storage_class("made", PROVISIONER))
    else:
        pods()
    await until(lambda: reserved(cluster) == [])


async def test_an_answer_about_a_claim_that_was_made_anew_since_is_not_believed(
    cluster: Cluster, start: StartService, controllers: Controllers
) -> None:
    """The pod is bound once the new claim is; the answer says that a node was chosen for the one that is gone."""
    service = await start(engine)
    # A volume that was made for the first claim would be in the way of the second.
    controllers.provisioning = False
    with cluster.held("PATCH", "/persistentvolumeclaims/p-0", late=True):
        claimed(cluster, "p", "made")
        await until(lambda: selected(cluster, "p-0") is not None)
        cluster.delete(f"{_CLAIMS}/p-0")
        uid = cluster.create(_CLAIMS, claim("p-0", "made"))["metadata"]["uid"]
        await until(lambda: uid_seen(service, "default/p-0") == uid)
    controllers.provisioning = True
    await until(lambda: cluster.all_bound(1))


def uid_seen(service: Service, key: str) -> str:
    """The uid of the claim that sessions see."""
    found = service.state.objects["PersistentVolumeClaim"].get(key)
    return "" if found is None else str(found["metadata"]["uid"])


def give(cluster: Cluster, name: str, claim: str, node: str, annotations: dict[str, str]) -> None:
    """A volume that names a claim."""
    local(cluster, name, node)
    ref = {"namespace": "default", "name": claim, "uid": cluster.get(f"{_CLAIMS}/{claim}")["metadata"]["uid"]}
    cluster.patch(f"{_VOLUMES}/{name}", {"metadata": {"annotations": annotations}, "spec": {"claimRef": ref}})


async def test_a_release_that_fails_is_tried_again(
    cluster: Cluster, start: StartService, controllers: Controllers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reserving, "_AGAIN", 0.05)
    controllers.provisioning = False
    await start(engine)
    claimed(cluster, "p", "made")
    await until(lambda: reserved(cluster) == ["p-0"])
    cluster.fail("PATCH", "/persistentvolumeclaims/p-0", 403)
    cluster.delete(f"{_PODS}/p")
    await until(lambda: reserved(cluster) == [])


async def test_a_write_that_is_refused_binds_nothing(
    cluster: Cluster, start: StartService, controllers: Controllers
) -> None:
    """Such as without the right to it; the gang is bound once that is granted."""
    await start(engine)
    cluster.fail("PATCH", "/persistentvolumeclaims/t1-0", 403, times=1_000)
    claimed_gang(cluster, 2)
    await until(lambda: "FailedBinding" in cluster.reasons())
    assert cluster.count("POST", "/binding") == 0
    cluster.proxy.faults.clear()
    await until(lambda: cluster.all_bound(2))
