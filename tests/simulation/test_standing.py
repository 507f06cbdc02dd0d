"""What-ifs about workloads that are there: scaled, changed, suspended and removed."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from stromboli.engine import Engine
from stromboli.explain.rehearsal import Rehearsal
from stromboli.explain.whatif import WhatIf
from stromboli.framework.cluster.environment import OFFLINE
from stromboli.simulation.admission import admit
from stromboli.simulation.changes import try_changes
from stromboli.simulation.manifests import load
from stromboli.simulation.run import feed
from stromboli.state.cluster import ClusterState
from tests.builders import NOON, READS

Object = dict[str, Any]
UID = "11111111-2222-3333-4444-555555555555"


def template(cpu: str = "1") -> Object:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {"spec": {"schedulerName": "stromboli", "restartPolicy": "Never", "containers": [container]}}


def job(name: str, pods: int, cpu: str = "1", **more: Any) -> Object:
    spec = {"parallelism": pods, "completions": pods, "template": template(cpu), **more}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def replicas(serve: int) -> Object:
    spec = {"replicas": serve, "leaderWorkerTemplate": {"size": 2, "workerTemplate": template()}}
    version = "leaderworkerset.x-k8s.io/v1"
    return {"apiVersion": version, "kind": "LeaderWorkerSet", "metadata": {"name": "serve"}, "spec": spec}


def pod(name: str, owner: Object, node: str = "n", **labels: str) -> Object:
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"]}
    metadata = {"name": name, "ownerReferences": [{**reference, "uid": UID, "controller": True}], "labels": labels}
    spec = template()["spec"] | ({"nodeName": node} if node else {})
    return {"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Running" if node else "Pending"}}


def there(owner: Object) -> Object:
    """A workload as an API server has it."""
    return {**owner, "metadata": {**owner["metadata"], "uid": UID}}


def what_if(change: Object, *cluster: Object, cpu: int = 4) -> WhatIf:
    node = {"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": cpu, "pods": 99}}}
    text = "\n---\n".join(json.dumps(each) for each in (node, *cluster))
    loaded = load(["-"], io.BytesIO(text.encode()))
    assert loaded.problems == []
    state = ClusterState(("stromboli",), reads=READS)
    feed(state, admit(loaded, state.scheduler_names))
    found = try_changes({"change": json.dumps(change)}, Rehearsal(Engine(), state, OFFLINE, NOON), Engine)
    assert found.problems == []
    return found


RUNS = [there(job("train", 3)), *(pod(f"train-{number}", job("train", 3)) for number in (1, 2, 3))]
WAITS = job("waits", 2)
DELETED = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "$patch": "delete"}


@pytest.mark.parametrize(
    ("change", "bound", "waiting"),
    [
        (job("train", 3), 0, 2),
        (job("train", 2), 2, 0),
        (job("train", 4), 1, 2),
        (job("train", 3, suspend=True), 2, 0),
        (DELETED, 2, 0),
        # Those that wait are made anew, by another template.
        (job("waits", 2, "500m"), 2, 0),
        (job("waits", 1), 1, 0),
        (job("other", 1), 1, 2),
    ],
)
def test_a_workload_that_is_there_is_tried_otherwise(change: Object, bound: int, waiting: int) -> None:
    found = what_if(change, *RUNS, WAITS)
    assert (len(found.bound), sum(found.pending.values()), found.evicted, found.lost) == (bound, waiting, [], [])


def test_each_gang_of_a_workload_goes_on_and_another_comes_to_it() -> None:
    index = "leaderworkerset.sigs.k8s.io/group-index"
    pods = [pod(f"serve-0{end}", replicas(1), **{index: "0"}) for end in ("", "-1")]
    found = what_if(replicas(2), there(replicas(1)), *pods)
    assert sorted(each.pod for each in found.bound) == ["default/serve-1", "default/serve-worker-1"]
