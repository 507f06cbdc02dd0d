"""Sessions one after the other."""

from __future__ import annotations

from typing import Any

from stromboli.api.decisions import Bind, EmitEvent, Evict, SetPodGroupStatus, SetPodUnscheduled, SetQueueStatus
from stromboli.engine import Engine, Successive
from stromboli.explain.rehearsal import advance
from stromboli.framework.cluster.environment import Admitted, Environment, NodeUsage
from tests import builders


def test_a_session_sees_the_load_that_was_told_before_it() -> None:
    nodes = [builders.node("busy"), builders.node("calm")]
    cluster = builders.state(nodes, builders.queue("default"), builders.pod_group("g"), builders.gang("g", 1))
    sessions = Successive(Engine(builders.policy("gang", "predicates usage")), Environment())
    for expected, busiest in (("calm", "busy"), ("busy", "calm")):
        sessions.node_usage = {
            name: NodeUsage(90.0 if name == busiest else 5.0, 10.0, builders.NOON) for name in ("busy", "calm")
        }
        result = sessions.decide(cluster.snapshot(), now=builders.NOON)
        assert result.session.bound == {"default/g-0": expected}


def test_an_event_tells_of_a_new_reason_once() -> None:
    group = builders.pod_group("g", 2)
    other = builders.pod_group("o", queue="other", phase="Running"), builders.pod("o-0", "o", node="n1", memory="")
    cluster = builders.state(builders.node("n1", cpu="2"), builders.queue("default"), group, builders.gang("g", 2))
    for each in (builders.queue("other"), *other, builders.pod("o-1", "o", memory="")):
        cluster.upsert(type(each).__name__, each)
    engine = Engine()
    first = engine.decide(cluster.snapshot(), now=builders.NOON)
    (event,) = [decision for decision in first.decisions if isinstance(decision, EmitEvent)]
    assert (event.kind, event.namespace, event.name, event.type) == ("PodGroup", "default", "g", "Warning")
    assert event.reason == "Unschedulable"
    assert event.message.startswith("QueueShareExceeded: queue default has no capacity left in cpu")
    (status,) = [d.status for d in first.decisions if isinstance(d, SetPodGroupStatus) and d.name == "g"]
    assert [condition.reason for condition in status.conditions] == ["QueueShareExceeded"]
    cluster.upsert("PodGroup", group.model_copy(update={"status": status}))
    second = engine.decide(cluster.snapshot(), now=builders.NOON)
    assert not [decision for decision in second.decisions if isinstance(decision, EmitEvent)]


def test_under_volcanos_rules_an_event_says_why_a_group_whose_pods_are_to_come_is_not_admitted() -> None:
    """There is no condition then, and what waits for an answer looks for the Event."""
    large = builders.pod_group("large", 4, phase="Pending", minResources={"cpu": "4"})
    cluster = builders.state(builders.node("n1", cpu="2"), builders.queue("default"), large)
    sessions = Successive(Engine(compatibility="volcano"), Environment())

    def told() -> list[str]:
        decided = sessions.decide(cluster.snapshot(), now=builders.NOON).decisions
        assert not [d for d in decided if isinstance(d, SetPodGroupStatus) and d.status.conditions]
        return [f"{d.reason} {d.name}: {d.message}" for d in decided if isinstance(d, EmitEvent)]

    (first,) = told()
    assert first.startswith("Unschedulable large: ")
    assert "cpu" in first
    assert told() == []
    cluster.upsert("Node", builders.node("n2", cpu="8"))
    cluster.upsert("Queue", builders.queue("default", state="Closed"))
    (other,) = told()
    assert other.startswith("Unschedulable large: QueueNotOpen")


def test_pods_are_told_whether_more_nodes_would_help() -> None:
    cluster = builders.state(
        builders.node("n1", cpu="2"),
        builders.queue("default"),
        builders.pod_group("large", 3),
        builders.gang("large", 3),
        builders.pod_group("lacks", 2),
        builders.gang("lacks", 1),
    )
    decided = Engine().decide(cluster.snapshot(), now=builders.NOON).decisions
    told = {d.name: (d.reason, d.message) for d in decided if isinstance(d, SetPodUnscheduled)}
    assert {told[f"large-{number}"][0] for number in range(3)} == {"Unschedulable"}
    assert told["lacks-0"] == (
        "NotEnoughPods",
        "NotEnoughPods: PodGroup default/lacks lacks pods: minMember is 2 (it has 1). "
        "The pods that are missing must be created, or the minimum lowered.",
    )


def test_a_silent_engine_decides_the_same_and_tells_nobody_anything() -> None:
    """Gangs that start, wait, lack pods and lose one of those that ran, as nodes come and go."""
    written: dict[bool, list[object]] = {False: [], True: []}

    def shown(*, silent: bool) -> list[object]:
        cluster = builders.state(builders.node("n1", cpu="2"), builders.node("n2", cpu="2"), builders.queue("default"))
        for name, pods in (("first", 3), ("waits", 3), ("lacks", 2), ("large", 3)):
            cpu = "4" if name == "large" else "1"
            for each in (builders.pod_group(name, 3), *builders.gang(name, pods, cpu=cpu)):
                cluster.upsert(type(each).__name__, each)
        engine = Engine().silent() if silent else Engine()
        sessions, found = Successive(engine, Environment(admitted=Admitted())), list[object]()
        changes: list[Any] = [None, "default/first-0", builders.pod("lacks-2", "lacks"), builders.node("n3", cpu="8")]
        for step, change in enumerate([*changes, None]):
            if isinstance(change, str):
                cluster.delete("Pod", change)
            elif change is not None:
                cluster.upsert(type(change).__name__, change)
            decisions = sessions.decide(cluster.snapshot(), now=builders.NOON + step).decisions
            advance(cluster, decisions, builders.NOON + step)
            groups = [group for group in cluster.jobs.pod_groups if group is not None]
            found.append([each for each in decisions if isinstance(each, Bind | Evict)])
            found.append([group.status.model_copy(update={"conditions": []}) for group in groups])
            written[silent] += [c for group in groups for c in group.status.conditions]
            written[silent] += [
                each for each in decisions if isinstance(each, SetPodUnscheduled | SetQueueStatus | EmitEvent)
            ]
        return found

    told = shown(silent=False)
    assert shown(silent=True) == told
    assert any(group.phase == "Unknown" for group in told[3])
    assert written[True] == []
    assert written[False]
