"""Volcano's Commands among files open and close queues as the service does."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from stromboli.api.crds import Queue
from stromboli.cli import make_app
from stromboli.simulation.admission import admit
from stromboli.simulation.changes import read_changes
from stromboli.simulation.manifests import load
from stromboli.simulation.run import feed
from stromboli.state.cluster import ClusterState
from stromboli.state.queue_states import obeyed
from tests.builders import READS

SCHEDULING = "scheduling.volcano.sh/v1beta1"
TREE = {"dept": "", "team": "dept", "squad": "team", "other": ""}


def queue(name: str, parent: str = "") -> dict[str, Any]:
    spec = {"weight": 1, **({"parent": parent} if parent else {})}
    return {"apiVersion": SCHEDULING, "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def command(action: str, target: str, kind: str = "Queue") -> dict[str, Any]:
    aim = {"apiVersion": SCHEDULING, "kind": kind, "name": target}
    meta = {"name": f"{action.lower()}-{target}"}
    return {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": meta,
        "action": action,
        "target": aim,
    }


def pod(name: str, queue: str) -> dict[str, Any]:
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    meta = {"name": name, "annotations": {"scheduling.volcano.sh/queue-name": queue}}
    spec = {"schedulerName": "stromboli", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


CLOSE_SQUAD = command("CloseQueue", "squad")


@pytest.mark.parametrize(
    ("commands", "bound"),
    [
        ([], {"dept", "team", "squad", "other"}),
        ([command("CloseQueue", "dept")], {"other"}),
        ([command("CloseQueue", "team")], {"dept", "other"}),
        ([command("CloseQueue", "dept"), command("OpenQueue", "dept")], {"dept", "team", "squad", "other"}),
        ([CLOSE_SQUAD, command("CloseQueue", "dept"), command("OpenQueue", "dept")], {"dept", "team", "other"}),
        ([command("CloseQueue", "dept"), command("OpenQueue", "team")], {"other"}),
        ([command("CloseQueue", "root"), command("CloseQueue", "absent"), command("Mend", "dept")], set(TREE)),
        ([command("AbortJob", "dept", kind="Job")], set(TREE)),
    ],
)  # fmt: skip
def test_pods_of_closed_queues_wait(tmp_path: Path, commands: list[dict[str, Any]], bound: set[str]) -> None:
    amounts = {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10"}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": amounts}
    objects = [node, *(queue(*each) for each in TREE.items()), *(pod(name, name) for name in TREE), *commands]
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    result = CliRunner().invoke(make_app(), ["simulate", str(path), "--format", "outcome"])
    assert result.exit_code == 0, result.output
    found = yaml.safe_load(result.output)
    assert {key.rpartition("/")[2] for key in found["outcome"]["bindings"]} == bound


def test_a_mistake_in_a_command_is_named(tmp_path: Path) -> None:
    path = tmp_path / "command.yaml"
    path.write_text(yaml.safe_dump({**command("CloseQueue", "dept"), "tarket": {}}))
    result = CliRunner().invoke(make_app(), ["simulate", str(path)])
    assert "tarket" in result.output


def test_what_is_closed_with_its_parent_is_marked() -> None:
    queues = {name: Queue.parse({**queue(name, parent), "status": {"state": "Open"}}) for name, parent in TREE.items()}
    found = obeyed(queues, [command("CloseQueue", "dept")])
    assert {name: (each.status.state, each.closed_by_parent) for name, each in found.items()} == {
        "dept": ("Closing", False),
        "team": ("Closing", True),
        "squad": ("Closing", True),
        "other": ("Open", False),
    }


def test_a_command_can_be_tried() -> None:
    objects = [queue(*each) for each in TREE.items()]
    loaded = load(["-"], io.BytesIO(yaml.safe_dump_all(objects).encode()))
    state = ClusterState(("stromboli",), reads=READS)
    feed(state, admit(loaded, state.scheduler_names))
    changes = read_changes({"close": yaml.safe_dump(command("CloseQueue", "team"))}, state)
    assert changes.problems == []
    assert {obj.key: obj.status.state for _, obj in changes.objects} == {"team": "Closing", "squad": "Closing"}
