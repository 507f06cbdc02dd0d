"""`stromboli lab generate` and `stromboli lab simulate`, as a user types them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import stromboli

#: two jobs of 4 processors by users 1 and 2, and a line that is none
LOG = """\
1 0 -1 100 4 -1 -1 4 200 -1 1 1 1 -1 1 -1 -1 -1
no job
2 10 -1 50 4 -1 -1 4 60 -1 1 2 1 -1 1 -1 -1 -1
"""
NODES = "1*cpu=4,memory=16Gi"


def test_what_is_generated_can_be_simulated_from_standard_input() -> None:
    made = stromboli("lab", "generate", "--jobs", 20, "--processors", 8, "--seed", 3)
    assert made.exit_code == 0
    assert made.output == stromboli("lab", "generate", "--jobs", 20, "--processors", 8, "--seed", 3).output
    done = stromboli(
        "lab", "simulate", "-", "--nodes", "2*cpu=4,memory=32Gi", "--per-pod", 4, "--json", stdin=made.output
    )
    assert done.exit_code == 0
    assert json.loads(done.output)["total"]["ended"] == 20


def test_figures_are_printed_and_written_and_wrong_lines_named(tmp_path: Path) -> None:
    log = tmp_path / "log.swf"
    log.write_text(LOG)
    done = stromboli("lab", "simulate", log, "--nodes", NODES, "--output", tmp_path / "out")
    assert done.exit_code == 0
    assert f"{log}: line 2: should have 18 fields, not 2" in done.output
    assert "user-1" in done.output
    header, first, second = (tmp_path / "out" / "jobs.csv").read_text().splitlines()
    row = dict(zip(header.split(","), second.split(","), strict=True))
    assert first.startswith("job-1,user-1,user-1,1,4000,0,100,200,0,100,0,100,1,")
    assert (row["name"], row["started"], row["waiting"], row["ended"]) == ("job-2", "120", "110", "170")
    assert (tmp_path / "out" / "queues.csv").exists()
    assert (tmp_path / "out" / "samples.csv").exists()


def test_manifests_are_workload_and_cluster(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(
        """
{kind: Node, metadata: {name: n}, status: {allocatable: {cpu: "4", memory: 16Gi, pods: "10"}}}
---
kind: Pod
metadata: {name: lone}
spec: {schedulerName: stromboli, containers: [{name: c, image: i, resources: {requests: {cpu: "1"}}}]}
"""
    )
    done = stromboli("lab", "simulate", path, "--nodes", path, "--run-time", "1h", "--json")
    assert json.loads(done.output)["total"]["turnaround_mean"] == 3600
    refused = stromboli("lab", "simulate", path, "--nodes", path)
    assert refused.exit_code == 2
    assert "does not say for how long it runs" in refused.output


def test_what_cannot_be_used_is_a_line(tmp_path: Path) -> None:
    log = tmp_path / "log.swf"
    log.write_text(LOG)
    for arguments, said in (
        ((tmp_path / "none.swf", "--nodes", NODES), "No such file"),
        ((log, "--nodes", "3*cpu=lots"), "'cpu=lots' is not an amount"),
        ((log, "--nodes", NODES, "--run-time", "soon"), "--run-time: 'soon' is not a duration"),
    ):
        done = stromboli("lab", "simulate", *arguments)
        assert done.exit_code == 2
        assert said in done.output


def test_tables_that_cannot_be_written_are_told_before_anything_is_simulated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = tmp_path / "log.swf"
    log.write_text(LOG)
    monkeypatch.setattr("stromboli.cli.lab.simulated", None)
    told = stromboli("lab", "simulate", log, "--nodes", NODES, "--output", log)
    assert told.exit_code == 2
    assert f"{log}: File exists" in told.output
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    told = stromboli("lab", "simulate", log, "--nodes", NODES, "--output", tmp_path, "--columns", "parquet")
    assert told.exit_code == 2
    assert "Parquet needs pyarrow: pip install 'stromboli[lab]'" in told.output


def test_parquet_has_the_columns_of_csv(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    log = tmp_path / "log.swf"
    log.write_text(LOG)
    for columns in ("csv", "parquet"):
        done = stromboli("lab", "simulate", log, "--nodes", NODES, "--output", tmp_path, "--columns", columns)
        assert done.exit_code == 0, done.output
    for name in ("jobs", "queues", "samples"):
        table = parquet.read_table(tmp_path / f"{name}.parquet")
        header, *rows = (tmp_path / f"{name}.csv").read_text().splitlines()
        assert table.column_names == header.split(",")
        assert table.num_rows == len(rows)
    assert parquet.read_table(tmp_path / "jobs.parquet")["waiting"].to_pylist() == [0, 110]


def test_where_no_job_waits_there_is_nothing_to_say_of_expected_starts(tmp_path: Path) -> None:
    log = tmp_path / "log.swf"
    log.write_text(LOG)
    done = stromboli("lab", "starts", log, "--nodes", "8*cpu=4,memory=16Gi")
    assert done.exit_code == 0
    assert "0 waiting jobs were asked about" in done.output
    assert "nan" not in done.output


@pytest.mark.parametrize(
    ("nodes", "told"),
    [
        ("0*cpu=4", "0*cpu=4: has no nodes"),
        ("2*cpu=4Zi", "'cpu=4Zi' is not an amount"),
        ("2*cpu=-4", "'cpu=-4' is not an amount"),
        ("2*cpu", "'cpu' is not an amount"),
        ("2*=4", "'=4' is not an amount"),
    ],
)
def test_nodes_that_are_none_are_a_mistake(tmp_path: Path, nodes: str, told: str) -> None:
    log = tmp_path / "log.swf"
    log.write_text(LOG)
    done = stromboli("lab", "simulate", log, "--nodes", nodes)
    assert done.exit_code == 2
    assert told in done.output
