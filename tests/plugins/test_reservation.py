"""Places kept for gangs that waited long, by EASY backfill."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from stromboli.api.reasons import Actionable, Reason
from stromboli.engine import Engine
from stromboli.explain.jobs import explain_job
from stromboli.framework.session.session import Session
from stromboli.lab.cluster import equal_nodes
from stromboli.lab.generator import Model, generate
from stromboli.lab.results import Results
from stromboli.lab.simulation import Settings, simulate
from stromboli.lab.timeline import Timeline
from stromboli.lab.workload import Gang, Job, Task, in_order
from tests.fuzz import tried

PLAIN = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: overcommit
  - name: predicates
  - name: nodeorder
"""
#: of small jobs each runs for so long
LENGTH = 100.0
AFTER = 60.0


def with_reservation(after: float = AFTER, default: str = "1h") -> str:
    kept = f"  - name: reservation\n    arguments: {{after: {after:.0f}s, defaultRunTime: {default}}}\n"
    return PLAIN.replace("  - name: priority\n", f"{kept}  - name: priority\n")


def pods(count: int, cpu: int = 1) -> Gang:
    return Gang.of(Task.requesting(count, {"cpu": cpu}))


def small_jobs(until: float, *, declared: float = LENGTH, every: float = 6.2) -> list[Job]:
    """More small jobs than 16 cpus can run, one after the other."""
    one = pods(1)
    count = int(until / every)
    return [Job(number * every, LENGTH, one, declared, name=f"small-{number}") for number in range(count)]


def run(jobs: list[Job], policy: str, nodes: int = 4) -> Results:
    return simulate(in_order(jobs), equal_nodes(nodes, {"cpu": "4"}), Engine(policy), Settings(period=5.0))


def of(done: Results, name: str, column: str) -> float:
    return float(done.jobs[column][done.jobs["name"].index(name)])


@pytest.mark.exhaustive
def test_a_gang_of_half_the_cluster_starts_by_its_bound_and_without_a_reservation_never() -> None:
    arrival, last = 150.0, 800.0
    jobs = [*small_jobs(last), Job(arrival, LENGTH, pods(8), LENGTH, name="gang")]
    bound = arrival + AFTER + LENGTH
    kept, plain = run(jobs, with_reservation()), run(jobs, PLAIN)
    assert of(kept, "gang", "started") <= bound + 10
    # Small jobs go on all the time, and then the cluster is free.
    assert of(plain, "gang", "started") >= last
    # What is kept costs little more than what the gang uses.
    started = [sum(at <= last for at in each.jobs["started"].tolist()) for each in (kept, plain)]
    assert started[0] >= 0.8 * started[1]


@pytest.mark.exhaustive
def test_jobs_that_are_over_by_then_go_on_being_placed() -> None:
    # The gang needs both nodes, one of which is free at 1,000: until then short jobs may use the other.
    jobs = [
        Job(0, 1000, pods(1, 4), 1000, name="long"),
        Job(10, 50, pods(2, 4), 50, name="gang"),
        Job(200, 100, pods(1, 4), 100, name="short"),
        Job(201, 900, pods(1, 4), 900, name="too-long"),
    ]
    done = run(jobs, with_reservation(), nodes=2)
    assert of(done, "short", "started") == pytest.approx(200, abs=6)
    assert of(done, "gang", "started") == pytest.approx(1000, abs=6)
    assert of(done, "too-long", "started") >= 1050


def test_jobs_that_need_nothing_of_it_go_on_being_placed() -> None:
    jobs = [
        Job(0, 1000, pods(1, 4), 1000, name="long"),
        Job(10, 50, pods(2, 3), 50, name="gang"),
        Job(200, 5000, pods(1, 1), 5000, name="small"),
    ]
    done = run(jobs, with_reservation(), nodes=2)
    # Beside the gang's pod a cpu is left.
    assert of(done, "small", "started") == pytest.approx(200, abs=6)
    assert of(done, "gang", "started") == pytest.approx(1000, abs=6)


@pytest.mark.exhaustive
def test_jobs_that_say_nothing_are_taken_to_run_for_the_default() -> None:
    unknown = Job(200, 100, pods(1, 4), math.nan, name="unknown")
    jobs = [Job(0, 1000, pods(1, 4), 1000, name="long"), Job(10, 50, pods(2, 4), 50, name="gang"), unknown]
    assert of(run(jobs, with_reservation(default="1h"), nodes=2), "unknown", "started") >= 1000
    assert of(run(jobs, with_reservation(default="2m"), nodes=2), "unknown", "started") == pytest.approx(200, abs=6)


def test_deadlines_of_pods_count_where_all_of_them_have_one() -> None:
    def gang(*deadlines: int) -> Gang:
        tasks = (Task.requesting(1, {"cpu": 4}) for _ in deadlines)
        ends = zip(tasks, deadlines, strict=True)
        return Gang.of(
            *(replace(task, spec=structs.replace(task.spec, active_deadline_seconds=end or None)) for task, end in ends)
        )

    def started(*deadlines: int) -> float:
        jobs = [Job(0, 1000, pods(1, 4), 1000, name="long"), Job(10, 50, pods(3, 4), 50, name="wide")]
        done = run([*jobs, Job(200, 100, gang(*deadlines), name="short")], with_reservation(), nodes=3)
        return of(done, "short", "started")

    assert started(60, 100) == pytest.approx(200, abs=6)
    assert started(60, 0) >= 1000
    assert started(60, 5_000) >= 1000


@pytest.mark.exhaustive
def test_nothing_is_kept_before_a_gang_has_waited_long() -> None:
    jobs = [
        Job(0, 1000, pods(1, 4), 1000, name="long"),
        Job(10, 50, pods(2, 4), 50, name="gang"),
        Job(200, 5000, pods(1, 4), 5000, name="longer"),
    ]
    assert of(run(jobs, with_reservation(after=500), nodes=2), "longer", "started") == pytest.approx(200, abs=6)


@pytest.mark.exhaustive
@tried(8)
@given(
    st.lists(
        st.tuples(st.integers(0, 300), st.integers(10, 400), st.integers(1, 4), st.sampled_from([1.0, 1.0, 1.5, 4.0])),
        min_size=5,
        max_size=25,
    ),
    st.integers(5, 12),
)
def test_no_gang_starts_later_than_it_was_promised(small: list[tuple[int, int, int, float]], size: int) -> None:
    """Whatever else comes, and however much longer jobs say they run than they do."""
    promises: list[float] = []

    class Watched(Engine):
        def decide(self, *args, **options):  # type: ignore[no-untyped-def]
            result = super().decide(*args, **options)
            note(result.session)
            return result

    def note(session: Session) -> None:
        left = next(plugin for plugin in session.plugins if plugin.name == "reservation").leave()
        if left is not None and left.job == "default/gang" and left.time is not None:
            promises.append(left.time)

    jobs = [
        Job(float(arrival), float(length), pods(1, cpu), length * factor, name=f"small-{number}")
        for number, (arrival, length, cpu, factor) in enumerate(small)
    ]
    jobs.append(Job(20.0, 50.0, pods(size), 50.0, priority=1, name="gang"))
    workload = in_order(jobs)
    engine = Watched(with_reservation(after=30))
    done = simulate(workload, equal_nodes(3, {"cpu": "4"}), engine, Settings(period=5.0))
    assert done.total["ended"] == len(workload)
    started = of(done, "gang", "started")
    begin = 1_704_067_200.0
    assert all(started <= promise - begin + 11 for promise in promises)


class _Repeating(Timeline):
    """Has sessions each period, and knows which of them `again_at` would have left out and bound pods all the same."""

    wrong = left_out = 0

    @property
    def _due(self) -> float:
        return max(self.now, self._last + self.period) if self.waiting else math.inf

    def _session(self) -> None:
        expected = self._changed or self.now >= self._again
        super()._session()
        _Repeating.left_out += not expected
        _Repeating.wrong += not expected and self._in_vain == 0


@pytest.mark.parametrize("after", [0.0, 3600.0])
@pytest.mark.exhaustive
def test_sessions_that_it_needs_no_time_for_decide_nothing(after: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stromboli.lab.simulation.Timeline", _Repeating)
    _Repeating.wrong = _Repeating.left_out = 0
    jobs = generate(Model(jobs=40, processors=64, load=0.9, users=2), 3)
    simulate(jobs, equal_nodes(2, {"cpu": "32", "memory": "256Gi"}), Engine(with_reservation(after)), Settings(60.0))
    assert _Repeating.left_out > 100
    assert _Repeating.wrong == 0


def test_a_gang_that_waits_long_gets_its_reservation_though_nothing_happens() -> None:
    # From 10 s on the gang waits; what runs ends at 1,000 s, and what would run until then is placed at 200 s no more.
    jobs = [
        Job(0, 1_000, pods(12), 1_000, name="runs"),
        Job(10, 100, pods(16), 100, name="gang"),
    ]
    done = run(jobs, with_reservation())
    assert of(done, "gang", "started") == 1_000
    # One when each job came, one as the gang had waited for long, one that kept places first, and one at the end.
    assert done.total["sessions"] <= 8


def test_the_gang_is_told_from_when_on_it_has_places_and_which_jobs_should_be_over() -> None:
    said: dict[float, tuple[str, float | None, bool]] = {}
    refused: list[Reason] = []

    class Watched(Engine):
        def decide(self, *args, now, **options):  # type: ignore[no-untyped-def]
            result = super().decide(*args, now=now, **options)
            answer = explain_job(result.session, "default/gang")
            later = result.session.view.jobs.get("default/later")
            reason = None if later is None else result.session.view.reason(later)
            refused.extend([reason] if reason is not None and "are kept for a gang" in reason.message else [])
            left = result.environment.left.get("reservation")
            if answer is not None and left is not None:
                options["environment"] = result.environment
                again = super().decide(*args, now=now + 1, **options)
                said[now - 1_704_067_200.0] = answer.detail, left.time, again.environment == result.environment
            return result

    jobs = [
        Job(0, 1_000, pods(8), 100, name="runs"),
        Job(0, 500, pods(8), 500, name="ends-in-time"),
        Job(10, 100, pods(12), 100, name="gang"),
        Job(600, 100, pods(4), 100, name="later"),
    ]
    done = simulate(in_order(jobs), equal_nodes(4, {"cpu": "4"}), Watched(with_reservation()), Settings(period=5.0))
    assert of(done, "gang", "started") == 1_000
    # Until then by what jobs declare, and from then on as soon as the one is over that should be.
    before = [said[now] for now in said if 70 < now < 500]
    after = [said[now] for now in said if 500 <= now < 1_000]
    assert before
    assert all("places are kept for it, from 2024-01-01T00:08:20+00:00 on" in detail for detail, _, _ in before[:1])
    assert after
    for detail, time, _ in after:
        assert "places are kept for it that PodGroup default/runs has, which runs for longer than it said" in detail
        assert "ends-in-time" not in detail
        assert time is None
    assert refused
    assert all("places are kept for PodGroup default/gang" in each.told for each in refused)
    assert all(each.actionable is Actionable.Wait for each in refused)
    # As time goes by nothing of that is news, which would call for another session.
    assert all(same for *_, same in (*before, *after))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("why", ["too large", "nowhere"])
def test_a_gang_that_never_fits_keeps_none_of_the_others_from_a_reservation(why: str) -> None:
    """Neither one that is larger than the cluster, nor one whose pods no node may take together."""
    arrival, last = 150.0, 600.0
    more = Gang.of(*(Task.requesting(count, {"cpu": cpu}) for count, cpu in ((4, 4), (1, 1))))
    hopeless = Job(arrival - 10, LENGTH, pods(17) if why == "too large" else more, LENGTH, name="hopeless")
    jobs = [*small_jobs(last), hopeless, Job(arrival, LENGTH, pods(8), LENGTH, name="gang")]
    done = run(jobs, with_reservation())
    assert of(done, "gang", "started") <= arrival + AFTER + LENGTH + 10
    assert math.isnan(of(done, "hopeless", "started"))
