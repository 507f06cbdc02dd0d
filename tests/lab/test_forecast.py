"""When jobs will start: the queue run forward, with what is known of how long jobs run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from stromboli.api.crds import RUN_TIME
from stromboli.engine import Engine
from stromboli.explain.answers import Start
from stromboli.explain.jobs import explain_job
from stromboli.explain.past_runs import Kind, PastRuns, Run
from stromboli.explain.rehearsal import Rehearsal
from stromboli.explain.told_starts import WITHIN
from stromboli.explain.words import expected, lines
from stromboli.explain.work import TooManyStepsError
from stromboli.framework.cluster.environment import OFFLINE
from stromboli.lab import forecast
from stromboli.lab.forecast import Forecast, with_start
from stromboli.state.cluster import ClusterState
from stromboli.state.pods import timestamp
from tests.builders import NOON, gang, node, pod_group, queue, state
from tests.lab.test_timeline import FIFO


def group(name: str, lasting: str = "", **spec: Any) -> Any:
    """A PodGroup that declares how long it runs, or does not."""
    made = pod_group(name, **spec)
    return made.model_copy(
        update={"metadata": made.metadata.model_copy(update={"annotations": {RUN_TIME: lasting} if lasting else {}})}
    )


def job(name: str, count: int, lasting: str = "", *, on: str = "", since: float = 0.0, **spec: Any) -> list[Any]:
    """A gang that waits, or runs on a node since some seconds ago."""
    status = {"startTime": timestamp(NOON - since)} if on else {}
    return [group(name, lasting, min_member=count, **spec), *gang(name, count, node=on, status=status)]


def starts(cluster: ClusterState, name: str, past: PastRuns | None = None, policy: str = FIFO, **limits: Any) -> Start:
    rehearsal = Rehearsal(Engine(policy), cluster, OFFLINE, NOON, **limits)
    return Forecast(rehearsal, past or PastRuns()).start([f"default/{name}"])[0]


def ran(*seconds: float, declared: float = 0.0) -> PastRuns:
    """What is known when some jobs of a kind are over."""
    past = PastRuns()
    for each in seconds:
        past.add(Kind("", "default", 1), Run(each, declared, NOON))
    return past


def test_a_job_waits_until_what_holds_its_places_is_over() -> None:
    said = starts(state(queue("default"), node("a", "4"), job("runs", 4, "20m", on="a"), job("waits", 2)), "waits")
    assert said.expected is not None
    assert said.earliest is not None
    assert said.latest is not None
    assert said.expected == pytest.approx(1200, abs=2)
    # What is declared is an upper limit: half of it may be enough. The range is wider, for what is yet to come.
    assert 300 <= said.earliest < said.expected <= said.latest <= 1.6 * 1321


@pytest.mark.exhaustive
def test_an_answer_says_how_many_started_when_they_were_told() -> None:
    cluster = state(queue("default"), node("a", "4"), job("runs", 4, "20m", on="a"), job("waits", 2))
    past = PastRuns()
    for number in range(30):
        engine = Engine(FIFO)
        rehearsal = Rehearsal(engine, cluster.fork(), OFFLINE, NOON)
        session = engine.decide(cluster.snapshot(), now=NOON).session
        answer = explain_job(session, "default/waits")
        assert answer is not None
        start = with_start(answer, rehearsal, past).start
        assert start is not None
        # Until there are enough it is what was measured, and from then on ranges are as early as jobs started.
        right = number - 19
        assert (start.within, start.within_of) == ((WITHIN, 0) if number < 20 else (right / number, number))
        assert (start.earliest == 0) is (number >= 20)
        assert "default/waits" in past.starts
        uid = rehearsal.state.pod_group("default/waits").metadata.uid  # type: ignore[union-attr]
        past.starts.started("default/waits", uid, NOON + (1_200 if number == 0 else 0))


def test_time_that_a_job_has_run_counts() -> None:
    cluster = state(queue("default"), node("a", "4"), job("runs", 4, "20m", on="a", since=900), job("waits", 2))
    said = starts(cluster, "waits")
    assert said.expected is not None
    assert said.earliest is not None
    assert 0 <= said.earliest <= said.expected < 400


@pytest.mark.parametrize(("passed", "middle"), [(1_201, 15), (4_800, 1_800), (14_400, 6_600)])
def test_a_job_that_is_over_its_time_is_named_and_may_be_late_by_as_much_again(passed: float, middle: float) -> None:
    cluster = state(queue("default"), node("a", "4"), job("runs", 4, "20m", on="a", since=passed), job("waits", 2))
    said = starts(cluster, "waits")
    assert said.expected is not None
    assert said.latest is not None
    assert middle <= said.expected <= 5 * middle
    assert said.latest <= 2 * passed
    assert (said.overdue, said.overdue_count) == (["default/runs"], 1)
    assert "now" not in expected(said)


def test_a_job_that_waits_for_none_that_is_over_its_time_names_none() -> None:
    cluster = state(
        queue("default"), node("a", "4"), node("b", "4"), job("runs", 4, "20m", on="a", since=9_000), job("waits", 2)
    )
    said = starts(cluster, "waits")
    assert (said.expected, said.overdue) == (0, [])
    assert expected(said) == "Expected to start now"


@pytest.mark.parametrize(
    ("said", "deadlines", "ends"),
    [
        ("", (600, 1_200), 1_200),
        ("30m", (600, 1_200), 1_200),
        ("10m", (600, 1_200), 600),
        ("30m", (600, 0), 1_800),
        ("", (600, 0), None),
        ("1 hour", (600, 600), 600),
    ],
)
def test_deadlines_of_pods_count_where_all_of_them_have_one(
    said: str, deadlines: tuple[int, int], ends: float | None
) -> None:
    pods = [
        structs.replace(each, spec=structs.replace(each.spec, active_deadline_seconds=seconds or None))
        for each, seconds in zip(gang("runs", 2, cpu="2", node="a"), deadlines, strict=True)
    ]
    runs = [group("runs", said, min_member=2), *pods]
    found = starts(state(queue("default"), node("a", "4"), runs, job("waits", 4)), "waits")
    assert found.expected == (None if ends is None else pytest.approx(ends, abs=2))


def test_no_start_is_told_beyond_the_time_for_which_the_queue_is_run() -> None:
    said = starts(state(queue("default"), node("a", "4"), job("runs", 4, "99999h", on="a"), job("waits", 2)), "waits")
    assert said.why == "not within the next 30d, for which the queue was run forward"


def test_a_run_time_that_cannot_be_read_is_told() -> None:
    cluster = state(queue("default"), node("a", "1"), job("waits", 2, "1 hour"))
    session = Engine(FIFO).decide(cluster.snapshot(), now=NOON).session
    answer = explain_job(session, "default/waits")
    assert answer is not None
    why = "has no effect: it should be a duration above 0 such as 90m, not '1 hour'"
    assert answer.ignored == {"metadata.annotations[stromboli.io/run-time]": why}
    assert any(line == f"  metadata.annotations[stromboli.io/run-time] {why}" for line in lines(answer))
    condition = next(each for each in session.view.jobs["default/waits"].conditions if each.type == "FieldIgnored")
    assert (condition.reason, condition.message) == (
        "RunTimeUnreadable",
        f"metadata.annotations[stromboli.io/run-time] {why}",
    )


def test_jobs_before_it_start_first_and_have_their_time() -> None:
    cluster = state(
        queue("default"),
        node("a", "4"),
        job("runs", 4, "10m", on="a"),
        job("first", 4, "10m", created=1),
        job("waits", 4, created=2),
    )
    first, second = starts(cluster, "first"), starts(cluster, "waits")
    assert first.expected == pytest.approx(600, abs=2)
    assert second.expected is not None
    assert second.expected > 1000


def test_what_was_learned_of_a_kind_of_jobs_says_how_long_they_run() -> None:
    cluster = state(queue("default"), node("a", "4"), job("runs", 4, on="a"), job("waits", 2))
    assert starts(cluster, "waits").expected is None
    said = starts(cluster, "waits", ran(100, 200, 300, 400, 500))
    assert said.expected == pytest.approx(300, abs=2)
    assert said.earliest is not None
    assert said.latest is not None
    assert 50 <= said.earliest < 100
    assert 640 < said.latest <= 802


def test_one_of_a_kind_that_has_run_longer_than_some_will_run_as_the_others() -> None:
    cluster = state(queue("default"), node("a", "4"), job("runs", 4, on="a", since=350), job("waits", 2))
    said = starts(cluster, "waits", ran(100, 200, 300, 400, 500))
    assert said.expected == pytest.approx(100, abs=2)


def test_of_a_declared_time_jobs_need_the_part_that_their_kind_needed() -> None:
    cluster = state(queue("default"), node("a", "4"), job("runs", 4, "1000s", on="a"), job("waits", 2))
    said = starts(cluster, "waits", ran(100, 200, 300, declared=1000))
    assert said.expected == pytest.approx(200, abs=2)


def test_what_is_in_the_way_for_an_unknown_time_is_named() -> None:
    cluster = state(queue("default"), node("a", "4"), job("runs", 4, on="a"), job("waits", 2))
    said = starts(cluster, "waits")
    assert said.unknown == ["default/runs"]
    assert said.expected is said.earliest is said.latest is None
    assert "nothing says how long some jobs run that hold what it needs: default/runs" in expected(said)


def test_no_start_is_told_of_what_would_not_start_even_if_all_were_over() -> None:
    cluster = state(queue("default"), node("a", "4"), job("runs", 4, on="a"), job("waits", 5))
    said = starts(cluster, "waits")
    assert said.expected is None
    assert said.why == "it would not start even if all that runs were over"


def test_no_start_is_told_of_a_job_that_ran_for_as_long_as_it_may() -> None:
    arguments = "configurations: [{name: timeouts, arguments: {maxRunTime: 1h}}]\n"
    engine = Engine(arguments + FIFO.replace('actions: "', 'actions: "timeouts, '))
    cluster = state(queue("default"), node("a", "4"), job("runs", 4, on="a", since=7200))
    answer = explain_job(engine.decide(cluster.snapshot(), now=NOON).session, "default/runs")
    assert answer is not None
    assert (answer.reason, answer.placed) == ("MaximumRunTimeExceeded", 0)
    assert with_start(answer, Rehearsal(engine, cluster, OFFLINE, NOON), PastRuns()).start is None


@pytest.mark.parametrize(("name", "reason"), [("shut", "QueueNotOpen"), ("nowhere", "QueueNotFound")])
def test_no_start_is_told_of_a_job_whose_queue_takes_no_work(name: str, reason: str) -> None:
    engine = Engine(FIFO)
    cluster = state(queue("default"), queue("shut", state="Closed"), node("a", "4"), job("waits", 1, queue=name))
    answer = explain_job(engine.decide(cluster.snapshot(), now=NOON).session, "default/waits")
    assert answer is not None
    assert answer.reason == reason
    assert with_start(answer, Rehearsal(engine, cluster, OFFLINE, NOON), PastRuns()).start is None


def test_no_start_is_told_of_a_job_whose_pods_gave_their_places_back() -> None:
    arguments = "configurations: [{name: timeouts, arguments: {podsReadyTimeout: 5m}}]\n"
    engine = Engine(arguments + FIFO.replace('actions: "', 'actions: "timeouts, '))
    late = {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": timestamp(NOON - 7200)}]}
    slow = [group("slow", min_member=1), *gang("slow", 1, node="a", status=late)]
    cluster = state(queue("default"), node("a", "4"), slow)
    answer = explain_job(engine.decide(cluster.snapshot(), now=NOON + 0.25).session, "default/slow")
    assert answer is not None
    assert (answer.reason, answer.placed) == ("PodsNotReady", 0)
    assert answer.detail == "it timed out 1 time, and is tried again at 2023-11-14T22:14:21+00:00"
    assert with_start(answer, Rehearsal(engine, cluster, OFFLINE, NOON), PastRuns()).start is None


def test_pods_that_terminate_make_room() -> None:
    leaving = gang("leaving", 4, node="a", deleted=True)
    said = starts(state(queue("default"), node("a", "4"), leaving, job("waits", 2)), "waits")
    assert said.expected == pytest.approx(30, abs=2)


def test_what_starts_at_once_starts_now() -> None:
    said = starts(state(queue("default"), node("a", "4"), job("waits", 2)), "waits")
    assert (said.earliest, said.expected, said.latest) == (0, 0, 0)
    assert expected(said) == "Expected to start now"


def test_the_same_cluster_gets_the_same_answer_and_is_not_touched() -> None:
    running = [job(f"runs-{number}", 1, f"{number + 1}m", on="a") for number in range(4)]
    cluster = state(queue("default"), node("a", "4"), *running, job("waits", 3))
    said = [starts(cluster, "waits") for _ in range(2)]
    assert said[0] == said[1]
    assert cluster.record("default/waits-0").node_name == ""  # type: ignore[union-attr]


def test_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    running = [job(f"runs-{number}", 1, f"{number + 1}m", on="a") for number in range(30)]
    cluster = state(queue("default"), node("a", "30"), *running, job("waits", 30))
    monkeypatch.setattr(forecast, "_MOST_SESSIONS", 5)
    assert "for which the queue was run forward" in starts(cluster, "waits").why
    monkeypatch.setattr(forecast, "_MOST_STEPS", 1)
    assert starts(cluster, "waits").why == "running the queue forward takes too long"


@pytest.mark.parametrize("late", [lambda: True, None])
def test_late_answers_tell_what_was_found(late: Callable[[], bool] | None) -> None:
    cluster = state(queue("default"), node("a", "4"), job("runs", 4, "20m", on="a"), job("waits", 2))
    said = starts(cluster, "waits", **({"late": late} if late else {"most_steps": 0}))
    assert said.expected is None
    assert said.why


def test_an_asker_who_is_gone_ends_it() -> None:
    cluster = state(queue("default"), node("a", "4"), job("runs", 4, "20m", on="a"), job("waits", 2))
    rehearsal = Rehearsal(Engine(FIFO), cluster, OFFLINE, NOON)
    rehearsal.abandon()
    with pytest.raises(Exception, match="abandoned") as caught:
        Forecast(rehearsal, PastRuns()).start(["default/waits"])
    assert not isinstance(caught.value, TooManyStepsError)


@pytest.mark.exhaustive
def test_policies_that_ask_for_the_time_are_run_as_well() -> None:
    policy = FIFO + "  - name: reservation\n    arguments: {after: 1m}\n"
    cluster = state(queue("default"), node("a", "4"), job("runs", 4, "20m", on="a"), job("waits", 2))
    said = starts(cluster, "waits", policy=policy)
    assert said.expected == pytest.approx(1200, rel=0.04)


def test_quantiles_of_jobs_are_spread_and_begin_with_the_median() -> None:
    drawn = np.array([forecast.quantiles(f"default/job-{number}") for number in range(50)])
    assert (drawn[:, 0] == 0.5).all()
    assert 0.4 < drawn[:, 1:].mean() < 0.6
    assert (drawn.max(axis=1) - drawn.min(axis=1) > 0.5).all()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (Start(expected=720, earliest=480, latest=1860), "Expected to start in 12 min (8 to 31 min)"),
        (Start(expected=720, earliest=48, latest=9000), "Expected to start in 12 min (48 s to 2 h)"),
        (Start(expected=720, earliest=480), "Expected to start in 12 min (8 min or later)"),
        (
            Start(expected=720, earliest=480, latest=1860, within=0.8),
            "Expected to start in 12 min (8 to 31 min); on other workloads, 80% started within such a range",
        ),
        (Start(earliest=480), "Expected to start in 8 min or later"),
        (
            Start(expected=0, earliest=0, latest=1, overdue=["a/b"], overdue_count=2),
            "Expected to start as soon as these end, which are overdue: a/b, 1 more",
        ),
        (
            Start(expected=720, earliest=480, latest=1860, overdue=["a/b"], overdue_count=1),
            "Expected to start in 12 min (8 to 31 min); these run for longer than they said: a/b",
        ),
        (Start(why="x", unknown=["a/b"], unknown_count=3), "No start can be predicted: x: a/b, 2 more"),
    ],
)
def test_starts_in_words(said: Start, words: str) -> None:
    assert expected(said) == words
