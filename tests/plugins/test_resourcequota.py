"""resourcequota: admission within the quotas of a namespace."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.api.objects import Metadata, PriorityClass
from tests.builders import node, pod, pod_group
from tests.plugins.sessions import decide, policy


def quota(hard: dict[str, str], used: dict[str, str], namespace: str = "default") -> dict[str, Any]:
    return {"metadata": {"name": "quota", "namespace": namespace}, "status": {"hard": hard, "used": used}}


def outcome(*groups: Any, quotas: list[dict[str, Any]], **options: Any) -> tuple[set[str], dict[str, str]]:
    """The jobs that are admitted, and why the others are not."""
    by, objects = policy("resourcequota", actions="enqueue"), {"ResourceQuota": quotas}
    session = decide(node("n1"), *groups, by=by, objects=objects, **options).session
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


SPELLINGS = {
    "requests.cpu": ({"cpu": "4"}, "3"),
    "cpu": ({"requests.cpu": "4"}, "3"),
    "requests.memory": ({"memory": "4Gi"}, "3Gi"),
    "requests.nvidia.com/gpu": ({"nvidia.com/gpu": "2"}, "1"),
    "requests.ephemeral-storage": ({"cpu": "1", "ephemeral-storage": "2Gi"}, "1Gi"),
    "limits.cpu": ({"cpu": "1", "limits.cpu": "4"}, "3"),
    "pods": ({"cpu": "1"}, "2"),
    "count/pods": ({"cpu": "1"}, "2"),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_quota_means_what_it_means_to_the_api_server(name: str) -> None:
    asked, less = SPELLINGS[name]
    gang = pod_group("gang", 3, phase="Pending", minResources=asked)
    enough = {key.replace("requests.", ""): value for key, value in asked.items()}.get(
        name.replace("requests.", ""), "3"
    )
    assert outcome(gang, quotas=[quota({name: less}, {})])[1] == {"gang": "ResourceQuotaExceeded"}
    assert outcome(gang, quotas=[quota({name: enough}, {})])[1] == {}
    assert outcome(gang, quotas=[quota({name: enough}, {name: "1"})])[1] == {"gang": "ResourceQuotaExceeded"}
    unseen = {"metadata": {"name": "new", "namespace": "default"}, "spec": {"hard": {name: less}}}
    assert outcome(gang, quotas=[unseen])[1] == {"gang": "ResourceQuotaExceeded"}


def test_what_minresources_leaves_out_is_read_of_the_pods() -> None:
    pods = [pod(f"gang-{number}", "gang", cpu="1", memory="1Gi") for number in range(3)]
    gang = pod_group("gang", 3, phase="Pending", minResources={"cpu": "3"})
    assert outcome(gang, pods, quotas=[quota({"requests.memory": "2Gi"}, {})])[1] == {"gang": "ResourceQuotaExceeded"}


def test_pods_that_wait_are_in_what_is_used() -> None:
    pods = [pod(f"gang-{number}", "gang", cpu="1") for number in range(4)]
    gang = pod_group("gang", 4, phase="Pending", minResources={"cpu": "4", "requests.cpu": "4", "pods": "4"})
    full = quota({"requests.cpu": "4", "pods": "4"}, {"requests.cpu": "4", "pods": "4"})
    assert outcome(gang, pods, quotas=[full])[1] == {}
    assert outcome(gang, pods[:3], quotas=[full])[1] == {"gang": "ResourceQuotaExceeded"}
    behind = quota({"requests.cpu": "3"}, {"requests.cpu": "0"})
    assert outcome(gang, pods, quotas=[behind])[1] == {"gang": "ResourceQuotaExceeded"}


HIGH = {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
SCOPES = [
    ({"scopes": ["BestEffort"]}, {"best"}),
    ({"scopes": ["NotBestEffort"]}, {"plain", "high", "late", "apart"}),
    ({"scopes": ["Terminating"]}, {"late"}),
    ({"scopes": ["NotTerminating", "NotBestEffort"]}, {"plain", "high", "apart"}),
    ({"scopes": ["PriorityClass"]}, {"high"}),
    ({"scopeSelector": {"matchExpressions": [HIGH]}}, {"high"}),
    ({"scopeSelector": {"matchExpressions": [{**HIGH, "operator": "NotIn"}]}}, {"plain", "best", "late", "apart"}),
    (
        {"scopeSelector": {"matchExpressions": [{**HIGH, "operator": "DoesNotExist"}]}},
        {"plain", "best", "late", "apart"},
    ),
    ({"scopes": ["BestEffort"], "scopeSelector": {"matchExpressions": [HIGH]}}, set()),
    ({"scopes": ["CrossNamespacePodAffinity"]}, {"apart"}),
    ({"scopes": ["VolumeAttributesClass"]}, set()),
]
_TERM = {"topologyKey": "zone", "labelSelector": {}, "namespaces": ["other"]}
ELSEWHERE = {
    "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": _TERM}]}
}


@pytest.mark.parametrize(("spec", "held"), SCOPES)
def test_a_quota_counts_the_pods_of_its_scopes(spec: dict[str, Any], held: set[str]) -> None:
    cluster = [
        *(pod_group("plain", phase="Pending", minResources={"cpu": "1"}), pod("plain-0", "plain")),
        pod_group("high", phase="Pending", minResources={"cpu": "1"}),
        pod("high-0", "high", priorityClassName="high"),
        *(pod_group("best", phase="Pending", minResources={}), pod("best-0", "best", cpu="", memory="")),
        pod_group("late", phase="Pending", minResources={"cpu": "1"}),
        pod("late-0", "late", activeDeadlineSeconds=60),
        pod_group("apart", phase="Pending", minResources={"cpu": "1"}),
        pod("apart-0", "apart", affinity=ELSEWHERE),
    ]
    none = {**quota({"pods": "0"}, {}), "spec": spec}
    assert set(outcome(*cluster, quotas=[none])[1]) == held
    assert set(outcome(*cluster, quotas=[none], compatibility="volcano")[1]) == set()


def test_a_quota_counts_only_the_pods_of_a_gang_that_are_in_its_scopes() -> None:
    gang = [
        pod_group("gang", 3, phase="Pending", minResources={"cpu": "3"}),
        pod("driver", "gang", cpu="1", priorityClassName="high"),
        *(pod(f"worker-{number}", "gang", cpu="1") for number in range(2)),
    ]

    def refused(most: str) -> bool:
        limit = {**quota({"cpu": most}, {}), "spec": {"scopeSelector": {"matchExpressions": [HIGH]}}}
        return "gang" in outcome(*gang, quotas=[limit])[1]

    assert refused("500m")
    assert not refused("1")


def test_a_job_without_pods_has_the_class_that_pods_get_which_name_none() -> None:
    job = pod_group("job", phase="Pending", minResources={"cpu": "1"})
    usual = PriorityClass(metadata=Metadata(name="high"), value=7, global_default=True)
    limit = {**quota({"cpu": "0"}, {}), "spec": {"scopeSelector": {"matchExpressions": [HIGH]}}}
    assert outcome(job, quotas=[limit])[1] == {}
    assert outcome(job, usual, quotas=[limit])[1] == {"job": "ResourceQuotaExceeded"}


def test_volcano_compares_names_letter_by_letter() -> None:
    gang = pod_group("gang", 3, phase="Pending", minResources={"cpu": "4"})
    assert outcome(gang, quotas=[quota({"requests.cpu": "1", "pods": "1"}, {})], compatibility="volcano")[1] == {}
