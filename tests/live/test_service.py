"""The whole service against an API server."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

import pytest

from stromboli.api.decisions import EmitEvent, Nominate
from stromboli.api.pod_state import PodState
from stromboli.devserver import Options
from stromboli.engine import Engine, Successive
from stromboli.framework.cluster.environment import Environment
from stromboli.live.service import Service
from tests.live.cluster import SCHEDULING, Cluster, Object
from tests.live.conftest import Recorder, StartService, until
from tests.live.first_fit import FirstFit


def recorder(service: Service) -> Recorder:
    assert isinstance(service.observer, Recorder)
    return service.observer


async def test_a_gang_is_bound_and_a_gang_that_does_not_fit_is_not(cluster: Cluster, start: StartService) -> None:
    service = await start()
    cluster.gang("fits", 4)
    cluster.gang("large", 4, cpu="5")
    await until(lambda: sum(map(bool, cluster.pods().values())) == 4)
    groups = {}

    def told() -> bool:
        nonlocal groups
        found = cluster.items(f"{SCHEDULING}/podgroups")
        groups = {group["metadata"]["name"]: group.get("status") or {} for group in found}
        return groups["fits"].get("running") == 4 and "conditions" in groups["large"]

    await until(told)
    assert {name for name, node in cluster.pods().items() if node} == {f"fits-{i}" for i in range(4)}
    assert groups["fits"]["phase"] == "Running"
    condition = groups["large"]["conditions"][0]
    assert condition["type"] == "Unschedulable"
    assert condition["observedGeneration"] == 1
    assert condition["lastTransitionTime"].endswith("Z")
    assert Counter(recorder(service).bindings) == {"bound": 4}
    await until(lambda: cluster.reasons().count("Scheduled") == 1)


async def test_pods_that_wait_say_why(cluster: Cluster, start: StartService) -> None:
    cluster.create(f"{SCHEDULING}/queues", {"metadata": {"name": "default"}, "spec": {}})
    service = await start(lambda _: Successive(Engine(), Environment()), status_patience=0.05)
    # Until then another reason stands.
    await until(lambda: service.state.queues["default"].status.state == "Open")
    cluster.gang("large", 3, cpu="5")
    cluster.gang("lacks", 1, min_member=2)

    def said(name: str) -> list[tuple[str, str]]:
        status = cluster.get(f"/api/v1/namespaces/default/pods/{name}")["status"]
        found = [c for c in status.get("conditions") or () if c["type"] == "PodScheduled" and c["status"] == "False"]
        return [(c["reason"], c["message"].partition(":")[0]) for c in found]

    # A session that sees the pods before the queue is open says that first.
    await until(lambda: all(said(f"large-{number}") == [("Unschedulable", "NeverFits")] for number in range(3)))
    await until(lambda: said("lacks-0") == [("NotEnoughPods", "NotEnoughPods")])
    counts = []
    # The first session also gives the last answer the time to be counted.
    for _ in range(2):
        sessions = len(recorder(service).seen)
        service.wake()
        await until(lambda before=sessions: len(recorder(service).seen) > before)  # type: ignore[misc]
        counts.append(cluster.count("PATCH", "/pods/large-0/status"))
    assert counts[0] == counts[1] > 0


async def test_each_binding_has_an_event_of_its_own_if_wanted(cluster: Cluster, start: StartService) -> None:
    await start(pod_events=True)
    cluster.gang("train", 4)
    await until(lambda: cluster.reasons().count("Scheduled") == 4)


async def test_a_change_begins_a_session_without_waiting_for_the_period(cluster: Cluster, start: StartService) -> None:
    await start(schedule_period=600)
    cluster.gang("train", 2)
    await until(lambda: cluster.all_bound(2))


async def test_there_are_no_sessions_while_nothing_changes(cluster: Cluster, start: StartService) -> None:
    service = await start(lambda _: Successive(Engine(), Environment()), schedule_period=0.02, status_patience=0)
    seen = recorder(service).seen
    cluster.gang("train", 2)
    cluster.gang("large", 2, cpu="20")

    async def quiet() -> bool:
        before = len(seen)
        await asyncio.sleep(0.3)
        return len(seen) == before

    await until(lambda: sum(map(bool, cluster.pods().values())) == 2)
    for _ in range(20):
        if await quiet():
            break
    assert await quiet()
    cluster.gang("more", 2)
    await until(lambda: sum(map(bool, cluster.pods().values())) == 4)


async def test_the_first_session_waits_for_every_initial_list(cluster: Cluster, start: StartService) -> None:
    for number in range(30):
        cluster.node(f"more-{number}")
    cluster.gang("train", 3)
    with cluster.held("GET", "/api/v1/pods?"):
        service = await start(wait=False)
        await until(lambda: len(service.state.nodes.by_name) == 32 and len(service.state.queues) == 2)
        await until(lambda: bool(cluster.count("GET", "/storageclasses")))
        assert not service.ready
        assert recorder(service).seen == []
    await until(lambda: cluster.all_bound(3))
    assert recorder(service).seen[0] == (3, 32)


async def test_definitions_may_come_after_the_service(
    bare_cluster: Cluster, start: StartService, definitions: list
) -> None:
    service = await start(wait=False)
    await until(lambda: ("Queue", "start") in recorder(service).relists)
    assert not service.ready
    bare_cluster.define(*definitions)
    bare_cluster.node("n0")
    bare_cluster.gang("train", 2)
    await until(lambda: bare_cluster.all_bound(2))


async def test_it_ends_while_it_waits_for_definitions(bare_cluster: Cluster, start: StartService) -> None:
    service = await start(wait=False)
    await until(lambda: ("Queue", "start") in recorder(service).relists)
    await service.stop()
    await service.wait()
    assert not service.ready


async def test_a_session_that_raises_is_told_and_the_next_one_runs(cluster: Cluster, start: StartService) -> None:
    decider = FirstFit()
    decider.fail = True
    service = await start(lambda _: decider)
    cluster.gang("train", 2)
    await until(lambda: bool(recorder(service).failures))
    assert service.stuck() == []
    decider.fail = False
    await until(lambda: cluster.all_bound(2))


async def test_nothing_is_bound_twice_across_a_restart(cluster: Cluster, start: StartService) -> None:
    for number in range(8):
        cluster.node(f"more-{number}")
    for number in range(10):
        cluster.gang(f"gang-{number}", 6)
    with cluster.held("POST", "/pods/gang-9-", 1_000):
        first = await start()
        await until(lambda: len(recorder(first).bindings) == 54)
        await first.stop()
        assert sum(map(bool, cluster.pods().values())) == 54
    await start()
    await until(lambda: cluster.all_bound(60))
    posted = Counter(path for method, path, status in cluster.proxy.answers if status == 201 and "/binding" in path)
    assert set(posted.values()) == {1}


async def test_what_was_bound_by_others_is_counted(cluster: Cluster, start: StartService) -> None:
    for number in range(2):
        cluster.pod(f"foreign-{number}", cpu="6", schedulerName="default-scheduler")
        binding = {"metadata": {"name": f"foreign-{number}"}, "target": {"kind": "Node", "name": f"n{number}"}}
        cluster.create(f"/api/v1/namespaces/default/pods/foreign-{number}/binding", binding)
    await start()
    cluster.gang("train", 2, cpu="3")
    cluster.gang("small", 2, cpu="1")
    await until(lambda: all(cluster.pods()[f"small-{i}"] for i in range(2)))
    assert not any(cluster.pods()[f"train-{i}"] for i in range(2))
    cluster.delete("/api/v1/namespaces/default/pods/foreign-0")
    await until(lambda: all(cluster.pods()[f"train-{i}"] for i in range(2)))


async def test_objects_that_cannot_be_read_are_set_aside(
    cluster: Cluster, start: StartService, caplog: pytest.LogCaptureFixture
) -> None:
    amounts = {"cpu": "lots", "memory": "1Gi"}
    cluster.create("/api/v1/nodes", {"metadata": {"name": "odd"}, "status": {"allocatable": amounts}})
    service = await start()
    cluster.pod("odd", "train", tolerations="all of them")
    cluster.gang("train", 2)
    await until(lambda: all(cluster.pods()[f"train-{i}"] for i in range(2)))
    assert set(recorder(service).malformed_keys) == {("Node", "odd"), ("Pod", "default/odd")}
    text = "\n".join(record.getMessage() for record in caplog.records if "set aside" in record.getMessage())
    assert "status.allocatable.cpu: 'lots' is not a Kubernetes quantity" in text
    assert "$.spec.tolerations" in text
    cluster.patch("/api/v1/nodes/odd/status", {"status": {"allocatable": {"cpu": "1"}}})
    await until(lambda: "odd" in service.state.nodes.by_name)


# -- bindings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [404, 409, 403])
async def test_a_refused_binding_is_taken_back_and_tried_again(
    cluster: Cluster, start: StartService, status: int
) -> None:
    cluster.fail("POST", "/pods/train-0/binding", status)
    service = await start()
    cluster.gang("train", 2)
    await until(lambda: cluster.all_bound(2))
    await until(lambda: recorder(service).bindings.count("bound") == 2)
    assert {"refused", "failed"} & set(recorder(service).bindings)
    await until(lambda: "FailedBinding" in cluster.reasons())
    await until(lambda: not service.state.assumed)


async def test_an_overloaded_server_is_asked_again(cluster: Cluster, start: StartService) -> None:
    cluster.fail("POST", "/pods/train-0/binding", 429, Retry_After="0")
    cluster.fail("POST", "/pods/train-1/binding", 503)
    service = await start()
    cluster.gang("train", 2)
    await until(lambda: cluster.all_bound(2))
    await until(lambda: recorder(service).bindings == ["bound", "bound"])


async def test_a_binding_whose_answer_is_lost_counts_once(cluster: Cluster, start: StartService) -> None:
    cluster.lose("POST", "/pods/train-0/binding")
    service = await start()
    cluster.gang("train", 2)
    await until(lambda: len(recorder(service).bindings) == 2)
    assert cluster.all_bound(2)
    assert cluster.count("POST", "/pods/train-0/binding", 201) == 1
    await until(lambda: service.state.assumed == {})
    assert "FailedBinding" not in cluster.reasons()


async def test_a_binding_that_is_not_answered_is_sent_again(
    cluster: Cluster, start: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stromboli.live.api_server.client._PATIENCE", 0.2)
    with cluster.held("POST", "/pods/train-0/binding"):
        service = await start()
        cluster.gang("train", 2)
        await until(lambda: cluster.all_bound(2))
        await until(lambda: len(recorder(service).bindings) == 2)
    assert sum("/pods/train-0/binding" in path for path, _ in cluster.proxy.requests) >= 2


async def test_a_pod_that_is_deleted_while_it_is_bound_is_forgotten(cluster: Cluster, start: StartService) -> None:
    service = await start()
    with cluster.held("POST", "/pods/alone-0/binding"):
        cluster.gang("alone", 1)
        await until(lambda: "default/alone-0" in service.state.assumed)
        cluster.delete("/api/v1/namespaces/default/pods/alone-0")
        await until(lambda: "default/alone-0" not in service.state.pods.by_key)
    await until(lambda: recorder(service).bindings == ["refused"])
    assert service.state.assumed == {}
    assert not service.state.nodes.used.any()


async def test_a_binding_that_no_event_confirms_is_looked_up(cluster: Cluster, start: StartService) -> None:
    cluster.gang("train", 2)
    with cluster.held("GET", "/api/v1/pods?watch", times=9):
        service = await start(assume_timeout=0.1)
        await until(lambda: recorder(service).bindings.count("unconfirmed") == 2)
        await until(lambda: service.state.assumed == {})
        rows = [service.state.pods.by_key[f"default/train-{number}"] for number in range(2)]
        assert {PodState(int(service.state.pods.state[row])) for row in rows} <= {PodState.Bound, PodState.Running}


@pytest.mark.parametrize("gone", [False, True], ids=["has ended", "is gone"])
async def test_an_answer_that_is_late_undoes_nothing(cluster: Cluster, start: StartService, gone: bool) -> None:
    """A pod is looked up, and a watch tells what became of it before the answer comes."""
    pod = "/api/v1/namespaces/default/pods/alone-0"
    cluster.gang("alone", 1)
    with cluster.held("GET", pod, late=True):
        with cluster.held("GET", "/api/v1/pods?watch", times=9):
            service = await start(assume_timeout=0.1)
            await until(lambda: cluster.count("GET", pod) == 1)
        if gone:
            cluster.delete(pod)
            await until(lambda: "default/alone-0" not in service.state.pods.by_key)
        else:
            cluster.patch(f"{pod}/status", {"status": {"phase": "Succeeded"}})
            await until(lambda: service.state.pods.state[0] == PodState.Succeeded)
    await until(lambda: recorder(service).bindings.count("unconfirmed") == 1)
    cluster.pod("other")
    await until(lambda: cluster.pods()["other"])
    states = [int(service.state.pods.state[row]) for row in service.state.pods.by_key.values()]
    assert states.count(PodState.Succeeded) == len(states) - 1 == (not gone)


async def test_a_pod_keeps_its_room_until_it_is_known_whether_it_was_bound(
    cluster: Cluster, start: StartService
) -> None:
    """The answer to its binding is lost, and then nobody answers for a while."""
    cluster.gang("alone", 1)
    cluster.lose("POST", "/alone-0/binding")
    cluster.fail("POST", "/alone-0/binding", 503, times=4)
    cluster.fail("GET", "/pods/alone-0", 503, times=5)
    with cluster.held("GET", "/api/v1/pods?watch", times=9):
        service = await start()
        await until(lambda: recorder(service).bindings == ["failed"])
        assert "default/alone-0" in service.state.assumed
        assert service.state.nodes.used[0].sum() == 1000
        await until(lambda: service.state.assumed == {})
        assert service.state.nodes.used[0].sum() == 1000
    assert cluster.count("POST", "/binding", 201) == 1


async def test_whatever_fails_the_state_agrees_with_the_server_in_the_end(
    cluster: Cluster, start: StartService
) -> None:
    """Every third binding is refused, lost or delayed in turn, the watches break, and pods go meanwhile."""
    for number in range(6):
        cluster.node(f"more-{number}")
    for number in range(0, 60, 3):
        where = f"/pods/gang-{number // 6}-{number % 6}/binding"
        if number % 2:
            cluster.lose("POST", where)
        else:
            cluster.fail("POST", where, (409, 429, 500, 503, 403)[number // 3 % 5])
    service = await start(assume_timeout=0.5)
    for number in range(10):
        cluster.gang(f"gang-{number}", 6, min_member=5)
        if number % 4 == 2:
            cluster.disconnect()
            cluster.delete(f"/api/v1/namespaces/default/pods/gang-{number}-5")
            cluster.reconnect()
    await until(lambda: all(cluster.pods().values()) and not service.state.assumed)
    nodes = service.state.nodes
    pods = cluster.pods()

    def agrees() -> bool:
        rows = service.state.pods
        seen = {key: int(rows.node[row]) for key, row in rows.by_key.items()}
        return seen == {f"default/{name}": nodes.by_name[node] for name, node in pods.items()}

    await until(agrees)
    assert len(pods) == 58
    used = Counter(pods.values())
    assert {name: nodes.used[0, row] for name, row in nodes.by_name.items()} == {
        name: 1000 * used[name] for name in nodes.by_name
    }
    bound = Counter(p for method, p, status in cluster.proxy.answers if status == 201 and p.endswith("/binding"))
    assert set(bound.values()) == {1}


async def test_the_engine_itself_schedules(cluster: Cluster, start: StartService) -> None:
    service = await start(lambda text: Engine(text) if text else Engine())
    cluster.gang("fits", 4)
    cluster.gang("large", 4, cpu="7")
    cluster.pod("bare")
    await until(lambda: sum(map(bool, cluster.pods().values())) == 5)
    await until(lambda: cluster.get(f"{SCHEDULING}/queues/default")["status"].get("allocated", {}).get("cpu") == "5")
    assert recorder(service).failures == []


async def test_pods_that_kube_scheduler_binds_are_decided_and_not_bound(cluster: Cluster, start: StartService) -> None:
    service = await start(extender_scheduler_names=("default-scheduler",), assume_timeout=0.1)
    cluster.group("train", 2)
    for number in range(2):
        cluster.pod(f"train-{number}", "train", schedulerName="default-scheduler")
    cluster.pod("unnamed", schedulerName="default-scheduler")
    await until(lambda: service.state.assumed == {"default/train-0": "n0", "default/train-1": "n0"})
    await until(lambda: recorder(service).bindings.count("unconfirmed") >= 2)
    await until(lambda: len(service.state.assumed) == 2)
    for number in range(2):
        binding = {"metadata": {"name": f"train-{number}"}, "target": {"kind": "Node", "name": "n0"}}
        cluster.create(f"/api/v1/namespaces/default/pods/train-{number}/binding", binding)
    await until(lambda: service.state.assumed == {})
    assert cluster.count("POST", "/binding") == 0
    assert "default/unnamed" not in service.state.pods.by_key


# -- nominations ---------------------------------------------------------------------------------------------------


async def test_nominations_and_events_are_written_once(cluster: Cluster, start: StartService) -> None:
    decider = FirstFit()
    service = await start(lambda _: decider, schedule_period=0.02)
    cluster.group("large", 1)
    uid = cluster.pod("large-0", "large", cpu="20")["metadata"]["uid"]
    decider.more = [
        Nominate("default", "large-0", uid, "n1"),
        EmitEvent("default", "large", "PodGroup", "", "Warning", "Unschedulable", "no room"),
    ]

    def nominated() -> bool:
        status = cluster.get("/api/v1/namespaces/default/pods/large-0")["status"]
        return status.get("nominatedNodeName") == "n1"

    await until(nominated)
    sessions = len(recorder(service).seen)
    await until(lambda: len(recorder(service).seen) > sessions + 10)
    assert cluster.count("PATCH", "/pods/large-0/status") == 1
    await until(lambda: cluster.reasons().count("Unschedulable") == 1)


# -- the end -------------------------------------------------------------------------------------------------------


async def test_nothing_is_left_running(cluster: Cluster, start: StartService) -> None:
    before = asyncio.all_tasks(), set(threading.enumerate())
    service = await start()
    # Both the reflector and the operator have listed queues and watch them.
    await until(lambda: cluster.count("GET", "/queues") >= 4)
    await service.stop()
    await until(lambda: asyncio.all_tasks() <= before[0])
    await until(lambda: not any(t.name == "operator" for t in set(threading.enumerate()) - before[1]))


async def test_a_kind_that_may_not_be_listed_is_done_without(cluster: Cluster, start: StartService) -> None:
    cluster.fail("GET", "/resourceslices", 403, times=100)
    service = await start()
    assert service.ready
    cluster.gang("train", 2)
    await until(lambda: cluster.all_bound(2))


# -- what the service makes ------------------------------------------------------------------------------------------


async def test_bare_pods_get_groups_and_those_of_one_owner_share_one(cluster: Cluster, start: StartService) -> None:
    meta = {"name": "web", "annotations": {"volcano.sh/preemptable": "true", "other": "x"}}
    meta["annotations"]["scheduling.volcano.sh/group-min-member"] = "2"
    owner = cluster.create("/apis/apps/v1/namespaces/default/replicasets", {"metadata": meta, "spec": {"replicas": 2}})
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "controller": True}
    reference["uid"] = owner["metadata"]["uid"]
    await start()
    for number in range(2):
        cluster.pod(f"web-{number}", metadata={"ownerReferences": [reference]})
    alone = cluster.pod("alone", metadata={"annotations": {"scheduling.volcano.sh/queue-name": "default"}})
    await until(lambda: cluster.all_bound(3))
    groups = {group["metadata"]["name"]: group for group in cluster.items(f"{SCHEDULING}/podgroups")}
    shared = groups.pop(f"podgroup-{owner['metadata']['uid']}")
    assert shared["spec"]["minMember"] == 2
    assert shared["spec"]["minResources"]["cpu"] == "2"
    assert shared["metadata"]["annotations"] == {"volcano.sh/preemptable": "true"}
    assert shared["metadata"]["ownerReferences"] == [reference]
    single = groups.pop(f"podgroup-{alone['metadata']['uid']}")
    assert single["metadata"]["ownerReferences"][0]["kind"] == "Pod"
    assert single["spec"]["queue"] == "default"
    assert groups == {}


async def test_only_what_owns_a_pod_is_looked_up(cluster: Cluster, start: StartService) -> None:
    secret = {"scheduling.volcano.sh/group-min-member": "7", "volcano.sh/other": "secret"}
    owners = "/apis/apps/v1/namespaces/{}/replicasets"
    cluster.create("/api/v1/namespaces", {"metadata": {"name": "other"}})
    cluster.create(owners.format("other"), {"metadata": {"name": "web", "annotations": secret}, "spec": {}})
    cluster.create(owners.format("default"), {"metadata": {"name": "mine", "annotations": secret}, "spec": {}})
    made_up = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "uid": "made-up"}
    names = (
        "../../other/replicasets/web",
        "mine",
        "..%2F..%2Fother%2Freplicasets%2Fweb",
        *(f"x{n}" for n in range(90)),
    )
    elsewhere = {"apiVersion": "../api/v1/secrets?x=", "kind": "ReplicaSet", "name": "web", "uid": "u"}
    references = [elsewhere, *({**made_up, "name": name} for name in names)]
    cluster.pod("p", metadata={"ownerReferences": references})
    await start()
    await until(lambda: cluster.all_bound(1))
    [group] = cluster.items(f"{SCHEDULING}/podgroups")
    assert group["spec"]["minMember"] == 1
    assert "annotations" not in group["metadata"]
    asked = [path for method, path, _ in cluster.proxy.answers if "/replicasets/" in path and method == "GET"]
    assert len(asked) <= 4
    assert all("/default/replicasets/" in path for path in asked)


async def test_numbers_that_cannot_be_read_stop_nobody_else(
    cluster: Cluster, start: StartService, caplog: pytest.LogCaptureFixture
) -> None:
    least = {"scheduling.volcano.sh/group-min-member": "9" * 5000}
    owner = {"metadata": {"name": "web", "annotations": least}, "spec": {}}
    uid = cluster.create("/apis/apps/v1/namespaces/default/replicasets", owner)["metadata"]["uid"]
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "controller": True, "uid": uid}
    tier = "volcano.sh/network-topology-highest-tier"
    cluster.pod("owned", metadata={"ownerReferences": [reference]})
    cluster.pod("tiered", metadata={"annotations": {tier: "9" * 5000}})
    cluster.pod("old")
    cluster.patch("/api/v1/namespaces/default/pods/old/status", {"status": {"startTime": "0000-01-01T00:00:00Z"}})
    await start()
    cluster.gang("train", 2)
    await until(lambda: {name for name, node in cluster.pods().items() if node} == {"old", "train-0", "train-1"})
    await until(lambda: cluster.reasons().count("PodGroupNotMade") == 2)
    notes = " ".join(event["note"] for event in cluster.items("/apis/events.k8s.io/v1/events"))
    assert f"Pod default/tiered: metadata.annotations[{tier}]: should be a number" in notes
    assert "ReplicaSet default/web: metadata.annotations[scheduling.volcano.sh/group-min-member]" in notes
    cluster.patch("/api/v1/namespaces/default/pods/tiered", {"metadata": {"annotations": {tier: "1"}}})
    await until(lambda: cluster.pods()["tiered"] != "")


async def test_a_conflict_is_not_taken_for_an_object_that_exists(cluster: Cluster, start: StartService) -> None:
    cluster.fail("POST", "/queues", 409)
    cluster.fail("POST", "/podgroups", 409)
    await start()
    cluster.pod("bare")
    await until(lambda: cluster.all_bound(1))


async def test_queues_are_created_opened_counted_and_closed(cluster: Cluster, start: StartService) -> None:
    await start()

    def status(name: str) -> Object:
        queues = {queue["metadata"]["name"]: queue for queue in cluster.items(f"{SCHEDULING}/queues")}
        return queues.get(name, {}).get("status") or {}

    await until(lambda: status("default").get("state") == status("root").get("state") == "Open")
    assert cluster.get(f"{SCHEDULING}/queues/root")["spec"]["reclaimable"] is False
    cluster.gang("train", 2)
    cluster.gang("large", 2, cpu="9")
    cluster.gang("larger", 2, cpu="9")
    await until(lambda: (status("default").get("running"), status("default").get("inqueue")) == (1, 2))
    await until(lambda: status("default").get("allocated") == {"pods": "2"})
    cluster.patch(f"{SCHEDULING}/queues/default/status", {"status": {"state": "Closing"}})
    for name in ("train", "large", "larger"):
        cluster.delete(f"{SCHEDULING}/namespaces/default/podgroups/{name}")
    await until(lambda: status("default")["state"] == "Closed")
    assert status("default").get("running") == 0
    await until(lambda: status("default").get("allocated") == {})


@pytest.mark.parametrize("subresource", [True, False])
async def test_the_status_of_groups_is_written_with_and_without_subresource(
    bare_cluster: Cluster, definitions: list, start: StartService, subresource: bool
) -> None:
    def change(definition: Object) -> None:
        if definition["spec"]["names"]["kind"] == "PodGroup" and not subresource:
            definition["spec"]["versions"][0]["subresources"] = {}

    bare_cluster.define(*definitions, change=change)
    bare_cluster.node("n0")
    await start()
    bare_cluster.gang("train", 2)
    path = f"{SCHEDULING}/namespaces/default/podgroups/train"
    await until(lambda: (bare_cluster.get(path).get("status") or {}).get("running") == 2)
    assert bare_cluster.get(path)["spec"]["minMember"] == 2
    assert bool(bare_cluster.count("PATCH", "/podgroups/train/status", 200)) is subresource
    assert bool(bare_cluster.count("PATCH", "/podgroups/train", 200)) is not subresource


async def test_an_unchanged_situation_writes_nothing(cluster: Cluster, start: StartService) -> None:
    service = await start(schedule_period=0.02)
    cluster.gang("large", 2, cpu="20")
    path = f"{SCHEDULING}/namespaces/default/podgroups/large"
    await until(lambda: bool((cluster.get(path).get("status") or {}).get("conditions")))
    # What a queue counts is written within a second.
    await until(lambda: cluster.get(f"{SCHEDULING}/queues/default").get("status", {}).get("inqueue") == 1)
    sessions = len(recorder(service).seen)
    await until(lambda: len(recorder(service).seen) > sessions + 5)
    before = len(cluster.proxy.answers)
    await until(lambda: len(recorder(service).seen) > sessions + 25)
    written = [answer for answer in cluster.proxy.answers[before:] if answer[0] != "GET"]
    assert written == []


# -- connections ---------------------------------------------------------------------------------------------------


async def test_watches_go_on_after_a_disconnection(cluster: Cluster, start: StartService) -> None:
    service = await start()
    cluster.disconnect()
    cluster.gang("train", 2)
    cluster.reconnect()
    await until(lambda: cluster.all_bound(2))
    assert ("Pod", "expired") not in recorder(service).relists


async def test_an_event_may_be_longer_than_any_buffer(cluster: Cluster, start: StartService) -> None:
    service = await start()
    cluster.create("/api/v1/nodes", {"metadata": {"name": "long", "annotations": {"x": "y" * 2_500_000}}})
    await until(lambda: "long" in service.state.nodes.by_name)
    cluster.gang("train", 2)
    await until(lambda: cluster.all_bound(2))


class TestExpiry:
    @pytest.fixture
    def options(self) -> Options:
        return Options(start_delay=0.01, stop_delay=0.01, log_limit=10)

    async def test_what_was_deleted_unseen_is_dropped(self, cluster: Cluster, start: StartService) -> None:
        service = await start()
        cluster.gang("old", 4)
        await until(lambda: cluster.all_bound(4))
        cluster.disconnect()
        for number in range(4):
            cluster.delete(f"/api/v1/namespaces/default/pods/old-{number}")
        cluster.delete(f"{SCHEDULING}/namespaces/default/podgroups/old")
        cluster.delete("/api/v1/nodes/n1")
        for number in range(20):
            cluster.node(f"later-{number}")
            cluster.pod(f"other-{number}", schedulerName="default-scheduler")
        cluster.reconnect()
        await until(lambda: {("Pod", "expired"), ("Node", "expired")} <= set(recorder(service).relists))
        await until(lambda: len(service.state.nodes.by_name) == 21)
        await until(lambda: not service.state.pods.by_key)
        assert "n1" not in service.state.nodes.by_name
        assert not service.state.nodes.used.any()

    async def test_refusal_of_the_watch_itself_is_understood(self, cluster: Cluster, start: StartService) -> None:
        service = await start()
        cluster.fail("GET", "/api/v1/nodes?watch", 410)
        cluster.disconnect()
        cluster.reconnect()
        await until(lambda: ("Node", "expired") in recorder(service).relists)
        cluster.node("n2")
        await until(lambda: "n2" in service.state.nodes.by_name)
