"""Which pods may be evicted at most: columns agree with asking about each pod, and fewer questions evict the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.api.pod_state import HELD
from stromboli.engine import Engine
from stromboli.eviction import context as contexts
from stromboli.eviction.context import PreemptionContext
from stromboli.eviction.pod_index import PodIndex
from stromboli.framework.runtime.questions import Questions
from stromboli.framework.session.session import Session
from tests.builders import NOON, node, pod, pod_group, policy, queue, state
from tests.expectations.test_preemption import CLASSES, gone
from tests.fuzz import tried

PRIORITIES = st.sampled_from(("low", "low", "middle", "high"))
COOLING = {"volcano.sh/cooldown-time": "10m"}
JUDGES = ("priority gang conformance", "gang drf", "gang conformance pdb", "gang cdp drf", "gang pdb")
SHARES = ("proportion", "drf proportion", "capacity", "fairshare")
DUES = st.sampled_from(({}, {"cpu": "1"}, {"cpu": "4", "memory": "1Gi"}, {"memory": "1Gi"}, {"pods": "2"}))


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Any], list[Any]]:
    """Nodes full of jobs of two queues, some with budgets, and a few jobs that want their places; and the budgets."""
    names = [f"n{number}" for number in range(draw(st.integers(3, 8)))]
    queues = [queue(name, deserved=draw(DUES), guarantee={"resource": draw(DUES)}) for name in "ab"]
    objs: list[Any] = [*queues, *(node(name, cpu="3") for name in names)]
    for number in range(draw(st.integers(4, 9))):
        on = draw(st.lists(st.sampled_from(names), min_size=1, max_size=4))
        least, where = draw(st.integers(0, len(on))), draw(st.sampled_from("ab"))
        of = {"queue": where, "phase": "Running", "priorityClassName": draw(PRIORITIES)}
        said = {"volcano.sh/preemptable": draw(st.sampled_from(("true", "true", "false")))}
        more = {"annotations": said | draw(st.sampled_from(({}, {}, COOLING)))}
        more |= {"labels": {"app": draw(st.sampled_from("xyz"))}, "memory": ""}
        objs.append(pod_group(f"j{number}", least, **of))
        objs += [pod(f"j{number}-{n}", f"j{number}", cpu="1", node=name, **more) for n, name in enumerate(on)]
    for number in range(draw(st.integers(1, 2))):
        count, cpu = draw(st.integers(1, 3)), draw(st.sampled_from("12"))
        objs.append(pod_group(f"w{number}", count, queue=draw(st.sampled_from("ab")), priorityClassName="high"))
        objs += [pod(f"w{number}-{n}", f"w{number}", cpu=cpu, memory="") for n in range(count)]
    return objs, [_budget(app, draw(st.integers(0, 2))) for app in draw(st.sets(st.sampled_from("xyz")))]


def _budget(app: str, allowed: int) -> Any:
    status = {"disruptionsAllowed": allowed, "disruptedPods": {"j0-0": "2024-01-01T00:00:00Z"}}
    spec = {"selector": {"matchLabels": {"app": app}}}
    return {"metadata": {"name": app, "namespace": "default"}, "spec": spec, "status": status}


def decided(cluster: tuple[list[Any], list[Any]], text: str) -> Any:
    objs, budgets = cluster
    of = state(CLASSES, *objs)
    for budget in budgets:
        of.upsert("PodDisruptionBudget", budget)
    return Engine(text).decide(of.snapshot(), now=NOON)


@pytest.mark.exhaustive
@tried(15)
@given(
    clusters(),
    st.sampled_from(("preempt", "reclaim", "gangpreempt", "gangreclaim")),
    st.sampled_from(JUDGES),
    st.sampled_from(SHARES),
)
def test_passing_over_ineligible_pods_evicts_as_judging_every_pod(
    cluster: tuple[list[Any], list[Any]], action: str, judges: str, shares: str
) -> None:
    shares = shares.replace("drf ", "") if "drf" in judges else shares
    text = policy(judges, f"predicates {shares} nodeorder", actions=f"enqueue, allocate, {action}")
    made = [gone(decided(cluster, text))]
    with pytest.MonkeyPatch.context() as patch:
        for hint in ("evictable_pods", "preemptable_jobs", "reclaimable_queues"):
            patch.setattr(Questions, hint, lambda *_: None)
        patch.setattr(contexts, "above_minimum", lambda jobs: np.ones(len(jobs), np.bool_))
        made.append(gone(decided(cluster, text)))
    assert made[0] == made[1]


@tried(15)
@given(
    clusters(),
    st.sampled_from(("preemptable", "reclaimable")),
    st.sampled_from(JUDGES),
    st.sampled_from(("proportion", "capacity")),
    st.data(),
)
def test_pods_that_plugins_let_go_alone_are_eligible(
    cluster: tuple[list[Any], list[Any]], point: str, judges: str, shares: str, data: st.DataObject
) -> None:
    text = policy(judges, f"predicates {shares}", actions="enqueue")
    session: Session = decided(cluster, text).session
    view, ask = session.view, session.ask
    pod_index = PodIndex(session, HELD)
    first = view.pending(view.jobs["default/w0"])[0]
    for row in data.draw(st.lists(st.sampled_from(pod_index.rows.tolist()), max_size=3, unique=True)):
        session.statement().evict(view.record(row), "preempt")
    same_queue = pod_index.queue == view.jobs[first.job].queue.index
    candidates = same_queue if point == "preemptable" else ~same_queue
    context = PreemptionContext(session, pod_index, "", point)
    at_most = context.candidates(view.jobs[first.job], first)
    for at in np.flatnonzero(candidates & pod_index.alive() & pod_index.willing).tolist():
        pod = view.record(int(pod_index.rows[at]))
        named = ask.victims(point, first, [pod]) == [pod]
        assert at_most[at] or not named or view.jobs[pod.job].ready_count <= view.jobs[pod.job].min_available
