"""For how long jobs ran is learned from their pods that succeed."""

from __future__ import annotations

import time
from typing import Any

import pytest

from stromboli.api.crds import RUN_TIME
from stromboli.explain.answers import Start
from stromboli.explain.past_runs import Kind, PastRuns, Run, learned_from
from stromboli.live.inputs.run_recorder import RunRecorder
from stromboli.live.observer import Observer
from stromboli.live.watch.mirror import Mirror
from stromboli.state.cluster import ClusterState
from stromboli.state.pods import timestamp
from tests.builders import NOON, node, pod, pod_group

ONE = Kind("Job", "default", 1)


class World:
    """A mirror, and what is learned."""

    def __init__(self) -> None:
        self.mirror = Mirror(ClusterState(("stromboli",)), lambda urgent: None, Observer())
        self.past = PastRuns()
        RunRecorder(self.mirror, self.past)

    def group(self, name: str, declared: str = "", **spec: Any) -> None:
        made = pod_group(name, **spec)
        said = {"annotations": {RUN_TIME: declared} if declared else {}, "uid": f"uid-{name}"}
        owner = {"owner_references": [{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": "1"}]}
        self.mirror.event(
            "PodGroup", "ADDED", made.model_copy(update={"metadata": made.metadata.model_copy(update=said | owner)})
        )

    def pod(
        self, name: str, group: str, phase: str, type: str = "MODIFIED", *, since: float, until: float = 0.0
    ) -> None:
        ready = {"type": "Ready", "status": "False", "reason": "PodCompleted", "lastTransitionTime": timestamp(until)}
        status = {"startTime": timestamp(since), "conditions": [ready] if until else []}
        self.mirror.event("Pod", type, pod(name, group, node="a", phase=phase, status=status))


def test_a_job_counts_once_when_a_pod_of_it_succeeds() -> None:
    world = World()
    for number, seconds in enumerate((60, 120, 180)):
        world.group(f"job-{number}")
        world.pod(f"job-{number}-0", f"job-{number}", "Running", since=NOON)
        for _ in range(2):
            world.pod(f"job-{number}-0", f"job-{number}", "Succeeded", since=NOON, until=NOON + seconds)
        world.pod(f"job-{number}-1", f"job-{number}", "Succeeded", since=NOON, until=NOON + 1_000)
    assert world.past.lengths(ONE) == [60, 120, 180]
    assert learned_from(world.mirror.state).lengths(ONE) == [60, 120, 180]


def test_the_part_of_a_declared_time_is_learned() -> None:
    world = World()
    for number, seconds in enumerate((60, 120, 180)):
        world.group(f"job-{number}", "10m")
        world.pod(f"job-{number}-0", f"job-{number}", "Succeeded", since=NOON, until=NOON + seconds)
    assert world.past.parts(ONE) == pytest.approx([0.1, 0.2, 0.3])


@pytest.mark.parametrize("phase", ["Failed", "Running", "Pending"])
def test_what_did_not_succeed_teaches_nothing(phase: str) -> None:
    world = World()
    world.group("job")
    world.pod("job-0", "job", phase, since=NOON, until=NOON + 60)
    assert world.past.added == 0


def test_a_pod_that_does_not_say_when_it_ended_did_when_it_was_seen_to() -> None:
    world = World()
    world.group("old")
    world.group("job")
    began = time.time() - 60
    # That one may have ended long ago.
    world.pod("old-0", "old", "Succeeded", "ADDED", since=began)
    assert world.past.added == 0
    world.pod("job-0", "job", "Succeeded", since=began)
    assert world.past.added == 1


def test_kinds_are_by_owner_queue_and_size_and_forgotten_in_their_order() -> None:
    assert Kind.of("RayJob/train", "research", 5) == Kind("RayJob", "research", 8)
    assert [Kind.of("", "q", count).size for count in (0, 1, 2, 3, 4, 5)] == [1, 1, 2, 4, 4, 8]
    past = PastRuns()
    for number in range(2_000):
        for seconds in (1.0, 2.0, 3.0):
            past.add(Kind("Job", f"q{number}", 1), Run(seconds, 0.0, NOON))
    assert past.lengths(Kind("Job", "q1999", 1)) == [1, 2, 3]
    assert len(past.as_data()["kinds"]) == 1_000  # type: ignore[index]


def test_a_job_has_started_when_as_many_pods_as_start_together_have_nodes() -> None:
    world, starts = World(), Start(expected=1_800, earliest=0, latest=3_600)
    world.mirror.event("Node", "ADDED", node("a"))
    for number in range(25):
        name = f"job-{number}"
        world.group(name, min_member=2)
        world.past.starts.tell(f"default/{name}", f"uid-{name}", starts, time.time())
        if number == 24:
            group = world.mirror.state.pod_group(f"default/{name}")
            world.mirror.event("PodGroup", "DELETED", group)
            continue
        for pod_number in range(3):
            assert (f"default/{name}" in world.past.starts) == (pod_number < 2)
            world.pod(f"{name}-{pod_number}", name, "Running", since=NOON)
    assert world.past.starts.share == (1.0, 24)
    assert "default/job-24" not in world.past.starts
