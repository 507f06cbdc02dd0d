"""On which nodes kube-scheduler may evict whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from stromboli.api import objects
from stromboli.extender import Published
from stromboli.state.cluster import ClusterState
from tests import builders
from tests.extender.questions import ask, by_name, client, published

POLICY = builders.policy(
    "priority gang conformance pdb", "predicates proportion nodeorder", actions="enqueue, allocate"
)
NODES = ("n0", "n1", "n2")


def scene(*more: Any, least: int = 1, policy: str = POLICY, **urgent: Any) -> tuple[Published, objects.Pod]:
    """Three nodes of one CPU, each with a pod of a job that starts with `least`; and an urgent pod that waits."""
    pod = builders.pod("urgent", "urgent", priority=1_000, **urgent)
    state = builders.state(
        [builders.node(name, cpu="1") for name in NODES],
        builders.queue("default"),
        builders.pod_group("low", least, phase="Running"),
        [builders.pod(f"low-{i}", "low", node=name, priority=1, labels={"app": "low"}) for i, name in enumerate(NODES)],
        builders.pod_group("urgent", 1),
        pod,
        *more,
    )
    return published(state, policy), pod


def question(pod: objects.Pod, victims: Mapping[str, Sequence[str]], *, full: bool = False) -> bytes:
    """Whether these pods may go, by node."""

    def of(names: Sequence[str]) -> dict[str, Any]:
        pods = [{"metadata": {"uid": f"uid-{n}"}} if full else {"UID": f"uid-{n}"} for n in names]
        return {"Pods": pods, "NumPDBViolations": 0}

    key = "NodeNameToVictims" if full else "NodeNameToMetaVictims"
    asked = {"Pod": msgspec.to_builtins(pod), "NodeNameToVictims": None}
    return msgspec.json.encode(asked | {key: {node: of(names) for node, names in victims.items()}})


async def allowed(seen: Any, pod: objects.Pod, victims: Mapping[str, Sequence[str]], **options: Any) -> list[str]:
    answer = await ask(seen, "preempt", question(pod, victims), **options)
    return list(answer["NodeNameToMetaVictims"])


EACH = {name: [f"low-{i}"] for i, name in enumerate(NODES)}


@pytest.mark.parametrize("full", [False, True])
async def test_pods_that_their_job_can_do_without_may_go(full: bool) -> None:
    seen, pod = scene()
    answer = await ask(seen, "preempt", question(pod, {"n1": ["low-1"], "n2": ["low-2"]}, full=full))
    assert answer == {
        "NodeNameToMetaVictims": {
            name: {"Pods": [{"UID": uid}], "NumPDBViolations": 0}
            for name, uid in (("n1", "uid-low-1"), ("n2", "uid-low-2"))
        }
    }


@pytest.mark.parametrize("least", [3, 2])
async def test_a_gang_loses_all_its_pods_or_none(least: int) -> None:
    seen, pod = scene(least=least)
    # Two of three may go at once if one suffices for the gang; here the second is one too many.
    assert await allowed(seen, pod, {"n0": ["low-0", "low-1"], "n1": ["low-0", "low-1", "low-2"]}) == ["n1"]
    assert await allowed(scene(least=least)[0], pod, EACH) == ([] if least == 3 else list(NODES))


async def one_node(
    pods: Sequence[str], least: int, needs: str, elsewhere: int = 0, **gang: Any
) -> tuple[list[str], Any]:
    """An urgent pod that needs some CPUs of a node that a gang fills: for which nodes kube-scheduler looks for victims,
    and what it may evict on that node, of which it offers the first pods."""
    members = [builders.pod(f"low-{i}", "low", node="n0", **{"priority": 1, **gang}) for i in range(4)]
    members += [builders.pod(f"far-{i}", "low", node="n1", priority=1) for i in range(elsewhere)]
    pod = builders.pod("urgent", "urgent", priority=1_000, cpu=needs)
    state = builders.state(
        *(builders.node("n0", cpu="4"), builders.node("n1", cpu=str(elsewhere)), builders.queue("default")),
        *(builders.pod_group("low", least, phase="Running"), members, builders.pod_group("urgent", 1), pod),
    )
    seen = published(state, POLICY)
    filtered = await ask(seen, "filter", by_name(pod, ["n0", "n1"]))
    assert filtered["NodeNames"] == []
    answer = await ask(seen, "preempt", question(pod, {"n0": pods}))
    given = answer["NodeNameToMetaVictims"].get("n0", {"Pods": []})["Pods"]
    return list(filtered.get("FailedNodes", ())), [each["UID"].removeprefix("uid-") for each in given]


@pytest.mark.parametrize("needs", ["1", "2", "4"])
@pytest.mark.parametrize("least", [4, 3, 2, 1])
async def test_a_gang_on_one_node_goes_as_a_whole_where_it_cannot_spare_enough(needs: str, least: int) -> None:
    offered = [f"low-{i}" for i in range(int(needs))]
    nodes, victims = await one_node(offered, least, needs)
    assert nodes == ["n0"]
    enough = 4 - int(needs) >= least or least == 1
    assert sorted(victims) == (offered if enough else [f"low-{i}" for i in range(4)])


async def test_a_gang_that_is_on_other_nodes_too_or_as_important_stays() -> None:
    assert await one_node(["low-0"], 5, "1", elsewhere=1) == ([], [])
    assert await one_node(["low-0", "low-1"], 3, "2", priority=1_000) == ([], [])


async def test_a_pod_that_gangs_of_several_nodes_keep_out_is_told_so() -> None:
    seen, pod = scene(least=3)
    answer = await ask(seen, "filter", by_name(pod, list(NODES)))
    assert not answer.get("FailedNodes")
    assert {told.partition(":")[0] for told in answer["FailedAndUnresolvableNodes"].values()} == {"HeldByGangs"}
    more, important = scene(
        builders.pod("one", node="n3", priority=1, scheduler="other"), builders.node("n3", cpu="1"), least=3
    )
    answer = await ask(more, "filter", by_name(important, [*NODES, "n3"]))
    assert list(answer["FailedNodes"]) == ["n3"]


async def test_a_pod_that_may_be_on_its_way_out_counts_as_gone() -> None:
    seen, pod = scene(least=2)
    async with client(seen) as http:
        for expected in (["n0", "n1", "n2"], []):
            answer = await http.post("/preempt", content=question(pod, EACH))
            assert list(answer.json()["NodeNameToMetaVictims"]) == expected


async def test_gangs_are_no_concern_of_a_policy_without_the_plugin() -> None:
    seen, pod = scene(least=3, policy=builders.policy("priority", "predicates nodeorder"))
    assert await allowed(seen, pod, EACH) == list(NODES)


async def test_gangs_are_spared_whoever_is_urgent() -> None:
    seen, _ = scene(least=3)
    assert await allowed(seen, builders.pod("dns", scheduler="default-scheduler", priority=2_000), EACH) == []


async def test_pods_of_others_are_kube_schedulers_business() -> None:
    alien = builders.pod("alien", node="n3", priority=0, scheduler="default-scheduler")
    seen, pod = scene(builders.node("n3", cpu="1"), alien, least=3)
    assert await allowed(seen, pod, {"n3": ["alien"], "n1": ["low-1"]}) == ["n3"]


def _kept(**more: Any) -> objects.Pod:
    return builders.pod("kept", "kept", node="n0", cpu="0", **more)


@pytest.mark.parametrize(
    "kept",
    [
        _kept(namespace="kube-system"),
        _kept(annotations={"volcano.sh/preemptable": "false"}),
        _kept(labels={"app": "kept"}),
    ],
)
async def test_what_the_policy_protects_stays(kept: objects.Pod) -> None:
    budget = {
        "metadata": {"name": "kept", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}},
        "status": {"disruptionsAllowed": 0},
    }
    group = builders.pod_group("kept", 1, phase="Running", namespace=kept.metadata.namespace)
    pod = builders.pod("urgent", "urgent", priority=1_000)
    state = builders.state(
        [builders.node(name, cpu="1") for name in NODES],
        builders.queue("default"),
        [group, kept, builders.pod_group("urgent", 1), pod],
    )
    state.upsert("PodDisruptionBudget", budget)
    assert await allowed(published(state, POLICY), pod, {"n0": ["kept"]}) == []


async def test_nobody_goes_for_a_pod_that_would_not_run_then() -> None:
    lacks, _ = scene()
    assert await allowed(lacks, builders.pod("unknown", "urgent", priority=1_000), EACH) == []
    gang = builders.pod("gang-0", "gang", priority=1_000)
    seen, _ = scene(builders.pod_group("gang", 2), gang)
    assert await allowed(seen, gang, EACH) == []
    other = builders.pod("other-0", "other", priority=1_000)
    more = [builders.queue("closed", state="Closed"), builders.pod_group("other", 1, queue="closed"), other]
    seen, _ = scene(*more)
    assert await allowed(seen, other, EACH) == []


def gang(size: int, queue: str = "default", **more: Any) -> tuple[list[objects.Pod], list[Any]]:
    """The pods of an urgent gang that starts with all of them, and what it consists of."""
    pods = [builders.pod(f"gang-{i}", "gang", priority=1_000, **more) for i in range(size)]
    return pods, [builders.pod_group("gang", size, queue=queue), *pods]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
async def test_an_urgent_gang_gets_places_for_all_its_pods_or_for_none(size: int) -> None:
    """Three nodes can be freed; with a fourth pod no victim would help the gang to start."""
    pods, more = gang(size)
    seen, _ = scene(*more)
    for pod in pods:
        assert await allowed(seen, pod, EACH) == (list(NODES) if size < 4 else [])


async def test_a_gang_counts_on_room_that_is_free_or_about_to_be() -> None:
    """One node is empty, though another pod gets it, and a pod is leaving two CPUs."""
    nodes = [builders.node("n3", cpu="1"), builders.node("n4", cpu="2")]
    leaving = builders.pod("leaving", node="n4", cpu="2", deleted=True, scheduler="other")
    for size, expected in ((5, list(NODES)), (6, [])):
        pods, more = gang(size)
        seen, _ = scene(*more, *nodes, leaving)
        assert await allowed(seen, pods[0], EACH) == expected


async def test_a_gang_does_not_count_on_pods_that_stay() -> None:
    pods, more = gang(2)
    least_two, _ = scene(*more, least=2)
    assert await allowed(least_two, pods[0], EACH) == []
    least_one, _ = scene(*more, least=1)
    assert await allowed(least_one, pods[0], EACH) == list(NODES)
    picky, more = gang(2, nodeSelector={"kubernetes.io/hostname": "n1"})
    seen, _ = scene(*more)
    assert await allowed(seen, picky[0], {"n1": ["low-1"]}) == []


async def test_a_gang_does_not_count_on_more_than_its_queue_may_hold() -> None:
    pods, more = gang(2, "capped")
    for cpus, nodes in (("1", []), ("2", list(NODES))):
        seen, _ = scene(builders.queue("capped", weight=100, capability={"cpu": cpus}), *more)
        assert await allowed(seen, pods[0], EACH) == nodes


async def test_pods_of_a_gang_that_differ_share_the_room() -> None:
    large = [builders.pod("gang-a", "gang", priority=1_000, cpu="1")]
    small = [builders.pod(f"gang-{i}", "gang", priority=1_000, cpu="500m", memory="512Mi") for i in range(4)]
    one_more = builders.pod("gang-b", "gang", priority=1_000, cpu="500m", memory="512Mi")
    for pods, expected in (([*large, *small], list(NODES)), ([*large, *small, one_more], [])):
        seen, _ = scene(builders.pod_group("gang", len(pods)), *pods)
        assert await allowed(seen, small[0], EACH) == expected


def after_the_first(taken: Any = (), *, size: int = 3) -> tuple[Published, list[objects.Pod]]:
    """A gang that kube-scheduler binds; n0 was cleared for its first pod and has what is `taken`."""
    pods = [
        builders.pod(f"gang-{i}", "gang", priority=1_000, scheduler="default-scheduler", nominated="" if i else "n0")
        for i in range(size)
    ]
    state = ClusterState(("stromboli",), ("default-scheduler",), reads=builders.READS)
    for each in (
        *(builders.node(name, cpu="1") for name in NODES),
        builders.queue("default"),
        builders.pod_group("low", 1, phase="Running"),
        *(builders.pod(f"low-{i}", "low", node=f"n{i}", priority=1) for i in (1, 2)),
        builders.pod_group("gang", size),
        *pods,
        *taken,
    ):
        state.upsert(type(each).__name__, each)
    return published(state, POLICY), pods


SERVED: dict[str, Any] = {"extender_scheduler_names": ("default-scheduler",)}
LEFT = {name: EACH[name] for name in NODES[1:]}


async def test_no_more_victims_for_a_pod_whose_node_was_cleared_while_its_gang_waits() -> None:
    """All three nodes are needed, and the first is for the first pod: others of the gang still may evict."""
    seen, pods = after_the_first()
    assert await allowed(seen, pods[0], LEFT, **SERVED) == []
    for pod in pods[1:]:
        assert await allowed(seen, pod, LEFT, **SERVED) == list(LEFT)


@pytest.mark.parametrize(
    "taken",
    [
        [builders.pod("other", node="n0", cpu="500m", priority=2_000, scheduler="other")],
        [builders.node("n0", cpu="1", unschedulable=True)],
        [
            builders.pod_group("more", 2),
            builders.pod("more", "more", scheduler="default-scheduler", priority=2_000, nominated="n0"),
        ],
    ],
)
async def test_a_node_that_was_cleared_and_lost_is_replaced(taken: list[Any]) -> None:
    seen, pods = after_the_first(taken, size=2)
    assert await allowed(seen, pods[0], LEFT, **SERVED) == list(LEFT)


async def test_a_less_important_nominee_does_not_count() -> None:
    less = [builders.pod("less", "less", scheduler="default-scheduler", priority=10, nominated="n0")]
    seen, pods = after_the_first([builders.pod_group("less", 2), *less])
    assert await allowed(seen, pods[0], LEFT, **SERVED) == []


async def test_nobody_goes_for_a_pod_that_gets_a_place_as_it_is() -> None:
    leaving = builders.pod("leaving", node="n3", deleted=True, scheduler="other")
    seen, pod = scene(builders.node("n3", cpu="1"), leaving)
    assert await allowed(seen, pod, EACH) == []


async def test_a_queue_that_has_its_share_gets_more_only_in_stead_of_its_own_pods() -> None:
    capped = builders.queue("capped", capability={"cpu": "1"})
    own = [
        builders.pod_group("own", 1, queue="capped", phase="Running"),
        builders.pod("own", "own", node="n3", priority=1),
    ]
    other = builders.pod("other", "other", priority=1_000)
    seen, _ = scene(builders.node("n3", cpu="1"), capped, own, builders.pod_group("other", 1, queue="capped"), other)
    assert await allowed(seen, other, {"n0": ["low-0"], "n3": ["own"]}) == ["n3"]


async def test_no_session_is_no_answer() -> None:
    async with client(None) as http:
        answer = await http.post("/preempt", content=question(builders.pod("a", "a"), EACH))
    assert answer.status_code == 503


async def resolvable(seen: Published, pod: objects.Pod) -> list[str]:
    """The full nodes for which kube-scheduler looks for victims; all others are out of the question."""
    names = [*NODES, "n3", "n4", "brand-new"]
    answer = await ask(seen, "filter", by_name(pod, names))
    assert answer["NodeNames"] == []
    assert answer["FailedAndUnresolvableNodes"].keys() | answer.get("FailedNodes", {}).keys() == set(names)
    return list(answer.get("FailedNodes", ()))


def at_its_share(
    *, least: int = 1, capability: str = "1", spare: int = 0, status: str = "Open", policy: str = POLICY, **urgent: Any
) -> tuple[Published, objects.Pod]:
    """Three nodes full of pods of `default`, one on n3 of a queue that may have no more, and n4 that is empty."""
    pod = builders.pod("other", "other", **{"priority": 1_000, **urgent})
    capped = builders.queue("capped", state=status, capability={"cpu": capability})
    own = [
        builders.pod_group("own", least, queue="capped", phase="Running"),
        builders.pod("own", "own", node="n3", priority=1),
        *(builders.pod(f"own-{i}", "own", node="full", priority=1) for i in range(least - 1)),
    ]
    nodes = [builders.node(name, cpu=cpu) for name, cpu in (("n3", str(1 + spare)), ("n4", "1"), ("full", "9"))]
    seen, _ = scene(*nodes, capped, own, builders.pod_group("other", 1, queue="capped"), pod, policy=policy)
    return seen, pod


CAPACITY = builders.policy("priority gang", "predicates capacity", actions="enqueue, allocate")


@pytest.mark.parametrize("policy", [POLICY, CAPACITY])
async def test_victims_are_looked_for_where_a_queue_at_its_share_has_its_own(policy: str) -> None:
    seen, pod = at_its_share(policy=policy)
    assert await resolvable(seen, pod) == ["n3"]
    # What /filter promises /preempt keeps.
    assert await allowed(seen, pod, {**EACH, "n3": ["own"]}) == ["n3"]


async def test_room_on_a_node_is_no_share_of_a_queue() -> None:
    """n3 has room for both, yet only in stead of its own pod the queue gets another."""
    seen, pod = at_its_share(spare=1)
    assert await resolvable(seen, pod) == ["n3"]


@pytest.mark.parametrize(
    "why_not",
    [
        {"priority": 1},
        {"preemptionPolicy": "Never"},
        {"nodeSelector": {"kubernetes.io/hostname": "n0"}},
        {"cpu": "2"},
        {"schedulingGates": [{"name": "example.com/wait"}]},
        # Its victim is one of a gang that starts with three.
        {"least": 3, "capability": "3"},
        {"status": "Closed"},
    ],
)
async def test_victims_are_looked_for_nowhere_where_none_would_go(why_not: dict[str, Any]) -> None:
    assert await resolvable(*at_its_share(**why_not)) == []


async def test_a_pod_that_is_not_admitted_may_have_as_much_as_its_victims_free() -> None:
    """A full cluster admits nothing; what victims free is what the job starts with."""
    pod = builders.pod("other", "other", priority=1_000)
    group = builders.pod_group("other", 1, phase="Pending", minResources={"cpu": "1"})
    policy = builders.policy("priority gang", "overcommit predicates proportion", actions="enqueue, allocate")
    seen, _ = scene(*(builders.node(name, cpu="0") for name in ("n3", "n4")), group, pod, policy=policy)
    job = seen.job(seen.pod("default/other", "uid-other") or pytest.fail("not seen"))
    assert job is not None
    assert job.pending_phase
    assert await resolvable(seen, pod) == list(NODES)
    assert await allowed(seen, pod, EACH) == list(NODES)


@pytest.mark.parametrize(("size", "nodes"), [(3, list(NODES)), (4, [])])
async def test_victims_are_looked_for_where_a_whole_gang_would_fit(size: int, nodes: list[str]) -> None:
    pods, more = gang(size)
    seen, _ = scene(*more)
    for pod in pods:
        answer = await ask(seen, "filter", by_name(pod, list(NODES)))
        assert answer["NodeNames"] == []
        assert list(answer.get("FailedNodes", ())) == nodes
