"""timeouts: gangs that do not get ready give their places back, and jobs run no longer than they may."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from stromboli.api.decisions import Evict
from stromboli.engine import Engine, SessionResult
from stromboli.framework.cluster.environment import OFFLINE, Environment
from stromboli.framework.cluster.reservation import Place, Reservation
from stromboli.framework.diagnosis.explain import why_job
from stromboli.state.cluster import ClusterState
from tests.actions.evictions import evicted
from tests.builders import NOON, gang, node, pod, pod_group, queue, state
from tests.expectations.world import CLASSES
from tests.explain.asking import why
from tests.fuzz import tried

MINUTE = 60.0


def policy(**arguments: Any) -> str:
    """A policy with the action first; unless it is said otherwise, gangs have five minutes to get ready."""
    arguments = {"podsReadyTimeout": "5m", **arguments}
    configurations = [{"name": "timeouts", "arguments": arguments}]
    tiers = [{"plugins": [{"name": "gang"}, {"name": "predicates"}]}]
    return yaml.safe_dump({"actions": "timeouts, allocate", "configurations": configurations, "tiers": tiers})


def at(ago: float) -> str:
    """A time so many seconds before noon."""
    return datetime.fromtimestamp(NOON - ago, UTC).isoformat()


def placed(name: str, scheduled: float | None, ready: bool | None = False, since: float = 0, **more: Any) -> Any:
    """A pod of the gang `job` on a node, scheduled so long ago and ready, or not ready since so long."""
    conditions = []
    if scheduled is not None:
        conditions.append({"type": "PodScheduled", "status": "True", "lastTransitionTime": at(scheduled)})
    if ready is not None:
        conditions.append({"type": "Ready", "status": str(ready), "lastTransitionTime": at(since or scheduled or 0)})
    return pod(name, "job", node="n", **{"phase": "Pending", **more}, status={"conditions": conditions})


def decide(
    *objects: Any, by: str = "", after: float = 0, environment: Environment = OFFLINE, cpu: str = "8"
) -> SessionResult:
    """One session at noon or later."""
    cluster = state(node("n", cpu=cpu), queue("default"), *objects)
    return Engine(by or policy()).decide(cluster.snapshot(), now=NOON + after, environment=environment)


def told(result: SessionResult) -> tuple[str, str, str]:
    """Why the job waits."""
    why = why_job(result.session, result.session.view.jobs["default/job"])
    return ("", "", "") if why is None else (why.reason, why.actionable, why.detail)


def helps(cluster: ClusterState, by: str) -> list[str]:
    """What would let the job start, each with who can do it."""
    return [f"{each.who}: {each.change}" for each in why(cluster, "job default/job", by).remedies]


@pytest.mark.parametrize(("age", "goes"), [(299, False), (300, True), (None, False)])
def test_a_gang_that_does_not_get_ready_goes_whole(age: float | None, goes: bool) -> None:
    pods = [placed("job-0", age, ready=True), placed("job-1", age)]
    assert evicted(decide(pod_group("job", 2, phase="Running"), pods)) == (["job-0", "job-1"] if goes else [])


STATES = st.lists(st.none() | st.integers(1, 600), min_size=1, max_size=5)


@given(STATES, st.integers(0, 5), st.integers(0, 2))
@tried(40)
def test_the_time_counts_since_the_minimum_was_last_ready(unready: list[int | None], least: int, done: int) -> None:
    """Pods that are ready, None, or not ready since so long; some others have succeeded."""
    pods = [placed(f"job-{i}", 600, ready=age is None, since=age or 600) for i, age in enumerate(unready)]
    ended = [pod(f"done-{i}", "job", node="n", phase="Succeeded") for i in range(done)]
    result = decide(pod_group("job", least, phase="Running"), pods, ended)
    needed = least - done
    late = sum(age is not None and age >= 300 for age in unready)
    complete = len(unready) >= needed > 0
    assert bool(evicted(result)) is (complete and len(unready) - late < needed)


def test_what_was_ready_and_is_no_longer_has_the_time_anew() -> None:
    job = pod_group("job", 1, phase="Running")
    assert evicted(decide(job, placed("job-0", 86_400, since=299, phase="Running"))) == []
    assert evicted(decide(job, placed("job-0", 86_400, since=301, phase="Running"))) == ["job-0"]
    assert evicted(decide(job, placed("job-0", 86_400, ready=True, since=301, phase="Running"))) == []
    assert evicted(decide(job, placed("job-0", None, ready=None, phase="Running"))) == []


def test_a_gang_that_timed_out_pauses_ever_longer() -> None:
    job, by = pod_group("job", 2, phase="Running"), policy(backoffBase="1m", backoffMax="3m")
    environment, after = OFFLINE, 0.0
    for pause in (1, 2, 3, 3):
        late = [placed(f"job-{i}", 300 - after) for i in range(2)]
        out = decide(job, late, by=by, after=after, environment=environment)
        assert evicted(out) == ["job-0", "job-1"]
        for early in (1, pause * MINUTE - 1):
            waits = decide(job, gang("job", 2), by=by, after=after + early, environment=out.environment)
            assert waits.session.bound == {}
            assert told(waits)[:2] == ("PodsNotReady", "wait")
        after += pause * MINUTE
        again = decide(job, gang("job", 2), by=by, after=after, environment=waits.environment)
        assert len(again.session.bound) == 2
        environment = again.environment


def test_what_waits_is_told_how_often_and_until_when() -> None:
    job = pod_group("job", 1, phase="Running")
    out = decide(job, placed("job-0", 300))
    (why,) = [each.why for each in out.decisions if isinstance(each, Evict)]
    assert why == "the pods of PodGroup default/job did not get ready in time, and gave their places back"
    waits = decide(job, gang("job", 1), after=1, environment=out.environment)
    assert told(waits) == ("PodsNotReady", "wait", f"it timed out 1 time, and is tried again at {at(-60)}")


def test_a_gang_is_tried_no_more_often_than_the_limit() -> None:
    job, by = pod_group("job", 1, phase="Running"), policy(backoffLimitCount=1, backoffBase="0s")
    first = decide(job, placed("job-0", 300), by=by)
    again = decide(job, gang("job", 1), by=by, after=1, environment=first.environment)
    assert len(again.session.bound) == 1
    second = decide(job, placed("job-0", 290), by=by, after=10, environment=again.environment)
    assert evicted(second) == ["job-0"]
    never = decide(job, gang("job", 1), by=by, after=10**6, environment=second.environment)
    assert never.session.bound == {}
    assert told(never) == ("PodsNotReady", "user", "it timed out 2 times, and is tried no more")


def left_by(result: SessionResult, phase: str) -> Any:
    """The PodGroup as a session leaves it, for a service that knows nothing else."""
    job = pod_group("job", 1, phase=phase)
    job.status.conditions = result.session.view.jobs["default/job"].conditions
    return job


def timed_out(job: Any) -> list[tuple[str, str]]:
    return [(each.status, each.message) for each in job.status.conditions if each.type == "TimedOut"]


@pytest.mark.parametrize(("limit", "left"), [(None, "is tried again at"), (0, "is tried no more")])
def test_another_replica_knows_who_timed_out(limit: int | None, left: str) -> None:
    by = policy(backoffBase="10m", **({} if limit is None else {"backoffLimitCount": limit}))
    job = left_by(decide(pod_group("job", 1, phase="Running"), placed("job-0", 300), by=by), "Pending")
    ((status, message),) = timed_out(job)
    assert status == "True"
    assert left in message
    waits = decide(job, gang("job", 1), by=by, after=9 * MINUTE)
    assert (waits.session.bound, told(waits)[0]) == ({}, "PodsNotReady")
    assert len(decide(job, gang("job", 1), by=by, after=11 * MINUTE).session.bound) == (limit is None)
    ready = left_by(decide(job, placed("job-0", 300, ready=True), by=by), "Pending")
    assert timed_out(ready) == [("False", "")]
    assert len(decide(ready, gang("job", 1), by=by, after=MINUTE).session.bound) == 1


def test_the_pause_of_a_gang_that_timed_out_before_the_leader_changed_is_twice_as_long() -> None:
    by = policy(backoffBase="1m")
    job = left_by(decide(pod_group("job", 1, phase="Running"), placed("job-0", 300), by=by), "Running")
    again = decide(job, placed("job-0", 0), by=by, after=300)
    assert told(again)[2] == f"it timed out 2 times, and is tried again at {at(-420)}"


def test_the_count_begins_anew_once_the_gang_is_ready_or_another_one() -> None:
    by = policy(backoffLimitCount=0)
    job = pod_group("job", 1, phase="Running")
    out = decide(job, placed("job-0", 300), by=by)
    ready = decide(job, placed("job-0", 300, ready=True), by=by, environment=out.environment)
    assert len(decide(job, gang("job", 1), by=by, environment=ready.environment).session.bound) == 1
    other = pod_group("job", 1)
    other.metadata.uid = "other"
    assert len(decide(other, gang("job", 1), by=by, environment=out.environment).session.bound) == 1


def test_a_refused_eviction_is_no_further_time_out() -> None:
    job = pod_group("job", 1, phase="Running")
    first = decide(job, placed("job-0", 300))
    second = decide(job, placed("job-0", 300), after=1, environment=first.environment)
    assert evicted(second) == ["job-0"]
    assert second.environment.left["timeouts"] == first.environment.left["timeouts"]


@pytest.mark.parametrize(
    ("annotation", "usual", "goes"),
    [
        ("", "0s", False),
        ("", "1h", True),
        ("", "3h", False),
        ("1h", "0s", True),
        ("3h", "1h", False),
        ("soon", "1h", True),
        ("0", "1h", False),
    ],
)
def test_jobs_run_no_longer_than_they_may(annotation: str, usual: str, goes: bool) -> None:
    job = pod_group("job", 1, phase="Running")
    job.metadata.annotations["stromboli.io/max-run-time"] = annotation
    runs = [pod(f"job-{i}", "job", node="n", status={"startTime": at(7200)}) for i in range(2)]
    result = decide(job, runs, by=policy(maxRunTime=usual))
    assert evicted(result) == (["job-0", "job-1"] if goes else [])
    by = policy(maxRunTime=usual)
    waits = decide(job, gang("job", 2), by=by, after=10**6, environment=result.environment)
    # After a restart of the service the condition is what is known.
    job.status.conditions += waits.session.view.jobs["default/job"].conditions
    for each in (waits, decide(job, gang("job", 2), by=by, after=10**6)):
        assert (each.session.bound == {}) is goes
        assert told(each)[0] == ("MaximumRunTimeExceeded" if goes else "")


@pytest.mark.parametrize("usual", ["0s", "3h"])
def test_it_is_told_how_long_a_job_might_run_when_it_was_evicted(usual: str) -> None:
    """Its annotation and the policy may have changed since."""
    job = pod_group("job", 1)
    ended = decide(job, [pod("job-0", "job", node="n", status={"startTime": at(7200)})], by=policy(maxRunTime="1h"))
    job.status.conditions += ended.session.view.jobs["default/job"].conditions
    session = decide(job, gang("job", 1), by=policy(maxRunTime=usual)).session
    told_why, condition = (
        why_job(session, session.view.jobs["default/job"]),
        session.view.jobs["default/job"].conditions[-1],
    )
    assert told_why is not None
    assert "longer than 3600 s" in told_why.message
    assert "longer than 3600 s" in condition.message


@pytest.mark.parametrize(("limit", "minima"), [(None, {}), (0, {}), (None, {"cpu": "4"}), (0, {"cpu": "4"})])
def test_a_gang_that_pauses_claims_nothing(limit: int | None, minima: dict[str, str]) -> None:
    """What it would hold is for others of its queue, and of other queues."""
    arguments = {"podsReadyTimeout": "5m"} | ({} if limit is None else {"backoffLimitCount": limit})
    by = policy(**arguments).replace("timeouts, allocate", "timeouts, enqueue, allocate")
    by = by.replace("name: predicates", "name: predicates\n  - name: proportion\n  - name: overcommit")
    job = pod_group("job", 4, phase="Running", minResources=minima)
    ended = decide(job, [placed(f"job-{each}", 300) for each in range(4)], by=by, cpu="4")
    assert len(evicted(ended)) == 4
    job.status.phase = "Inqueue"
    for name in ("default", "other"):
        next_job = pod_group("next", 4, queue=name, phase="Pending", minResources={"cpu": "4"})
        objects = [queue("other"), job, gang("job", 4), next_job, gang("next", 4)]
        first = decide(*objects, by=by, environment=ended.environment, cpu="4")
        job.status.phase = first.session.view.jobs["default/job"].phase
        assert len(decide(*objects, by=by, environment=first.environment, cpu="4").session.bound) == 4


def test_what_helps_a_job_that_timed_out() -> None:
    job = pod_group("job", 1, phase="Running")
    ended = decide(job, placed("job-0", 300))
    waits = state(node("n"), queue("default"), job, gang("job", 1))
    job.status.conditions += ended.session.view.jobs["default/job"].conditions
    again = "user: delete PodGroup default/job and submit it again"
    until = datetime.fromtimestamp(NOON + MINUTE, UTC).isoformat()
    assert helps(waits, policy()) == [f"wait: wait until {until}, when it is tried again", again]
    assert helps(waits, policy(backoffLimitCount=0)) == [again]


def test_a_member_that_is_made_anew_does_not_begin_the_time_again() -> None:
    ages = {"job-0": 7200, "job-1": 60}
    runs = [pod(name, "job", node="n", status={"startTime": at(age)}) for name, age in ages.items()]
    job = pod_group("job", 2, phase="Running")
    assert evicted(decide(job, runs, by=policy(maxRunTime="1h"))) == ["job-0", "job-1"]
    assert evicted(decide(job, runs, by=policy(maxRunTime="3h"))) == []


@pytest.mark.parametrize("reserved", ["less", "job"])
@pytest.mark.parametrize("arguments", [{"maxRunTime": "1h"}, {"backoffLimitCount": 0}])
def test_a_job_that_timed_out_gets_no_reserved_places(reserved: str, arguments: dict[str, Any]) -> None:
    """Neither its own nor those of a less important job, which come before all actions."""
    by = policy(**arguments).replace("name: gang", "name: priority\n  - name: gang")
    job, runs = pod_group("job", 1, phase="Running", priorityClassName="high"), placed("job-0", 7200, priority=100)
    runs = with_fields(runs, status=with_fields(runs.status, start_time=at(7200)))
    less = [pod_group("less", 1, priorityClassName="low"), pod("less-0", "less", cpu="8", priority=10)]
    ended = decide(*CLASSES, job, runs, *less, by=by)
    assert evicted(ended) == ["job-0"]
    place = Place("n", {"cpu": 8000.0, "memory": 2.0**30, "pods": 1.0}, f"uid-{reserved}-0")
    kept = {f"default/{reserved}": Reservation("", (place,), NOON, NOON + 300)}
    next_pod = pod("job-0", "job", cpu="8", priority=100)
    environment = replace(ended.environment, reservations=kept)
    after = decide(*CLASSES, job, next_pod, *less, by=by, environment=environment)
    assert list(after.session.bound) == ["default/less-0"]


def test_a_start_that_is_not_known_ends_no_job() -> None:
    job = pod_group("job", 1, phase="Running")
    assert evicted(decide(job, pod("job-0", "job", node="n"), by=policy(maxRunTime="1s"))) == []


@pytest.mark.parametrize("of", [{"priority": 2_000_000_000}, {"namespace": "kube-system"}])
def test_what_the_cluster_itself_needs_stays(of: dict[str, Any]) -> None:
    where = {"namespace": of["namespace"]} if "namespace" in of else {}
    job = pod_group("job", 1, phase="Running", **where)
    assert evicted(decide(job, placed("job-0", 300, **of), by=policy(maxRunTime="1s"))) == []


def test_sessions_ask_for_the_time_only_while_one_runs_out() -> None:
    job = pod_group("job", 1, phase="Running")
    assert not decide(job, placed("job-0", 600, ready=True)).session.view.volatile
    assert not decide(job, gang("job", 1, cpu="99")).session.view.volatile
    assert decide(job, placed("job-0", 1)).session.view.volatile
    assert decide(job, placed("job-0", 600, ready=True), by=policy(maxRunTime="1h")).session.view.volatile


@pytest.mark.parametrize(("ages", "left"), [((600, 1800), 1800), ((10,), 3590), ((600, -900), -math.inf)])
def test_the_next_session_for_maximum_run_times_is_when_the_first_one_ends(ages: tuple[int, ...], left: float) -> None:
    """A start that lies in the future is asked for again."""
    job = pod_group("job", 1, phase="Running")
    by, runs = policy(maxRunTime="1h"), [placed(f"job-{i}", age, ready=True) for i, age in enumerate(ages)]
    assert decide(job, runs, by=by).again_at == NOON + left
    if left > 0:
        assert evicted(decide(job, runs, by=by, after=left - 1)) == []
        assert len(evicted(decide(job, runs, by=by, after=left))) == len(ages)


def test_a_policy_that_times_out_after_it_has_placed_is_told() -> None:
    late = policy().replace("timeouts, allocate", "allocate, timeouts")
    assert Engine(policy()).notes == []
    assert Engine(late).notes == ["actions: timeouts comes after allocate, which places what it should hold back"]
