"""priority: jobs and pods of a higher priority come first, and may take the places of lesser ones."""

from __future__ import annotations

from typing import Any

from stromboli.api import objects
from tests import builders
from tests.builders import node, pod, pod_group, queue
from tests.plugins.queues import BOTH, evicted
from tests.plugins.sessions import bound, decide

POLICY = builders.policy("priority predicates")
PREEMPT = builders.policy("priority predicates", actions="preempt")
GANGRECLAIM = builders.policy("priority capacity", actions="gangreclaim")
CLASSES = [
    objects.PriorityClass(metadata=objects.Metadata(name=name), value=value)
    for name, value in (("low", 10), ("high", 100))
]


def job(name: str, of: str, *pods: Any, created: int = 0, least: int = 1, **more: Any) -> list[Any]:
    """A PodGroup of a priority class, and its pods."""
    return [pod_group(name, least, priorityClassName=of, created=created, **more), *pods]


def test_the_more_important_job_is_placed_first() -> None:
    """Not the older one, nor the one with the more important pod."""
    low = job("old", "low", pod("old-0", "old", priority=1000))
    high = job("new", "high", pod("new-0", "new", priority=1), created=9)
    assert bound(node("n", cpu="1"), CLASSES, *low, *high, by=POLICY) == {"new-0": "n"}


def test_the_more_important_pod_of_a_job_is_placed_first() -> None:
    pods = [pod(f"job-{i}", "job", priority=10 * i) for i in range(3)]
    assert bound(node("n", cpu="1"), *job("job", "", *pods), by=POLICY) == {"job-2": "n"}


def test_a_job_without_a_class_has_the_clusters_default() -> None:
    default = objects.PriorityClass(metadata=objects.Metadata(name="usual"), value=50, global_default=True)
    usual, low = job("usual", "", pod("usual-0", "usual"), created=9), job("low", "low", pod("low-0", "low"))
    assert bound(node("n", cpu="1"), CLASSES, default, *low, *usual, by=POLICY) == {"usual-0": "n"}


def running(name: str, of: str, **more: Any) -> list[Any]:
    return job(name, of, pod(f"{name}-0", name, node="n", **more), least=0, phase="Running")


@BOTH
def test_victims_are_jobs_of_a_lower_priority(compatibility: Any) -> None:
    """An equal one stays, however little its pod matters."""
    wants = job("wants", "high", pod("wants-0", "wants"))
    equal, low = running("equal", "high", priority=-1), running("low", "low", priority=1000)
    for scene, expected in (([equal, low], {"low": 1}), ([equal], {})):
        result = decide(node("n", cpu=str(len(scene))), CLASSES, *scene, wants, by=PREEMPT, compatibility=compatibility)
        assert evicted(result) == expected


@BOTH
def test_within_a_job_its_lesser_pods_give_way(compatibility: Any) -> None:
    pods = [pod(f"job-{i}", "job", node="n", priority=i) for i in (1, 2)]
    for wanted, expected in ((2, ["job-1"]), (1, [])):
        extra = pod("job-9", "job", priority=wanted)
        result = decide(
            node("n", cpu="2"), *job("job", "", *pods, extra, least=1), by=PREEMPT, compatibility=compatibility
        )
        assert sorted(key.partition("/")[2] for key in result.session.evicted) == expected


@BOTH
def test_between_queues_priorities_do_not_count(compatibility: Any) -> None:
    """poor takes back its CPU from a more important job."""
    queues = [queue(name, deserved={"cpu": "1"}) for name in ("rich", "poor")]
    rich = [pod(f"rich-{i}", "rich", node="n") for i in range(2)]
    scene = [
        *job("rich", "high", *rich, queue="rich", least=0, phase="Running"),
        *job("poor", "low", pod("poor-0", "poor"), queue="poor"),
    ]
    result = decide(node("n", cpu="2"), CLASSES, *queues, *scene, by=GANGRECLAIM, compatibility=compatibility)
    assert evicted(result) == {"rich": 1}
