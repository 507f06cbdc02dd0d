"""A plugin that fails at one extension point: what it costs, at each of the points, however it fails."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from stromboli.api.decisions import Evict
from stromboli.discovery import discover
from stromboli.engine import Engine, SessionResult
from stromboli.explain.queues import explain_queue
from stromboli.explain.rehearsal import Rehearsal
from stromboli.explain.remedies import explained
from stromboli.explain.whatif import what_if
from stromboli.framework.cluster.environment import OFFLINE
from stromboli.framework.diagnosis.explain import pending_reasons
from stromboli.framework.plugin.base import POINTS, Plugin
from stromboli.framework.registry import Registry
from stromboli.state.cluster import ClusterState
from tests import builders
from tests.journal.recording import Recording

ACTIONS = "enqueue, allocate, backfill, preempt, reclaim, gangpreempt, gangreclaim, shuffle, consolidation"
#: what an author may write, beside an error: no answer, a wrong type, a wrong length, a wrong dtype, no numbers
WRONG = ("raise LookupError('no such team')", "return object()", "return np.ones(99)", "return np.full(2, np.nan)")
KNOWN = discover()
#: points where plugins say no to what they are asked about
GATES = frozenset(
    {
        *("job_valid", "job_enqueueable", "job_missing", "job_pipelined", "job_starving", "sub_job_missing"),
        *("sub_job_pipelined", "overused", "allocatable", "lendable", "preemptive", "predicate", "refusal"),
        *("hyper_node_gradient", "bind_annotations", "bind_claims", "bind_volumes", "relations"),
    }
)


def objects() -> list[Any]:
    """Two racks of a node each, full of what is of no importance; a gang that has to evict, and pods that fit."""
    objs = [builders.queue("a"), builders.queue("b", weight=3), *builders.racks(1, 1, cpu="4")]
    objs.append(builders.decode("PriorityClass", {"metadata": {"name": "high"}, "value": 9}, "high"))
    objs.append(builders.pod_group("old", 0, queue="a", phase="Running"))
    objs += [builders.pod(f"old-{index}", "old", node=f"r{index % 2}-0") for index in range(6)]
    objs.append(builders.pod_group("near", 2, queue="a", priorityClassName="high", networkTopology={"mode": "soft"}))
    objs += builders.gang("near", 2, priority=9)
    objs.append(builders.pod_group("bad", 2, queue="a", phase="Pending", priorityClassName="high"))
    objs += builders.gang("bad", 2, priority=9)
    objs.append(builders.pod_group("good", 2, queue="b", phase="Pending"))
    objs += builders.gang("good", 2, cpu="2")
    objs.append(builders.pod_group("free", 2, queue="b", phase="Pending"))
    objs += builders.gang("free", 2, cpu="", memory="")
    return objs


OBJECTS = objects()


def cluster() -> ClusterState:
    return builders.state(*OBJECTS)


def engine(point: str, body: str, when: str = "True") -> Engine:
    """With a plugin in front that has no opinion, and fails at a point where a condition holds."""
    names = [*inspect.signature(getattr(Plugin, point)).parameters, "None"]
    parameters, subject = ", ".join(names[:-1]), names[1]
    lines = ["import numpy as np", "from stromboli.framework.plugin.base import Plugin", "class Odd(Plugin):"]
    lines += ["    name = 'odd'", f"    def {point}({parameters}):", f"        subject = {subject}"]
    lines += [f"        if {when}:", f"            {body}", f"        return {NEUTRAL.get(point, 'None')}"]
    made: dict[str, Any] = {"__name__": "odd"}
    exec("\n".join(lines), made)
    return of(Registry(KNOWN.actions, KNOWN.plugins | {"odd": made["Odd"]}), "odd priority gang")


def of(registry: Registry, first: str = "priority gang") -> Engine:
    text = builders.policy(
        first, "overcommit predicates proportion nodeorder binpack network-topology-aware", actions=ACTIONS
    )
    return Engine(text, registry=registry)


#: no opinion, where that is not None
NEUTRAL = {
    "job_missing": "0", "sub_job_missing": "0", "job_starving": "True", "allocatable": "(count, None)",
    "job_enqueueable": "__import__('stromboli.framework.plugin.base').framework.plugin.base.Vote.Abstain",
    "job_pipelined": "__import__('stromboli.framework.plugin.base').framework.plugin.base.Vote.Abstain",
    "predicate": "[]", "bind_annotations": "{}", "bind_claims": "[]", "bind_volumes": "[]", "overused": "None",
    "identity": "0",
}  # fmt: skip


def decide(by: Engine) -> SessionResult:
    return by.decide(cluster().snapshot(), now=builders.NOON)


@pytest.fixture(scope="module")
def expected() -> SessionResult:
    return decide(of(KNOWN))


WHERE = (*POINTS, "open", "close", "leave")


def in_turn(*ways: str) -> list[Any]:
    """Every point with every way to fail; all but one of each point, in turn, are exhaustive."""
    return [
        pytest.param(point, way, marks=[] if number % len(ways) == at else pytest.mark.exhaustive)
        for number, point in enumerate(WHERE)
        for at, way in enumerate(ways)
    ]


@pytest.mark.parametrize(("point", "body"), in_turn(*WRONG))
@pytest.mark.one_in(6)
def test_who_only_prefers_costs_nobody_a_place_and_gates_are_named(
    point: str, body: str, expected: SessionResult
) -> None:
    by = engine(point, body)
    result = decide(by)
    session = result.session
    assert {failure.plugin for failure in session.failures} <= {"odd"}
    if point in GATES:
        reasons = pending_reasons(session).values()
        said = [f"{each.message} {each.detail}" for each in reasons]
        placed = all(each.reason == "WaitingForRelease" for each in reasons)
        assert not session.failures or placed or any("plugin odd failed: " in each for each in said)
    elif session.failures:
        assert (session.bound, session.evicted) == (expected.session.bound, expected.session.evicted)
    assert "object" not in body or decide(by).decisions == result.decisions


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    ("point", "when"),
    in_turn("True", "getattr(self, 'asked', 0) > 3 or not setattr(self, 'asked', getattr(self, 'asked', 0) + 1)"),
)
def test_questions_are_answered(point: str, when: str) -> None:
    """Also where the plugin first fails when a question is asked: after the session."""
    by = engine(point, "raise LookupError('no such team')", when)
    rehearsal = Rehearsal(by, cluster(), OFFLINE, builders.NOON)
    session = rehearsal.session()
    for name in ("old", "near", "bad", "good", "free"):
        assert explained(session, "job", f"default/{name}", None) is not None
        assert explained(session, "pod", f"default/{name}-0", None) is not None
    for queue in ("a", "b"):
        assert explain_queue(session, queue) is not None
    if when == "True":
        difference = what_if(rehearsal, lambda state: state.delete("Pod", "default/old-0"), cycles=1)
        assert all(problem.startswith("plugin odd failed in ") for problem in difference.problems)


@pytest.mark.parametrize(
    ("point", "when"),
    [
        ("predicate", "subject.pod_class.request.get('cpu') == 1000"),
        ("job_valid", "subject.key == 'default/bad'"),
        ("job_enqueueable", "subject.key == 'default/bad'"),
        ("job_missing", "subject.key == 'default/bad'"),
        ("allocatable", "subject.name == 'a'"),
        ("overused", "subject.name == 'a'"),
        ("refusal", "subject.job == 'default/bad'"),
        ("bind_annotations", "subject.job == 'default/bad'"),
    ],
)
def test_a_gate_that_fails_holds_only_who_it_was_asked_about(point: str, when: str, expected: SessionResult) -> None:
    session = decide(engine(point, "raise LookupError('no such team')", when)).session
    assert {key for key in session.bound if "good" in key or "free" in key} == {
        key for key in expected.session.bound if "good" in key or "free" in key
    }


def test_nobody_goes_whom_a_plugin_that_fails_may_protect(expected: SessionResult) -> None:
    assert expected.session.evicted
    by = engine("preemptable", "raise LookupError('no such team')")
    plugin: Any = by.registry.plugins["odd"]
    plugin.protects = True
    assert {each.action for each in decide(by).decisions if isinstance(each, Evict)} <= {"reclaim", "gangreclaim"}


def test_a_plugin_that_is_well_again_leaves_no_mark() -> None:
    when = "type(self).broken"
    by = engine("node_order", "return np.ones(99)", when)
    plugin: Any = by.registry.plugins["odd"]
    plugin.broken = True
    assert [(each.plugin, each.point) for each in decide(by).session.failures] == [("odd", "node_order")]
    plugin.broken = False
    assert not decide(by).session.failures


@pytest.mark.one_in(3)
@pytest.mark.parametrize("point", ["node_order", "job_order", "predicate", "job_missing", "preemptable", "on_allocate"])
def test_what_was_decided_beside_a_plugin_that_fails_is_replayed(point: str) -> None:
    recording = Recording(engine(point, "raise LookupError(object())"))
    recording.follow(OBJECTS)
    recording.session()
    recording.session(builders.NOON + 1)
    assert recording.replayed().difference is None
