"""A state that is made again from a journal has the same numbers as the one that was recorded."""

from __future__ import annotations

import numpy as np

from stromboli.api.resources import UNKNOWN
from stromboli.engine import Engine
from stromboli.journal import wire
from stromboli.journal.player import Player
from stromboli.state.cluster import ClusterState
from tests import builders
from tests.builders import node, pod, pod_group, queue
from tests.journal.recording import Recording


def made_again(recording: Recording) -> ClusterState:
    """The state as the journal has it at the beginning of its last segment."""
    recording.tape.wants_whole = True
    recording.session()
    entries = recording.entries()
    first = max(index for index, entry in enumerate(entries) if isinstance(entry, wire.Began))
    began, layout, *rest = entries[first:]
    assert isinstance(began, wire.Began)
    assert isinstance(layout, wire.Layout)
    player = Player(began, builders.READS)
    player.begin(layout, [change for part in rest if isinstance(part, wire.Part) for change in part.changes])
    return player.state


def test_free_rows_and_columns_that_nobody_offers_any_longer_are_kept() -> None:
    recording = Recording(Engine())
    state = recording.state
    gpus = {"example.com/gpu": "2"}
    for each in (
        *(node("a", resources=gpus), node("b", resources={"example.com/fpga": "1", **gpus}), queue("default")),
        *(pod_group(f"group-{number}") for number in range(3)),
        *(pod(f"pod-{number}", f"group-{number}", cpu=str(number + 1)) for number in range(6)),
        pod("stray", node="gone"),
        pod("odd", resources={"example.com/nobody": "1"}),
    ):
        state.upsert(type(each).__name__, each)
    for name in ("pod-0", "pod-2", "odd"):
        state.delete("Pod", f"default/{name}")
    state.delete("PodGroup", "default/group-0")
    state.delete("Node", "a")
    state.upsert("Node", node("a", resources=gpus))
    state.assume("default/pod-1", "a")
    again = made_again(recording)
    assert UNKNOWN in state.dimensions.names
    assert again.dimensions.names == state.dimensions.names
    assert again.pods.by_key == state.pods.by_key
    assert again.jobs.by_key == state.jobs.by_key
    assert again.assumed == state.assumed
    one, other = state.snapshot(), again.snapshot()
    for name in ("state", "node", "job", "pod_class"):
        assert np.array_equal(getattr(one.pods, name), getattr(other.pods, name))
    for name in ("allocatable", "used", "releasing", "scoring"):
        assert np.array_equal(getattr(one.nodes, name), getattr(other.nodes, name))
    in_use = [each.id for each in state.classes.classes if each.id >= 0]
    assert np.array_equal(one.requests[in_use], other.requests[in_use])
    # What comes next gets the same numbers, too.
    for each in (pod("next", "group-9", cpu="7"), pod("after", "group-1", cpu="8"), pod_group("group-7")):
        for known in (state, again):
            known.upsert(type(each).__name__, each)
    assert (again.pods.by_key, again.jobs.by_key) == (state.pods.by_key, state.jobs.by_key)
    assert [each.id for each in again.classes.classes] == [each.id for each in state.classes.classes]


def test_a_snapshot_that_no_session_is_run_on_loses_nothing() -> None:
    recording = Recording(Engine())
    recording.follow([node("a"), queue("default"), pod_group("train")])
    recording.state.snapshot()
    recording.state.upsert("Pod", pod("train-0", "train"))
    recording.session()
    recording.state.upsert("Pod", pod("train-1", "train"))
    recording.state.snapshot()
    assert recording.session().session.bound == {"default/train-0": "a", "default/train-1": "a"}
    report = recording.replayed()
    assert (report.sessions, report.difference) == (2, None)
