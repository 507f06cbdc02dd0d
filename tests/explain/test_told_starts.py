"""How good the starts were that jobs were told."""

from __future__ import annotations

import math

import pytest

from stromboli.explain.answers import Start
from stromboli.explain.past_runs import PastRuns
from stromboli.explain.told_starts import MEASURED, ToldStarts
from stromboli.explain.words import expected
from tests.builders import NOON

HALF_AN_HOUR = Start(expected=1_800, earliest=900, latest=3_600)


def told(after: list[float], start: Start = HALF_AN_HOUR) -> ToldStarts:
    """Of jobs that started so many seconds after they were told."""
    starts = ToldStarts()
    for number, seconds in enumerate(after):
        starts.tell(f"default/{number}", "uid", start, NOON)
        starts.started(f"default/{number}", "uid", NOON + seconds)
    return starts


def test_the_share_of_starts_within_their_range_counts_once_there_are_enough() -> None:
    assert told([1_000] * 19).share is None
    assert told([1_000] * 15 + [100, 300, 4_000, 5_000, 9_000]).share == (0.75, 20)
    # Only the newest count.
    assert told([100] * 50 + [1_000] * 200).share == (1.0, 200)


def test_a_range_without_an_end_is_wrong_only_for_jobs_that_start_before() -> None:
    assert told([100] * 10 + [1e6] * 10, Start(expected=1_800, earliest=900)).share == (0.5, 20)


def spread(after: list[float], *, first: float = 1_000, last: float | None = 2_000) -> ToldStarts:
    """Of jobs with simulated starts between two times that started so many seconds after they were told."""
    return told(after, Start(expected=1_500, earliest=500, latest=3_200, first=first, last=last))


def test_ranges_become_as_wide_as_eight_of_ten_starts_needed() -> None:
    # Two of twenty started much sooner, and two much later.
    learned = spread([200, 400, *range(600, 2_200, 100), 5_000, 9_000]).widening
    assert learned == pytest.approx((0.4, 2.5))
    # Those that always start as was simulated are told no more than that.
    assert spread([1_500] * 30).widening == (1, 1)


def test_ranges_are_as_was_measured_while_too_few_have_started() -> None:
    assert spread([1_000] * 19).widening == MEASURED
    assert told([1_000] * 30).widening == MEASURED
    assert spread([1_000] * 30, last=None).widening == MEASURED


def test_a_job_that_is_deleted_when_it_was_late_widens_the_range() -> None:
    starts = spread([1_500] * 17)
    for number in range(3):
        starts.tell(f"gone/{number}", "uid", Start(expected=1, earliest=1, latest=3_200, first=1_000, last=2_000), NOON)
        starts.gone(f"gone/{number}", NOON + 8_000)
    assert starts.widening == (1, 4)


def test_the_first_answer_about_a_job_counts() -> None:
    starts = told([])
    for number in range(20):
        job = f"default/{number}"
        starts.tell(job, "uid", HALF_AN_HOUR, NOON)
        starts.tell(job, "uid", HALF_AN_HOUR, NOON + 3_000)
        # Another job of the name is told anew, and what starts of which nothing was told does not count.
        starts.tell(f"other/{number}", "old", HALF_AN_HOUR, NOON)
        starts.tell(f"other/{number}", "new", HALF_AN_HOUR, NOON + 3_000)
        starts.started(job, "uid", NOON + 1_000)
        starts.started(f"other/{number}", "old", NOON + 9_000)
        starts.started(f"none/{number}", "uid", NOON)
    assert starts.share == (1.0, 20)


def test_a_job_that_is_deleted_counts_only_if_it_was_late() -> None:
    starts = told([1_000] * 20)
    for number, seconds in enumerate((1_000, 9_000)):
        starts.tell(f"gone/{number}", "uid", HALF_AN_HOUR, NOON)
        starts.gone(f"gone/{number}", NOON + seconds)
    assert starts.share == (20 / 21, 21)


def test_jobs_that_are_told_no_start_do_not_count() -> None:
    starts = ToldStarts()
    starts.tell("default/a", "uid", Start(why="nothing says it"), NOON)
    starts.tell("default/b", "uid", Start(earliest=100), NOON)
    assert "default/a" not in starts
    assert "default/b" not in starts


def test_no_more_is_kept_than_there_is_room_for() -> None:
    starts = ToldStarts()
    for number in range(1_500):
        starts.tell(f"default/{number}", "uid", HALF_AN_HOUR, NOON)
    assert "default/499" not in starts
    assert "default/500" in starts


def test_the_next_leader_goes_on_with_what_was_told() -> None:
    before, after = PastRuns(), PastRuns()
    before.starts.tell("default/waits", "uid", Start(expected=60, earliest=30), NOON)
    for number in range(25):
        before.starts.tell(f"default/{number}", "uid", HALF_AN_HOUR, NOON)
        before.starts.started(f"default/{number}", "uid", NOON + 1_000)
    assert before.added
    after.restore(before.as_data())
    assert after.starts.share == (1.0, 25)
    after.starts.started("default/waits", "uid", NOON + 1e6)
    assert after.starts.share == (1.0, 26)
    # As releases before this one wrote it.
    after.restore({"kinds": []})
    assert after.starts.share == (1.0, 26)
    after.restore({"kinds": [], "starts": {"open": [["default/old", "uid", NOON, NOON]], "kept": [0] * 200}})
    assert after.starts.share == (26 / 200, 200)


def test_the_next_leader_goes_on_with_ranges_as_wide() -> None:
    before, after = PastRuns(), PastRuns()
    for number in range(25):
        start = Start(expected=1_500, earliest=500, latest=3_200, first=1_000, last=2_000)
        before.starts.tell(f"default/{number}", "uid", start, NOON)
        if number < 19:
            before.starts.started(f"default/{number}", "uid", NOON + 3_000)
    after.restore(before.as_data())
    assert after.starts.widening == MEASURED
    after.starts.started("default/19", "uid", NOON + 3_000)
    assert after.starts.widening == (1, 1.5)


@pytest.mark.parametrize("row", [["a", "uid", math.nan, 1.0], ["a", "uid"], ["a", "uid", None, 1.0]])
def test_what_is_no_range_is_not_restored(row: list[object]) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        PastRuns().restore({"kinds": [], "starts": {"open": [row], "kept": []}})


def test_the_answer_says_how_good_it_was_here() -> None:
    said = expected(Start(expected=720, earliest=480, latest=1860, within=0.85, within_of=40))
    assert said == (
        "Expected to start in 12 min (8 to 31 min); of the last 40 jobs with a predicted start, 85% started within "
        "their range"
    )
