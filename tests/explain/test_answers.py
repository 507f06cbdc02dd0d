"""What an answer about a job or a pod says: what blocks, nodes by cause, who is in the way, what would help."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from stromboli.api.keys import inner_name
from stromboli.explain.answers import Holding
from stromboli.framework.diagnosis.explain import pending_reasons
from stromboli.policy.document import DEFAULT_POLICY
from stromboli.simulation import summary
from stromboli.simulation.run import Run
from stromboli.state.cluster import ClusterState
from tests.builders import decide, gang, node, pod, pod_group, policy, queue, racks, state
from tests.explain.asking import answer, said, why

TAINT = {"key": "gpu", "value": "only", "effect": "NoSchedule"}
QUOTA = {
    "kind": "ResourceQuota",
    "metadata": {"name": "small", "namespace": "default"},
    "status": {"hard": {"cpu": "4"}, "used": {"cpu": "2"}},
}
TOPOLOGY = policy("gang", "predicates network-topology-aware proportion")


def with_quota() -> ClusterState:
    cluster = state(
        *(node("n"), queue("default"), pod_group("job", 3, phase="Pending", minResources={"cpu": "3"}), gang("job", 3))
    )
    cluster.upsert("ResourceQuota", QUOTA)
    return cluster


def overcommitted() -> ClusterState:
    more = {"minResources": {"cpu": "8"}}
    return state(
        *(node("n"), queue("a"), queue("b")),
        *(pod_group("first", queue="a", **more), pod_group("second", queue="b", phase="Pending", **more)),
        *(pod("first-0", "first", cpu="8", scheduling_gates=None), pod("second-0", "second", cpu="8")),
    )


def gang_of_8() -> ClusterState:
    return state(
        *(node("n1", cpu="4"), node("n2", cpu="4"), node("gpu", cpu="8", taints=[TAINT])),
        *(queue("default"), pod_group("job", 8), gang("job", 8)),
        *(pod_group("run", phase="Running"), pod("run-0", "run", cpu="3", node="n1")),
    )


def one(**more: object) -> list[object]:
    """A queue and a job of one pod."""
    return [queue("default"), pod_group("job"), pod("job-0", "job", **more)]  # type: ignore[arg-type]


CASES = {
    "QueueNotFound": (
        lambda: state(node("n"), queue("research"), pod_group("job", queue="reserch"), pod("job-0", "job")),
        DEFAULT_POLICY,
        ["user: set queue: research in PodGroup default/job", "admin: create queue reserch"],
    ),
    "QueueNotFound ": (
        lambda: state(*(node("n"), queue("ads"), queue("default")), pod_group("job", queue="zoo"), pod("job-0", "job")),
        DEFAULT_POLICY,
        ["user: set queue: default in PodGroup default/job", "admin: create queue zoo"],
    ),
    "QueueNotOpen": (
        lambda: state(node("n"), queue("default", state="Closed"), pod_group("job"), pod("job-0", "job")),
        DEFAULT_POLICY,
        ["admin: open queue default"],
    ),
    "PodGroupNotFound": (
        lambda: state(node("n"), queue("default"), pod("job-0", "job")),
        DEFAULT_POLICY,
        ["user: create PodGroup default/job in queue default with minMember 1"],
    ),
    "PodGroupNotFound ": (
        lambda: state(node("n"), queue("default"), pod_group("train"), pod("job-0", "trian")),
        DEFAULT_POLICY,
        ["user: set the annotation scheduling.k8s.io/group-name: train on the pods"],
    ),
    "PodGroupNotFound   ": (
        lambda: state(
            *(node("n"), queue("default"), pod_group(inner_name("train")), pod_group("trian")),
            pod("job-0", inner_name("traim")),
        ),
        DEFAULT_POLICY,
        ["user: make the pods again with spec.schedulingGroup.podGroupName: train"],
    ),
    "SchedulingGated": (
        lambda: state(node("n"), *one(schedulingGates=[{"name": "example.com/wait"}])),
        DEFAULT_POLICY,
        ["user: have the scheduling gates example.com/wait lifted by what set them"],
    ),
    "NotEnoughPods": (
        lambda: state(node("n"), queue("default"), pod_group("job", 4), gang("job", 3)),
        DEFAULT_POLICY,
        ["user: set minMember: 3 in PodGroup default/job, or create 1 more pod of it"],
    ),
    "NoMatchingNode": (
        lambda: state(node("n", taints=[TAINT]), *one()),
        DEFAULT_POLICY,
        ["user: tolerate taint gpu=only:NoSchedule", "admin: add 1 node like n without taints"],
    ),
    "NeverFits": (
        lambda: state(node("n", cpu="4"), *one(cpu="6")),
        policy("gang", "predicates"),
        ["user: ask for no more than 4 cpu a pod", "admin: add 1 node like n with 6 cpu"],
    ),
    "NeverFits ": (
        lambda: state(
            *(node("n", cpu="4"), queue("default", capability={"cpu": "2"})),
            *(pod_group("job", 6), gang("job", 6)),
        ),
        DEFAULT_POLICY,
        ["admin: raise capability of queue default to 6 cpu, and add 1 node like n"],
    ),
    "Unschedulable": (
        gang_of_8,
        DEFAULT_POLICY,
        [
            "user: tolerate taint gpu=only:NoSchedule",
            "admin: add 1 node like n1",
            "wait: wait until default/run ends",
        ],
    ),
    "ResourceQuotaExceeded": (
        with_quota,
        policy("gang resourcequota", "predicates", actions="enqueue, allocate"),
        ["admin: raise ResourceQuota default/small to 5 cpu"],
    ),
    "ClusterOvercommitted": (
        overcommitted,
        policy("gang overcommit", "predicates", actions="enqueue"),
        [],
    ),
    "NoHyperNodeFits": (
        lambda: state(
            *racks(2, 2),
            queue("default"),
            pod_group("job", 4, networkTopology={"mode": "hard", "highestTierAllowed": 1}),
            gang("job", 4, cpu="2"),
        ),
        TOPOLOGY,
        ["user: set highestTierAllowed: 2 in PodGroup default/job"],
    ),
}

VOLUME = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
DEVICES = {"resourceClaims": [{"name": "cards", "resourceClaimName": "cards"}]}
PORT = {"containers": [{"name": "main", "image": "x", "ports": [{"hostPort": 80, "containerPort": 80}]}]}
WORKERS = {"name": "w", "subGroupSize": 1, "minSubGroups": 3, "matchLabelKeys": ["at"], "labelSelector": {}}
TOO_NARROW = {"mode": "hard", "highestTierAllowed": 1}


def with_volume(*, there: bool) -> ClusterState:
    """A pod that names a claim, which waits for a volume if it is there."""
    cluster = state(node("n"), queue("default"), pod_group("job"), pod("job-0", "job", **VOLUME))
    metadata = {"name": "data", "namespace": "default"}
    if there:
        cluster.upsert("PersistentVolumeClaim", {"kind": "PersistentVolumeClaim", "metadata": metadata, "spec": {}})
    return cluster


def overstated() -> ClusterState:
    group = pod_group("job", phase="Pending", minResources={"cpu": "350"})
    return state(node("n"), queue("default"), group, pod("job-0", "job"))


#: what is in the way, in words, with its reason, the situation and what helps
WAYS = {
    "a queue may borrow no more": (
        "QueueCapabilityExceeded",
        lambda: state(
            node("n"),
            queue("default", deserved={"cpu": "2"}, borrowingLimit={"cpu": "1"}),
            *(pod_group("old", phase="Running"), *gang("old", 3, node="n")),
            *(pod_group("job", 2), *gang("job", 2)),
        ),
        policy("gang", "predicates capacity"),
        ["wait: wait until default/old ends", "admin: raise borrowingLimit of queue default to 3 cpu"],
    ),
    "racks that follow from labels are too small": (
        "NoHyperNodeFits",
        lambda: state(
            [node(f"n{at}", cpu="2", labels={"zone": "a", "rack": str(at)}) for at in range(2)],
            queue("default"),
            pod_group("job", 2, networkTopology={"mode": "hard", "highestTierName": "rack"}),
            gang("job", 2, cpu="2"),
        ),
        f"topology: {{levels: [{{nodeLabel: zone}}, {{nodeLabel: rack}}]}}\n{TOPOLOGY}",
        ["user: set highestTierName: zone in PodGroup default/job"],
    ),
    "a claim is missing": (
        *("NoMatchingNode", lambda: with_volume(there=False), DEFAULT_POLICY),
        ["user: create PersistentVolumeClaim default/data"],
    ),
    "no volume is behind a claim": (
        *("NoMatchingNode", lambda: with_volume(there=True), DEFAULT_POLICY),
        ["admin: provide volumes for PersistentVolumeClaim default/data"],
    ),
    "a claim for devices is missing": (
        "NoMatchingNode",
        lambda: state(node("n"), queue("default"), pod_group("job"), pod("job-0", "job", **DEVICES)),
        DEFAULT_POLICY,
        ["user: create ResourceClaim default/cards"],
    ),
    "a port is taken": (
        "NoMatchingNode",
        lambda: state(
            node("n"), pod("web", node="n", **PORT), queue("default"), pod_group("job"), pod("job-0", "job", **PORT)
        ),
        DEFAULT_POLICY,
        ["admin: add 1 node like n"],
    ),
    "sub groups are missing": (
        "NotEnoughPodsOfTask",
        lambda: state(
            *(node("n"), queue("default"), pod_group("job", 2, subGroupPolicy=[WORKERS])),
            [pod(f"job-{i}", "job", labels={"at": f"{i}"}) for i in range(2)],
        ),
        DEFAULT_POLICY,
        ["user: set minSubGroups: 2 of w in PodGroup default/job"],
    ),
    "more is claimed than pods ask for": (
        *("ClusterOvercommitted", overstated, policy("gang overcommit", "predicates", actions="enqueue, allocate")),
        ["user: set minResources to 1 cpu, 1Gi memory in PodGroup default/job, which is what its pods ask for"],
    ),
    "no HyperNode is large enough": (
        "NoHyperNodeFits",
        lambda: state(
            *racks(1, 1, per_spine=1),
            *(queue("default"), pod_group("job", 2, networkTopology=TOO_NARROW | {"highestTierAllowed": 2})),
            gang("job", 2, cpu="2"),
        ),
        TOPOLOGY,
        ["user: set networkTopology mode: soft in PodGroup default/job"],
    ),
    "there are no nodes": (
        *("NoNodes", lambda: state(queue("default"), pod_group("job"), pod("job-0", "job")), DEFAULT_POLICY),
        ["admin: add 1 node with 1 cpu, 1Gi memory"],
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_in_the_way_is_named_with_what_does_away_with_it(way: str) -> None:
    reason, made, with_policy, helps = WAYS[way]
    found = why(made(), "job default/job", with_policy)
    assert (found.reason, [f"{each.who}: {each.change}" for each in found.remedies]) == (reason, helps)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("held", [0, 2, 4])
@pytest.mark.parametrize("pods", [2, 4, 5, 8])
def test_nobody_is_told_to_wait_for_a_hyper_node_that_is_too_small(pods: int, held: int) -> None:
    """Each of 2 racks has 2 nodes of 4 cpu, so it takes 4 pods of 2 cpu when it is empty."""
    running = [
        pod(f"run-{i}", "run", cpu="4", node=name) for i, name in enumerate(("r0-0", "r1-0", "r0-1", "r1-1")[:held])
    ]
    cluster = state(
        *racks(2, 2, cpu="4"),
        *(queue("default"), pod_group("run"), running),
        pod_group("job", pods, networkTopology=TOO_NARROW),
        gang("job", pods, cpu="2"),
    )
    found = why(cluster, "job default/job", TOPOLOGY)
    if found.reason != "NoHyperNodeFits":
        assert pods <= 4
        return
    assert (found.who == "wait") == (pods <= 4)
    assert ("when it is empty" in found.detail) == (pods > 4)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("reason", CASES)
def test_the_smallest_change_that_helps_is_found_by_trying(reason: str) -> None:
    made, with_policy, helps = CASES[reason]
    key = {"ClusterOvercommitted": "default/second", "PodGroupNotFound ": "default/trian"}
    key = {**key, "PodGroupNotFound   ": f"default/{inner_name('traim')}"}.get(reason, "default/job")
    found = why(made(), f"job {key}", with_policy)
    assert found.reason == reason.strip()
    assert found.message
    told = [f"{remedy.who}: {remedy.change}" for remedy in found.remedies]
    assert [change for change in helps if change not in told] == [], told


def test_nodes_are_counted_by_cause_with_the_nearest_miss() -> None:
    found = why(gang_of_8(), "job default/job")
    assert {cause.cause: cause.nodes for cause in found.nodes} == {
        "node(s) had untolerated taint {gpu: only}": 1,
        "fits 1 of 8 pods": 1,
        "fits 4 of 8 pods": 1,
    }
    assert found.would_fit == 5
    assert found.nearest.endswith("lacks 1 cpu for one more: 0 cpu left")
    assert found.holders == [
        Holding(namespace="default", name="run", queue="default", pods=1, amounts={"cpu": "3"}),
    ]


def test_how_long_the_pods_run_at_most_is_told() -> None:
    group = pod_group("job", 2)
    group.metadata.annotations["stromboli.io/run-time"] = "5400"
    told = said(state(node("n", cpu="1"), queue("default"), group, gang("job", 2)), "job default/job")
    assert "2 start together and run at most 1h30m;" in told


def test_nodes_that_lack_the_same_are_one_cause() -> None:
    nodes = [node(f"n{i}", cpu="4") for i in range(3)]
    held = [pod(f"held-{i}", cpu=str(1 + i), node=f"n{i}") for i in range(3)]
    found = why(state(nodes, held, one(cpu="4")), "job default/job")
    assert [(cause.nodes, cause.cause) for cause in found.nodes] == [(3, "Insufficient cpu: at least 1 cpu short")]
    assert found.nearest == "n0 lacks 1 cpu for one: 3 cpu free"


def test_an_overcommitted_node_lacks_what_it_holds_too_much_as_well() -> None:
    held = [pod(f"held-{i}", cpu="4", node="n") for i in range(2)]
    found = why(state(node("n", cpu="6"), held, one(cpu="1")), "job default/job")
    assert [cause.cause for cause in found.nodes] == ["Insufficient cpu: 3 cpu short"]
    assert found.nearest == "n lacks 3 cpu for one: 0 cpu free"
    assert found.would_fit == 0


def test_a_pod_is_explained_with_its_gang() -> None:
    found = why(gang_of_8(), "pod default/job-7")
    assert (found.kind, found.group, found.min_member) == ("Pod", "job", 8)
    assert any(remedy.change == "add 1 node like n1" for remedy in found.remedies)


def test_jobs_that_are_served_before_are_named() -> None:
    names = ("first", "second", "third")
    groups, pods = [pod_group(name, 3, created=at) for at, name in enumerate(names)], [gang(name, 3) for name in names]
    runs = [pod_group("runs", phase="Running"), pod("runs-0", "runs", cpu="2", node="n")]
    found = why(state(node("n", cpu="4"), queue("default"), runs, groups, *pods), "job default/third")
    assert [ahead.name for ahead in found.ahead] == ["first", "second"]
    assert found.ahead[0].amounts["cpu"] == "3"


def test_what_no_node_offers_has_its_name() -> None:
    cards = {"resources": {"nvidia.com/gpu": "2"}}
    first, later = (pod_group(name, created=at) for at, name in enumerate(("first", "later")))
    cluster = state(
        node("n"), queue("default"), first, pod("first-0", "first", **cards), later, pod("later-0", "later")
    )
    assert why(cluster, "job default/first").request["nvidia.com/gpu"] == "2"
    asked = [said(cluster, question) for question in ("job default/later", "queue default", "job default/first")]
    assert "unoffered" not in "".join(asked)
    assert "ask for no nvidia.com/gpu" in asked[-1]
    assert "add 1 node like n with 2 nvidia.com/gpu" in asked[-1]


@pytest.mark.parametrize("by", ["proportion", "capacity"])
def test_a_queue_without_room_for_it_says_so_in_words(by: str) -> None:
    cluster = state(node("n"), queue("default"), pod_group("x"), pod("x-0", "x", resources={"nvidia.com/gpu": "2"}))
    result = decide(cluster, policy(f"gang {by}"), compatibility="volcano")
    assert (
        "queue default has no capacity left in resources that no node offers"
        in pending_reasons(result.session)["default/x-0"].told
    )
    shown = StringIO()
    Console(file=shown, width=100).print(summary.queues("", Run(result.session)))
    assert "resources that no node offers" in shown.getvalue()
    assert "unoffered" not in shown.getvalue() + repr(result.decisions)


def test_closed_queues_say_by_whom_and_are_no_part_of_the_division() -> None:
    closed = [
        queue("top", state="Closed"),
        queue("a", parent="top", weight=7),
        pod_group("x", queue="a"),
        pod("x-0", "x"),
    ]
    open_ = [queue("b", weight=2), pod_group("y", queue="b"), pod("y-0", "y")]
    cluster = state(node("n"), *closed, *open_)
    assert "takes no new work: queue top, above it, is Closed" in said(cluster, "queue a")
    assert "weight 2 of 2 (b 2)" in said(cluster, "queue b")
    assert "weight 7" not in said(cluster, "queue a").partition("\n")[2]


def test_pods_that_gates_hold_back_are_not_counted_among_those_that_would_find_room() -> None:
    held = pod("job-1", "job", schedulingGates=[{"name": "example.com/wait"}])
    cluster = state(node("n"), queue("default"), pod_group("job", 2), pod("job-0", "job"), held)
    told = "1 of the 1 that waits would fit now, 1 is held back by scheduling gates"
    assert told in said(cluster, "job default/job")


def test_what_runs_has_no_reason() -> None:
    cluster = state(node("n"), queue("default"), pod_group("job", phase="Running"), pod("job-0", "job", node="n"))
    assert said(cluster, "job default/job") == "Job default/job: 1 of 1 pod has a place"
    assert said(cluster, "pod default/job-0") == "Pod default/job-0 of PodGroup job: Running on n"
    cluster.upsert("Pod", pod("job-1", "job", node="gone", phase="Pending"))
    assert said(cluster, "pod default/job-1").endswith(
        ": it is bound to gone and does not run: node gone does not exist"
    )
    cluster.upsert("Pod", pod("job-2", "job", node="n", deleted=True))
    assert said(cluster, "pod default/job-2").endswith(": it is terminating on n")
    assert answer(cluster, "job default/none") is None
    assert answer(cluster, "pod default/none") is None
    assert answer(cluster, "queue none") is None


LOST = pod_group("job", 2, queue="reserch", phase="Pending")
#: what a session never saw, or saw no pods of: the answer says as much as is known, and what would help
UNSEEN: dict[str, tuple[list[object], str, list[str]]] = {
    "a queue that does not exist": (
        [queue("research"), LOST, gang("job", 2)],
        "QueueNotFound reserch 0/2/2",
        ["set queue: research in PodGroup default/job -> 2 pods bound", "create queue reserch -> 2 pods bound"],
    ),
    "the same before the pods are made": (
        [queue("research"), LOST],
        "QueueNotFound reserch 0/0/2",
        ["set queue: research in PodGroup default/job -> PodGroup default/job admitted"],
    ),
    "no PodGroup": ([queue("default"), gang("job", 2)], "PodGroupNotFound  0/2/0", []),
    "a queue that is closed, before the pods are made": (
        [queue("q", state="Closed"), pod_group("job", 2, queue="q", phase="Pending")],
        "QueueNotOpen q 0/0/2",
        ["open queue q -> PodGroup default/job admitted"],
    ),
    "queues above that are closed": (
        [
            *(queue("top", state="Closing"), queue("team", parent="top", state="Closed"), queue("q", parent="team")),
            *(pod_group("job", 2, queue="q"), gang("job", 2)),
        ],
        "QueueNotOpen q 0/2/2",
        ["open queue team and queue top -> 2 pods bound"],
    ),
    "more than the queue may hold, before the pods are made": (
        [
            queue("q", capability={"cpu": "2"}),
            pod_group("job", 4, queue="q", phase="Pending", minResources={"cpu": "4"}),
        ],
        "NeverFits q 0/0/4",
        ["raise capability of queue q to 4 cpu -> PodGroup default/job admitted"],
    ),
    "pods that nobody made": (
        [queue("q"), pod_group("job", 2, queue="q", phase="Inqueue")],
        "NotEnoughPods q 0/0/2",
        [],
    ),
}


@pytest.mark.parametrize("situation", UNSEEN)
def test_a_job_without_pods_or_queue_is_answered_like_others(situation: str) -> None:
    objects, expected, helps = UNSEEN[situation]
    found = why(state(node("n"), *objects), "job default/job")
    assert f"{found.reason} {found.queue} {found.placed}/{found.pods}/{found.min_member}" == expected
    told = [f"{remedy.change} -> {remedy.effect}" for remedy in found.remedies]
    assert [change for change in helps if change not in told] == [], told


@pytest.mark.parametrize(
    ("objects", "change"),
    [
        ([queue("q"), pod_group("job", 2, queue="qq"), gang("job", 2)], "user: set queue: q in PodGroup default/job"),
        ([queue("q", state="Closed"), pod_group("job", 2, queue="q"), gang("job", 2)], "admin: open queue q"),
        (
            [
                queue("q"),
                pod_group("job", 2, queue="q"),
                gang("job", 2, schedulingGates=[{"name": "example.com/wait"}]),
            ],
            "user: have the scheduling gates example.com/wait lifted by what set them",
        ),
    ],
)
def test_what_is_not_enough_is_told_with_what_it_waits_for_then(objects: list[object], change: str) -> None:
    full = [pod_group("run", queue="default", phase="Running"), *gang("run", 8, node="n")]
    found = why(state(node("n"), queue("default"), full, *objects), "job default/job")
    told = {f"{remedy.who}: {remedy.change}": remedy.effect for remedy in found.remedies}
    assert told[f"{change}, and wait until default/run ends"] == "2 pods bound", told
    assert "once that is mended it waits at " in found.detail


@pytest.mark.parametrize(
    ("objects", "told", "who"),
    [
        ((pod("job-0", "job"),), "The PodGroup must be created, or the pod has to name another.", "the user"),
        (one(schedulingGates=[{"name": "quota"}])[1:], "What set the gates lifts them.", "what set the gates"),
        ((pod_group("job", 2), pod("job-0", "job")), "be created, or the minimum lowered.", "the user"),
        ((pod_group("job"), pod("job-0", "job", cpu="9")), "The job must be changed.", "the user"),
    ],
)
def test_what_is_to_be_done_is_about_what_is_wrong(objects: tuple[object, ...], told: str, who: str) -> None:
    known = state(node("n"), queue("default"), *objects)
    assert pending_reasons(decide(known, DEFAULT_POLICY).session)["default/job-0"].told.endswith(told)
    assert f"Who can change it: {who}" in said(known, "job default/job")


def test_pods_that_run_without_a_queue_or_a_pod_group_say_so() -> None:
    running = [node("n"), queue("default"), *gang("job", 2, node="n")]
    assert said(state(*running), "job default/job").endswith(
        "2 of 2 pods have a place, and there is no PodGroup default/job"
    )
    lost = pod_group("job", 2, queue="gone", phase="Running")
    assert said(state(*running, lost), "job default/job").endswith(
        "2 of 2 pods have a place, and there is no queue gone"
    )
    done = pod_group("done", 2, queue="gone", phase="Completed")
    assert "waits" not in said(state(*running, done), "job default/done")


def test_fields_of_a_queue_that_nobody_reads_are_named() -> None:
    cluster = state(node("n"), queue("q", deserved={"cpu": "4"}, parent="team", reclaimable=False))
    text = said(cluster, "queue q")
    for field in ("deserved", "parent", "reclaimable"):
        assert f"spec.{field} " in text.partition("Ignored")[2]
    heeding = policy("gang", "capacity", actions="allocate, reclaim").replace(
        "- name: capacity", "- name: capacity\n    enableHierarchy: true"
    )
    assert "Ignored" not in said(
        state(node("n"), queue("root"), queue("team"), *cluster.queues.values()), "queue q", heeding
    )


def test_parents_that_form_a_circle_have_an_end() -> None:
    queues = [queue("a", parent="b"), queue("b", parent="a")]
    cluster = state(node("n"), *queues, pod_group("job", queue="a"), pod("job-0", "job", cpu="99"))
    found = why(cluster, "job default/job")
    assert found.reason == "NeverFits"
    assert [remedy.change for remedy in found.remedies] == [
        "ask for no more than 8 cpu a pod",
        "add 1 node like n with 99 cpu",
    ]


def test_who_holds_what_is_missing_is_called_by_its_workload() -> None:
    name = "podgroup-11111111-2222-3333-4444-555555555555"
    group = pod_group(name, phase="Running")
    group.metadata.owner_references = [{"apiVersion": "batch/v1", "kind": "Job", "name": "sweep", "uid": "u"}]
    runs = pod("a", name, cpu="8", node="n")
    text = said(state(node("n"), queue("default"), group, runs, pod_group("job"), pod("b", "job")), "job default/job")
    assert "default/sweep in queue default: 1 pod, 8 cpu" in text
