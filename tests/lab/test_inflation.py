"""Traces of pods that share cards, and how much of the cards policies allocate."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from stromboli.lab.inflation import Inflated, InflationError, inflate
from stromboli.lab.policies import find_policy
from stromboli.lab.published import AT, allocations, read_published
from stromboli.lab.readers.openb import TracePod, read_nodes, read_pods
from stromboli.lab.trials import Trial, find_lists, run_trial
from tests.cli.conftest import stromboli
from tests.conftest import ROOT
from tests.lab.traces import NODES, PODS, write_trace


@pytest.fixture(scope="session")
def traces() -> Path:
    """The openb traces; tests of published figures are skipped without."""
    path = Path(os.environ.get("STROMBOLI_TRACES") or ROOT.parent / "shared" / "traces")
    if not path.is_dir():
        pytest.skip(f"no traces in {path}; STROMBOLI_TRACES names another place")
    return path


def test_lines_that_are_no_pods_are_named() -> None:
    pods, problems = read_pods(
        [
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n",
            "a,1000,1024,1,500,V100M16|V100M32\n",
            "b,1000,x,1,500,\n",
            "c,1000,1024,2,500,\n",
            "d,1000,1024,0,500,\n",
            "e,1000\n",
            "f,1000,1024,1,1001,\n",
            'g,1000,1024,1,500,"T4,P100"\n',
            "h,4000,2048,0,0,\n",
        ],
        "list",
    )
    assert pods == [TracePod("a", 1000, 1024, 1, 500, "V100M16,V100M32"), TracePod("h", 4000, 2048, 0, 0, "")]
    assert problems == [
        "list: line 3: memory_mib: should be a number from 0 to 1000000000000, not 'x'",
        "list: line 4: gpu_milli: should be 1000 for 2 cards, not 500",
        "list: line 5: gpu_milli: 500 of each of 0 cards",
        "list: line 6: num_gpu: should be a number from 0 to 1024, not ''",
        "list: line 7: gpu_milli: should be a number from 0 to 1000, not '1001'",
        "list: line 8: gpu_spec: 'T4,P100' has a character that separates",
    ]
    assert read_nodes(["sn,cpu_milli\n"], "nodes") == ([], ["nodes: line 1: should have the column memory_mib"])
    assert len(read_pods(["name,cpu_milli,memory_mib,num_gpu,gpu_milli\n", *["a,b\n"] * 200], "list")[1]) == 101


@pytest.mark.parametrize("policy", ["fgd", "random", "packing"])
@pytest.mark.one_in(3)
def test_pods_arrive_until_more_is_asked_for_than_there_is(policy: str) -> None:
    found = inflate(NODES, PODS, find_policy(policy).text, seed=3)
    assert found.capacity == 8_000
    assert found.asked.sum() <= 1.3 * found.capacity < found.asked.sum() + 1_000
    used = found.asked[found.placed].sum()
    assert 6_400 <= used <= 8_000
    assert not found.placed.all()
    again = inflate(NODES, PODS, find_policy(policy).text, seed=3)
    assert (again.placed == found.placed).all()


def test_pods_are_left_out_where_the_trace_asks_for_more() -> None:
    found = inflate(NODES, PODS * 4, find_policy("bestfit").text, seed=1)
    assert found.asked.sum() <= 1.3 * found.capacity < found.asked.sum() + 1_000


def test_other_policies_that_count_cards_can_be_tried() -> None:
    text = """
actions: allocate
tiers:
- plugins:
  - {name: deviceshare, arguments: {deviceshare.VGPUEnable: true, deviceshare.SchedulePolicy: binpack}}
"""
    assert inflate(NODES, PODS, text, seed=3).placed.sum() > 10
    with pytest.raises(InflationError, match="should name the plugin fgd, or deviceshare"):
        inflate(NODES, PODS, "actions: allocate\ntiers: [{plugins: [{name: gang}]}]", seed=3)


def test_allocations_are_means_over_what_is_rounded_to_a_percent() -> None:
    found = Inflated(1_000, np.array([4.0, 4.0, 4.0, 40.0]), np.array([True, True, False, True]), np.zeros(4, np.intp))
    # 0.4, 0.8, 1.2 and 5.2 percent arrived; 0.4, 0.8, 0.8 and 4.8 percent are used
    assert found.allocation(5).tolist() == pytest.approx([0.4, 0.8, 0.8, np.nan, 4.8, 4.8], nan_ok=True)


@pytest.mark.exhaustive
def test_the_command_prints_means_beside_published_ones(tmp_path: Path) -> None:
    write_trace(tmp_path)
    store = tmp_path / "outcomes.jsonl"
    options = ["lab", "run", str(tmp_path), "--policy", "fgd", "--seed", "1..3", "--jobs", "1", "--store", str(store)]
    first = stromboli(*options)
    assert first.exit_code == 0, first.output
    assert "small" in first.stdout
    assert len(store.read_text().splitlines()) == 3
    again = stromboli(*options)
    assert again.stdout == first.stdout
    assert len(store.read_text().splitlines()) == 3


@pytest.mark.exhaustive
def test_the_published_curve_of_fgd(traces: Path) -> None:
    """One seed lies within three of the published standard deviations and 0.3 points."""
    path = find_lists(traces)["default"]
    outcome = run_trial(Trial("default", str(path), find_policy("fgd"), 42))
    published = read_published((traces / "expected.csv").read_text().splitlines())["default", "fgd"]
    for at, mean in allocations([outcome])["default", "fgd"].items():
        assert mean.mean == pytest.approx(published[at].mean, abs=3 * published[at].deviation + 0.3), at


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--workload", "nosuch"], "no list 'nosuch'"),
        (["--policy", "nosuch"], "nosuch: neither a file nor one of random"),
        (["--policy", "{broken}"], "not valid YAML"),
        (["--policy", "{odd}"], "tiers"),
        (["--seed", "5..1"], "seeds should be such as"),
        (["--published", "{broken}"], "line 1: should have the column workload"),
        (["--published", "{figures}"], "line 2: could not convert string to float: 'x'"),
    ],
)
def test_what_is_wrong_is_told_in_a_line(tmp_path: Path, options: list[str], told: str) -> None:
    write_trace(tmp_path)
    names = ["workload", "policy", "seeds", *(f"alloc_{what}_{at}" for at in AT for what in ("mean", "std"))]
    texts = {
        "broken": "1 2\n3 : : 4\n",
        "odd": "actions: allocate\ntiers: [7]\n",
        "figures": f"{','.join(names)}\nsmall,fgd,2{',x' * 2 * len(AT)}\n",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    places = {name: str(tmp_path / f"{name}.yaml") for name in texts}
    found = stromboli("lab", "run", tmp_path, "--seed", "1", "--jobs", 1, *(each.format(**places) for each in options))
    assert found.exit_code == 2
    assert told in found.output
    assert "Error" not in found.output


def test_a_policy_may_give_the_plugin_no_arguments() -> None:
    policy = "actions: allocate\ntiers:\n- plugins:\n  - name: fgd\n    arguments:\n"
    assert inflate(NODES, PODS, policy, 1).placed.any()
