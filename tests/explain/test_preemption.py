"""Why no pod is evicted for a pod: what is said agrees with what sessions do, and with what `simulate` says."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.engine import Engine
from stromboli.explain.checkup import policy_findings
from stromboli.explain.evictions import why_no_evictions
from stromboli.framework.session.session import Session
from tests.builders import decide, gang, node, pod_group, policy, queue, state
from tests.expectations.test_preemption import CLASSES

POLICY = policy("priority gang conformance", "predicates proportion", actions="allocate, preempt, reclaim")
NEVER = {"volcano.sh/preemptable": "false"}


def session_of(*objs: Any) -> Session:
    """A session in which default/wants waits for 4 CPUs on a node that is full."""
    wants = [pod_group("wants", 1, "own", priorityClassName="high"), *gang("wants", 1, cpu="4", memory="")]
    return decide(state(CLASSES, node("n", cpu="8"), queue("own"), queue("other"), *objs, *wants), POLICY).session


def told(session: Session) -> dict[str, tuple[str, str]]:
    """The word and the detail for each action that evicts, about default/wants."""
    found = why_no_evictions(session, session.view.jobs["default/wants"])
    return {action: (why.reason, why.detail) for action, why in found}


def running(of: str, annotations: dict[str, str], on: str) -> list[Any]:
    """Eight pods of a queue, with annotations on its PodGroup or on each pod."""
    group = pod_group("runs", 1, of, phase="Running", priorityClassName="low")
    pods = gang("runs", 8, memory="", node="n", annotations=annotations if on == "pods" else None)
    group.metadata.annotations.update(annotations if on == "group" else {})
    return [group, *pods]


@pytest.mark.parametrize("of", ["own", "other"])
@pytest.mark.parametrize("on", ["group", "pods"])
def test_who_must_not_be_evicted_is_no_victim(of: str, on: str) -> None:
    session = session_of(*running(of, NEVER, on))
    assert not session.evicted
    found = told(session)
    assert {word for word, _ in found.values()} <= {"NoVictims", "MayNotReclaim"}
    action = "preempt" if of == "own" else "reclaim"
    word, detail = found[action]
    assert word == "NoVictims"
    assert detail.startswith("8 run, and they, their PodGroups or their queues forbid it")


def test_an_elastic_job_above_its_minimum_may_reclaim_and_not_preempt() -> None:
    """The reason does not say that it evicts no pod for more: its queue's share decides."""
    wants = [pod_group("wants", 1, "own", phase="Running"), *gang("wants", 1, cpu="1", memory="", node="n")]
    rich = [pod_group("runs", 7, "other", phase="Running"), *gang("runs", 7, memory="", node="n")]
    more = gang("wants", 2, cpu="4", memory="")[1:]
    cluster = state(CLASSES, node("n", cpu="8"), queue("own"), queue("other"), wants, rich, more)
    found = told(decide(cluster, POLICY).session)
    assert found["preempt"][0] == "NotStarving"
    assert found["reclaim"][0] != "NotStarving"


@pytest.mark.parametrize(("action", "asks"), [("consolidation", True), ("stalegangeviction", False)])
def test_the_doctor_knows_who_asks_conformance(action: str, asks: bool) -> None:
    found = policy_findings(Engine(policy("gang predicates", actions=f"allocate, {action}")))
    assert any("kube-system" in each.problem for each in found) == asks
