"""What every way of placing a gang would place is placed; of what none would place it is proven."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from stromboli.engine import SessionResult
from stromboli.framework.explain import why_job
from tests.builders import decide, policy, state
from tests.fuzz import tried
from tests.placement.brute_force import HOST, ZONE, Cluster, SmallNode, SmallPod

#: gangs, filters, HyperNodes, and limits of queues
POLICY = policy("priority gang", "predicates capacity nodeorder network-topology-aware")

SIZES = st.sampled_from([1, 2, 3, 4])
TERMS = st.lists(st.tuples(st.sampled_from([HOST, ZONE]), st.sampled_from("ab")), max_size=1, unique=True).map(tuple)
SELDOM = st.sampled_from([False, False, True])


def rarely(some: st.SearchStrategy[Any], otherwise: Any) -> st.SearchStrategy[Any]:
    return SELDOM.flatmap(lambda yes: some if yes else st.just(otherwise))


NODES = st.builds(
    SmallNode,
    cpu=st.sampled_from([2, 4, 6]),
    memory=st.sampled_from([2, 4, 8]),
    zone=st.sampled_from("uv"),
    disk=st.sampled_from(["", "ssd"]),
    rack=st.sampled_from([0, 1]),
)
PODS = st.builds(
    SmallPod,
    cpu=SIZES,
    memory=SIZES,
    app=st.sampled_from("ab"),
    role=st.sampled_from(["", "ps"]),
    disk=rarely(st.just("ssd"), ""),
    ports=rarely(st.sampled_from([(80,), (80, 81), (81,)]), ()),
    near=rarely(TERMS, ()),
    far=rarely(TERMS, ()),
    spread=rarely(TERMS, ()),
)


@st.composite
def clusters(draw: st.DrawFn, *, busy: bool) -> Cluster:
    nodes = tuple(draw(st.lists(NODES, min_size=1, max_size=4)))
    pods = tuple(draw(st.lists(PODS, min_size=2, max_size=5)))
    least = draw(st.integers(2, len(pods)))
    roles = sum(pod.role == "ps" for pod in pods)
    by_role = {"ps": draw(st.integers(1, min(roles, least)))} if roles and draw(SELDOM) else {}
    small = st.builds(SmallPod, cpu=st.just(1), app=st.sampled_from("ab"), far=rarely(TERMS, ()))
    running = draw(st.lists(st.tuples(small, st.integers(0, len(nodes) - 1)), max_size=3)) if busy else []
    kept = []
    for each, on in running:
        held = sum(other.cpu for other, where in kept if where == on)
        if held + 1 <= min(nodes[on].cpu, nodes[on].memory):
            kept.append((each, on))
    return Cluster(
        nodes,
        pods,
        least,
        tuple(kept),
        by_role,
        hard=draw(SELDOM),
        capability=draw(st.sampled_from([None, None, 6, 10])),
    )


def run(cluster: Cluster) -> SessionResult:
    return decide(state(*cluster.objects()), POLICY)


def starts(result: SessionResult) -> bool:
    return any(key.startswith("default/x-") for key in result.session.bound)


@given(clusters(busy=False))
@example(Cluster((SmallNode(2, 2, "u"),), (SmallPod(1, disk="ssd"), SmallPod(1, disk="ssd")), 2, hard=True))
@example(Cluster((SmallNode(2, 2, "u"), SmallNode(2, 2, "u", rack=1)), (SmallPod(1), SmallPod(1, 2)), 2, hard=True))
@tried(60)
def test_what_fits_starts_and_of_what_does_not_it_is_proven(cluster: Cluster) -> None:
    result = run(cluster)
    assert starts(result) == cluster.possible()
    if not starts(result):
        why = why_job(result.session, result.session.view.jobs["default/x"])
        assert why is not None
        assert why.reason in ("CannotBePlacedTogether", "NeverFits", "NoMatchingNode"), why
        assert why.actionable == "user"


@given(clusters(busy=True))
@tried(60)
def test_what_fits_beside_others_starts(cluster: Cluster) -> None:
    result = run(cluster)
    assert starts(result) == cluster.possible()
