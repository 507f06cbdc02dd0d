"""How good expected starts are, and when gangs of some sizes would start."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from stromboli.engine import Engine
from stromboli.explain.answers import Start
from stromboli.explain.past_runs import PastRuns
from stromboli.explain.rehearsal import Rehearsal
from stromboli.explain.words import lines
from stromboli.framework.cluster.environment import OFFLINE
from stromboli.lab.cluster import equal_nodes
from stromboli.lab.sizes import Gangs, SizesError, requested, sized, starts_of
from stromboli.lab.starts import Quality, Told, foretold
from stromboli.lab.workload import Job, in_order
from tests.builders import NOON, node, queue, state
from tests.cli.conftest import stromboli
from tests.lab.test_forecast import FIFO, job
from tests.lab.test_timeline import pods


@pytest.mark.exhaustive
def test_where_jobs_run_for_as_long_as_they_say_starts_are_as_told() -> None:
    # Each waits for the one before it, and what is declared is known to be exact after the first three.
    jobs = [Job(number * 60, 100, pods(4), declared=100) for number in range(12)]
    asked = foretold(in_order(jobs), equal_nodes(1, {"cpu": "4"}), Engine(FIFO), period=1.0, every=1)
    assert len(asked) == 11
    late = Quality.of(asked[6:], tolerance=1.0)
    assert late.within == 1.0
    assert late.error <= 2
    assert late.waited > 250


def test_jobs_of_which_nothing_is_known_are_told_no_start() -> None:
    jobs = [Job(number, 100, pods(4)) for number in range(3)]
    asked = foretold(in_order(jobs), equal_nodes(1, {"cpu": "4"}), Engine(FIFO), period=1.0, every=1)
    found = Quality.of(asked, 1.0)
    assert (found.asked, found.told) == (2, 0)
    assert math.isnan(found.error)
    assert math.isnan(found.within)


def test_figures_are_of_those_that_were_told_a_start() -> None:
    ranged = Start(expected=100, earliest=50, latest=200)
    told = [Told(ranged, 40), Told(ranged, 100), Told(ranged, 300), Told(Start(expected=1, earliest=1), math.inf)]
    found = Quality.of([*told, Told(Start(why="x"), 5)], tolerance=10)
    assert (found.asked, found.told) == (5, 4)
    assert found.within == 0.75
    assert found.error == 200
    assert found.width == 150


@pytest.mark.exhaustive
def test_the_command_prints_the_figures(tmp_path: Path) -> None:
    log = tmp_path / "w.swf"
    log.write_text("".join(f"{n} {n} -1 100 4 -1 -1 4 100 -1 1 1 1 -1 1 -1 -1 -1\n" for n in range(1, 9)))
    policy = tmp_path / "policy.yaml"
    policy.write_text(FIFO)
    arguments = ("lab", "starts", log, "--nodes", "1*cpu=4,memory=64Gi", "--policy", policy, "--every", "1")
    told = stromboli(*map(str, arguments), "--period", "1", "--json")
    assert told.exit_code == 0, told.output
    found = json.loads(told.output)
    assert (found["asked"], found["told"]) == (7, 7)
    assert found["within"] >= 0.8
    assert "7 waiting jobs were asked about" in stromboli(*map(str, arguments)).output


# -- sizes -------------------------------------------------------------------------------------------------------------


def test_sizes_are_asked_about_each_without_the_others() -> None:
    cluster = state(queue("default"), node("a", "8"), job("runs", 4, "20m", on="a"))
    rehearsal = Rehearsal(Engine(FIFO), cluster, OFFLINE, NOON)
    found = starts_of(Gangs([2, 4, 8, 16], request={"cpu": "1"}), rehearsal, PastRuns())
    said = list(lines(found))
    assert said[0] == "Gangs of pods that ask for 1 cpu each, submitted now to queue default"
    assert said[1:3] == ["   2: Could start now", "   4: Could start now"]
    assert said[3].startswith("   8: Expected to start in 20 min (")
    assert "would not start even if all that runs were over" in said[4]
    assert not [key for key in cluster.pods.by_key if "asks" in key]


def test_a_pod_asks_for_a_card_where_there_are_some() -> None:
    cluster = state(queue("default"), node("a", "8", resources={"nvidia.com/gpu": "2"}))
    found = starts_of(Gangs([2, 4]), Rehearsal(Engine(FIFO), cluster, OFFLINE, NOON), PastRuns())
    assert found.request == {"nvidia.com/gpu": "1"}
    assert [each.start.expected for each in found.sizes] == [0, None]


@pytest.mark.parametrize("text", ["", "8,x", "0", "-1", "8,,16", "99999999", "1.5", ",".join(["1"] * 20)])
def test_sizes_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(SizesError):
        Gangs(sized(text))


@pytest.mark.parametrize("text", ["cpu", "cpu=", "=4", "cpu=four"])
def test_amounts_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(SizesError):
        Gangs([1], request=requested([text]))


def test_amounts_are_read_from_one_text_or_several() -> None:
    assert requested(["cpu=4,memory=8Gi", "nvidia.com/gpu=1"]) == {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "1"}


@pytest.mark.parametrize("shown", ["Closed", "Closing"])
def test_a_queue_that_takes_nothing_new_is_named(shown: str) -> None:
    cluster = state(queue("shut", state=shown), node("a", "8"))
    with pytest.raises(SizesError, match=f"queue shut takes no new work: its state is {shown}"):
        starts_of(Gangs([1], "shut"), Rehearsal(Engine(FIFO), cluster, OFFLINE, NOON), PastRuns())


def test_a_queue_that_is_not_there_is_named() -> None:
    cluster = state(queue("research"), node("a", "8"))
    with pytest.raises(SizesError, match="there is no queue reserch, did you mean 'research'"):
        starts_of(Gangs([1], "reserch"), Rehearsal(Engine(FIFO), cluster, OFFLINE, NOON), PastRuns())
