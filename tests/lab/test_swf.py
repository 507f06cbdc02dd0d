"""Logs in the Standard Workload Format."""

from __future__ import annotations

from io import StringIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.engine import Engine
from stromboli.lab.cluster import equal_nodes
from stromboli.lab.generator import Model, generate
from stromboli.lab.readers.swf import read_swf, write_swf
from stromboli.lab.simulation import simulate
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
        ("1 nan " + "1 " * 16, "log.swf: line 2: field 2: should be a finite number below 1e12, not nan"),
        ("1 1_000 " + "1 " * 16, f"log.swf: line 2: should have numbers only: '1 1_000 {'1 ' * 15}1'"),
        ("1 1 1 1 1 1 1 900000000 " + "1 " * 10, "log.swf: line 2: should have at most 10,000,000 processors"),
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


#: as logs of the Parallel Workloads Archive begin, and what they have of unlike lines
ARCHIVED = """\
;       Version: 2.2
;      Computer: IBM SP2
;  Acknowledge: M\N{LATIN SMALL LETTER U WITH DIAERESIS}ller, who kept the log
;     StartTime: Fri Apr 28 18:57:48 PDT 2000
;         Note: the first of two
;         Note: the second
;
; Queue: 1 = low
    1    300     10   100   8  95.50 2048    8   600    -1  1   3   1   7   1   1  -1  -1
    2    200     -1    -1   0     -1   -1    8   600    -1  5   3   1   7   1   1  -1  -1
    3    250      5    40   8     -1   -1    8   600    -1  5   3   1   7   1   1  -1  -1
    4    100      0   500   4     -1   -1    4    -1    -1  1  -1  -1  -1  -1  -1  -1  -1
    4    100      0   200   4     -1   -1    4    -1    -1  2  -1  -1  -1  -1  -1  -1  -1
    4    400    100   300   4     -1   -1    4    -1    -1  3  -1  -1  -1  -1  -1  -1  -1
; a remark in between
    5    450      0    60   0     -1   -1    0    -1    -1  1   2   1   7   1   1  -1  -1
    6    460      0    60  -1     -1   -1   16    -1    -1  0   2   1   7   1   1   4  10
    6    470      0    30   1     -1   -1   -1    30    -1  1   2   1   7   1   1  -1  -1
"""


def test_logs_of_the_archive_are_read_with_all_that_they_leave_open() -> None:
    trace = read_swf(ARCHIVED.splitlines(), "archived.swf")
    jobs = trace.workload
    assert trace.header["Computer"] == "IBM SP2"
    assert trace.header["Note"] == "the first of two\nthe second"
    assert trace.header["StartTime"] == "Fri Apr 28 18:57:48 PDT 2000"
    # Not the job that was cancelled while it waited, the parts of the fourth, and the one without processors.
    names = [(jobs.name(job), jobs.arrival[job], jobs.run_time[job]) for job in range(len(jobs))]
    assert names == [
        ("job-4", 0, 500),
        ("job-3", 150, 40),
        ("job-1", 200, 100),
        ("job-6", 360, 60),
        ("job-6-2", 370, 30),
    ]
    assert jobs.requests("cpu").tolist() == [4_000, 8_000, 8_000, 16_000, 1_000]
    assert [jobs.queues[queue] for queue in jobs.queue] == ["queue-0", "queue-1", "queue-1", "queue-1", "queue-1"]
    assert trace.left_out == 4
    told = "archived.swf: 4 lines of jobs that never ran, or of parts of runs, are left out"
    assert list(jobs.problems) == [told]


def test_jobs_of_one_number_all_run() -> None:
    twice = ["1 0 5 60 4 -1 -1 4 60 -1 1 4 1 -1 1 -1 -1 -1"] * 2
    done = simulate(read_swf(twice, "log.swf").workload, equal_nodes(1, {"cpu": "4", "memory": "64Gi"}), Engine())
    assert done.jobs["ended"].tolist() == [60, 120]


@tried(25)
@given(
    st.lists(
        st.text(max_size=60)
        | st.lists(st.floats() | st.integers(), min_size=18, max_size=18).map(
            lambda figures: " ".join(map(str, figures))
        ),
        max_size=4,
    )
)
def test_whatever_is_in_a_file_is_read_or_named(lines: list[str]) -> None:
    jobs = read_swf(lines, "log.swf").workload
    assert all(problem.startswith("log.swf: ") for problem in jobs.problems)
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
