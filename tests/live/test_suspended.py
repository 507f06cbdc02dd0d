"""Workloads that are suspended: what is said of them, and until when."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.live.groups.suspended import Suspended
from stromboli.workloads import known_kinds


def job(uid: str = "1", suspend: bool = True, **spec: Any) -> dict[str, Any]:
    metadata = {"name": "train", "namespace": "team", "uid": uid}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"suspend": suspend, **spec}}


RUNNING = {**job(suspend=False), "status": {"active": 1}}


def told(*seen: dict[str, Any], gone: tuple[dict[str, Any], ...] = ()) -> str:
    known = Suspended(known_kinds())
    for each in seen:
        known.seen(each)
    for each in gone:
        known.gone(each)
    return known.why("team/train")


def test_a_suspended_job_is_told_with_how_it_is_resumed() -> None:
    assert told(job()) == "Job team/train is suspended, so it has no pods: stromboli job resume train -n team"


def test_a_job_that_runs_in_another_cluster_is_told() -> None:
    managed = job("1", False, managedBy="kueue.x-k8s.io/multikueue")
    why = "runs in another cluster, so it has no pods here: spec.managedBy is kueue.x-k8s.io/multikueue"
    assert told(managed) == f"Job team/train {why}"


@pytest.mark.parametrize(
    ("seen", "gone"),
    [
        ((RUNNING,), ()),
        ((job(), RUNNING), ()),
        ((job(),), (job(),)),
        (({**job(), "kind": "Unknown"},), ()),
    ],
    ids=["running", "resumed", "deleted", "of no kind"],
)
def test_others_are_not(seen: tuple[dict[str, Any], ...], gone: tuple[dict[str, Any], ...]) -> None:
    assert told(*seen, gone=gone) == ""


def test_one_of_two_that_is_left_is_told() -> None:
    assert told(job("1"), job("2"), gone=(job("1"),))


def test_those_that_are_not_in_a_new_list_are_forgotten() -> None:
    known = Suspended(known_kinds())
    known.seen(job())
    kind = known_kinds().get("batch/v1", "Job")
    assert kind is not None
    known.listed(kind)
    assert known.why("team/train") == ""


def test_a_job_without_pods_is_told_until_it_has_some() -> None:
    quiet = job(suspend=False)
    says = "Job team/train has no pods; its Events say why: kubectl describe job train -n team"
    assert told(quiet) == says
    assert told({**quiet, "status": {"startTime": "2026-01-01T00:00:00Z"}}) == says
    assert told(quiet, {**quiet, "status": {"active": 1}}) == ""
    assert told({**quiet, "status": {"succeeded": 1}}) == ""
    assert told(job(suspend=False, parallelism=0)) == "Job team/train has no pods: its parallelism is 0"
