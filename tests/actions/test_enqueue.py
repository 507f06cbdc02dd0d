"""enqueue: pending jobs are admitted to compete for resources, queues taking turns."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.api.decisions import SetPodGroupStatus
from stromboli.engine import Engine, SessionResult
from stromboli.framework.cluster.environment import OFFLINE, Admitted, Environment
from stromboli.framework.diagnosis.explain import pending_reasons
from tests import builders
from tests.builders import gang, node, pod, pod_group, queue
from tests.plugins.queues import BOTH, admitted, asks, why

#: what a leader begins with
LIVE = Environment(admitted=Admitted())


def enqueue(
    *objs: Any, actions: str = "enqueue", compatibility: Any = "strict", environment: Environment = OFFLINE
) -> SessionResult:
    """A session on 10 CPUs: 12 may be laid claim to."""
    by = builders.policy("priority gang overcommit capacity", actions=actions)
    scene = [node("n", cpu="10"), queue("default"), *objs]
    engine = Engine(by, compatibility=compatibility)
    return engine.decide(builders.state(*scene).snapshot(), now=builders.NOON, environment=environment)


def phases(result: SessionResult) -> dict[str, str]:
    """The phases that are written, by PodGroup."""
    return {d.name: d.status.phase for d in result.decisions if isinstance(d, SetPodGroupStatus)}


@BOTH
@pytest.mark.parametrize("phase", ["", "Pending"])
def test_an_admitted_job_is_shown_as_inqueue(phase: str, compatibility: Any) -> None:
    assert phases(enqueue(asks("job", "1", phase=phase), compatibility=compatibility)) == {"job": "Inqueue"}


@BOTH
def test_a_job_that_is_refused_stays_pending_with_the_reason(compatibility: Any) -> None:
    result = enqueue(asks("large", "13"), gang("large", 1), compatibility=compatibility)
    assert admitted(result) == []
    assert why(result, "large-0").reason == "ClusterOvercommitted"


def test_nobody_is_placed_before_being_admitted() -> None:
    result = enqueue(asks("job", "1"), gang("job", 1), actions="allocate, enqueue")
    assert result.session.bound == {}
    assert admitted(result) == ["job"]
    result = enqueue(asks("job", "11"), gang("job", 1), actions="allocate")
    assert list(result.session.bound) == ["default/job-0"], "without the action no job waits for it"


@BOTH
def test_who_comes_first_is_admitted_first_and_whoever_fits_after_it(compatibility: Any) -> None:
    """Of 10: 7 for the first; the second, of 5, has to wait, the third, of 3, has not."""
    amounts = {"first": "7", "second": "5", "third": "3"}
    jobs = [asks(name, cpu, created=i) for i, (name, cpu) in enumerate(amounts.items())]
    assert admitted(enqueue(*jobs[::-1], compatibility=compatibility)) == ["first", "third"]


@BOTH
@pytest.mark.parametrize(("priority", "expected"), [(0, ["a0", "a1"]), (1, ["b0", "b1"])])
def test_queues_go_in_order_too(priority: int, expected: list[str], compatibility: Any) -> None:
    """There is room for two jobs; admitted jobs hold nothing yet, so that the first queue remains the first."""
    queues = [queue("a"), queue("b", created=1, priority=priority)]
    jobs = [asks(f"{name}{i}", "5", name, created=i) for i in range(3) for name in "ab"]
    assert admitted(enqueue(*queues, *jobs, compatibility=compatibility)) == expected


@BOTH
def test_without_min_resources_a_job_is_admitted_however_full_the_cluster_is(compatibility: Any) -> None:
    """No plugin is asked: there is nothing that could be compared."""
    assert admitted(enqueue(asks("full", "10"), asks("any", None, created=1), compatibility=compatibility)) == [
        "any",
        "full",
    ]


@pytest.mark.parametrize(("compatibility", "expected"), [("strict", []), ("volcano", ["any"])])
def test_strictly_a_closed_queue_admits_nobody(compatibility: Any, expected: list[str]) -> None:
    jobs = [asks("any", None, "closed"), asks("least", "1", "closed"), gang("any", 1), gang("least", 1)]
    result = enqueue(queue("closed", state="Closed"), *jobs, compatibility=compatibility)
    assert admitted(result) == expected
    reasons = {key.partition("/")[2]: reason.reason for key, reason in pending_reasons(result.session).items()}
    assert reasons["least-0"] == "QueueNotOpen"
    assert (reasons["any-0"] == "QueueNotOpen") is (not expected)


@pytest.mark.parametrize(("compatibility", "placed"), [("strict", []), ("volcano", ["default/large-0"])])
@pytest.mark.parametrize("phase", ["Running", "Unknown"])
def test_strictly_a_job_whose_pods_are_all_gone_has_to_be_admitted_anew(
    phase: str, compatibility: Any, placed: list[str]
) -> None:
    scene = [asks("large", "13", phase=phase), pod("large-0", "large")]
    result = enqueue(*scene, actions="enqueue, allocate", compatibility=compatibility)
    assert list(result.session.bound) == placed


@BOTH
def test_a_job_that_runs_is_not_asked_about(compatibility: Any) -> None:
    uses = [pod_group("uses", minResources={"cpu": "13"}, phase="Running"), pod("uses-0", "uses", node="n")]
    assert phases(enqueue(*uses, compatibility=compatibility)).get("uses", "Running") == "Running"


@pytest.mark.parametrize(
    ("compatibility", "environment", "expected"),
    [("strict", LIVE, ["job", "one"]), ("strict", OFFLINE, ["one", "other"]), ("volcano", LIVE, ["one", "other"])],
)
def test_strictly_nobody_claims_a_cluster_by_a_phase_that_no_session_gave(
    compatibility: Any, environment: Environment, expected: list[str]
) -> None:
    """Two of 8 say that they are in line, which leaves nothing of 12 for a job of 2."""
    say_so = [asks(name, "8", phase="Inqueue") for name in ("one", "other")]
    job = asks("job", "2", created=1)
    result = enqueue(*say_so, job, compatibility=compatibility, environment=environment)
    assert admitted(result) == expected


def test_a_job_with_pods_that_is_not_believed_competes_and_claims_nothing() -> None:
    """A leader before may have admitted it, and the quota of its namespace may count its pods already."""
    say_so = [asks(name, "8", phase="Inqueue") for name in ("one", "other")]
    pods = [each for name in ("one", "other") for each in gang(name, 8, cpu="1", memory="")]
    result = enqueue(*say_so, *pods, asks("job", "2", created=1), actions="enqueue, allocate", environment=LIVE)
    assert admitted(result) == ["job", "one", "other"]
    assert len(result.session.bound) == 10


def test_who_was_admitted_keeps_the_claim_until_it_asks_for_something_else() -> None:
    earlier = asks("earlier", "5")
    result = enqueue(asks("first", "8", created=1), environment=LIVE)
    for _ in range(2):
        first = asks("first", "8", phase="Inqueue", created=1)
        result = enqueue(earlier, first, environment=result.environment)
        assert admitted(result) == ["first"]
    for cpu, where in (("9", "default"), ("8", "b")):
        changed = asks("first", cpu, where, phase="Inqueue", created=1)
        again = enqueue(queue("b", created=1), earlier, changed, environment=result.environment)
        assert admitted(again) == ["earlier"]


def test_what_an_admitted_job_may_still_grow_to_is_claimed() -> None:
    """It holds 4 of its 6, so that of the queue's 10 CPUs there are 4 left for others; not believed, it leaves 6."""
    before = enqueue(asks("begun", "6"), environment=LIVE).environment
    begun = [asks("begun", "6", phase="Running"), *gang("begun", 4, cpu="1", memory="", node="n")]
    for environment, left in ((before, 4), (LIVE, 6)):
        for cpu, expected in ((left, ["job"]), (left + 1, [])):
            assert admitted(enqueue(*begun, asks("job", str(cpu)), environment=environment)) == expected


@BOTH
def test_a_job_of_a_queue_that_is_not_there_is_none(compatibility: Any) -> None:
    result = enqueue(asks("lost", None, "nowhere"), gang("lost", 1), compatibility=compatibility)
    assert admitted(result) == []
    assert why(result, "lost-0").message == "there is no queue nowhere"


def test_who_was_admitted_is_known_of_a_cluster_that_was_read_anew() -> None:
    first = enqueue(asks("job", "1"), environment=LIVE).environment
    again = enqueue(asks("other", None), asks("job", "1", phase="Inqueue"), environment=first)
    assert again.session.view.jobs["default/job"].claims
    assert again.environment.admitted == first.admitted != LIVE.admitted
