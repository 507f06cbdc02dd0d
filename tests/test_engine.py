"""Sessions one after the other."""

from __future__ import annotations

from stromboli.api.decisions import EmitEvent, SetPodGroupStatus, SetPodUnscheduled
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
        "The pods that are missing must be created, or minMember lowered.",
    )


def test_a_silent_engine_decides_the_same_and_tells_no_pod_why_it_waits() -> None:
    def decided(engine: Engine) -> list[object]:
        cluster = builders.state(builders.node("n1", cpu="2"), builders.queue("default"))
        for name in ("fits", "waits"):
            for each in (builders.pod_group(name, 2), *builders.gang(name, 2)):
                cluster.upsert(type(each).__name__, each)
        return list(engine.decide(cluster.snapshot(), now=builders.NOON).decisions)

    told, silent = decided(Engine()), decided(Engine().silent())
    assert any(isinstance(each, SetPodUnscheduled) for each in told)
    assert silent == [each for each in told if not isinstance(each, SetPodUnscheduled)]


def test_a_silent_engine_writes_no_condition_of_which_only_the_figures_changed() -> None:
    def statuses(engine: Engine) -> list[int]:
        cluster = builders.state(builders.node("n1", cpu="4"), builders.node("n2", cpu="4"), builders.queue("default"))
        for each in (builders.pod_group("waits", 5), *builders.gang("waits", 5, cpu="2")):
            cluster.upsert(type(each).__name__, each)
        sessions, counts = Successive(engine, Environment(admitted=Admitted())), []
        for step in range(4):
            if step == 3:
                cluster.delete("Node", "n2")
            result = sessions.decide(cluster.snapshot(), now=builders.NOON + step)
            counts.append(sum(isinstance(each, SetPodGroupStatus) for each in result.decisions))
            advance(cluster, result.decisions, builders.NOON)
        return counts

    told, silent = statuses(Engine()), statuses(Engine().silent())
    assert told[3] == 1
    assert silent == [*told[:3], 0]


def test_a_silent_engine_tells_a_podgroup_once_that_it_waits_and_when_that_is_over() -> None:
    def shown(engine: Engine) -> list[tuple[str, ...]]:
        cluster = builders.state(builders.node("n1", cpu="4"), builders.queue("default"))
        for each in (builders.pod_group("waits", 3), *builders.gang("waits", 2, cpu="2")):
            cluster.upsert(type(each).__name__, each)
        sessions, found = Successive(engine, Environment(admitted=Admitted())), []
        late, room = builders.pod("waits-2", "waits", cpu="2"), builders.node("n2", cpu="2")
        for step, more in enumerate((None, late, room)):
            if more is not None:
                cluster.upsert(type(more).__name__, more)
            result = sessions.decide(cluster.snapshot(), now=builders.NOON + step)
            advance(cluster, result.decisions, builders.NOON)
            group = cluster.pod_group("default/waits")
            assert group is not None
            found.append(next((c.status, c.message.partition(":")[0]) for c in group.status.conditions))
        return found

    lacks, over = ("True", "NotEnoughPods"), ("False", "")
    assert shown(Engine()) == [lacks, ("True", "NeverFits"), over]
    assert shown(Engine().silent()) == [lacks, lacks, over]
