"""Pods that come when others have completed are not there with them, and those that come when others run are."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
import yaml

from stromboli.engine import Engine
from stromboli.explain.rehearsal import Rehearsal
from stromboli.explain.remedies import explained
from stromboli.framework.cluster.environment import OFFLINE
from stromboli.simulation.admission import admit
from stromboli.simulation.changes import read_changes, try_changes
from stromboli.simulation.manifests import load
from stromboli.simulation.run import Run, feed, run
from stromboli.state.cluster import ClusterState
from tests.builders import NOON, READS

Object = dict[str, Any]

CONTAINER = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
POD = {"spec": {"schedulerName": "stromboli", "restartPolicy": "Never", "containers": [CONTAINER]}}
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
NODE |= {"status": {"allocatable": {"cpu": 9, "memory": "9Gi", "pods": 9}}}


def job_set(*jobs: tuple[str, int, Object], **more: Any) -> Object:
    """A JobSet of replicated jobs, each with the number of its pods and the status of others that it waits for."""
    listed = [
        {
            "name": name,
            "template": {"spec": {"parallelism": pods, "template": POD}},
            "dependsOn": [{"name": on, "status": status} for on, status in after.items()],
        }
        for name, pods, after in jobs
    ]
    kind = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "w"}}
    return {**kind, "spec": {"replicatedJobs": listed, **more}}


def of_volcano(least: int, *tasks: tuple[str, int, list[str]]) -> Object:
    listed = [
        {"name": name, "replicas": pods, "template": POD, **({"dependsOn": {"name": on}} if on else {})}
        for name, pods, on in tasks
    ]
    kind = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "w"}}
    return {**kind, "spec": {"minAvailable": least, "schedulerName": "stromboli", "tasks": listed}}


def simulated(*manifests: Object) -> tuple[Run, list[str]]:
    loaded = load(["-"], io.BytesIO(yaml.safe_dump_all([NODE, *manifests]).encode()))
    assert loaded.problems == []
    state = ClusterState(("stromboli",), reads=READS)
    feed(state, admit(loaded, state.scheduler_names))
    return run(Engine(), state), list(loaded.empty.values())


@pytest.mark.parametrize(
    ("made", "bound", "later"),
    [
        (job_set(("a", 2, {}), ("b", 3, {"a": "Complete"})), 2, {"b": "a"}),
        (job_set(("a", 2, {}), ("b", 3, {"a": "Ready"})), 5, {}),
        # What depends on a job that waits comes no sooner than that.
        (job_set(("a", 1, {}), ("b", 1, {"a": "Complete"}), ("c", 1, {"b": "Ready"})), 1, {"b": "a", "c": "a"}),
        (job_set(("a", 1, {}), ("b", 1, {"a": "Ready"}), ("c", 1, {"b": "Complete"})), 2, {"c": "b"}),
        (job_set(("a", 1, {}), ("b", 2, {"a": "Complete"}), ("free", 2, {})), 3, {"b": "a"}),
        # An API server refuses two of one name.
        (job_set(("a", 1, {}), ("a", 2, {})), 3, {}),
        # A job without pods has completed.
        (job_set(("a", 0, {}), ("b", 3, {"a": "Complete"})), 3, {}),
        (job_set(("a", 1, {}), ("b", 2, {}), startupPolicy={"startupPolicyOrder": "InOrder"}), 3, {}),
    ],
)
def test_only_what_may_run_together_is_there(made: Object, bound: int, later: dict[str, str]) -> None:
    done, told = simulated(made)
    assert len(done.bindings) == len(done.session.view.pods.records) == bound
    assert told == [
        f"JobSet default/w has no pods of {part} yet: it makes them when {first} has completed"
        for part, first in later.items()
    ]


def test_tasks_that_depend_on_others_come_when_these_run_unless_they_have_to_start_together() -> None:
    tasks = ("ps", 1, []), ("worker", 3, ["ps"])
    assert len(simulated(of_volcano(1, *tasks))[0].bindings) == 4
    done, _ = simulated(of_volcano(4, *tasks))
    assert (done.bindings, [pod.name for pod in done.session.view.pods.records if pod]) == ({}, ["w-ps-0"])
    answer = explained(done.session, "job", "default/w", done.rehearsal)
    assert answer is not None
    assert "Job default/w makes the pods of a task when those of the tasks that it depends on run" in answer.detail
    change = answer.remedies[0].change
    assert change.startswith("set spec.minAvailable: 1 in Job default/w")
    assert change.endswith(", or leave dependsOn out of the tasks of Job default/w")


def test_a_launcher_that_waits_for_no_worker_is_there() -> None:
    kind = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "w"}}
    spec = {"launcherCreationPolicy": "WaitForWorkersReady", "mpiReplicaSpecs": {"Launcher": {"template": POD}}}
    assert list(simulated({**kind, "spec": spec})[0].bindings) == ["default/w-launcher-0"]


def test_a_change_tells_what_comes_later_and_keeps_what_is_there() -> None:
    state = ClusterState(("stromboli",), reads=READS)
    feed(state, admit(load(["-"], io.BytesIO(yaml.safe_dump(NODE).encode())), state.scheduler_names))
    made = job_set(("a", 2, {}), ("b", 3, {"a": "Complete"}))
    text = {"change": json.dumps(made)}
    rehearsal = Rehearsal(Engine(), state.fork(), OFFLINE, NOON)
    answer = try_changes(text, rehearsal, lambda policy: Engine())
    assert (len(answer.bound), answer.problems) == (2, [])
    assert answer.without_pods == ["JobSet default/w has no pods of b yet: it makes them when a has completed"]
    read_changes(text, state).apply(state)
    again = read_changes(text, state)
    assert (len(again.pods), again.without_pods) == (5, [])
