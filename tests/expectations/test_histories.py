"""What holds in any history, whatever the policy: a small cluster lives through random changes, session by session.

`STROMBOLI_HISTORIES=10000` tries more of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from hypothesis import Phase, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from stromboli.api.decisions import Evict
from stromboli.engine import Engine
from stromboli.policy.document import DEFAULT_POLICY
from tests.expectations.world import VALUES, Job, World

HISTORIES = int(os.environ.get("STROMBOLI_HISTORIES", "12"))
#: sessions after which a small cluster has come to rest
ENOUGH = 40


def policy(actions: str, shares: str) -> str:
    text = DEFAULT_POLICY.replace("allocate, backfill", f"allocate, {actions}, backfill")
    if shares == "fairshare":
        return text.replace("  - name: drf\n", "").replace("name: proportion", "name: fairshare")
    if shares == "tree":
        return text.replace("name: proportion", "name: capacity\n    enableHierarchy: true")
    return text.replace("name: proportion", f"name: {shares}")


POLICIES = {
    (actions, shares): Engine(policy(actions, shares))
    for shares in ("proportion", "capacity", "tree", "fairshare")
    for actions in ("preempt, reclaim", "gangpreempt, gangreclaim", "reclaim")
}
QUEUES = ("a", "b", "c")
amounts = st.fixed_dictionaries({"cpu": st.integers(0, 8), "memory": st.integers(0, 8)})
jobs = st.fixed_dictionaries(
    {
        "queue": st.sampled_from(QUEUES),
        "count": st.integers(1, 4),
        "least": st.integers(1, 4),
        "cpu": st.integers(1, 4),
        "memory": st.integers(1, 4),
        "priority": st.sampled_from(["low", "low", "middle", "high", "critical"]),
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
        ),
        "guarantee": st.one_of(
            st.none(), st.none(), st.fixed_dictionaries({"cpu": st.integers(1, 3), "memory": st.integers(1, 3)})
        ),
    }
)


def resource_list(amounts: dict[str, int]) -> dict[str, str]:
    return {name: f"{value}Gi" if name == "memory" else str(value) for name, value in amounts.items()}


def amounts_of(written: Mapping[str, str]) -> dict[str, int]:
    return {name: int(value.removesuffix("Gi")) for name, value in written.items()}


class Histories(RuleBasedStateMachine):
    """A cluster that changes."""

    @initialize(
        key=st.sampled_from(sorted(POLICIES)),
        nodes=st.lists(st.tuples(st.integers(2, 8), st.integers(4, 16)), min_size=1, max_size=2),
        specs=st.tuples(*[queue_specs] * 4),
        first=st.lists(jobs, min_size=3, max_size=5),
        then=st.lists(jobs, min_size=2, max_size=4),
    )
    def begin(
        self,
        key: tuple[str, str],
        nodes: list[tuple[int, int]],
        specs: tuple[dict[str, Any], ...],
        first: list[dict[str, Any]],
        then: list[dict[str, Any]],
    ) -> None:
        self.shares = key[1]
        queues: dict[str, dict[str, Any]] = {}
        if self.shares == "tree":
            queues |= {"root": {}, "parent": self._spec(specs[3], "root")}
        for name, spec in zip(QUEUES, specs, strict=False):
            parent = {"tree": "root" if name == "c" else "parent"}.get(self.shares, "")
            queues[name] = self._spec(spec, parent)
        self.world = World(POLICIES[key], {f"n{i}": size for i, size in enumerate(nodes)}, queues)
        for each in first:
            self._add(each)
        self._session()
        for each in then:
            self._add(each)
        self._session()

    def _add(self, drawn: dict[str, Any]) -> None:
        number = max((job.created for job in self.world.jobs), default=-1) + 1
        least = min(drawn["least"], drawn["count"])
        self.world.jobs.append(Job(f"j{number}", created=number, **drawn | {"least": least}))

    def _spec(self, drawn: dict[str, Any], parent: str) -> dict[str, Any]:
        plain: dict[str, Any] = {"weight": drawn["weight"], "priority": drawn["priority"]}
        for name in ("deserved", "capability"):
            if drawn[name] is not None:
                plain[name] = resource_list(drawn[name])
        if drawn["guarantee"] is not None:
            plain["guarantee"] = {"resource": resource_list(drawn["guarantee"])}
        return plain | ({"parent": parent} if parent else {})

    @rule(drawn=jobs)
    def a_job_comes(self, drawn: dict[str, Any]) -> None:
        assume(len(self.world.jobs) < 10)
        self._add(drawn)
        self._session()

    @precondition(lambda self: self.world.jobs)
    @rule(data=st.data())
    def a_job_ends(self, data: st.DataObject) -> None:
        self.world.jobs.remove(data.draw(st.sampled_from(self.world.jobs)))
        self._session()

    @rule(size=st.tuples(st.integers(2, 8), st.integers(4, 16)))
    def a_node_comes(self, size: tuple[int, int]) -> None:
        assume(len(self.world.nodes) < 4)
        self.world.nodes[f"n{max((int(name[1:]) for name in self.world.nodes), default=-1) + 1}"] = size
        self._session()

    @precondition(lambda self: len(self.world.nodes) > 1)
    @rule(data=st.data())
    def a_node_goes(self, data: st.DataObject) -> None:
        gone = data.draw(st.sampled_from(sorted(self.world.nodes)))
        del self.world.nodes[gone]
        for job in self.world.jobs:
            if gone in job.pods.values():
                # What is left of a gang ends with it.
                job.pods.clear()
                job.replace_pods()
        self._session()

    @rule(name=st.sampled_from(QUEUES), weight=st.integers(1, 4))
    def a_weight_changes(self, name: str, weight: int) -> None:
        self.world.queues[name]["weight"] = weight
        self._session()

    @rule()
    def the_scheduler_starts_anew(self) -> None:
        self.world.forget()

    def teardown(self) -> None:
        """Evictions end, each of them leads to a placement, and an unchanged cluster gives nothing to decide."""
        if not hasattr(self, "world"):
            return
        self._same_again()
        for _ in range(ENOUGH):
            changes = self._session()
            if not changes:
                break
        assert not changes, f"after {ENOUGH} sessions pods still come and go: {self.world.evicted_for}"
        assert not self._session()

    def _same_again(self) -> None:
        """The same history gives the same decisions."""
        world = self.world
        one, other = (
            world.engine.decide(world.state().snapshot(), now=world.now, environment=world.environment)
            for _ in range(2)
        )
        assert one.decisions == other.decisions

    def _session(self) -> Any:
        world = self.world
        before = {name: world.held(name) for name in world.queues}
        waiting = {job.name: job.running for job in world.jobs}
        changes, result = world.session()
        beneficiaries = set()
        for decision in result.decisions:
            if isinstance(decision, Evict):
                job = next(job for job in world.jobs if job.name == decision.name.rpartition("-")[0])
                assert VALUES[job.priority] < VALUES["critical"]
                beneficiaries.add(decision.beneficiary.rpartition("/")[2])
        self._check(before)
        if self.shares in ("proportion", "capacity"):
            self._check_guarantees(before)
        if beneficiaries:
            self._placed_next(beneficiaries, waiting)
        return changes

    def _placed_next(self, beneficiaries: set[str], running: dict[str, int]) -> None:
        """If nothing else changes, who was evicted for is bound by the next session."""
        self.world.session()
        for job in self.world.jobs:
            if job.name in beneficiaries:
                assert job.running > running[job.name], f"{job.name} did not get the place of others"

    def _check(self, before: dict[str, Any]) -> None:
        world = self.world
        for name, (cpu, memory) in world.nodes.items():
            on = [job for job in world.jobs for node in job.pods.values() if node == name]
            assert sum(job.cpu for job in on) <= cpu
            assert sum(job.memory for job in on) <= memory
        for job in world.jobs:
            assert job.running == 0 or job.running >= job.least, f"{job.name} runs below its minimum"
        for name, spec in world.queues.items():
            held = world.held(name)
            for resource, most in amounts_of(spec.get("capability", {})).items():
                assert held[resource] <= max(most, before[name][resource])

    def _check_guarantees(self, before: dict[str, Any]) -> None:
        """No queue came to hold what others are guaranteed and ask for; too much together is clipped."""
        world = self.world
        for resource, column in (("cpu", 0), ("memory", 1)):
            guaranteed = {name: self._guaranteed(name, resource) for name in QUEUES}
            total = sum(size[column] for size in world.nodes.values())
            if sum(guaranteed.values()) > total:
                continue
            for name in QUEUES:
                of_others = sum(min(guaranteed[each], self._asked(each, resource)) for each in QUEUES if each != name)
                assert world.held(name)[resource] <= max(total - of_others, before[name][resource])

    def _guaranteed(self, name: str, resource: str) -> int:
        spec = self.world.queues[name]
        amount = amounts_of(spec.get("guarantee", {}).get("resource", {})).get(resource, 0)
        return min(amount, amounts_of(spec.get("capability", {})).get(resource, amount))

    def _asked(self, name: str, resource: str) -> int:
        """What the jobs of a queue that were admitted hold or wait for."""
        jobs = [job for job in self.world.jobs if job.queue == name and job.phase in ("Inqueue", "Running")]
        return sum(getattr(job, resource) * job.count for job in jobs)


def test_histories() -> None:
    run_state_machine_as_test(
        Histories,
        settings=settings(max_examples=HISTORIES, stateful_step_count=8, phases=[Phase.generate], deadline=None),
    )
