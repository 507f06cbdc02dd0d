"""What is told of containers that ended, and of pods that failed."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.engine import Engine
from stromboli.explain.past_runs import PastRuns
from stromboli.explain.rehearsal import Rehearsal
from stromboli.framework.cluster.environment import OFFLINE
from stromboli.lab.forecast import with_start
from tests.builders import NOON, node, pod, pod_group, queue, state
from tests.explain.asking import said, why

MAIN = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}}


def ended(code: int, reason: str = "Error", message: str = "") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message}}


def main(state: dict[str, Any], before: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "main", "state": state, **({"lastState": before} if before else {})}]}


def looping(before: dict[str, Any]) -> dict[str, Any]:
    return main({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m"}}, before)


LIMIT = "OOMKilled, exit code 137: it used more memory than its limit of 1Gi"


@pytest.mark.parametrize(
    ("phase", "status", "says"),
    [
        ("Failed", main(ended(137, "OOMKilled")), f"container main ended: {LIMIT}"),
        (
            "Failed",
            main(ended(1, message="Traceback:\nValueError: no data\n")),
            "exit code 1: its last words: ValueError: no data",
        ),
        ("Failed", main(ended(127)), "exit code 127: its command was not found"),
        ("Failed", main(ended(128, "StartError", "no such file")), "StartError, exit code 128: no such file"),
        (
            "Failed",
            {"reason": "Evicted", "message": "The node was low on resource: memory."},
            "Evicted: The node was low on resource: memory.",
        ),
        ("Failed", {"reason": "DeadlineExceeded", **main(ended(143))}, "DeadlineExceeded; container main ended: exit"),
        ("Running", looping(ended(137, "OOMKilled")), f"CrashLoopBackOff: back-off 5m); the last time {LIMIT}"),
        ("Running", looping(ended(0, "Completed")), "the last time exit code 0"),
        ("Running", main(ended(2)), "container main ended: exit code 2"),
    ],
)
def test_how_a_container_ended_is_told_of_its_pod_and_job(phase: str, status: dict[str, Any], says: str) -> None:
    group = pod_group("job", phase="Running")
    pods = [
        pod("job-0", "job", node="n", phase=phase, status=status, containers=[MAIN]),
        pod("job-1", "job", node="n", phase="Running"),
    ]
    cluster = state(node("n"), queue("default"), group, pods)
    assert says in said(cluster, "pod default/job-0")
    of_job = said(cluster, "job default/job")
    what = "failed" if phase == "Failed" else "does not run as it should"
    assert f"1 of them {what}: job-0 on n: " in of_job
    assert says in of_job


def test_a_container_that_ran_to_its_end_is_no_trouble() -> None:
    done = pod("job-0", "job", node="n", phase="Running", status=main(ended(0, "Completed")))
    cluster = state(node("n"), queue("default"), pod_group("job", phase="Running"), done)
    assert said(cluster, "pod default/job-0") == "Pod default/job-0 of PodGroup job: Running on n"


def test_a_job_that_ended_says_why_its_pods_failed() -> None:
    failed = pod("job-0", "job", node="n", phase="Failed", status=main(ended(137, "OOMKilled")), containers=[MAIN])
    cluster = state(node("n"), queue("default"), pod_group("job", phase="Completed"), failed)
    assert said(cluster, "job default/job") == (
        f"Job default/job: it has finished: 0 of 1 pod succeeded, 1 failed; "
        f"1 of them failed: job-0 on n: container main ended: {LIMIT}"
    )


def test_a_gang_that_lacks_a_pod_which_failed_says_so_and_no_start() -> None:
    failed = pod("job-0", "job", node="n", phase="Failed", status=main(ended(1)))
    runs = pod("job-1", "job", node="n", phase="Running")
    cluster = state(node("n"), queue("default"), pod_group("job", 2), failed, runs)
    text = said(cluster, "job default/job")
    assert "1 of them failed: job-0 on n: container main ended: exit code 1" in text
    assert "a pod asks for" not in text
    rehearsal = Rehearsal(Engine(), cluster.fork(), OFFLINE, NOON)
    assert with_start(why(cluster, "job default/job"), rehearsal, PastRuns()).start is None


PULLING = "Back-off pulling image: rpc error: "


@pytest.mark.parametrize(
    ("reason", "message", "advice"),
    [
        (
            "ImagePullBackOff",
            f"{PULLING}r.example.com/a:1: not found",
            "correct the image r.example.com/a:1, or push it",
        ),
        ("ErrImagePull", f"{PULLING}401 Unauthorized", "give the pod imagePullSecrets for r.example.com"),
        ("ErrImagePull", "dial tcp: lookup r.example.com: no such host", "sees to it that nodes reach r.example.com"),
        ("ErrImagePull", "toomanyrequests: You have reached your limit", "pull r.example.com/a:1 from a mirror"),
        ("ErrImagePull", "no match for platform in manifest", "build the image r.example.com/a:1 for the node's"),
        ("ErrImagePull", "", "correct the image r.example.com/a:1, or give the pod imagePullSecrets for r.example.com"),
        ("InvalidImageName", "couldn't parse image name", "correct the image r.example.com/a:1"),
        ("ErrImageNeverPull", "", "load the image r.example.com/a:1 on the node"),
        ("CreateContainerConfigError", 'secret "key" not found', "create it or correct its name in the pod"),
        ("CrashLoopBackOff", "back-off 5m", "see kubectl logs job-0 -n default -c main --previous"),
    ],
)
def test_what_to_do_is_told_of_a_container_that_does_not_start(reason: str, message: str, advice: str) -> None:
    status = main({"waiting": {"reason": reason, "message": message}})
    held = pod(
        "job-0", "job", node="n", phase="Pending", status=status, containers=[{**MAIN, "image": "r.example.com/a:1"}]
    )
    cluster = state(node("n"), queue("default"), pod_group("job", phase="Running"), held)
    for question in ("pod default/job-0", "job default/job"):
        assert advice in said(cluster, question)


def test_an_image_without_a_registry_is_of_the_usual_one() -> None:
    status = main({"waiting": {"reason": "ErrImagePull", "message": "denied"}})
    held = pod("job-0", "job", node="n", phase="Pending", status=status, containers=[{**MAIN, "image": "team/a:1"}])
    cluster = state(node("n"), queue("default"), pod_group("job", phase="Running"), held)
    assert said(cluster, "pod default/job-0").endswith("; give the pod imagePullSecrets for docker.io")
