"""What holds in any history, whatever the policy: a small cluster lives through random changes, session by session.

`STROMBOLI_HISTORIES=10000` tries more of them, `python -m tests.expectations.histories` others.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from stromboli.api.decisions import Evict
from stromboli.api.pod_state import PodState
from stromboli.engine import Engine
from stromboli.policy.document import DEFAULT_POLICY
from tests.expectations.invariants import (
    check_capabilities,
    check_gangs,
    check_given,
    check_guarantees,
    check_nodes,
    check_starts,
    check_victims,
    holdings,
    holdings_now,
)
from tests.expectations.world import GPU, Job, World, evictions, job_of, quantities

HISTORIES = int(os.environ.get("STROMBOLI_HISTORIES", "4"))
#: `STROMBOLI_SHRINK=1` makes what fails smaller
PHASES = [Phase.generate, *([Phase.shrink] if os.environ.get("STROMBOLI_SHRINK") else [])]
#: sessions after which a small cluster has come to rest
ENOUGH = 40
#: what time alone changes within so many seconds is waited for
SOON = 10
#: within so many seconds all happens that time alone brings about
LONG = 40
SHARES = ("proportion", "capacity", "capacity tree", "fairshare", "fairshare tree")
#: actions that run beside enqueue, which is the first, allocate and backfill
ACTIONS = (
    ("preempt", "reclaim"),
    ("gangpreempt", "gangreclaim"),
    ("reclaim",),
    (),
    ("consolidation", "reclaim", "preempt", "stalegangeviction"),
    ("consolidation", "gangpreempt", "gangreclaim"),
)
SHAPES = {
    "proportion": "name: proportion",
    "capacity": "name: capacity",
    "capacity tree": "name: capacity\n    enableHierarchy: true",
    "fairshare": "name: fairshare",
    "fairshare tree": "name: fairshare",
}


@cache
def engine(order: tuple[str, ...], shares: str) -> Engine:
    """An engine whose actions run in an order, after enqueue."""
    text = DEFAULT_POLICY.replace("allocate, backfill", ", ".join(order)).replace("name: proportion", SHAPES[shares])
    return Engine(text.replace("  - name: drf\n", "") if shares.startswith("fairshare") else text)


#: every order of the actions, the usual one first
orders = st.sampled_from(ACTIONS).flatmap(
    lambda names: st.one_of(
        st.just(("allocate", *names, "backfill")), st.permutations(("allocate", "backfill", *names))
    )
)
#: the queues that take jobs, with their parents in a tree
QUEUES = {"a": "parent", "b": "middle", "c": "root"}
#: the nodes that racks take, as far as they are there
RACKS = {"r0": ["n0", "n1"], "r1": ["n2", "n3"]}
PARENTS = {"root": "", "parent": "root", "middle": "parent"}
amounts = st.fixed_dictionaries(
    {"cpu": st.integers(0, 8), "memory": st.integers(0, 8)}, optional={GPU: st.integers(0, 2)}
)
jobs = st.fixed_dictionaries(
    {
        "queue": st.sampled_from(sorted(QUEUES)),
        "count": st.integers(1, 4),
        "least": st.integers(1, 4),
        "cpu": st.integers(1, 4),
        "memory": st.integers(1, 4),
        "gpu": st.sampled_from([0, 0, 0, 1, 2]),
        "priority": st.sampled_from(["low", "low", "middle", "high", "critical"]),
        "best_effort": st.sampled_from([0, 0, 0, 0, 1, 2]),
        "tight": st.sampled_from([False, False, False, False, False, True]),
        "port": st.sampled_from([False, False, False, False, False, True]),
        "apart": st.sampled_from([False, False, False, False, False, True]),
        "budget": st.sampled_from([None, None, None, None, 0, 1]),
    }
)
queue_specs = st.fixed_dictionaries(
    {
        "weight": st.integers(1, 3),
        "priority": st.integers(0, 1),
        "deserved": st.one_of(amounts, amounts, st.none()),
        "capability": st.one_of(
            st.none(),
            st.none(),
            st.none(),
            st.fixed_dictionaries({"cpu": st.integers(1, 8)}),
            st.fixed_dictionaries({"memory": st.integers(1, 8)}),
            st.fixed_dictionaries({GPU: st.integers(1, 2)}),
        ),
        "guarantee": st.one_of(
            st.none(), st.none(), st.fixed_dictionaries({"cpu": st.integers(1, 3), "memory": st.integers(1, 3)})
        ),
    }
)
#: a small cluster stays one; a history whose next change is refused would be thrown away
few_jobs = precondition(lambda self: len(self.world.jobs) < 10)
sizes = st.tuples(st.integers(2, 8), st.integers(4, 16), st.sampled_from([0, 0, 2, 4]), st.sampled_from([3, 6, 110]))


def begins_with(drawn: st.SearchStrategy[dict[str, Any]], most_nodes: int = 3) -> Any:
    """Histories that begin with such jobs."""
    return initialize(
        order=orders,
        shares=st.sampled_from(SHARES),
        nodes=st.lists(sizes, min_size=1, max_size=most_nodes),
        specs=st.tuples(*[queue_specs] * 5),
        first=st.lists(drawn, min_size=3, max_size=5),
        then=st.lists(drawn, min_size=2, max_size=4),
        patience=st.integers(0, 3),
        absence=st.integers(0, 2),
    )


class Histories(RuleBasedStateMachine):
    """A cluster that changes."""

    make_world = World
    make_job = Job
    make_engine = staticmethod(engine)

    @begins_with(jobs, most_nodes=2)
    def begin(
        self,
        order: Sequence[str],
        shares: str,
        nodes: list[tuple[int, ...]],
        specs: tuple[dict[str, Any], ...],
        first: list[dict[str, Any]],
        then: list[dict[str, Any]],
        patience: int,
        absence: int,
    ) -> None:
        self.shares = shares
        tree = shares.endswith("tree")
        parents = PARENTS | QUEUES if tree else dict.fromkeys(QUEUES, "")
        drawn = iter(specs)
        queues = {name: {} if name == "root" else _spec(next(drawn), parent) for name, parent in parents.items()}
        sized = {f"n{i}": size for i, size in enumerate(nodes)}
        self.world = self.make_world(
            self.make_engine(tuple(order), shares), sized, queues, patience=patience, absence=absence, racks=RACKS
        )
        for each in first:
            self._add(each)
        self._session()
        for each in then:
            self._add(each)
        self._session()

    def _add(self, drawn: dict[str, Any]) -> None:
        number = max((job.created for job in self.world.jobs), default=-1) + 1
        count = drawn["count"]
        within = {"least": min(drawn["least"], count), "best_effort": min(drawn["best_effort"], count - 1)}
        self.world.jobs.append(self.make_job(f"j{number}", created=number, **drawn | within))

    @few_jobs
    @rule(drawn=jobs)
    def a_job_comes(self, drawn: dict[str, Any]) -> None:
        self._add(drawn)
        self._session()

    @precondition(lambda self: self.world.jobs)
    @rule(data=st.data())
    def a_job_ends(self, data: st.DataObject) -> None:
        """With its pods that terminate: a state that is made anew knows no queue of theirs."""
        ends = data.draw(st.sampled_from(self.world.jobs))
        self.world.jobs.remove(ends)
        self.world.leaving = {name: each for name, each in self.world.leaving.items() if each[0] is not ends}
        self._session()

    @precondition(lambda self: any(job.running for job in self.world.jobs))
    @rule(data=st.data(), sessions=st.integers(1, 4))
    def a_tenant_deletes_pods(self, data: st.DataObject, sessions: int) -> None:
        """They end slowly, and others come at once."""
        self.world.delete_pods(data.draw(st.sampled_from([job for job in self.world.jobs if job.running])), sessions)
        self._session()

    @precondition(lambda self: len(self.world.nodes) < 4)
    @rule(size=sizes)
    def a_node_comes(self, size: tuple[int, ...]) -> None:
        self.world.nodes[f"n{max((int(name[1:]) for name in self.world.nodes), default=-1) + 1}"] = size
        self._session()

    @precondition(lambda self: len(self.world.nodes) > 1)
    @rule(data=st.data(), ends=st.booleans())
    def a_node_goes(self, data: st.DataObject, ends: bool) -> None:
        """What is left of a gang ends with it, or goes on in the hope of other pods."""
        self.lose(data.draw(st.sampled_from(sorted(self.world.nodes))), ends)

    def lose(self, gone: str, ends: bool) -> None:
        """Take a node away with its pods."""
        del self.world.nodes[gone]
        self.world.leaving = {name: each for name, each in self.world.leaving.items() if each[1] != gone}
        for job in self.world.jobs:
            if gone in job.pods.values():
                job.short = not ends
                job.pods = {} if ends else {name: node for name, node in job.pods.items() if node != gone}
                job.replace_pods()
        self._session()

    @rule(name=st.sampled_from(sorted(QUEUES)), weight=st.integers(1, 4))
    def a_weight_changes(self, name: str, weight: int) -> None:
        self.world.queues[name]["weight"] = weight
        self._session()

    @rule()
    def the_scheduler_starts_anew(self) -> None:
        self.world.forget()

    def teardown(self) -> None:
        """Evictions end, no two jobs evict each other, and an unchanged cluster gives nothing to decide."""
        if not hasattr(self, "world"):
            return
        world = self.world
        first = world.decide().decisions
        world.evicted_for.clear()
        busy = world.now
        for session in range(ENOUGH):
            leaving = bool(world.leaving) or any(len(job.pods) < job.count for job in world.jobs)
            changes, result = self._session()
            # The same history gives the same decisions.
            assert session or result.decisions == first
            # Who has left during a session gave room that the next one sees, and what was written is read by it. A
            # queue whose last turn took long waits for the next one.
            if leaving or result.decisions or result.session.view.trace.not_reached:
                busy = world.now
            elif result.conclusive:
                if result.again_at > world.now + SOON:
                    break
                world.now = max(world.now, result.again_at)
            # Sessions that look again at intervals are never conclusive.
            elif world.now > busy + LONG:
                break
            else:
                world.now = busy + LONG
        assert not changes, f"after {ENOUGH} sessions pods still come and go: {world.evicted_for}"
        assert not [pair for pair in world.evicted_for if pair[::-1] in world.evicted_for]
        last = world.decide()
        assert last.decisions == []
        promised = np.flatnonzero(last.session.view.pods.state == PodState.Pipelined)
        kept = {pod.name for pod in last.session.view.records(promised) if not self.may_keep(job_of(pod.name))}
        assert not kept, f"the free places of {kept} are not taken"

    def may_keep(self, job: str) -> bool:
        """Whether a job may keep free places without being able to start."""
        return False

    def _session(self) -> Any:
        world = self.world
        before, before_now, moving = holdings(world), holdings_now(world), world.environment.reservations
        disruptions = {job.name: job.disruptions for job in world.jobs}
        waiting = {job.name: job.running for job in world.jobs}
        changes, result = world.session()
        check_nodes(world)
        check_gangs(world)
        check_victims(world, disruptions, result)
        check_capabilities(world, before)
        check_starts(world, before_now, result)
        if not self.shares.startswith("fairshare") and not moving:
            check_guarantees(world, before)
            check_given(world, before, result)
        beneficiaries = {victim.beneficiary.rpartition("/")[2] for victim in evictions(result)}
        moved = {job_of(victim.name) for victim in evictions(result) if victim.action == "consolidation"}
        if beneficiaries:
            evicted = (each for each in result.decisions if isinstance(each, Evict) and each.action != "consolidation")
            lost = Counter(job_of(each.name) for each in evicted)
            left = {name: count - lost[name] for name, count in waiting.items()}
            # A gang that others evict, too, needs places for all its pods again.
            whole = {job.name for job in world.jobs if not lost[job.name] or left[job.name] >= job.least}
            self._placed_next(beneficiaries, moved & whole, left)
        return changes, result

    def _placed_next(self, beneficiaries: set[str], moved: set[str], running: dict[str, int]) -> None:
        """More pods run than `running` says, by job, which is without the pods that others evicted.

        If nothing else changes, the jobs that pods were evicted for are bound once these have gone, and moved pods
        are back. More important jobs that are admitted only then may evict them after that.
        """
        longest = max((left for _, _, left in self.world.leaving.values()), default=0)
        most, evicted = dict.fromkeys(running, 0), set[str]()
        for _ in range(1 + max(self.world.patience, longest) + self.world.absence):
            _, result = self.world.session()
            evicted |= {job_of(each.name) for each in evictions(result)}
            most |= {job.name: max(most[job.name], job.running) for job in self.world.jobs}
        for name in beneficiaries:
            assert most[name] > running[name], f"{name} did not get the place of others"
        for name in moved - beneficiaries - evicted:
            assert most[name] >= running[name], f"{name} was moved and is not back"


def _spec(drawn: dict[str, Any], parent: str) -> dict[str, Any]:
    plain: dict[str, Any] = {"weight": drawn["weight"], "priority": drawn["priority"]}
    plain |= {name: quantities(drawn[name]) for name in ("deserved", "capability") if drawn[name] is not None}
    if drawn["guarantee"] is not None:
        plain["guarantee"] = {"resource": quantities(drawn["guarantee"])}
    plain |= drawn.get("more", {})
    return plain | ({"parent": parent} if parent else {})


def test_histories() -> None:
    run_state_machine_as_test(
        Histories,
        settings=settings(max_examples=HISTORIES, stateful_step_count=8, phases=PHASES, deadline=None),
    )
