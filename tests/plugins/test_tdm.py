"""tdm: nodes that are there for a part of the day, and who leaves them when it ends."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from stromboli.api import crds, objects
from stromboli.api.decisions import Evict
from stromboli.api.errors import PolicyError
from stromboli.engine import Engine, SessionResult, Successive
from stromboli.framework.cluster.environment import Environment
from tests.builders import gang, node, pod, pod_group, queue, state
from tests.builders import policy as tiers
from tests.plugins.sessions import bound, decide, policy

ZONE = "volcano.sh/revocable-zone"


def at(clock: str) -> float:
    return datetime.fromisoformat(f"2024-06-01T{clock}:00+00:00").timestamp()


def place(hours: str, clock: str, *nodes, **annotations: str) -> str | None:
    """The node of a pod at a time of day, while zone z is open during some hours."""
    written = {f"volcano.sh/{key.replace('_', '-')}": value for key, value in annotations.items()}
    arguments = {"tdm.revocable-zone.z": hours, "tdm.evict.period": "1m"}
    return bound(
        *nodes, pod_group("job"), pod("job-0", "job", annotations=written), by=policy("tdm", arguments), now=at(clock)
    ).get("job-0")


REVOCABLE = node("z1", labels={ZONE: "z"})


@pytest.mark.parametrize(
    ("hours", "clock", "is_open"),
    [
        ("09:00-18:00", "12:00", True),
        ("09:00-18:00", "09:00", True),
        ("09:00-18:00", "18:00", True),
        ("09:00-18:00", "18:01", False),
        ("00:00-00:00", "23:59", True),
        ("23:00-13:00", "23:30", True),
        # A zone starts today: the part of the night after midnight is not seen.
        ("23:00-13:00", "12:00", False),
    ],
)
def test_a_zone_is_open_by_the_clock(hours: str, clock: str, is_open: bool) -> None:
    assert place(hours, clock, REVOCABLE, revocable_zone="*") == ("z1" if is_open else None)


def test_only_pods_that_agree_go_there_and_they_go_there_first() -> None:
    nodes = [node("plain"), REVOCABLE]
    assert place("09:00-18:00", "12:00", *nodes) == "plain"
    assert place("09:00-18:00", "12:00", *nodes, preemptable="true") == "z1"
    assert place("09:00-18:00", "12:00", *nodes, preemptable="true", revocable_zone="z") == "plain"
    assert place("09:00-18:00", "20:00", *nodes, revocable_zone="*") == "plain"


def test_an_unknown_zone_is_closed() -> None:
    assert place("00:00-00:00", "12:00", node("n1", labels={ZONE: "other"}), revocable_zone="*") is None


def test_jobs_that_may_be_evicted_come_last() -> None:
    first, second = pod_group("first", created=1), pod_group("second", created=2)
    first.metadata.annotations["volcano.sh/preemptable"] = "true"
    pods = [pod("first-0", "first"), pod("second-0", "second")]
    assert list(bound(node("n1", cpu="1"), first, second, *pods, by=policy("tdm"))) == ["second-0"]


@pytest.mark.parametrize("hours", ["9 to 5", "25:00-26:00", "09:00", 9])
def test_hours_that_cannot_be_read_are_an_error(hours: object) -> None:
    with pytest.raises(PolicyError, match=r"should be HH:MM-HH:MM"):
        decide(by=policy("tdm", {"tdm.revocable-zone.z": hours}))


CLOSED = {"tdm.revocable-zone.z": "09:00-18:00", "tdm.revocable-zone.y": "10:00-11:00", "tdm.evict.period": "1m"}
NIGHT = at("20:00")
ELASTIC = pod_group("job", 0, phase="Running")
BOTH = pytest.mark.parametrize("compatibility", ["volcano", "strict"])


def evicted(result: SessionResult) -> list[str]:
    return sorted(decision.name for decision in result.decisions if isinstance(decision, Evict))


def told_to_leave(
    *objs: Any, compatibility: str = "strict", last: float | None = None, now: float = NIGHT
) -> list[str]:
    """The pods that shuffle evicts, by name; `last` is how many seconds ago pods had to leave."""
    environment = Environment(left={} if last is None else {"tdm": now - last})
    by = policy("tdm", CLOSED, actions="shuffle")
    result = decide(*objs, by=by, now=now, environment=environment, compatibility=compatibility)
    return evicted(result)


def with_limit(**limit: str) -> crds.PodGroup:
    """A running job that may lose all its pods but for a limit, `min_available` or `max_unavailable`."""
    job = pod_group("job", 0, phase="Running")
    job.metadata.annotations.update({f"volcano.sh/jdb-{key.replace('_', '-')}": text for key, text in limit.items()})
    return job


def test_pods_leave_a_zone_that_is_closed_and_no_other() -> None:
    nodes = [REVOCABLE, node("plain"), node("unknown", labels={ZONE: "unknown"})]
    jobs = [pod_group(name, 0, phase="Running") for name in ("on-z", "on-plain", "on-unknown")]
    pods = [pod("a", "on-z", node="z1"), pod("b", "on-plain", node="plain"), pod("c", "on-unknown", node="unknown")]
    assert told_to_leave(*nodes, *jobs, *pods) == ["a"]
    assert told_to_leave(*nodes, *jobs, *pods, now=at("12:00")) == []


def test_without_a_limit_the_least_important_pod_leaves() -> None:
    pods = [pod("a", "job", node="z1", priority=1), pod("b", "job", node="z1", priority=9)]
    assert told_to_leave(REVOCABLE, ELASTIC, *pods) == ["a"]


@BOTH
def test_pods_that_must_not_be_evicted_stay(compatibility: str) -> None:
    """They do not stand in for others either: the second would be the first to go."""
    stays = pod("job-1", "job", node="z1", annotations={"volcano.sh/preemptable": "false"})
    scene = [REVOCABLE, ELASTIC, pod("job-0", "job", node="z1"), stays]
    assert told_to_leave(*scene, compatibility=compatibility) == ["job-0"]


def test_rounds_are_a_period_apart() -> None:
    scene = [REVOCABLE, ELASTIC, pod("a", "job", node="z1")]
    assert told_to_leave(*scene, last=59) == []
    assert told_to_leave(*scene, last=60) == ["a"]
    assert told_to_leave(*scene, last=-86_400) == ["a"], "by a clock that was ahead"


@pytest.mark.parametrize("shuffles", [1, 2])
def test_one_session_is_one_round(shuffles: int) -> None:
    by = policy("tdm", CLOSED, actions=", ".join(["shuffle"] * shuffles))
    result = decide(REVOCABLE, ELASTIC, gang("job", 3, node="z1"), by=by, now=NIGHT)
    assert evicted(result) == ["job-2"]
    assert result.environment.left == {"tdm": NIGHT}


@pytest.mark.parametrize(
    ("limit", "strict", "volcano"),
    [
        ({"min_available": "3"}, 2, 2),
        ({"min_available": "40%"}, 2, 2),
        ({"min_available": "0"}, 5, 5),
        ({"min_available": "5"}, 0, 0),
        ({"min_available": "6"}, 0, 1),
        ({"min_available": "most"}, 0, 5),
        ({"max_unavailable": "3"}, 2, 2),
        ({"max_unavailable": "40%"}, 2, 2),
        ({"max_unavailable": "1"}, 0, 0),
        ({"max_unavailable": "few"}, 0, 0),
    ],
)
def test_a_job_keeps_within_its_limit(limit: dict[str, str], strict: int, volcano: int) -> None:
    """Five pods run and one waits; 40 percent of six, rounded up, is three."""
    scene = [REVOCABLE, with_limit(**limit), gang("job", 5, node="z1"), pod("waits", "job")]
    assert len(told_to_leave(*scene)) == strict
    assert len(told_to_leave(*scene, compatibility="volcano")) == volcano


def test_a_limit_is_one_for_all_zones() -> None:
    nodes = [REVOCABLE, node("y1", labels={ZONE: "y"})]
    scene = [*nodes, with_limit(max_unavailable="1"), pod("a", "job", node="z1"), pod("b", "job", node="y1")]
    assert told_to_leave(*scene) == ["b"]
    assert told_to_leave(*scene, compatibility="volcano") == ["a", "b"], "one in each zone"


def preempted(*objs: Any, says: str = "false", compatibility: str = "strict") -> list[str]:
    """The pods that one of 2 cpu evicts; `says` is whether that is preemptable, empty for not a word."""
    word = {"volcano.sh/preemptable": says} if says else {}
    by = tiers("gang tdm", "predicates", actions="preempt")
    urgent = pod("urgent-0", "urgent", cpu="2", annotations=word)
    return evicted(decide(*objs, pod_group("urgent"), urgent, by=by, now=NIGHT, compatibility=compatibility))


@BOTH
def test_preemption_keeps_within_limits_too(compatibility: str) -> None:
    full, pods = node("n1", cpu="4"), gang("job", 4, node="n1")
    assert preempted(full, with_limit(min_available="2"), pods, compatibility=compatibility) == ["job-2", "job-3"]
    assert preempted(full, with_limit(min_available="3"), pods, compatibility=compatibility) == []
    assert preempted(full, ELASTIC, pods, compatibility=compatibility) == [], "one of 1 cpu is not enough"


@BOTH
def test_a_pod_that_may_be_evicted_evicts_nobody(compatibility: str) -> None:
    scene = [node("n1", cpu="2"), ELASTIC, pod("a", "job", cpu="2", node="n1")]
    assert preempted(*scene, compatibility=compatibility) == ["a"]
    assert preempted(*scene, says="true", compatibility=compatibility) == []
    assert preempted(*scene, says="", compatibility=compatibility) == (["a"] if compatibility == "strict" else [])


@BOTH
def test_a_pod_that_may_use_revocable_nodes_evicts_nobody(compatibility: str) -> None:
    words = {"volcano.sh/preemptable": "false", ZONE: "*"}
    urgent = [pod_group("urgent"), pod("urgent-0", "urgent", annotations=words)]
    scene = [node("n1", cpu="1"), ELASTIC, pod("a", "job", node="n1")]
    by = tiers("gang tdm", "predicates", actions="preempt")
    assert evicted(decide(*scene, *urgent, by=by, compatibility=compatibility)) == []


@BOTH
def test_only_pods_that_run_are_victims(compatibility: str) -> None:
    small = [node("small", cpu="1"), pod("runs", "job", node="small")]
    starting = [node("n1", cpu="2"), pod("starts", "job", cpu="2", node="n1", phase="Pending")]
    assert preempted(with_limit(min_available="0"), small, starting, compatibility=compatibility) == []


def test_preemption_leaves_revocable_nodes_alone() -> None:
    """Even where the policy lets any pod go there."""
    by = policy("tdm", CLOSED, actions="preempt", enablePredicate=False)
    high = objects.PriorityClass(metadata=objects.Metadata(name="high"), value=9)
    pending = pod("urgent-0", "urgent", annotations={"volcano.sh/preemptable": "false"})
    urgent = [high, pod_group("urgent", priorityClassName="high"), pending]
    running = [ELASTIC, pod("a", "job", node="n1")]
    assert evicted(decide(node("n1", cpu="1"), *running, *urgent, by=by)) == ["a"]
    assert evicted(decide(node("n1", cpu="1", labels={ZONE: "z"}), *running, *urgent, by=by)) == []


def test_the_next_session_knows_when_pods_were_told_to_leave() -> None:
    engine = Engine(policy("tdm", CLOSED, actions="shuffle"))
    cluster = state(queue("default"), REVOCABLE, ELASTIC, gang("job", 3, node="z1"))
    successive = Successive(engine, Environment())
    rounds = [evicted(successive.decide(cluster.snapshot(), now=NIGHT + after)) for after in (0, 30, 60)]
    assert rounds == [["job-2"], [], ["job-2"]]
