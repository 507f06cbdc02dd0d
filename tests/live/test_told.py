"""What a person at kubectl reads of pods that wait."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from stromboli.api.crds import PodGroupCondition, PodGroupStatus
from stromboli.api.decisions import Decision, SetPodGroupStatus, SetPodUnscheduled
from stromboli.api.objects import refusal
from stromboli.engine import Engine, Successive
from stromboli.framework.cluster.environment import Environment
from stromboli.live.process.limits import Reluctance
from stromboli.state.snapshot import Snapshot
from tests.live.cluster import SCHEDULING, Cluster
from tests.live.conftest import StartService, until
from tests.live.first_fit import Decisions, FirstFit

PODS = "/api/v1/namespaces/default/pods"
GROUPS = f"{SCHEDULING}/namespaces/default/podgroups"


def engine(_: str | None) -> Successive:
    return Successive(Engine(), Environment())


def said(cluster: Cluster, pod: str) -> tuple[str, str]:
    """Reason and message of a pod's condition PodScheduled; empty when it does not wait, or has not said so."""
    conditions = cluster.get(f"{PODS}/{pod}")["status"].get("conditions") or ()
    for condition in conditions:
        if (condition["type"], condition["status"]) == ("PodScheduled", "False"):
            return condition["reason"], condition["message"]
    return "", ""


def says(cluster: Cluster, pod: str, word: str) -> bool:
    return said(cluster, pod)[1].startswith(f"{word}: ")


def condition(cluster: Cluster, group: str) -> dict[str, str]:
    """The condition Unschedulable of a PodGroup."""
    conditions = (cluster.get(f"{GROUPS}/{group}").get("status") or {}).get("conditions") or ()
    return next((c for c in conditions if c["type"] == "Unschedulable"), {})


async def test_plugins_that_fail_are_told_by_events_and_that_they_are_well_again(
    cluster: Cluster, start: StartService
) -> None:
    service = await start(engine)
    service.report_plugins({("odd", "node_order"): "plugin odd failed in node_order: LookupError: no such team"})
    await until(lambda: "PluginFailed" in cluster.reasons())
    assert service.notes() == ["plugin odd failed in node_order: LookupError: no such team"]
    service.report_plugins({})
    await until(lambda: "PluginRecovered" in cluster.reasons())
    assert not service.notes()
    assert service.unready() == []


async def test_every_pod_that_waits_says_why_whatever_it_lacks(cluster: Cluster, start: StartService) -> None:
    await start(engine, status_patience=0.05)
    cluster.group("elastic", 1)
    for number in range(3):
        cluster.pod(f"elastic-{number}", "elastic", cpu="8")
    cluster.group("lost", 1, queue="nowhere")
    cluster.pod("lost-0", "lost")
    cluster.pod("orphan", "nobody")
    await until(lambda: sum(map(bool, cluster.pods().values())) == 2)
    (waiting,) = (name for name, node in cluster.pods().items() if name.startswith("elastic") and not node)
    await until(lambda: said(cluster, waiting)[0] == "Unschedulable")
    assert "cpu: the cluster has 16, queue default holds 16, 8 more requested" in said(cluster, waiting)[1]
    await until(lambda: said(cluster, "lost-0")[0] == "QueueNotFound")
    await until(lambda: said(cluster, "orphan")[0] == "PodGroupNotFound")
    await until(lambda: condition(cluster, "lost").get("reason") == "QueueNotFound")
    cluster.pod("elastic-late", "elastic", cpu="8")
    await until(lambda: said(cluster, "elastic-late")[0] == "Unschedulable")
    notes = [event["note"] for event in cluster.items("/apis/events.k8s.io/v1/events")]
    assert "QueueNotFound: there is no queue nowhere. The job must be changed." in notes


class Once(FirstFit):
    """Says of a pod that waits and of its job why they do, in one session only; others put the job off, or do not."""

    def __init__(self, job: str, pod: tuple[str, str], *, put_off: bool) -> None:
        super().__init__()
        namespace, _, name = job.partition("/")
        conditions = [PodGroupCondition(type="Unschedulable", status="True", reason="Full", message="Full: no room")]
        self._said: list[Decision] = [
            SetPodGroupStatus(namespace, name, PodGroupStatus(phase="Pending", conditions=conditions)),
            SetPodUnscheduled(namespace, *pod, "Unschedulable", "Full: no room"),
        ]
        self._put_off = [job] if put_off else []

    def decide(self, snapshot: Snapshot, *, now: float) -> Decisions:
        self.sessions += 1
        said, self._said = self._said, []
        return Decisions(said, put_off=() if said else self._put_off)


@pytest.mark.parametrize("put_off", [True, False])
async def test_what_was_said_of_a_job_stands_while_it_is_put_off(
    cluster: Cluster, start: StartService, put_off: bool
) -> None:
    cluster.group("large", 1)
    uid = cluster.pod("large-0", "large", cpu="20")["metadata"]["uid"]
    decider = Once("default/large", ("large-0", uid), put_off=put_off)
    # What the second session takes back must not be written before it, also on a busy machine, but by the last one.
    await start(lambda _: decider, status_patience=1.0, schedule_period=0.02)
    await until(lambda: decider.sessions > 100)
    if put_off:
        await until(lambda: says(cluster, "large-0", "Full"))
        await until(lambda: condition(cluster, "large").get("reason") == "Full")
    else:
        assert said(cluster, "large-0") == ("", "")
        assert condition(cluster, "large") == {}


async def test_what_is_over_is_taken_back(cluster: Cluster, start: StartService) -> None:
    await start(engine, status_patience=0.05)
    cluster.gang("train", 2, min_member=3)
    await until(lambda: says(cluster, "train-0", "NotEnoughPods"))
    await until(lambda: condition(cluster, "train").get("reason") == "NotEnoughPods")
    cluster.delete(f"{GROUPS}/train")
    await until(lambda: says(cluster, "train-0", "PodGroupNotFound"))
    cluster.group("train", 3)
    cluster.pod("train-2", "train")
    await until(lambda: cluster.all_bound(3))
    await until(lambda: condition(cluster, "train").get("status") != "True")
    cluster.delete(f"{PODS}/train-2")
    await until(lambda: condition(cluster, "train").get("status") == "True")
    told = condition(cluster, "train")
    assert told["reason"] == "NotEnoughPods"
    assert told["message"].startswith("NotEnoughPods: PodGroup default/train lacks pods: minMember is 3 (it has 2)")


async def test_the_events_of_a_group_name_what_changed(cluster: Cluster, start: StartService) -> None:
    await start(engine, status_patience=0.05)
    cluster.gang("train", 2, min_member=3, cpu="6")
    await until(lambda: condition(cluster, "train").get("reason") == "NotEnoughPods")
    cluster.pod("train-2", "train", cpu="6")
    await until(lambda: condition(cluster, "train").get("reason") not in ("", "NotEnoughPods"))

    def notes() -> list[str]:
        events = cluster.items("/apis/events.k8s.io/v1/events")
        return [event["note"] for event in events if event["regarding"]["kind"] == "PodGroup"]

    await until(lambda: any(note.endswith("Before: NotEnoughPods.") for note in notes()))
    cluster.node("n2")
    await until(lambda: any(note.startswith("nothing keeps it from being scheduled any more.") for note in notes()))


@pytest.mark.parametrize(("minor", "most"), [(True, 10), (False, 14)])
def test_what_changes_all_the_time_for_a_week_is_told_a_handful_of_times(minor: bool, most: int) -> None:
    """The numbers change with every session, or the reason itself to and fro."""
    week, now = 7 * 86_400.0, 0.0
    reluctance = Reluctance(1.0, clock=lambda: now)

    def tellings() -> Iterator[float]:
        nonlocal now
        now += reluctance.pause("pod", minor=False)
        while now < week:
            yield now
            reluctance.told("pod", minor=minor and now > 1)
            now += reluctance.pause("pod", minor=minor)

    moments = list(tellings())
    assert 4 < len(moments) <= most
    assert all(earlier < later for earlier, later in pairwise(moments))
    reluctance.forget("pod")
    assert reluctance.pause("pod", minor=False) == 1.0


async def test_queues_say_what_they_are_and_events_what_changed(cluster: Cluster, start: StartService) -> None:
    await start(engine, status_patience=0.05)
    path = f"{SCHEDULING}/queues/default"

    def states() -> dict[str, tuple[str, str]]:
        conditions = (cluster.get(path).get("status") or {}).get("conditions") or ()
        return {c["type"]: (c["status"], c["reason"]) for c in conditions}

    await until(lambda: any(q["metadata"]["name"] == "default" for q in cluster.items(f"{SCHEDULING}/queues")))
    await until(lambda: states() == {"Ready": ("True", "Open")})
    cluster.gang("train", 16, min_member=8)
    await until(lambda: states().get("Overused") == ("True", "Overused"))
    cluster.patch(f"{path}/status", {"status": {"state": "Closing"}})
    await until(lambda: states()["Ready"] == ("False", "Closing"))
    for number in range(16):
        cluster.delete(f"{PODS}/train-{number}")
    await until(lambda: states()["Overused"] == ("False", "NotOverused"))
    cluster.patch(f"{path}/status", {"status": {"state": "Open"}})
    await until(lambda: states()["Ready"] == ("True", "Open"))
    events = cluster.items("/apis/events.k8s.io/v1/events")
    told = {(e["regarding"]["name"], e["type"], e["reason"]) for e in events if e["regarding"]["kind"] == "Queue"}
    assert told == {("default", "Warning", "Closing"), ("default", "Normal", "Open")}


async def test_the_default_queue_comes_back(cluster: Cluster, start: StartService) -> None:
    await start(engine)
    path = f"{SCHEDULING}/queues/default"
    await until(lambda: any(q["metadata"]["name"] == "default" for q in cluster.items(f"{SCHEDULING}/queues")))
    uid = cluster.get(path)["metadata"]["uid"]
    cluster.delete(path)
    await until(
        lambda: any(
            q["metadata"]["uid"] != uid
            for q in cluster.items(f"{SCHEDULING}/queues")
            if q["metadata"]["name"] == "default"
        )
    )
    cluster.gang("train", 2)
    await until(lambda: cluster.all_bound(2))


class Behind(FirstFit):
    """Says why a pod waits, says so once more as it does already, as a session on what was before, and then another."""

    def __init__(self, uid: str) -> None:
        super().__init__()
        self._uid, self._repeated = uid, False

    def decide(self, snapshot: Snapshot, *, now: float) -> Decisions:
        self.sessions += 1
        (record,) = (each for each in snapshot.pods.records if each is not None)
        is_told = refusal(record.conditions) is not None
        word = "Other" if self._repeated else "Full"
        self._repeated = self._repeated or is_told
        return Decisions([SetPodUnscheduled("default", "large-0", self._uid, word, f"{word}: so it is")])


async def test_a_session_that_is_behind_holds_nothing_back(cluster: Cluster, start: StartService) -> None:
    cluster.group("large", 1)
    uid = cluster.pod("large-0", "large", cpu="20")["metadata"]["uid"]
    decider = Behind(uid)
    await start(lambda _: decider, status_patience=0.05, schedule_period=0.02)
    await until(lambda: says(cluster, "large-0", "Other"))
