"""Sweeps: plans, trials that are known, other machines, reports and recommendations."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stromboli.api.errors import StromboliError
from stromboli.lab.comparison import Interval, compare
from stromboli.lab.plan import PlanError, SeedsError, read_plan, seeds
from stromboli.lab.policies import find_policy
from stromboli.lab.sweep import Store, on_cores, on_dask
from stromboli.lab.trials import Outcome, TrialError, run_trial
from tests.cli.conftest import stromboli
from tests.lab.traces import write_trace

ROOT = Path(__file__).parents[2]
PLAN = "{trace: trace, policies: [fgd, bestfit, random], seeds: 1..2}"


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """A plan of six trials."""
    (tmp_path / "trace").mkdir()
    write_trace(tmp_path / "trace")
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN)
    return path


def outcome(policy: str, seed: int, workload: str = "w", **figures: float) -> Outcome:
    return Outcome(f"{workload}-{policy}-{seed}", workload, policy, seed, figures)


def test_a_plan_is_a_grid_a_sample_of_it_or_a_list(plan: Path) -> None:
    assert [(trial.policy.name, trial.seed) for trial in read_plan(plan)] == [
        (policy, seed) for policy in ("fgd", "bestfit", "random") for seed in (1, 2)
    ]
    plan.write_text(PLAN.replace("{trace", "{sample: {trials: 3, seed: 5}, trace"))
    drawn = [(trial.policy.name, trial.seed) for trial in read_plan(plan)]
    assert len(set(drawn)) == 3
    assert drawn == [(trial.policy.name, trial.seed) for trial in read_plan(plan)]
    plan.write_text("{trace: trace, trials: [{workload: small, policy: fgd, seed: 9}]}")
    assert [(trial.workload, trial.policy.name, trial.seed) for trial in read_plan(plan)] == [("small", "fgd", 9)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "should be one mapping"),
        ("{trace: trace}", "it should name policies"),
        ("{trace: trace, policies: [fgd], seed: 1}", "seed"),
        ("{trace: trace, policies: [fdg]}", "neither a file nor one of"),
        ("{trace: trace, policies: [fgd], workloads: [smal]}", "no list 'smal' in the trace"),
        ("{trace: nowhere, policies: [fgd]}", "has no openb_pod_list"),
        ("{trace: [", "plan.yaml: line"),
    ],
)
def test_what_is_wrong_with_a_plan_is_said(plan: Path, text: str, said: str) -> None:
    plan.write_text(text)
    with pytest.raises(StromboliError, match=re.escape(said)):
        read_plan(plan)


def test_a_trial_that_a_plan_has_twice_counts_once(plan: Path) -> None:
    listed = ", ".join(f"{{workload: small, policy: fgd, seed: {seed}}}" for seed in (1, 2, 1))
    for what in ("policies: [fgd, fgd], seeds: 1..2", f"trials: [{listed}]"):
        plan.write_text(f"{{trace: trace, {what}}}")
        assert [trial.seed for trial in read_plan(plan)] == [1, 2]


def test_policies_that_differ_have_names_of_their_own(plan: Path) -> None:
    for folder, score in (("one", "fgd"), ("other", "bestfit"), ("same", "fgd")):
        (plan.parent / folder).mkdir()
        (plan.parent / folder / "mine.yaml").write_text(find_policy(score).text)
    plan.write_text("{trace: trace, policies: [one/mine.yaml, other/mine.yaml], seeds: 1}")
    with pytest.raises(TrialError, match="policies that differ have the name 'mine'"):
        read_plan(plan)
    plan.write_text("{trace: trace, policies: [one/mine.yaml, same/mine.yaml], seeds: 1}")
    assert len(read_plan(plan)) == 1


def test_ranges_of_seeds() -> None:
    assert seeds("3..5") == [3, 4, 5]
    for wrong in ("", "5..3", "a", "1..", "0..10000", "-1"):
        with pytest.raises(SeedsError):
            seeds(wrong)
    assert issubclass(PlanError, StromboliError)


def test_a_trial_is_known_by_all_that_goes_into_it(plan: Path) -> None:
    keys = {trial.key() for trial in read_plan(plan)}
    assert len(keys) == 6
    renamed = plan.with_name("other.yaml")
    (plan.parent / "mine.yaml").write_text(read_plan(plan)[0].policy.text)
    renamed.write_text("{trace: trace, policies: [mine.yaml], seeds: 1..2}")
    assert {trial.key() for trial in read_plan(renamed)} < keys
    renamed.write_text("{trace: trace, policies: [mine.yaml], seeds: 1..2, ratio: 1.2}")
    assert not {trial.key() for trial in read_plan(renamed)} & keys


@pytest.mark.exhaustive
def test_known_trials_are_not_tried_again(plan: Path) -> None:
    assert stromboli("lab", "sweep", plan, "--jobs", 1).exit_code == 0
    store = plan.with_suffix(".jsonl")
    lines = store.read_bytes().splitlines(keepends=True)
    assert len(lines) == 6
    # A sweep that was killed while it wrote.
    store.write_bytes(b"".join(lines[:4]) + lines[4][:20])
    assert len(Store(store).missing(read_plan(plan))) == 2
    assert stromboli("lab", "sweep", plan, "--jobs", 1).exit_code == 0
    again = store.read_bytes().splitlines(keepends=True)
    assert again[:4] == lines[:4]
    assert [without_time(line) for line in again[4:]] == [without_time(line) for line in lines[4:]]
    store.write_text("{}\n")
    assert "line 1" in stromboli("lab", "sweep", plan).stderr


def test_a_report_that_cannot_be_written_is_refused_before_anything_is_tried(plan: Path) -> None:
    told = stromboli("lab", "sweep", plan, "--report", plan.parent / "nowhere" / "report.html")
    assert told.exit_code == 2
    assert "No such file or directory" in told.stderr
    assert not plan.with_suffix(".jsonl").exists()


def test_a_file_of_outcomes_grows_by_one_sweep_at_a_time(plan: Path) -> None:
    store = plan.with_suffix(".jsonl")
    first = Store(store, grows=True)
    told = stromboli("lab", "sweep", plan, "--jobs", 1)
    assert told.exit_code == 2
    assert "another sweep adds to it" in told.stderr
    store.write_bytes(b'{"key')
    assert Store(store).outcomes == []
    assert store.read_bytes() == b'{"key', "what is being written is left alone by those who only read"
    del first
    assert Store(store, grows=True).outcomes == []
    assert store.read_bytes() == b""


def without_time(line: bytes) -> bytes:
    return re.sub(rb'"cpu_seconds":[0-9.]+', b"", line)


def runs(pid: str) -> bool:
    """Whether a process is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.exhaustive
def test_a_sweep_that_is_killed_goes_on(plan: Path) -> None:
    plan.write_text(PLAN.replace("1..2", "1..8"))
    store = plan.with_suffix(".jsonl")
    command = [sys.executable, "-m", "stromboli", "lab", "sweep", str(plan), "--jobs", "2"]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ))
    while running.poll() is None and not (store.exists() and store.read_bytes().count(b"\n") >= 2):
        time.sleep(0.02)
    workers = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    assert len(workers) >= 2
    running.send_signal(signal.SIGKILL)
    running.wait()
    deadline = time.monotonic() + 30
    while alive := [pid for pid in workers if runs(pid)]:
        assert time.monotonic() < deadline, f"left behind: {alive}"
        time.sleep(0.02)
    before = len(Store(store).outcomes)
    assert 2 <= before < 24
    trials = read_plan(plan)
    assert len(Store(store).missing(trials)) == 24 - before
    assert stromboli("lab", "sweep", plan, "--jobs", 1).exit_code == 0
    assert Store(store).missing(trials) == []


@pytest.mark.exhaustive
def test_several_processes_find_the_same(plan: Path) -> None:
    trials = read_plan(plan)
    alone = {found.key: found.series for found in on_cores(trials, 1)}
    assert {found.key: found.series for found in on_cores(trials, 2)} == alone


@pytest.mark.exhaustive
def test_a_dask_scheduler_finds_the_same(plan: Path) -> None:
    distributed = pytest.importorskip("distributed")
    trials = read_plan(plan)
    alone = {found.key: found.series for found in on_cores(trials, 1)}
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        protocol="tcp",
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
    ) as cluster:
        assert {found.key: found.series for found in on_dask(trials, cluster.scheduler_address)} == alone
        report = plan.with_suffix(".html")
        told = stromboli("lab", "sweep", plan, "--scheduler", cluster.scheduler_address, "--report", report)
        assert told.exit_code == 0, told.stderr
        assert "fgd" in report.read_text()


@pytest.mark.exhaustive
def test_what_is_wrong_with_a_policy_is_said_from_other_processes(plan: Path) -> None:
    (plan.parent / "mine.yaml").write_text("actions: allocate\ntiers: [{plugins: [{name: gang}]}]")
    plan.write_text("{trace: trace, policies: [mine.yaml], seeds: 1..2}")
    told = stromboli("lab", "sweep", plan, "--jobs", 2)
    assert told.exit_code == 2
    assert re.search("small, mine, seed [12]: the policy counts no cards", told.stderr)


@pytest.mark.exhaustive
def test_a_trial_that_fails_keeps_no_other_from_being_tried(plan: Path) -> None:
    (plan.parent / "mine.yaml").write_text("actions: allocate\ntiers: [{plugins: [{name: gang}]}]")
    plan.write_text("{trace: trace, policies: [mine.yaml, fgd], seeds: 1..2}")
    report = plan.with_suffix(".html")
    told = stromboli("lab", "sweep", plan, "--jobs", 1, "--report", report)
    assert told.exit_code == 2
    (said,) = filter(None, told.stderr.splitlines())
    assert said.startswith("small, mine, seed 1: the policy counts no cards")
    assert said.endswith(" (the same in 1 more trial)")
    assert "fgd" in told.stdout
    assert "fgd" in report.read_text()
    # What is recommended does not pass over it in silence.
    told = stromboli("lab", "recommend", plan)
    assert told.exit_code == 0
    assert told.stderr == "small, mine: 2 of 2 trials are not done\n"
    assert told.stdout.startswith("small: fgd\n")


def test_policies_are_on_the_front_unless_another_outdoes_them() -> None:
    comparison = compare(
        [
            outcome("packs", 1, utilization=0.9, waiting_mean=50.0),
            outcome("hurries", 1, utilization=0.7, waiting_mean=10.0),
            outcome("neither", 1, utilization=0.7, waiting_mean=20.0),
        ]
    )[0]
    assert [line.policy for line in comparison.front] == ["packs", "hurries"]
    assert comparison.lines[2].outdone_by == ["hurries"]


def test_a_policy_under_which_no_job_starts_is_outdone_and_hides_no_other() -> None:
    comparison = compare(
        [
            outcome("works", 1, utilization=0.5, waiting_mean=50.0),
            outcome("as well", 1, utilization=0.5, waiting_mean=50.0),
            outcome("idles", 1, utilization=0.0),
        ]
    )[0]
    assert [each.figure for each in comparison.objectives] == ["utilization", "waiting_mean"]
    assert [line.outdone_by for line in comparison.lines] == [[], [], ["works", "as well"]]


def test_intervals_are_those_of_student() -> None:
    found = Interval.of([1.0, 2.0, 3.0, 4.0])
    assert (found.mean, round(found.half, 3)) == (2.5, 2.054)
    assert [str(Interval.of([each])) for each in (2.0, 2.5, 10866.0)] == ["2", "2.50", "10,866"]
    assert str(Interval.of([10860.0, 10870.0])) == "10,865 ± 64"


@pytest.mark.exhaustive
def test_the_report_needs_no_network(plan: Path) -> None:
    report = plan.with_suffix(".html")
    assert stromboli("lab", "sweep", plan, "--jobs", 1, "--report", report).exit_code == 0
    text = report.read_text()
    assert not re.search(r"(src|href|url)\s*[=(]", text)
    assert "<script" not in text
    assert text.count("<svg") >= 3
    assert all(name in text for name in ("small", "fgd", "bestfit", "random", "6 trials"))


@pytest.mark.exhaustive
def test_recommended_policies_are_ready_to_be_checked(plan: Path) -> None:
    assert "no trial is done" in stromboli("lab", "recommend", plan).stderr
    stromboli("lab", "sweep", plan, "--jobs", 1)
    folder = plan.parent / "chosen"
    told = stromboli("lab", "recommend", plan, "--write", folder)
    assert told.exit_code == 0
    assert "part of a card: placed" in told.stdout
    written = sorted(folder.iterdir())
    assert written
    for path in written:
        assert f"{path}: good: actions" in told.stdout
        assert stromboli("config", "check", path).exit_code == 0


@pytest.mark.exhaustive
def test_the_tries_to_beat_fgd_are_a_plan_that_can_be_run_again(tmp_path: Path) -> None:
    tries = tmp_path / "lab"
    shutil.copytree(ROOT / "deploy" / "lab", tries)
    (tries / "traces").mkdir()
    write_trace(tries / "traces")
    written = (tries / "beat-fgd.yaml").read_text()
    (tries / "beat-fgd.yaml").write_text(written.replace("[default]", "[small]").replace("42..51", "42"))
    trials = read_plan(tries / "beat-fgd.yaml")
    assert len(trials) == len({trial.policy.text for trial in trials}) == 6
    assert all(0 < run_trial(trial).figures["allocation"] <= 100 for trial in trials)
