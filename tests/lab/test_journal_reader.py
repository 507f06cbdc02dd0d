"""Journals of the service as workloads."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from stromboli.discovery import discover
from stromboli.engine import Engine
from stromboli.lab.readers.journal import is_journal, read_journal
from stromboli.lab.workload import WorkloadError
from stromboli.policy.document import DEFAULT_POLICY
from tests.builders import node, queue
from tests.cli.conftest import stromboli
from tests.journal.test_counterfactual import Lived, gang


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A gang of queue a that runs for 19 seconds, one of b that waits for it, and one that is withdrawn unserved."""
    lived = Lived(Engine(DEFAULT_POLICY))
    lived.follow([node("n", cpu="4"), queue("a"), queue("b"), *gang("first", 4, "a")])
    lived.passes(5, *gang("second", 2, "b"), *gang("never", 8, "b"))
    lived.passes(10)
    lived.ends(*(f"never-{number}" for number in range(8)))
    lived.passes(5)
    lived.ends(*(f"first-{number}" for number in range(4)))
    lived.passes(10)
    return lived.file(tmp_path / "monday.journal")


def test_what_came_and_how_long_it_ran_becomes_jobs(journal: Path) -> None:
    jobs = read_journal(journal, discover())
    assert list(jobs.names) == ["first", "second"]
    assert jobs.arrival.tolist() == [0, 5]
    # The second one outlasts the recording, and says nothing of its run time.
    assert 18 <= jobs.run_time[0] <= 20
    assert 1 <= jobs.run_time[1] <= 30
    assert np.isnan(jobs.declared).all()
    assert [jobs.queues[each] for each in jobs.queue.tolist()] == ["a", "b"]
    assert [(gang.size, gang.min_member) for gang in (jobs.gangs[each] for each in jobs.gang.tolist())] == [
        (4, 2),
        (2, 2),
    ]
    assert not jobs.problems


def test_a_journal_is_simulated(journal: Path) -> None:
    done = stromboli("lab", "simulate", journal, "--nodes", "1*cpu=4,memory=16Gi", "--period", "1", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["total"]["ended"] == 2


def test_of_a_journal_that_is_cut_off_what_is_whole_counts_and_a_damaged_one_is_named(journal: Path) -> None:
    whole = journal.read_bytes()
    journal.write_bytes(whole + whole[:-3])
    jobs = read_journal(journal, discover())
    assert len(jobs) == 2
    assert list(jobs.problems) == [f"{journal}: is cut off: what is whole counts"]
    journal.write_bytes(whole[:40] + bytes(40) + whole[80:])
    with pytest.raises(WorkloadError, match=r"monday\.journal"):
        read_journal(journal, discover())
    told = stromboli("lab", "simulate", journal, "--nodes", "1*cpu=4,memory=16Gi")
    assert told.exit_code == 2
    assert str(journal) in told.output


def test_a_journal_that_two_services_wrote_is_told(journal: Path, tmp_path: Path) -> None:
    made = []
    for name in ("one", "other"):
        lived = Lived(Engine(DEFAULT_POLICY))
        lived.follow([node("n", cpu="4"), queue("a"), *gang(name, 4, "a")])
        lived.passes(100)
        lived.passes(5, *gang(f"{name}-too", 1, "a"))
        made.append(lived.file(tmp_path / f"{name}.journal").read_bytes())
    journal.write_bytes(b"".join(made))
    jobs = read_journal(journal, discover())
    assert sorted(jobs.names) == ["one", "other"]
    assert (jobs.run_time >= 0).all()
    assert [" goes back in time by " in problem for problem in jobs.problems] == [True]


def test_journals_are_known_by_what_they_hold(journal: Path, tmp_path: Path) -> None:
    assert is_journal(journal)
    assert is_journal(journal.rename(tmp_path / "renamed.bin"))
    assert not is_journal(tmp_path / "nowhere")
    (tmp_path / "log.swf").write_text("; MaxProcs: 4\n")
    assert not is_journal(tmp_path / "log.swf")
