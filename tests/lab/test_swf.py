"""Logs in the Standard Workload Format."""

from __future__ import annotations

from io import StringIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.lab.generator import Model, generate
from stromboli.lab.readers.swf import read_swf, write_swf
from tests.fuzz import tried

LOG = """\
; Version: 2.2
; MaxProcs: 128
;   Note: a log
1 100 5 3600 48 -1 -1 64 7200 1048576 1 3 1 -1 2 -1 -1 -1

2 90 5 60 4 -1 2048 -1 -1 -1 1 4 1 -1 1 -1 -1 -1
3 110 -1 0 4 -1 -1 4 100 -1 0 4 1 -1 1 -1 -1 -1
4 120 -1 -1 -1 -1 -1 -1 100 -1 5 4 1 -1 1 -1 -1 -1
"""


def test_fields_become_queues_gangs_and_amounts() -> None:
    trace = read_swf(LOG.splitlines(), "log.swf")
    jobs = trace.workload
    assert trace.header == {"Version": "2.2", "MaxProcs": "128", "Note": "a log"}
    assert [jobs.name(job) for job in range(len(jobs))] == ["job-2", "job-1"]
    assert jobs.arrival.tolist() == [0, 10]
    assert jobs.run_time.tolist() == [60, 3600]
    assert np.isnan(jobs.declared[0])
    assert jobs.declared[1] == 7200
    assert [jobs.queues[queue] for queue in jobs.queue] == ["queue-1", "queue-2"]
    assert [jobs.users[user] for user in jobs.user] == ["user-4", "user-3"]
    # What was asked for counts before what was given, and memory is for each processor.
    assert jobs.requests("cpu").tolist() == [4_000, 64_000]
    assert jobs.requests("memory").tolist() == [4 * 2048 * 1024, 64 * 1048576 * 1024]
    # Pods are equal, as few as there can be of 32 processors.
    assert [jobs.gangs[gang].size for gang in jobs.gang] == [1, 2]
    assert trace.left_out == 2


@pytest.mark.parametrize(("by", "queues"), [("user", ["user-4", "user-3"]), ("group", ["group-1", "group-1"])])
def test_queues_are_those_of_users_or_groups(by: str, queues: list[str]) -> None:
    jobs = read_swf(LOG.splitlines(), "log.swf", queue_by=by).workload  # type: ignore[arg-type]
    assert [jobs.queues[queue] for queue in jobs.queue] == queues


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("1 2 3", "log.swf: line 2: should have 18 fields, not 3"),
        ("1 x " + "1 " * 16, "log.swf: line 2: should have numbers only: could not convert string to float: 'x'"),
        ("1 nan " + "1 " * 16, "log.swf: line 2: has a number that is no figure of a job"),
        ("1 -7 " + "1 " * 16, "log.swf: line 2: submit time: should not be negative: -7"),
    ],
)
def test_a_wrong_line_is_named_and_the_others_are_read(line: str, problem: str) -> None:
    good = "1 0 5 60 4 -1 -1 4 60 -1 1 4 1 -1 1 -1 -1 -1"
    jobs = read_swf([good, line, good], "log.swf").workload
    assert list(jobs.problems) == [problem]
    assert len(jobs) == 2


def test_of_many_wrong_lines_the_rest_are_counted() -> None:
    problems = read_swf(["no job"] * 1_000, "log.swf").workload.problems
    assert len(problems) == 101
    assert problems[-1] == "log.swf: 900 more lines cannot be read"


@tried(25)
@given(
    st.lists(
        st.text(max_size=60)
        | st.lists(st.floats() | st.integers(), min_size=18, max_size=18).map(
            lambda figures: " ".join(map(str, figures))
        )
    )
)
def test_whatever_is_in_a_file_is_read_or_named(lines: list[str]) -> None:
    jobs = read_swf(lines, "log.swf").workload
    assert all(problem.startswith("log.swf: line ") for problem in jobs.problems[:100])
    assert (jobs.run_time > 0).all()
    assert (jobs.arrival >= 0).all()


def test_what_is_written_is_read_again() -> None:
    made, out = generate(Model(jobs=500), 3), StringIO()
    write_swf(made, out)
    read = read_swf(out.getvalue().splitlines(), "made.swf").workload
    assert not read.problems
    for column in ("arrival", "run_time", "declared"):
        assert np.array_equal(getattr(read, column), getattr(made, column))
    assert np.array_equal(read.requests("cpu"), made.requests("cpu"))
