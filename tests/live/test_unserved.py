"""Pods of schedulers of which nothing is heard."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from stromboli.api.objects import OwnerReference
from stromboli.live.observer import Observer
from stromboli.live.reporting.events import Events, Reference
from stromboli.live.reporting.unserved import Unserved
from stromboli.live.watch.mirror import Mirror
from stromboli.state.cluster import ClusterState
from tests.builders import pod


class Noted(Events):
    """Keeps what is emitted."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, str]] = []

    def emit(self, about: Reference, type: str, reason: str, note: str, action: str = "Scheduling") -> None:
        self.notes.append((f"{about.namespace}/{about.name}", note))


class World:
    """A mirror, and what is said of pods of other schedulers."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events = Noted()
        self.mirror = Mirror(ClusterState(("stromboli",)), lambda urgent: None, Observer())
        self.unserved = Unserved(self.mirror, self.events, ("stromboli",), lambda: self.now)

    def see(self, name: str, type: str = "ADDED", **more: Any) -> None:
        self.mirror.event("Pod", type, pod(name, **more))

    def later(self, seconds: float) -> list[tuple[str, str]]:
        """What is emitted by then."""
        self.now += seconds
        before = len(self.events.notes)
        self.unserved.tell()
        return self.events.notes[before:]


def test_a_misspelt_scheduler_is_told_once_with_what_was_meant() -> None:
    world = World()
    world.see("a", scheduler="stromboly")
    assert world.later(9) == []
    said = "spec.schedulerName is stromboly, which shows no activity; stromboli is served here"
    assert world.later(2) == [("default/a", f"{said}, did you mean 'stromboli'?")]
    assert world.later(60) == []
    assert world.unserved.why("default/a").endswith("did you mean 'stromboli'?")


def test_the_pods_of_a_gang_are_told_by_their_schedulers() -> None:
    world = World()
    world.see("a", group="train", scheduler="stromboly")
    world.see("b", group="train", scheduler="stromboly")
    world.see("c", group="other", scheduler="stromboly")
    said = "2 pods of it wait for another scheduler: spec.schedulerName is stromboly; stromboli is served here"
    assert world.unserved.of_gang("default/train") == f"{said}, did you mean 'stromboli'?"
    world.see("a", "DELETED", group="train", scheduler="stromboly")
    assert world.unserved.of_gang("default/train").startswith("1 pod of it waits for")
    assert world.unserved.of_gang("default/none") == ""


def test_the_pods_of_a_workload_are_told_by_its_name() -> None:
    world = World()
    made = pod("train-x7k2p", scheduler="stromboly")
    owner = OwnerReference("Job", "train", "uid-train", controller=True, api_version="batch/v1")
    world.mirror.event("Pod", "ADDED", replace(made, metadata=replace(made.metadata, owner_references=[owner])))
    assert world.unserved.of_gang("default/train").startswith("1 pod of it waits for another scheduler: spec.scheduler")


def test_of_schedulers_that_are_heard_of_nothing_is_said() -> None:
    world = World()
    refused = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
    world.see("ours")
    world.see("kube", scheduler="default-scheduler")
    world.see("busy", scheduler="busy", status=refused)
    world.see("ran", scheduler="other", node="n")
    world.see("waits", scheduler="other")
    assert world.later(60) == []
    assert world.unserved.why("default/ours") == ""
    assert (
        world.unserved.why("default/waits")
        == "pod default/waits waits for another scheduler: spec.schedulerName is other; stromboli is served here"
    )


def test_pods_that_are_gone_or_placed_are_forgotten() -> None:
    world = World()
    for name in ("placed", "deleted", "dropped"):
        world.see(name, scheduler="stromboly")
    world.see("placed", "MODIFIED", scheduler="stromboly", phase="Succeeded")
    world.see("deleted", "DELETED", scheduler="stromboly")
    world.mirror.delete("Pod", "default/dropped", "default/dropped")
    assert world.later(60) == []
    assert [world.unserved.why(f"default/{name}") for name in ("placed", "deleted", "dropped")] == ["", "", ""]
