"""How long the turn of one job may be, and how often."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stromboli.api import crds
from stromboli.engine import Engine, SessionResult, Successive
from stromboli.framework.cluster.environment import Environment
from stromboli.framework.diagnosis.explain import pending_reasons
from stromboli.framework.session.long_turns import A_SECOND, LONGEST, SAVED, LongTurns
from stromboli.policy.document import DEFAULT_POLICY
from stromboli.state.cluster import ClusterState
from tests import builders
from tests.journal.recording import Recording

STEPS = 10_000
#: what one question to plugins may take beyond the bound, at which a turn is cut
_QUESTION = 10_000
MEMBERS = 60


def engine(actions: str = "allocate, backfill", plugins: str = "", steps: int = STEPS) -> Engine:
    text = builders.policy("priority gang", f"drf predicates proportion nodeorder {plugins}", actions=actions)
    return Engine(f"{text}\nsession: {{steps: {steps}}}\n")


def cluster(*more: object) -> ClusterState:
    nodes = [builders.node(f"n{at}", cpu="32") for at in range(8)]
    racks = [
        crds.HyperNode.parse(
            {
                "metadata": {"name": f"rack-{at}"},
                "spec": {
                    "tier": 1,
                    "members": [
                        {"type": "Node", "selector": {"exactMatch": {"name": f"n{2 * at + side}"}}} for side in (0, 1)
                    ],
                },
            }
        )
        for at in range(4)
    ]
    return builders.state(*nodes, *racks, builders.queue("mass"), builders.queue("other", created=1), *more)


def gang(name: str, members: int, *, last: str = "1m", **spec: Any) -> list[object]:
    """A gang whose members have requests that no other has; the last one decides whether it fits."""
    pods = [builders.pod(f"{name}-{at}", group=name, cpu=f"{at + 1}m", memory="1Mi") for at in range(members - 1)]
    return [
        builders.pod_group(name, members, queue="mass", phase="Inqueue", **spec),
        *pods,
        builders.pod(f"{name}-last", group=name, cpu=last, memory="1Mi", labels={"x": "y"}),
    ]


def divided(name: str, members: int) -> list[object]:
    """A gang of small groups, each of which has to be close together."""
    close = {"mode": "hard", "highestTierAllowed": 1}
    groups = [{"name": "g", "matchLabelKeys": ["i"], "subGroupSize": 4, "networkTopology": close}]
    pods = [
        builders.pod(f"{name}-{at}", group=name, cpu=f"{at + 1}m", memory="1Mi", labels={"i": str(at // 4)})
        for at in range(members)
    ]
    return [builders.pod_group(name, members, queue="mass", phase="Inqueue", subGroupPolicy=groups), *pods]


def urgent(name: str, members: int) -> list[object]:
    """Pods that look for victims."""
    return [
        builders.pod_group(name, 1, queue="mass", phase="Inqueue"),
        *(builders.pod(f"{name}-{at}", group=name, cpu=f"{33_000 + at}m", priority=10) for at in range(members)),
    ]


#: gangs whose turns would be long, with the plugins that they need
GANGS: dict[str, tuple[Callable[[str, int], list[object]], str]] = {
    "distinct": (gang, ""),
    "distinct, the last does not fit": (lambda name, members: gang(name, members, last="64"), ""),
    "in a rack": (
        lambda name, members: gang(name, members, networkTopology={"mode": "hard", "highestTierAllowed": 1}),
        "network-topology-aware",
    ),
    "in a rack, the last does not fit": (
        lambda name, members: gang(name, members, last="64", networkTopology={"mode": "hard", "highestTierAllowed": 1}),
        "network-topology-aware",
    ),
    "sub groups": (divided, "network-topology-aware"),
    "urgent": (urgent, ""),
}


def session(decide: Successive, state: ClusterState, now: float = builders.NOON) -> SessionResult:
    return decide.decide(state.snapshot(), now=now)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("what", GANGS)
def test_no_turn_takes_more_than_it_may(what: str) -> None:
    """With savings that are used up, whatever gang it is; and another queue's gang is placed at once."""
    make, plugins = GANGS[what]
    actions = "allocate, preempt, backfill" if what == "urgent" else "allocate, backfill"
    late = [builders.pod_group("late", 2, queue="other", phase="Inqueue"), *builders.gang("late", 2, cpu="1")]
    state, decide = cluster(*make("big", 4 * MEMBERS)), Successive(engine(actions, plugins), Environment())
    first = session(decide, state)
    assert first.session.kernel.steps <= len(decide.engine.policy.actions) * (STEPS * (LONGEST + SAVED) + _QUESTION)
    for obj in late:
        state.upsert(type(obj).__name__, obj)
    for number in range(4):
        for obj in make(f"more-{number}", 4 * MEMBERS):
            state.upsert(type(obj).__name__, obj)
    second = session(decide, state, builders.NOON + 1)
    assert {"default/late-0", "default/late-1"} <= second.session.bound.keys()
    actions_with_turns = 2 if what == "urgent" else 1
    assert second.session.kernel.steps <= actions_with_turns * STEPS * (LONGEST + 2) + 3 * _QUESTION


def test_what_is_cut_has_a_longer_turn_when_its_queue_has_saved_for_it() -> None:
    state, decide = cluster(*gang("big", 3 * MEMBERS)), Successive(engine(), Environment())
    first = session(decide, state)
    assert not first.session.bound
    assert {why.reason for why in pending_reasons(first.session).values()} == {"TurnTooLong"}
    assert not first.unfinished
    assert not first.conclusive
    soon = session(decide, state, builders.NOON + 1)
    assert soon.session.kernel.steps == 0
    assert {why.reason for why in pending_reasons(soon.session).values()} == {"TurnTooLong"}
    later = [session(decide, state, builders.NOON + 400 * number) for number in range(1, 6)]
    assert any(len(each.session.bound) == 3 * MEMBERS for each in later)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("members", [3 * MEMBERS, 10 * MEMBERS])
def test_what_is_cut_is_given_what_its_pods_take_at_once(members: int) -> None:
    """The pods that had places say how long the turn has to be, so that none is cut a second time."""
    state, decide, turns = cluster(*gang("big", members)), Successive(engine(), Environment()), 0
    for number in range(300):
        result = session(decide, state, builders.NOON + 20 * number)
        turns += result.session.kernel.steps > 0
        if result.session.bound:
            break
    assert len(result.session.bound) == members
    assert turns == 2


def test_what_is_cut_keeps_nothing_that_it_tried() -> None:
    """Other jobs of its queue are placed as if it were not there, and no pod is evicted for it."""
    others = [
        builders.pod_group("small", 2, queue="mass", phase="Inqueue", created=9),
        *builders.gang("small", 2, cpu="32"),
    ]
    state, decide = cluster(*gang("big", 3 * MEMBERS), *others), Successive(engine(), Environment())
    first, second = session(decide, state), session(decide, state)
    without = session(Successive(engine(), Environment()), cluster(*others))
    assert not first.session.bound
    assert first.unfinished
    assert second.session.bound == without.session.bound
    assert len(second.session.bound) == 2


def test_long_turns_take_a_part_of_the_time_whatever_is_submitted() -> None:
    """An hour in which a new gang comes each second, and one that was cut stays."""
    state = builders.state(builders.queue("mass"), *gang("big", 2))
    job = Engine().decide(state.snapshot(), now=0).session.view.jobs["default/big"]
    left: dict[str, Any] = {}
    now, beyond = 0.0, 0.0
    for _ in range(3600):
        now += 1
        turns = LongTurns(STEPS, left, lambda now=now: now)
        if most := turns.most(job):
            taken = int(min(most, 10 * STEPS * LONGEST)) + 1
            beyond += max(0, taken - turns.free)
            turns.took(job, taken)
            if taken > most:
                turns.cut(job, taken)
        left = turns.left(lambda _: True)
    assert beyond <= STEPS * (2 * 10 * LONGEST + A_SECOND * 3600)


def test_a_longer_turn_comes_when_it_has_been_saved_for_also_after_the_first() -> None:
    state = builders.state(builders.queue("mass"), *gang("big", 2))
    job = Engine().decide(state.snapshot(), now=0).session.view.jobs["default/big"]
    now = 1_000.0
    turns = LongTurns(STEPS, {}, lambda: now)
    taken = turns.first + 1
    assert turns.most(job) == turns.first
    turns.cut(job, taken)
    turns.took(job, taken)
    lacks = 2 * taken - turns.free
    now += lacks / (STEPS * A_SECOND) - 2
    assert not turns.most(job)
    now += 3
    assert turns.most(job) >= 2 * taken


def tight(nodes: int) -> list[object]:
    """A gang that fills nodes of 32 CPUs nearly to the last, three pods each, which takes long to find out."""
    pairs = [(5_000 + 2_371 * at % 6_900, 5_000 + 4_409 * at % 6_700) for at in range(nodes)]
    sizes = [size for first, second in pairs for size in (first, second, 31_990 - first - second)]
    pods = [builders.pod(f"big-{at}", "big", cpu=f"{cpu}m", memory="1Mi") for at, cpu in enumerate(sizes)]
    return [builders.pod_group("big", len(pods), queue="mass", phase="Inqueue"), *pods]


def test_a_search_for_places_ends_with_the_turn_and_the_gang_is_not_held_up_for_it() -> None:
    """It is tried in each session as far as a turn goes."""
    state, steps = cluster(*tight(8)), 20 * STEPS
    decide = Successive(engine(steps=steps), Environment())
    first = session(decide, state)
    assert steps * (LONGEST + SAVED) / 2 < first.session.kernel.steps <= steps * (LONGEST + SAVED)
    assert {why.reason for why in pending_reasons(first.session).values()} == {"NoPlacesFound"}
    state.upsert("Pod", builders.pod("more", cpu="1m", node="n0", phase="Running"))
    second = session(decide, state).session
    assert 0 < second.kernel.steps <= steps * (LONGEST + 1)
    assert "TurnTooLong" not in {why.reason for why in pending_reasons(second).values()}


def test_a_gang_that_was_searched_for_in_vain_counts_whoever_remembers_it() -> None:
    """That it still has no places is work of the same length for this process and for one that has to look."""
    state = cluster(*tight(8), builders.pod("one", cpu="1", node="n0", phase="Running"))
    decide = Successive(engine(steps=100 * STEPS), Environment())
    first = session(decide, state)
    other = Successive(engine(steps=100 * STEPS), first.environment)
    again = session(decide, state)
    state.upsert("Node", builders.node("n0", cpu="32", labels={"other": "label"}))
    assert session(other, state).session.kernel.steps == again.session.kernel.steps > 0
    assert again.session.kernel.steps < first.session.kernel.steps / 2


def test_turns_without_a_budget_are_not_cut() -> None:
    text = builders.policy("priority gang", "drf predicates proportion nodeorder", actions="allocate")
    for more in ("session: {steps: 0}", "compatibility: volcano\nsession: {steps: 1}"):
        decide = Successive(Engine(f"{text}\n{more}\n"), Environment())
        assert len(session(decide, cluster(*gang("big", 3 * MEMBERS))).session.bound) == 3 * MEMBERS


def test_long_turns_are_replayed_from_their_middle() -> None:
    """The journal begins when a job was cut and others of its queue owe for theirs."""
    recording = Recording(Engine(f"{DEFAULT_POLICY}session: {{steps: {STEPS}}}\n"), largest=1 << 16)
    nodes = [builders.node(f"n{at}", cpu="32") for at in range(8)]
    recording.follow([*nodes, builders.queue("mass"), builders.queue("other"), builders.queue("default")])
    for number in range(3):
        for obj in gang(f"big-{number}", 2 * MEMBERS):
            recording.state.upsert(type(obj).__name__, obj)
    results = [recording.session(builders.NOON + 150 * number) for number in range(12)]
    assert any(why.reason == "TurnTooLong" for each in results for why in pending_reasons(each.session).values())
    assert results[-1].environment.left["turns of allocate"]
    assert recording.replayed().difference is None
