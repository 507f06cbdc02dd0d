"""A queue is for the namespaces that it names: what others put there gets nothing, and nothing is kept for it."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.api.crds import Queue
from stromboli.framework.cluster.tenants import NAMESPACES, SELECTOR
from stromboli.gate import unread
from stromboli.state.cluster import ClusterState
from tests.builders import decide, gang, node, pod_group, policy, queue, state
from tests.expectations.test_closed_queues import POLICIES
from tests.explain.asking import said, why
from tests.plugins.queues import bound

EVERY = pytest.mark.parametrize("by", POLICIES.values(), ids=POLICIES)
RULES = pytest.mark.parametrize("rules", ["strict", "volcano"])


def restricted(name: str, annotations: dict[str, str], **spec: Any) -> Queue:
    made = queue(name, **spec)
    return made.model_copy(
        update={"metadata": made.metadata.model_copy(update={"annotations": annotations})},
    )


def job(name: str, namespace: str, in_queue: str, count: int = 2, phase: str = "Pending", **more: Any) -> list[Any]:
    amounts = {"cpu": str(count)}
    group = pod_group(name, count, queue=in_queue, namespace=namespace, phase=phase, minResources=amounts)
    return [group, *gang(name, count, namespace=namespace, **more)]


def cluster(*objs: Any, **labels: dict[str, str]) -> ClusterState:
    """The objects, and a namespace for each of `labels`."""
    out = state(node("n"), queue("root"), queue("default"), *objs)
    for name, given in labels.items():
        out.upsert("Namespace", {"metadata": {"name": name.replace("_", "-"), "labels": given}})
    return out


@EVERY
@RULES
@pytest.mark.parametrize("phase", ["Pending", "Inqueue"])
def test_a_job_of_another_namespace_gets_nothing_and_claims_nothing(by: str, rules: Any, phase: str) -> None:
    board = restricted("board", {NAMESPACES: "board, cfo"}, deserved={"cpu": "8"})
    other = queue("other", deserved={"cpu": "8"})
    asked = cluster(board, other, job("tenant", "team-a", "board", 8, phase), job("own", "team-a", "other", 8))
    result = decide(asked, by, compatibility=rules)
    assert bound(result) == {"own": 8}
    assert result.session.view.trace.jobs["team-a/tenant"].reason == "NamespaceNotAllowed"


@EVERY
def test_a_job_of_a_namespace_that_is_named_runs(by: str) -> None:
    board = restricted("board", {NAMESPACES: "board,cfo"}, deserved={"cpu": "8"})
    assert bound(decide(cluster(board, job("own", "cfo", "board")), by)) == {"own": 2}


@pytest.mark.parametrize(
    ("selector", "labels", "allowed"),
    [
        ("team=a", {"team": "a"}, True),
        ("team == a", {"team": "b"}, False),
        ("team=a", {}, False),
        ("team!=a", {"team": "b"}, True),
        ("team!=a", {}, True),
        ("team in (a, b), env=prod", {"team": "b", "env": "prod"}, True),
        ("team in (a, b),env=prod", {"team": "b"}, False),
        ("team notin (a,b)", {"team": "c"}, True),
        ("team notin (a,b)", {"team": "b"}, False),
        ("gpu", {"gpu": ""}, True),
        ("gpu", {}, False),
        ("!gpu", {}, True),
        ("!gpu", {"gpu": ""}, False),
        ("kubernetes.io/metadata.name in (here, there)", {}, True),
        # A slip opens the queue to no namespace.
        ("team in a, b", {"team": "a"}, False),
        ("team>3", {"team": "4"}, False),
    ],
)
def test_namespaces_are_selected_by_their_labels(selector: str, labels: dict[str, str], allowed: bool) -> None:
    board = restricted("board", {SELECTOR: selector})
    result = decide(cluster(board, job("own", "here", "board"), here=labels), policy("gang predicates"))
    assert bound(result) == ({"own": 2} if allowed else {})


def test_a_namespace_is_allowed_by_name_or_by_label() -> None:
    board = restricted("board", {NAMESPACES: "cfo", SELECTOR: "team=board"})
    jobs = [job(name, name, "board", 1) for name in ("cfo", "chair", "guest")]
    result = decide(cluster(board, *jobs, chair={"team": "board"}, guest={}), policy("gang predicates"))
    assert bound(result) == {"cfo": 1, "chair": 1}


def test_a_namespace_whose_labels_are_not_seen_yet_is_not_selected_by_them() -> None:
    """Its pods may come before it; it may have the label that keeps it out."""
    board = restricted("board", {SELECTOR: "!intern"})
    seen = cluster(board, job("own", "team-a", "board"), default={})
    assert bound(decide(seen, policy("gang", "predicates"))) == {}
    seen.upsert("Namespace", {"metadata": {"name": "team-a"}})
    assert bound(decide(seen, policy("gang", "predicates"))) == {"own": 2}


def test_an_empty_list_names_no_namespace() -> None:
    result = decide(cluster(restricted("board", {NAMESPACES: ""}), job("own", "cfo", "board")), policy("predicates"))
    assert bound(result) == {}


def test_queues_below_are_for_the_same_namespaces_unless_they_say_otherwise() -> None:
    queues = [
        restricted("dept", {NAMESPACES: "a"}, parent="root"),
        queue("team", parent="dept"),
        restricted("guests", {NAMESPACES: "b"}, parent="dept"),
    ]
    jobs = [job(f"{name}-{at}", name, at, 1) for name in "ab" for at in ("team", "guests")]
    result = decide(cluster(*queues, *jobs), policy("gang predicates"))
    assert bound(result) == {"a-team": 1, "b-guests": 1}
    message = result.session.view.trace.jobs["b/b-team"].message
    assert message == "queue team takes no jobs of namespace b, as queue dept above it says"


def test_what_runs_goes_on_and_grows_no_more() -> None:
    group = pod_group("own", 1, queue="board", namespace="a", phase="Running")
    pods = gang("own", 3, namespace="a")
    running = [*gang("run", 1, namespace="a", node="n", annotations={"scheduling.k8s.io/group-name": "own"})]
    result = decide(cluster(restricted("board", {NAMESPACES: "b"}), group, pods, running), policy("gang predicates"))
    assert bound(result) == {}
    assert not result.session.evicted


@pytest.mark.parametrize("action", ["preempt", "reclaim", "gangpreempt", "gangreclaim", "backfill"])
def test_no_action_serves_a_job_of_another_namespace(action: str) -> None:
    board = restricted("board", {NAMESPACES: "b"}, deserved={"cpu": "8"})
    running = job("run", "b", "other", 8, "Running", node="n")
    amounts = {"cpu": "", "memory": ""} if action == "backfill" else {}
    waiting = job("wait", "a", "board", 4, "Inqueue", **amounts)
    objs = (board, queue("other", deserved={"cpu": "1"}), waiting, *(() if action == "backfill" else (running,)))
    result = decide(cluster(*objs), policy("gang predicates capacity", actions=f"allocate, {action}"))
    assert bound(result) == {}
    assert not result.session.evicted


def test_why_says_it_and_offers_what_works() -> None:
    board = restricted("board", {NAMESPACES: "cfo", SELECTOR: "team=board"})
    asked = cluster(board, job("own", "team-a", "board"), team_a={})
    told = why(asked, "job team-a/own")
    assert (told.reason, told.stage, told.who) == ("NamespaceNotAllowed", "Admission", "user")
    assert "cfo" not in told.message
    assert [(remedy.who, remedy.change) for remedy in told.remedies] == [
        ("user", "set queue: default in PodGroup team-a/own"),
        ("admin", "add team-a to the annotation stromboli.io/namespaces of queue board"),
    ]
    assert "takes jobs only of namespace cfo and namespaces with team=board" in said(asked, "queue board")


def test_a_pattern_among_names_of_namespaces_is_named() -> None:
    for listed, problems in (("a, b,", []), ("a,team-*", ["cannot be read: 'a,team-*'"]), ("", [])):
        found = unread("Queue", restricted("board", {NAMESPACES: listed}))
        assert found == [f"metadata.annotations[stromboli.io/namespaces]: {problem}" for problem in problems]


def test_a_selector_that_cannot_be_read_is_named() -> None:
    board = restricted("board", {SELECTOR: "team in a"})
    assert unread("Queue", board) == [
        "metadata.annotations[stromboli.io/namespace-selector]: cannot be read: 'team in a'"
    ]
    words = "takes jobs only of namespaces with 'team in a', which cannot be read and selects none"
    assert words in said(cluster(board), "queue board")
