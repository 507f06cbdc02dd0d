"""Sweeps of workloads that run over time: logs, manifests and what is generated."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stromboli.api.errors import StromboliError
from stromboli.lab.comparison import compare
from stromboli.lab.plan import read_plan
from stromboli.lab.sweep import Store, on_cores
from tests.cli.conftest import stromboli

LOG = """\
1 0 -1 100 4 -1 -1 4 200 -1 1 1 1 -1 1 -1 -1 -1
no job
2 10 -1 50 4 -1 -1 4 60 -1 1 2 1 -1 1 -1 -1 -1
"""
JOBS = """
kind: Pod
apiVersion: v1
metadata: {name: lone}
spec: {schedulerName: stromboli, containers: [{name: c, image: i, resources: {requests: {cpu: "1"}}}]}
"""
PACKING = """
actions: allocate
tiers: [{plugins: [{name: gang}, {name: predicates}]}]
"""
SHARING = PACKING.replace("predicates}", "predicates}, {name: proportion}")
PLAN = """
nodes: "1*cpu=4,memory=64Gi"
period: 1
runTime: 1h
workloads: [log.swf, jobs.yaml, {name: made, jobs: 12, processors: 4, users: 3}]
policies: [packing.yaml, sharing.yaml]
seeds: 1..2
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """A log and a manifest, each tried once, and a generated workload with two seeds; under two policies."""
    files = {"log.swf": LOG, "jobs.yaml": JOBS, "packing.yaml": PACKING, "sharing.yaml": SHARING, "plan.yaml": PLAN}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return tmp_path / "plan.yaml"


def test_files_run_once_and_what_is_generated_with_each_seed(plan: Path) -> None:
    trials = read_plan(plan)
    assert [(trial.workload, trial.policy.name, trial.seed) for trial in trials[:3]] == [
        ("log.swf", "packing", 1),
        ("log.swf", "sharing", 1),
        ("jobs.yaml", "packing", 1),
    ]
    assert [trial.seed for trial in trials if trial.workload == "made"] == [1, 2, 1, 2]
    assert len({trial.key() for trial in trials}) == 8


@pytest.mark.exhaustive
def test_outcomes_are_those_of_the_simulation(plan: Path) -> None:
    by_key = {(found.workload, found.policy, found.seed): found for found in on_cores(read_plan(plan), 1)}
    log = by_key["log.swf", "packing", 1]
    # The second job waits for the first, of 100 s.
    assert (log.figures["waiting_mean"], log.figures["waiting_max"]) == (45, 90)
    assert log.queues["user-2"]["waiting_mean"] == 90
    assert log.figures["wide_jobs"] == 2
    assert by_key["jobs.yaml", "packing", 1].figures["makespan"] == 3600
    made = [by_key["made", "packing", seed] for seed in (1, 2)]
    assert all(each.figures["ended"] == 12 for each in made)
    assert made[0].figures != made[1].figures


def test_the_report_shows_who_waits_under_which(plan: Path) -> None:
    report = plan.with_suffix(".html")
    told = stromboli("lab", "sweep", plan, "--jobs", 1, "--report", report)
    assert told.exit_code == 0, told.output
    assert "log.swf: line 2: should have 18 fields, not 2" in told.stderr
    text = report.read_text()
    assert text.count("Waiting by queue") == 3
    assert all(re.search(rf"<title>{policy}, user-2: 90", text) for policy in ("packing", "sharing"))
    assert "MEAN WAITING, S" in told.stdout
    recommended = stromboli("lab", "recommend", plan)
    assert "user-2: waiting 90, the best" in recommended.stdout
    assert Store(plan.with_suffix(".jsonl")).missing(read_plan(plan)) == []
    assert [each.objectives[0].figure for each in compare(Store(plan.with_suffix(".jsonl")).outcomes)] == [
        "utilization"
    ] * 3


def test_a_trial_over_time_is_known_by_all_that_goes_into_it(plan: Path) -> None:
    def keys() -> set[str]:
        return {trial.key() for trial in read_plan(plan)}

    first = keys()
    plan.write_text(PLAN.replace("period: 1", "period: 2"))
    assert not first & keys()
    plan.write_text(PLAN.replace("1*cpu", "2*cpu"))
    assert not first & keys()
    plan.write_text(PLAN.replace("users: 3", "users: 2"))
    assert len(first & keys()) == 4
    plan.write_text(PLAN.replace("period: 1", "queues: queues.yaml\nperiod: 1"))
    (plan.parent / "queues.yaml").write_text("{apiVersion: v1, kind: List, items: []}")
    with_queues = keys()
    assert not first & with_queues
    plan.write_text(plan.read_text().replace("1*cpu", "2*cpu"))
    assert not with_queues & keys()


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('nodes: "1*cpu=4,memory=64Gi"', "", "either a trace or nodes"),
        ("log.swf", "lag.swf", "lag.swf: does not exist"),
        (
            "workloads: [log.swf",
            "trials: [{workload: mode, policy: packing.yaml, seed: 1}]\nworkloads: [log.swf",
            "made",
        ),
        ("jobs: 12", "jobs: 0", "jobs"),
        ("jobs: 12", "job: 12", ": workloads[2].job: unknown key, did you mean 'jobs'?"),
        ("log.swf,", "log.swf, {name: made, jobs: 9, processors: 4},", "workloads: several are named 'made'"),
        ("runTime: 1h", "runTime: never", "runTime"),
        ("runTime: 1h", "queues: nowhere.yaml", "nowhere.yaml: does not exist"),
    ],
)
def test_what_is_wrong_with_a_plan_over_time_is_said(plan: Path, before: str, after: str, said: str) -> None:
    plan.write_text(PLAN.replace(before, after))
    with pytest.raises(StromboliError, match=re.escape(said)):
        read_plan(plan)
