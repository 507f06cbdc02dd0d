"""What kube-scheduler is told about pods, after real sessions."""

from __future__ import annotations

from typing import Never

import httpx
import pytest
from prometheus_client import CollectorRegistry

from stromboli.extender import NoAnswerError, Published, Standing
from stromboli.http.server import Probes, make_app
from stromboli.state.cluster import ClusterState
from tests import builders
from tests.extender.questions import ask, by_name, client, in_full, published, whole_node

NODES = ["n0", "n1", "n2"]
GANGS = builders.policy("priority gang", "predicates nodeorder")
SHARES = builders.policy("priority gang", "predicates proportion nodeorder", actions="enqueue, allocate")


def cluster(*more: object) -> ClusterState:
    """Three nodes of 4 CPUs and an open queue."""
    return builders.state([builders.node(name, cpu="4") for name in NODES], builders.queue("default"), *more)


async def test_a_decided_pod_gets_exactly_its_node() -> None:
    pods = builders.gang("train", 3, cpu="3")
    seen = published(cluster(builders.pod_group("train", 3), pods), GANGS)
    places = dict(seen.session.bound)
    assert len(set(places.values())) == 3
    for pod in pods:
        node = places[f"default/{pod.metadata.name}"]
        answer = await ask(seen, "filter", by_name(pod, NODES))
        assert answer["NodeNames"] == [node]
        assert answer["FailedAndUnresolvableNodes"] == {
            other: f"PlacedElsewhere: the pod is assigned to {node}" for other in NODES if other != node
        }
        assert "FailedNodes" not in answer
        scores = await ask(seen, "prioritize", by_name(pod, NODES))
        assert scores == [{"Host": name, "Score": 10 if name == node else 0} for name in NODES]


async def test_a_decided_pod_gets_its_node_while_a_plugin_that_is_asked_about_others_hangs() -> None:
    class Hanging(Standing):
        async def work_out(self, question: object) -> Never:
            raise NoAnswerError("a question of kube-scheduler has been worked out for 4 s")

    decided, waits = builders.pod("a", "a"), builders.pod("b", "b", cpu="64")
    seen = published(cluster(builders.pod_group("a"), builders.pod_group("b"), decided, waits), GANGS)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(make_app(Hanging(lambda: seen), CollectorRegistry(), Probes())),
        base_url="http://stromboli",
    ) as http:
        answer = await http.post("/filter", content=by_name(decided, NODES))
        assert answer.json()["NodeNames"] == [seen.session.bound["default/a"]]
        assert (await http.post("/filter", content=by_name(waits, NODES))).status_code == 503


async def test_a_place_that_was_decided_by_an_earlier_session_still_counts() -> None:
    pod = builders.pod("a", "a")
    state = cluster(builders.pod_group("a"), pod)
    state.assume("default/a", "n2")
    answer = await ask(published(state, GANGS), "filter", by_name(pod, NODES))
    assert answer["NodeNames"] == ["n2"]


async def test_a_decided_node_that_is_not_offered_is_not_invented() -> None:
    pod = builders.pod("a", "a")
    seen = published(cluster(builders.pod_group("a"), pod), GANGS)
    others = [name for name in NODES if name != seen.session.bound["default/a"]]
    answer = await ask(seen, "filter", by_name(pod, others))
    assert answer["NodeNames"] == []
    assert set(answer["FailedAndUnresolvableNodes"]) == set(others)


async def test_whole_nodes_come_back_as_they_were_sent() -> None:
    pod = builders.pod("a", "a")
    seen = published(cluster(builders.pod_group("a"), pod), GANGS)
    node = seen.session.bound["default/a"]
    answer = await ask(seen, "filter", in_full(pod, NODES))
    assert answer["Nodes"] == {"items": [whole_node(node)]}
    assert "NodeNames" not in answer
    assert set(answer["FailedAndUnresolvableNodes"]) == set(NODES) - {node}
    scores = await ask(seen, "prioritize", in_full(pod, NODES))
    assert scores == [{"Host": name, "Score": 10 if name == node else 0} for name in NODES]


async def refusal(seen: Published, pod: object, **options: object) -> str:
    """The one sentence with which all nodes are refused, for evictions to be in vain."""
    answer = await ask(seen, "filter", by_name(pod, NODES), **options)  # type: ignore[arg-type]
    assert answer["NodeNames"] == []
    assert "FailedNodes" not in answer
    assert set(answer["FailedAndUnresolvableNodes"]) == set(NODES)
    (message,) = set(answer["FailedAndUnresolvableNodes"].values())
    scores = await ask(seen, "prioritize", by_name(pod, NODES), **options)  # type: ignore[arg-type]
    assert [entry["Score"] for entry in scores] == [0, 0, 0]
    return str(message)


async def test_a_gang_that_lacks_pods_gets_no_node() -> None:
    pods = builders.gang("train", 2)
    seen = published(cluster(builders.pod_group("train", 3), pods), GANGS)
    assert await refusal(seen, pods[0]) == "NotEnoughPods: PodGroup default/train lacks pods: minMember is 3"


async def test_no_pod_of_a_gang_that_does_not_fit_gets_a_node() -> None:
    pods = builders.gang("train", 3, cpu="3")
    alien = builders.pod("alien", scheduler="other", node="n0", cpu="3")
    seen = published(cluster(alien, builders.pod_group("train", 3), pods), GANGS)
    messages = {await refusal(seen, pod) for pod in pods}
    told = "Unschedulable: no node is available: Insufficient cpu", "GangNotReady:"
    assert all(message.startswith(told) for message in messages)


async def test_a_queue_that_holds_its_share_gets_no_node() -> None:
    running = [builders.pod(f"r-{i}", "r", cpu="3", node=f"n{i}") for i in range(2)]
    waiting = builders.pod("w-0", "w", cpu="3")
    other = builders.gang("o", 3, cpu="3")
    seen = published(
        cluster(
            builders.queue("other"),
            builders.pod_group("r", 1, phase="Running"),
            builders.pod_group("w", 1),
            builders.pod_group("o", 3, queue="other"),
            [*running, waiting, *other],
        ),
        SHARES,
    )
    message = await refusal(seen, waiting)
    assert message.startswith("QueueShareExceeded: queue default has no capacity left in cpu")


async def test_a_pod_of_a_job_that_is_not_admitted_gets_no_node() -> None:
    pod = builders.pod("a-0", "a")
    group = builders.pod_group("a", 1, phase="Pending", minResources={"cpu": "100"})
    seen = published(cluster(builders.queue("default", capability={"cpu": "8"}), group, pod), SHARES)
    assert (await refusal(seen, pod)).startswith("NeverFits: PodGroup default/a starts with more than queue")


async def test_a_pod_without_a_pod_group_gets_no_node() -> None:
    pod = builders.pod("a", "nowhere")
    assert (
        await refusal(published(cluster(pod), GANGS), pod) == "PodGroupNotFound: there is no PodGroup default/nowhere"
    )


async def test_a_pod_that_waits_for_terminating_ones_gets_no_node_yet() -> None:
    old = [builders.pod(f"old-{name}", cpu="4", node=name, deleted=True, scheduler="other") for name in NODES]
    pod = builders.pod("a", "a", cpu="4")
    seen = published(cluster(builders.pod_group("a"), old, pod), GANGS)
    assert (await refusal(seen, pod)).startswith("WaitingForRelease: gets its place on n")


async def test_a_gated_pod_of_a_running_job_gets_no_node() -> None:
    running = builders.pod("a-0", "a", node="n0")
    gated = builders.pod("a-1", "a", schedulingGates=[{"name": "quota"}])
    seen = published(cluster(builders.pod_group("a", phase="Running"), running, gated), GANGS)
    assert await refusal(seen, gated) == "SchedulingGated: scheduling gates hold the pod back: quota"


async def test_a_pod_that_no_session_saw_gets_no_node() -> None:
    seen = published(cluster(builders.pod_group("a")), GANGS)
    assert await refusal(seen, builders.pod("a", "a")) == "PodNotKnown: no session has seen pod default/a yet"


async def test_a_pod_that_replaced_one_of_its_name_is_not_known() -> None:
    state = cluster(builders.pod_group("a"), builders.pod("a", "a"))
    seen = published(state, GANGS)
    manifest = by_name(builders.pod("a", "a"), NODES).replace(b"uid-a", b"uid-new")
    answer = await ask(seen, "filter", manifest)
    assert set(answer["FailedAndUnresolvableNodes"].values()) == {"PodNotKnown: no session has seen pod default/a yet"}


async def test_a_row_that_was_given_to_another_pod_since_is_not_taken_for_it() -> None:
    state = cluster(builders.pod_group("a"), builders.pod("a", "a"))
    seen = published(state, GANGS)
    state.delete("Pod", "default/a")
    newer = builders.pod("b", "a")
    state.upsert("Pod", newer)
    assert state.pods.by_key["default/b"] == 0
    assert await refusal(seen, newer) == "PodNotKnown: no session has seen pod default/b yet"


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
async def test_before_the_first_session_there_is_no_answer_about_our_pods(verb: str) -> None:
    async with client(None) as http:
        answer = await http.post(f"/{verb}", content=by_name(builders.pod("a", "a"), NODES))
    assert (answer.status_code, answer.text) == (503, f"/{verb}: no session has ended yet\n")


async def test_pods_that_are_not_ours_may_go_anywhere() -> None:
    pod = builders.pod("dns", scheduler="default-scheduler")
    for source in (None, published(cluster(), GANGS)):
        assert await ask(source, "filter", by_name(pod, NODES)) == {"NodeNames": NODES}
        answer = await ask(source, "filter", in_full(pod, NODES))
        assert answer == {"Nodes": {"metadata": {}, "items": [whole_node(name) for name in NODES]}}
        scores = await ask(source, "prioritize", by_name(pod, NODES))
        assert scores == [{"Host": name, "Score": 0} for name in NODES]


async def test_annotated_pods_of_a_scheduler_that_is_not_served_are_told_so() -> None:
    pod = builders.pod("a", "a", scheduler="default-scheduler")
    message = await refusal(published(cluster(), GANGS), pod)
    assert message == ("SchedulerNotServed: the pod's schedulerName is default-scheduler; served are stromboli")
    decided = await refusal(published(cluster(), GANGS), pod, extender_scheduler_names=("default-scheduler",))
    assert decided == "PodNotKnown: no session has seen pod default/a yet"


async def test_a_pod_that_names_a_queue_is_ours() -> None:
    pod = builders.pod("a", annotations={"scheduling.volcano.sh/queue-name": "default"})
    assert (await refusal(published(cluster(pod), GANGS), pod)).startswith("NoPodGroup:")


def elastic(**pod: object) -> tuple[ClusterState, object]:
    """A job that is ready, and one more pod of it that allocate has not been asked to place."""
    extra = builders.pod("e-1", "e", **pod)  # type: ignore[arg-type]
    state = cluster(
        builders.pod_group("e", 1, phase="Running"),
        builders.pod("e-0", "e", cpu="1", node="n0"),
        builders.pod("full", cpu="4", memory="", node="n1", scheduler="other"),
        builders.node("cordoned", unschedulable=True),
        builders.node("lost", ready="Unknown"),
        extra,
    )
    return state, extra


IDLE = builders.policy("priority gang", "predicates proportion nodeorder", actions="enqueue")


async def test_an_elastic_pod_of_a_ready_job_may_choose_among_nodes_with_room() -> None:
    state, pod = elastic(cpu="2")
    seen = published(state, IDLE)
    answer = await ask(seen, "filter", by_name(pod, [*NODES, "cordoned", "lost", "brand-new"]))  # type: ignore[arg-type]
    assert answer == {
        "NodeNames": ["n0", "n2"],
        "FailedAndUnresolvableNodes": {
            "n1": "Unschedulable: Insufficient cpu",
            "cordoned": "NoMatchingNode: node(s) were unschedulable",
            "lost": "NoMatchingNode: node(s) were not ready",
            "brand-new": "NodeNotKnown: no session has seen this node yet",
        },
    }
    scores = await ask(seen, "prioritize", by_name(pod, ["n2", "n0", "brand-new"]))  # type: ignore[arg-type]
    assert scores == [{"Host": "n2", "Score": 10}, {"Host": "n0", "Score": 0}, {"Host": "brand-new", "Score": 0}]


@pytest.mark.parametrize(
    ("least", "priority", "more", "resolvable"),
    [
        (1, 10, {}, True),
        (1, 0, {}, False),
        (1, 10, {"preemptionPolicy": "Never"}, False),
        # A gang that would lose some of its pods.
        (2, 10, {}, False),
    ],
)
async def test_a_full_node_is_worth_an_eviction_only_where_the_victims_may_go(
    least: int, priority: int, more: dict[str, str], resolvable: bool
) -> None:
    state, pod = elastic(cpu="4", priority=priority, **more)
    state.delete("Pod", "default/full")
    state.upsert("PodGroup", builders.pod_group("low", least, phase="Running"))
    for number, where in enumerate(("n1", "n2")):
        state.upsert("Pod", builders.pod(f"low-{number}", "low", cpu="4", node=where, priority=0))
    answer = await ask(published(state, IDLE), "filter", by_name(pod, ["n1", "n2"]))  # type: ignore[arg-type]
    assert answer["NodeNames"] == []
    failed = "FailedNodes" if resolvable else "FailedAndUnresolvableNodes"
    word = "HeldByGangs" if least > 1 else "Unschedulable"
    assert answer[failed].keys() == {"n1", "n2"}
    assert all(told.startswith(f"{word}: Insufficient cpu") for told in answer[failed].values())


async def test_equal_nodes_score_alike() -> None:
    state = cluster(
        builders.pod_group("e", 1, phase="Running"),
        builders.pod("e-0", "e", node="n0"),
        pod := builders.pod("e-1", "e"),
    )
    scores = await ask(published(state, IDLE), "prioritize", by_name(pod, ["n1", "n2"]))
    assert scores == [{"Host": "n1", "Score": 10}, {"Host": "n2", "Score": 10}]


async def test_a_pod_that_requests_nothing_needs_no_room() -> None:
    state, pod = elastic(cpu="", memory="")
    answer = await ask(published(state, IDLE), "filter", by_name(pod, NODES))  # type: ignore[arg-type]
    assert answer == {"NodeNames": NODES}


async def test_asking_changes_nothing() -> None:
    state, pod = elastic(cpu="2")
    seen = published(state, IDLE)
    before = seen.session.view.nodes.idle.copy(), seen.session.view.pods.state.copy(), list(seen.session.decisions)
    body = by_name(pod, NODES)  # type: ignore[arg-type]
    answers = [await ask(seen, verb, body) for verb in ("filter", "prioritize") * 3]
    assert answers[0] == answers[2] == answers[4]
    assert answers[1] == answers[3] == answers[5]
    assert (seen.session.view.nodes.idle == before[0]).all()
    assert (seen.session.view.pods.state == before[1]).all()
    assert seen.session.decisions == before[2]


async def test_5000_nodes_are_judged_one_by_one() -> None:
    names = [f"node-{i:04}" for i in range(5_000)]
    state = builders.state(
        [builders.node(name, cpu="4", unschedulable=i % 5 == 0) for i, name in enumerate(names)],
        builders.queue("default"),
        builders.pod_group("e", 1, phase="Running"),
        builders.pod("e-0", "e", node="node-0001"),
        [builders.pod(f"f-{i}", cpu="3", node=names[i], scheduler="other") for i in range(2, 5_000, 5)],
        pod := builders.pod("e-1", "e", cpu="2", priority=1),
    )
    seen = published(state, IDLE)
    offered = names[::-1]
    answer = await ask(seen, "filter", by_name(pod, offered))
    number = [int(name[-4:]) for name in offered]
    assert answer["NodeNames"] == [name for name, i in zip(offered, number, strict=True) if i % 5 not in (0, 2)]
    assert set(answer["FailedNodes"]) == {name for name, i in zip(offered, number, strict=True) if i % 5 == 2}
    assert set(answer["FailedAndUnresolvableNodes"]) == set(names[::5])
    scores = {s["Host"]: s["Score"] for s in await ask(seen, "prioritize", by_name(pod, answer["NodeNames"]))}
    assert list(scores) == answer["NodeNames"]
    assert scores.pop("node-0001") == 0
    assert set(scores.values()) == {10}


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b"[]", "Expected `object`, got `array`"),
        (b"{}", "missing required field `Pod`"),
        (b'{"Pod":null}', "Expected `object`, got `null` - at `$.Pod`"),
        (b'{"Pod":{"metadata":{"name":7}}}', "Expected `str`, got `int` - at `$.Pod.metadata.name`"),
        (
            b'{"Pod":{"metadata":{"name":"a"},"spec":{"schedulerName":"stromboli"}}}',
            "`Nodes` or `NodeNames` is required",
        ),
        (
            b'{"Pod":{"metadata":{"name":"a"},"spec":{"schedulerName":"stromboli"}},"NodeNames":[1]}',
            "Expected `str`, got `int`",
        ),
        (
            b'{"Pod":{"metadata":{"name":"a"},"spec":{"schedulerName":"stromboli"}},"Nodes":{"items":[{}]}}',
            "missing required field `metadata`",
        ),
        (b'{"Pod":{"x":' + b"[" * 100_000, "recursion"),
        (b'{"Pod":{"metadata":{"name":"\xff"}}}', "utf-8"),
    ],
)
async def test_a_body_that_cannot_be_read_is_named_in_one_line(verb: str, body: bytes, problem: str) -> None:
    async with client(None) as http:
        response = await http.post(f"/{verb}", content=body)
    assert response.status_code == 400
    assert response.text.startswith(f"/{verb}: ")
    assert problem in response.text
    assert response.text.count("\n") == 1


@pytest.mark.parametrize("compatibility", ["strict", "volcano"])
async def test_a_pod_that_requests_nothing_has_to_be_one_of_its_nodes_pods(compatibility: str) -> None:
    others = [builders.pod(f"o-{n}", node="n0", scheduler="default-scheduler") for n in range(2)]
    pod = builders.pod("a", "a", cpu="", memory="")
    full = builders.node("n0", cpu="1", pods="2")
    state = builders.state(full, builders.queue("default"), builders.pod_group("a"), others, pod)
    policy = builders.policy("priority gang", "predicates nodeorder", actions="allocate, backfill")
    answer = await ask(published(state, policy, compatibility=compatibility), "filter", by_name(pod, ["n0"]))
    assert answer["NodeNames"] == []
    refused = {**answer.get("FailedNodes", {}), **answer.get("FailedAndUnresolvableNodes", {})}
    assert refused.keys() == {"n0"}
    assert "Insufficient pods" in refused["n0"] or compatibility == "strict", refused


@pytest.mark.parametrize(("compatibility", "nodes"), [("strict", ["n0"]), ("volcano", [])])
@pytest.mark.parametrize("requests", [{"memory": "1Gi"}, {"nvidia.com/gpu": "1", "memory": "0"}])
async def test_a_node_is_full_only_of_what_a_pod_requests(
    compatibility: str, nodes: list[str], requests: dict[str, str]
) -> None:
    """It is overcommitted in cpu and in an extended resource of which the pod requests 0."""
    other = builders.pod("o", cpu="5", node="n0", scheduler="default-scheduler", resources={"example.com/x": "2"})
    pod = builders.pod("a", "a", cpu="0", memory="", resources={**requests, "example.com/x": "0"})
    state = builders.state(
        builders.node("n0", cpu="4", resources={"nvidia.com/gpu": "1", "example.com/x": "1"}),
        *(builders.queue("default"), builders.pod_group("a"), other, pod),
    )
    seen = published(state, GANGS, compatibility=compatibility)
    assert list(seen.session.bound.values()) == nodes
    answer = await ask(seen, "filter", by_name(pod, ["n0"]))
    assert answer["NodeNames"] == nodes
