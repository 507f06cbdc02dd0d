"""PodGroups without pods, and gangs that no division among nodes can hold."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.api.decisions import Bind, SetPodGroupStatus
from stromboli.engine import Engine, SessionResult, Successive
from stromboli.framework.cluster.environment import Admitted, Environment
from stromboli.framework.session.empty_nodes import fit_side_by_side
from tests.builders import NOON, gang, node, pod, pod_group, queue, state
from tests.fuzz import tried
from tests.plugins.queues import admitted, asks, refused
from tests.plugins.sessions import decide, policy

POLICY = policy("overcommit", {"overcommit-factor": 1.0}, actions="enqueue")


def owned(kind: str, version: str, phase: str = "Inqueue", **status: Any) -> Any:
    """A PodGroup of a workload that asks for 7 CPUs and has no pods."""
    group = pod_group("cluster", 3, minResources={"cpu": "7"}).model_copy(deep=True)
    owner = {"apiVersion": version, "kind": kind, "name": "cluster", "uid": "u", "controller": True}
    group.metadata.owner_references = [owner]
    group.status.phase = phase
    for field, value in status.items():
        setattr(group.status, field, value)
    return group


def decided(*objs: Any) -> SessionResult:
    return decide(node("n", cpu="8"), *objs, asks("lone", "3"), pod("p", "lone", cpu="3"), by=POLICY)


@pytest.mark.parametrize("phase", ["Inqueue", "Pending", "Running"])
def test_a_suspended_cluster_claims_nothing(phase: str) -> None:
    assert "lone" in admitted(decided(owned("RayCluster", "ray.io/v1", phase)))


@pytest.mark.parametrize(
    "owner", [("Job", "batch.volcano.sh/v1alpha1"), ("PyTorchJob", "kubeflow.org/v1")], ids=lambda each: each[0]
)
def test_one_whose_pods_come_once_it_is_admitted_claims_what_they_need(owner: tuple[str, str]) -> None:
    assert "lone" not in admitted(decided(owned(*owner)))


def test_what_was_completed_stays_so_without_its_pods() -> None:
    result = decided(owned("RayCluster", "ray.io/v1", "Completed"))
    assert result.session.view.jobs["default/cluster"].phase == "Completed"
    assert "lone" in admitted(result)


def test_of_a_group_without_pods_nobody_waits_for_long() -> None:
    """Nothing says whether its pods are to come: its claim holds for a minute, and again once they are there."""
    cluster = state(queue("default"), node("n", cpu="8"), asks("bare", "7"))
    sessions = Successive(Engine(POLICY), Environment(admitted=Admitted()))

    def then(seconds: int) -> list[str]:
        result = sessions.decide(cluster.snapshot(), now=NOON + seconds)
        for decision in result.decisions:
            if isinstance(decision, SetPodGroupStatus):
                group = cluster.pod_group(decision.key)
                assert group is not None
                cluster.upsert("PodGroup", group.model_copy(update={"status": decision.status}))
        return [job.name for job in result.session.view.jobs.values() if job.phase == "Inqueue" and job.claims]

    assert then(0) == ["bare"]
    cluster.upsert("PodGroup", asks("lone", "3"))
    cluster.upsert("Pod", pod("p", "lone", cpu="3"))
    assert then(1) == ["bare"]
    assert then(59) == ["bare"]
    assert then(62) == ["lone"]
    assert then(300) == ["lone"]
    cluster.delete("PodGroup", "default/lone")
    cluster.delete("Pod", "default/p")
    for member in gang("bare", 1, cpu="7"):
        cluster.upsert("Pod", member)
    assert then(301) == ["bare"]


# -- gangs and nodes -------------------------------------------------------------------------------------------------


def test_a_gang_that_fits_by_its_sum_only_is_not_admitted_and_blocks_nobody() -> None:
    sizes = ("1", "3500m", "3500m")
    group = pod_group("never", 3, phase="Pending", minResources={"cpu": "8"})
    pods = [pod(f"n{number}", "never", cpu=cpu, memory="") for number, cpu in enumerate(sizes)]
    others = [pod_group("gang", 4, phase="Pending", minResources={"cpu": "8"}), *gang("gang", 4, cpu="2", memory="")]
    result = decide(node("a", cpu="4"), node("b", cpu="4"), group, *pods, *others, by=POLICY)
    assert admitted(result) == ["gang"]
    reason = refused(result, "never")
    assert (reason.reason, "side by side" in reason.message) == ("NeverFits", True)


class Sessions:
    """Sessions over a cluster with a gang of three pods for two nodes of a pool, and a lone pod that needs 3 CPUs."""

    def __init__(self) -> None:
        pool = {"nodeSelector": {"pool": "gpu"}}
        nodes = [node(f"g{number}", cpu="3", labels={"pool": "gpu"}) for number in range(2)]
        members = [pod(f"m{number}", "early", cpu="2", **pool) for number in range(3)]
        lone = (asks("lone", "3"), pod("p", "lone", cpu="3"))
        group = pod_group("early", 3, phase="Pending", minResources={"cpu": "6"})
        self.cluster = state(queue("default"), *nodes, node("other", cpu="2"), group, *members, *lone)
        policy_ = policy("overcommit", {"overcommit-factor": 1.0}, actions="enqueue, allocate")
        self.sessions = Successive(Engine(policy_), Environment(admitted=Admitted()))

    def then(self) -> tuple[list[str], list[str]]:
        """The jobs that lay claim to their minResources, and the pods that are bound."""
        result = self.sessions.decide(self.cluster.snapshot(), now=NOON)
        for decision in result.decisions:
            if isinstance(decision, SetPodGroupStatus):
                group = self.cluster.pod_group(decision.key)
                assert group is not None
                self.cluster.upsert("PodGroup", group.model_copy(update={"status": decision.status}))
        claiming = [job.name for job in result.session.view.jobs.values() if job.phase == "Inqueue" and job.claims]
        return claiming, sorted(each.name for each in result.decisions if isinstance(each, Bind))


def test_a_gang_that_its_nodes_cannot_hold_blocks_nobody() -> None:
    sessions = Sessions()
    assert sessions.then() == (["early"], [])
    assert sessions.then() == (["lone"], ["p"])


def test_a_gang_that_could_not_be_placed_starts_once_it_can() -> None:
    sessions = Sessions()
    sessions.then()
    sessions.cluster.upsert("Node", node("g2", cpu="3", labels={"pool": "gpu"}))
    assert sessions.then() == (["lone"], ["m0", "m1", "m2"])


def test_a_gang_that_could_not_be_placed_lays_claim_again_once_it_only_waits_for_others() -> None:
    sessions = Sessions()
    sessions.cluster.delete("PodGroup", "default/lone")
    sessions.cluster.delete("Pod", "default/p")
    sessions.then()
    assert sessions.then() == ([], [])
    sessions.cluster.upsert("Node", node("g2", cpu="3", labels={"pool": "gpu"}))
    for obj in (pod_group("other", 1, phase="Running"), pod("o", "other", node="g2", cpu="3")):
        sessions.cluster.upsert(type(obj).__name__, obj)
    sessions.then()
    assert sessions.then() == (["early"], [])


@tried(40)
@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=6),
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
)
def test_a_no_is_certain_and_a_yes_for_few_pods_is_right(pods: list[int], nodes: list[int]) -> None:
    kinds, numbers = np.unique(pods, return_counts=True)
    shapes, copies = np.unique(nodes, return_counts=True)
    found = fit_side_by_side(kinds[:, None].astype(float), numbers, shapes[None, :].astype(float), copies)
    assert found == any(
        all(
            sum(size for size, at in zip(pods, places, strict=True) if at == index) <= room
            for index, room in enumerate(nodes)
        )
        for places in itertools.product(range(len(nodes)), repeat=len(pods))
    )


def test_a_search_that_would_take_long_says_yes() -> None:
    sizes = np.arange(1.0, 41.0)[:, None]
    assert fit_side_by_side(sizes, np.ones(40, np.intp), np.array([[103.0]]), np.array([8]))
