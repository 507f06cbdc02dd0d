"""What happened on a real API server is replayed from the journal, over an end that nobody announced."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from stromboli.journal import read, segments
from stromboli.journal.outcome import decisions
from stromboli.journal.wire import Session
from tests.cli.conftest import stromboli
from tests.controlplane.cluster import eventually
from tests.e2e.conftest import Start
from tests.e2e.world import World

pytestmark = pytest.mark.e2e

POLICY = """
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: drf}, {name: predicates}, {name: capacity}, {name: nodeorder}, {name: binpack}]
"""
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def evicting(folder: Path) -> Iterator[str]:
    """The action of each eviction that was decided."""
    for path in segments(folder):
        with path.open("rb") as file:
            for entry in read(path.name, file):
                if isinstance(entry, Session):
                    yield from (fields["action"] for name, fields in decisions(entry.decisions) if name == "Evict")


def test_preemption_reclaim_and_a_restart_are_replayed_equal(world: World, start: Start, tmp_path: Path) -> None:
    policy, folder = tmp_path / "policy.yaml", tmp_path / "journal"
    policy.write_text(POLICY)
    options = ("--policy", str(policy), "--journal-dir", str(folder))
    world.api.post(PRIORITIES, json={"metadata": {"name": "replayed"}, "value": 100})
    world.nodes(5, cpu="8")
    for name in ("one", "other"):
        world.queue(name, deserved={"cpu": "20", "memory": "640Gi"})
    first = start(*options)
    world.gang("low", 36, min_member=1, queue="one")
    eventually(lambda: world.bound() == {"low": 36})
    world.gang("urgent", 8, queue="one", priorityClassName="replayed")
    eventually(lambda: world.bound()["urgent"] == 8)
    # What it did in its last second is not written; before that it is.
    eventually(lambda: "preempt" in set(evicting(folder)))
    first.end(signal.SIGKILL)

    second = start(*options)
    world.gang("theirs", 24, min_member=16, queue="other")
    eventually(lambda: world.bound()["theirs"] >= 16)
    world.delete_group("low")
    answer = stromboli("record", "--url", str(second.http.base_url), "-o", tmp_path / "second")
    assert answer.exit_code == 0, answer.stderr
    second.end()

    for journal in (tmp_path / "second", folder):
        replayed = stromboli("replay", journal)
        assert (replayed.exit_code, "all as recorded" in replayed.stdout) == (0, True), replayed.output
    assert len(list(folder.iterdir())) == 2
    assert {"preempt", "reclaim"} <= set(evicting(folder))
