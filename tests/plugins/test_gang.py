"""gang: all or nothing."""

from __future__ import annotations

from stromboli.api.crds import PodGroupCondition
from stromboli.api.decisions import SetPodGroupStatus
from stromboli.framework.diagnosis.explain import pending_reasons
from tests.builders import decide, gang, node, pod, pod_group, policy, queue, state

POLICY = policy("priority gang", "predicates proportion nodeorder")


def test_nine_of_ten_fit_and_none_is_bound() -> None:
    cluster = state(
        [node(f"n{i}", cpu="3") for i in range(4)],
        pod("alien", scheduler="other", node="n3", cpu="3"),
        queue("default"),
        pod_group("ten", min_member=10),
        gang("ten", 10),
    )
    result = decide(cluster, POLICY)
    assert result.session.bound == {}
    reasons = pending_reasons(result.session)
    assert {reason.stage.name for reason in reasons.values()} == {"Placement", "Gang"}
    status = next(d.status for d in result.decisions if isinstance(d, SetPodGroupStatus))
    assert [(c.type, c.status, c.reason) for c in status.conditions] == [("Unschedulable", "True", "Unschedulable")]
    cluster.delete("Pod", "default/alien")
    assert len(decide(cluster, POLICY).session.bound) == 10


def test_two_gangs_that_fit_alone_but_not_together() -> None:
    cluster = state(
        node("n1", cpu="6"),
        queue("default"),
        pod_group("first", min_member=4, created=1),
        pod_group("second", min_member=4, created=2),
        gang("first", 4),
        gang("second", 4),
    )
    session = decide(cluster, policy("priority gang", "predicates")).session
    assert sorted(session.bound) == [f"default/first-{i}" for i in range(4)]


def test_roles_have_minimums_of_their_own() -> None:
    cluster = state(
        node("n1", cpu="3"),
        queue("default"),
        pod_group("job", min_member=3, minTaskMember={"driver": 1, "worker": 2}),
        [pod(f"job-w{i}", "job", annotations={"volcano.sh/task-spec": "worker"}) for i in range(4)],
        pod("job-d", "job", cpu="2", annotations={"volcano.sh/task-spec": "driver"}),
    )
    assert decide(cluster, POLICY).session.bound == {}
    cluster.upsert("Node", node("n2", cpu="3"))
    bound = decide(cluster, POLICY).session.bound
    assert "default/job-d" in bound
    assert len(bound) >= 3


def test_a_gang_that_lacks_pods_says_so() -> None:
    cluster = state(node("n1"), queue("default"), pod_group("job", min_member=3), gang("job", 2))
    reasons = pending_reasons(decide(cluster, POLICY).session)
    assert reasons["default/job-0"].reason == "NotEnoughPods"
    assert reasons["default/job-0"].actionable == "user"


def test_an_unchanged_situation_writes_nothing_and_new_numbers_are_in_no_hurry() -> None:
    alien = pod("alien", scheduler="other", node="n0", cpu="8")
    cluster = state(node("n0"), alien, queue("default"), pod_group("job", min_member=2), gang("job", 2))
    first = [d for d in decide(cluster, POLICY).decisions if isinstance(d, SetPodGroupStatus)]
    job = cluster.jobs.pod_groups[0]
    assert job is not None
    cluster.upsert("PodGroup", job.model_copy(update={"status": first[0].status}))
    assert not [d for d in decide(cluster, POLICY).decisions if isinstance(d, SetPodGroupStatus)]
    cluster.upsert("Node", node("n2", cpu="500m", taints=[]))
    assert [d.minor for d in decide(cluster, POLICY).decisions if isinstance(d, SetPodGroupStatus)] == [True]


def test_a_job_whose_pods_have_all_ended_waits_for_none_though_some_failed() -> None:
    """The kubelet may refuse a pod that was bound: what is to come in its stead is up to who made it."""
    group = pod_group("train", 2, phase="Running")
    blocked = PodGroupCondition(type="Unschedulable", status="True", reason="NotEnoughPods", message="it lacks pods")
    group = group.model_copy(update={"status": group.status.model_copy(update={"conditions": [blocked]})})
    ended = [pod("train-0", "train", node="n", phase="Failed"), pod("train-1", "train", node="n", phase="Succeeded")]
    result = decide(state(node("n"), queue("default"), group, *ended), policy("gang"))
    (status,) = [each.status for each in result.decisions if isinstance(each, SetPodGroupStatus)]
    assert status.phase == "Completed"
    assert [(c.type, c.status) for c in status.conditions] == [("Unschedulable", "False")]

    # One of them is still to come.
    few = decide(state(node("n"), queue("default"), group, ended[0]), policy("gang"))
    told = [each.status for each in few.decisions if isinstance(each, SetPodGroupStatus)]
    assert all(c.status == "True" for status in told for c in status.conditions)
    assert [status.phase for status in told] != ["Completed"]
