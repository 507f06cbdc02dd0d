"""resourcequota: admission within the quotas of a namespace."""

from __future__ import annotations

from typing import Any

from tests.builders import node, pod, pod_group
from tests.plugins.sessions import decide, policy


def quota(hard: dict[str, str], used: dict[str, str], namespace: str = "default") -> dict[str, Any]:
    return {"metadata": {"name": "quota", "namespace": namespace}, "status": {"hard": hard, "used": used}}


def outcome(*groups: Any, quotas: list[dict[str, Any]]) -> tuple[set[str], dict[str, str]]:
    """The jobs that are admitted, and why the others are not."""
    session = decide(
        node("n1"), *groups, by=policy("resourcequota", actions="enqueue"), objects={"ResourceQuota": quotas}
    ).session
    jobs = {job.name for job in session.view.jobs.values() if job.phase == "Inqueue"}
    return jobs, {key.partition("/")[2]: why.reason for key, why in session.view.trace.jobs.items()}


def group(name: str, created: int = 0, **amounts: str):
    resources = {key.replace("_", "."): value for key, value in amounts.items()}
    return pod_group(name, phase="Pending", created=created, minResources=resources)


def test_only_what_the_quota_names_is_compared() -> None:
    limit = quota({"requests.cpu": "4"}, {"requests.cpu": "3500m"})
    jobs, why = outcome(
        group("fits", requests_cpu="500m", memory="32Gi"), group("not", created=1, requests_cpu="1m"), quotas=[limit]
    )
    assert jobs == {"fits"}
    assert why == {"not": "ResourceQuotaExceeded"}


def test_what_was_admitted_before_counts() -> None:
    jobs, _ = outcome(
        *(group(f"job{i}", created=i, requests_cpu="2") for i in range(3)), quotas=[quota({"requests.cpu": "4"}, {})]
    )
    assert jobs == {"job0", "job1"}


def test_other_namespaces_and_jobs_without_minimum_are_free() -> None:
    closed = {"requests.cpu": "0"}
    jobs, _ = outcome(
        group("free", requests_cpu="8"), pod_group("bare", phase="Pending"), quotas=[quota(closed, {}, "other")]
    )
    assert jobs == {"free", "bare"}
    assert outcome(pod_group("bare", phase="Pending"), quotas=[quota(closed, {})])[0] == {"bare"}


def test_what_a_gang_holds_is_not_counted_again() -> None:
    """It lost a pod and is admitted anew: its pods are in what is used."""
    quotas = [quota({"requests.cpu": "4"}, {"requests.cpu": "4"})]
    held = [pod(f"train-{number}", "train", node="n1") for number in range(3)]
    train = pod_group("train", 4, phase="Pending", minResources={"requests.cpu": "4"})
    assert outcome(train, quotas=quotas)[1] == {"train": "ResourceQuotaExceeded"}
    assert outcome(train, held, quotas=quotas)[1] == {}
