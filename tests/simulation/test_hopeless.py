"""What can never fit its nodes lays claim to nothing: others are admitted in the same simulation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from stromboli.engine import Engine
from stromboli.simulation.admission import USUAL_NAMES, admit
from stromboli.simulation.manifests import load
from stromboli.simulation.run import Run, feed, run
from stromboli.state.cluster import ClusterState

_TIERS = """
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}, {name: overcommit}]
"""


def node(name: str) -> dict[str, Any]:
    status = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}
    metadata = {"name": name, "labels": {"zone": name, "kubernetes.io/hostname": name}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}


def job(name: str, pods: int, cpu: str, minute: int, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    pod = {"schedulerName": "stromboli", "restartPolicy": "Never", "containers": [container], **spec}
    made = {"name": name, "creationTimestamp": f"2026-01-01T00:{minute:02}:00Z"}
    jobs = {"parallelism": pods, "completions": pods, "template": {"spec": pod}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": made, "spec": jobs}


NOWHERE = {"nodeSelector": {"zone": "x"}}
IN_A = {"nodeSelector": {"zone": "a"}}
APART = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}
            ]
        }
    }
}
HOPELESS = {
    "a gang no pod of which has a node": [job("a", 2, "3", 0, **NOWHERE)],
    "lone pods that have no node": [job(f"a{number}", 1, "3", number, **NOWHERE) for number in range(3)],
    "a gang larger than its one node": [job("a", 2, "3", 0, **IN_A)],
    "many pods on their one node": [job("a", 3, "2", 0, **IN_A)],
    "pods that may not be side by side": [job("a", 3, "2", 0, **APART)],
    "one after the other": [job("a", 2, "3", 0, **NOWHERE), job("b", 2, "3", 1, **IN_A), job("c", 3, "2", 2, **APART)],
}


def simulated(tmp_path: Path, engine: Engine, *objects: dict[str, Any], cycles: int = 1) -> Run:
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all([node("a"), node("b"), *objects]))
    loaded = load([str(path)], None)  # type: ignore[arg-type]
    state = ClusterState(USUAL_NAMES, reads=engine.registry.reads)
    feed(state, admit(loaded, USUAL_NAMES))
    assert loaded.problems == []
    return run(engine, state, now=1_800_000_000.0, cycles=cycles)


@pytest.mark.parametrize("actions", ["enqueue, allocate, backfill", "allocate, backfill"])
@pytest.mark.parametrize("hopeless", HOPELESS.values(), ids=HOPELESS)
def test_others_are_admitted_beside_it(tmp_path: Path, actions: str, hopeless: list[dict[str, Any]]) -> None:
    found = simulated(tmp_path, Engine(f'actions: "{actions}"{_TIERS}'), *hopeless, job("fine", 2, "2", 30))
    assert sorted(found.bindings) == ["default/fine-0", "default/fine-1"]


def test_under_the_default_policy_too(tmp_path: Path) -> None:
    for number, hopeless in enumerate(HOPELESS.values()):
        folder = tmp_path / str(number)
        folder.mkdir()
        found = simulated(folder, Engine(), *hopeless, job("fine", 2, "2", 30))
        assert len(found.bindings) == 2, hopeless


def test_what_waits_for_others_keeps_its_claim(tmp_path: Path) -> None:
    """A gang that only has to wait is not passed over by what is submitted after it."""
    first = job("first", 2, "3", 0)
    found = simulated(tmp_path, Engine(), first, job("second", 2, "3", 1), job("third", 1, "3", 2), cycles=3)
    assert sorted(found.bindings) == ["default/first-0", "default/first-1"]
    assert len(found.cycles) == 3
