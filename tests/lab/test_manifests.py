"""Manifests and dumps as workloads."""

from __future__ import annotations

import math
from io import BytesIO
from pathlib import Path

import pytest

from stromboli.lab.readers.manifests import read_manifests

CLUSTER = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata:
  {name: train, namespace: ml, creationTimestamp: "2026-01-01T00:01:00Z", annotations: {stromboli.io/run-time: 2h}}
spec: {minMember: 2, queue: research, priorityClassName: high}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 100
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: train-0, namespace: ml, annotations: {scheduling.k8s.io/group-name: train}}
  spec: {schedulerName: stromboli, nodeName: gone, containers: [{name: main, resources: {requests: {cpu: "2"}}}]}
  status: {phase: Succeeded}
- apiVersion: v1
  kind: Pod
  metadata: {name: train-1, namespace: ml, annotations: {scheduling.k8s.io/group-name: train}}
  spec: {schedulerName: stromboli, containers: [{name: main, resources: {requests: {cpu: "2"}}}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: tidy, namespace: ops, creationTimestamp: "2026-01-01T00:00:00Z"}
spec:
  template:
    spec:
      schedulerName: stromboli
      activeDeadlineSeconds: 90
      containers: [{name: main, image: "example.com/tidy:1", resources: {requests: {cpu: 500m}}}]
      restartPolicy: Never
"""


def read(tmp_path: Path, text: str, **options: float):  # type: ignore[no-untyped-def]
    path = tmp_path / "jobs.yaml"
    path.write_text(text)
    return read_manifests([str(path)], BytesIO(), **options)


def test_groups_and_workloads_become_jobs(tmp_path: Path) -> None:
    jobs = read(tmp_path, CLUSTER)
    assert list(jobs.problems) == []
    rows = {jobs.users[jobs.user[row]]: row for row in range(len(jobs))}
    train, tidy = rows["ml"], rows["ops"]
    assert jobs.name(train) == "train"
    assert jobs.run_time[train] == jobs.declared[train] == 7200
    assert jobs.queues[jobs.queue[train]] == "research"
    assert jobs.priority[train] == 100
    assert jobs.requests("cpu")[train] == 4000
    # Pods that are alike are one task, whatever became of them.
    gang = jobs.gangs[jobs.gang[train]]
    assert [(task.count, task.spec.node_name) for task in gang.tasks] == [(2, None)]
    assert gang.min_member == 2
    assert jobs.declared[tidy] == 90
    assert jobs.requests("cpu")[tidy] == 500


def test_a_job_without_a_run_time_is_named_or_gets_the_one_that_is_given(tmp_path: Path) -> None:
    text = CLUSTER.replace(", annotations: {stromboli.io/run-time: 2h}", "")
    assert list(read(tmp_path, text).problems) == [
        "PodGroup ml/train: does not say for how long it runs (stromboli.io/run-time)"
    ]
    jobs = read(tmp_path, text, run_time=60.0)
    assert sorted(jobs.run_time.tolist()) == [60, 90]


@pytest.mark.parametrize("text", ["{", "kind: Pod\nmetadata: {name: x}\nspec: 7", "- 1\n- 2", "kind: PodGroup"])
def test_what_is_wrong_is_named_and_the_rest_is_read(tmp_path: Path, text: str) -> None:
    jobs = read(tmp_path, f"{CLUSTER}\n---\n{text}\n")
    assert jobs.problems
    assert len(jobs) == 2 or text == "{"


def test_a_time_that_is_none_is_no_run_time(tmp_path: Path) -> None:
    for wrong in ("soon", "-5m", "0s"):
        jobs = read(tmp_path, CLUSTER.replace("2h", f'"{wrong}"'), run_time=60.0)
        assert sorted(jobs.run_time.tolist()) == [60, 90]


def test_one_job_without_a_time_or_with_a_wrong_deadline_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    pods = "\n---\n".join(
        LONE % each for each in [("a", "null"), ("b", "2026-01-01T00:00:00Z"), ("c", "0001-01-01T00:00:00Z")]
    )
    jobs = read(tmp_path, f"{pods}\n---\n{(LONE % ('d', 'null')).replace('60', '-5')}")
    assert jobs.arrival.tolist() == [0, 0, 0]
    assert [problem.partition(":")[0] for problem in jobs.problems] == ["PodGroup ml/podgroup-ml-d"]


LONE = """
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: ml, creationTimestamp: %s}
spec: {schedulerName: stromboli, activeDeadlineSeconds: 60, containers: [{name: main}]}
"""

OVER = """
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: ml, annotations: {scheduling.k8s.io/group-name: past}}
spec: {schedulerName: stromboli, nodeName: gone, containers: [{name: main, resources: {requests: {cpu: "2"}}}]}
status:
  phase: %s
  startTime: "2026-01-01T01:00:00Z"
  containerStatuses:
  - {name: main, state: {terminated: {exitCode: 0, finishedAt: "2026-01-01T%sZ"}}}
"""


def over(name: str, until: str, phase: str = "Succeeded") -> str:
    return OVER % (name, phase, until)


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([over("past-0", "01:00:30"), over("past-1", "01:02:00", phase="Failed")], 120),
        # One that still runs may be the longest, and clocks may differ.
        ([over("past-0", "01:00:30"), over("past-1", "01:02:00", phase="Running")], 7200),
        ([over("past-0", "00:59:59")], 0),
    ],
)
def test_a_job_that_is_over_runs_for_as_long_as_it_did(tmp_path: Path, pods: list[str], expected: float) -> None:
    group = CLUSTER.split("---")[0].replace("name: train", "name: past")
    jobs = read(tmp_path, "---".join([group, *pods]))
    assert (jobs.run_time.tolist(), jobs.declared.tolist()) == ([expected], [7200])


def job(name: str, deadline: int | None, *, annotations: str = "") -> str:
    """A Job whose pods are in a PodGroup that was made by hand."""
    return f"""
---
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}, namespace: ml, annotations: {{{annotations}}}}}
spec:
  {"" if deadline is None else f"activeDeadlineSeconds: {deadline}"}
  template:
    metadata: {{annotations: {{scheduling.k8s.io/group-name: by-hand}}}}
    spec:
      schedulerName: stromboli
      containers: [{{name: main, image: "example.com/main:1", resources: {{requests: {{cpu: 500m}}}}}}]
      restartPolicy: Never
"""


def group(annotations: str = "") -> str:
    return f"""
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {{name: by-hand, namespace: ml, annotations: {{{annotations}}}}}
spec: {{minMember: 1}}
"""


@pytest.mark.parametrize(
    ("text", "declared"),
    [
        (group() + job("one", 600), 600.0),
        (group() + job("one", 600) + job("two", 900), 900.0),
        (group() + job("one", 600) + job("two", None), None),
        (group() + job("one", None, annotations="stromboli.io/run-time: 10m"), 600.0),
        (group("stromboli.io/run-time: 5m") + job("one", 600), 300.0),
        (group("stromboli.io/run-time: 15m") + job("one", 600), 600.0),
        (group("stromboli.io/run-time: soon") + job("one", 600), 600.0),
    ],
)
def test_what_owns_pods_says_how_long_a_group_made_by_hand_runs(
    tmp_path: Path, text: str, declared: float | None
) -> None:
    jobs = read(tmp_path, text, run_time=60.0)
    assert jobs.declared.tolist() == pytest.approx([math.nan if declared is None else declared], nan_ok=True)


def test_in_a_dump_the_jobs_of_pods_say_how_long_their_group_runs(tmp_path: Path) -> None:
    pod = """
---
apiVersion: v1
kind: Pod
metadata:
  name: one-abcde
  namespace: ml
  uid: "2"
  annotations: {scheduling.k8s.io/group-name: by-hand}
  ownerReferences: [{apiVersion: batch/v1, kind: Job, name: one, uid: "1", controller: true}]
spec: {schedulerName: stromboli, containers: [{name: main, resources: {requests: {cpu: "2"}}}]}
"""
    jobs = read(tmp_path, group() + job("one", 600).replace("{name: one,", '{name: one, uid: "1",') + pod)
    assert jobs.declared.tolist() == [600.0]


@pytest.mark.parametrize(("again", "pods", "ran"), [(True, 2, 300.0), (False, 2, 120.0)])
def test_a_pod_that_failed_and_was_made_anew_is_there_once(tmp_path: Path, again: bool, pods: int, ran: float) -> None:
    def pod(name: str, phase: str, created: str, ended: str) -> str:
        return f"""
---
apiVersion: v1
kind: Pod
metadata:
  name: one-{name}
  namespace: ml
  creationTimestamp: "2026-01-01T{created}Z"
  annotations: {{scheduling.k8s.io/group-name: by-hand}}
  ownerReferences: [{{apiVersion: batch/v1, kind: Job, name: one, uid: "1", controller: true}}]
spec: {{schedulerName: stromboli, containers: [{{name: main, resources: {{requests: {{cpu: "2"}}}}}}]}}
status:
  phase: {phase}
  startTime: "2026-01-01T{created}Z"
  containerStatuses: [{{name: main, state: {{terminated: {{exitCode: 0, finishedAt: "2026-01-01T{ended}Z"}}}}}}]
"""

    text = group() + pod("a", "Failed", "10:00:00", "10:01:00") + pod("b", "Succeeded", "10:00:00", "10:02:00")
    jobs = read(tmp_path, text + (pod("c", "Succeeded", "10:01:00", "10:06:00") if again else ""))
    assert [sum(task.count for task in gang.tasks) for gang in jobs.gangs] == [pods]
    assert jobs.run_time.tolist() == [ran]


def test_a_suspended_job_is_no_job_until_it_has_pods(tmp_path: Path) -> None:
    assert len(read(tmp_path, CLUSTER.replace("spec:\n  template", "spec:\n  suspend: true\n  template"))) == 1
