"""What holds in any history where nothing stays as it was: queues close, priorities and limits change, nodes return.

Some pods terminate slowly, pods move away from busy nodes, and in some histories all of it happens while evictions are
under way. `STROMBOLI_HISTORIES` and the rest as for the other histories.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pytest
import yaml
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test
from msgspec.structs import replace as with_fields

from stromboli.api import crds, objects
from stromboli.api.decisions import Bind, Evict
from stromboli.engine import Engine, SessionResult
from stromboli.framework.cluster.environment import NodeUsage
from tests.expectations import test_limit_histories as limits
from tests.expectations import test_pool_histories as pools
from tests.expectations.test_histories import HISTORIES, PHASES, QUEUES, Histories, queue_specs
from tests.expectations.world import VALUES, World, job_of, quantities

#: pods leave nodes above the target for nodes below the threshold, in percent of what is measured
BUSY = {"thresholds": {"cpu": 40, "memory": 40}, "targetThresholds": {"cpu": 60, "memory": 60}}
Policy = Callable[[tuple[str, ...], str], Any]


@cache
def engine(policy: Policy, order: tuple[str, ...], shares: str) -> Engine:
    """An engine of a policy that also moves pods away from busy nodes."""
    made = policy((*order, "shuffle"), shares)
    strategies = [{"name": "lowNodeUtilization", "params": BUSY}]
    moves = {"name": "rescheduling", "arguments": {"interval": "1s", "strategies": strategies}}
    made["tiers"][-1]["plugins"].append(moves)
    return Engine(yaml.safe_dump(made))


@dataclass
class RestlessWorld(World):
    """Queues close and open, and a pod has the priority that its job had when it was made."""

    closed: set[str] = field(default_factory=set)
    #: nodes that are gone and may return
    gone: dict[str, tuple[int, ...]] = field(default_factory=dict)
    #: the priority class of each pod
    made_as: dict[str, str] = field(default_factory=dict)

    def objects(self) -> list[Any]:
        for job in self.jobs:
            for name in job.pods:
                self.made_as.setdefault(name, job.priority)
        return [self._now(each) for each in super().objects()]

    def _now(self, each: Any) -> Any:
        match each:
            case crds.Queue() if each.metadata.name in self.closed:
                each.status = each.status.model_copy(update={"state": "Closed"})
            case objects.Pod():
                name = self.made_as[each.metadata.name]
                return with_fields(each, spec=with_fields(each.spec, priority=VALUES[name], priority_class_name=name))
        return each

    def session(self) -> tuple[Counter[str], SessionResult]:
        queues = {job.name: job.queue for job in self.jobs}
        budgets = {job.name: job.disruptions for job in self.jobs}
        changes, result = super().session()
        self.environment = replace(self.environment, node_usage={})
        for each in result.decisions:
            closed = isinstance(each, Bind) and self.is_closed(queues[job_of(each.name)])
            assert not closed, f"{each} started in a closed queue"
        moved = [each for each in result.decisions if isinstance(each, Evict) and each.action == "shuffle"]
        for name, count in Counter(job_of(each.name) for each in moved).items():
            assert count <= budgets[name], f"{count} pods of {name} moved, {budgets[name]} were allowed"
        return changes, result

    def is_closed(self, queue: str) -> bool:
        """Whether a queue, or one above it, is closed."""
        parent = self.queues[queue].get("parent", "")
        return queue in self.closed or bool(parent and self.is_closed(parent))

    def guaranteed(self, queue: str) -> dict[str, int]:
        """Of what is guaranteed to a queue that takes nothing new, it keeps what it uses."""
        return {} if self.takes_nothing(queue) else super().guaranteed(queue)

    def takes_nothing(self, queue: str) -> bool:
        """Whether a queue takes nothing new, as it is closed, or all those below it are."""
        below = self.below(queue) - {queue}
        return self.is_closed(queue) or bool(below and all(self.is_closed(name) for name in below))


class RestlessHistories(Histories):
    """A cluster that does not wait for decisions to be carried out, or does."""

    world: RestlessWorld
    hurried = False

    @initialize(hurried=st.booleans())
    def set_the_pace(self, hurried: bool) -> None:
        """Whether the next change comes while evictions are under way."""
        self.hurried = hurried

    @precondition(lambda self: self.world.jobs)
    @rule(data=st.data(), to=st.sampled_from(["low", "middle", "high"]))
    def a_priority_changes(self, data: st.DataObject, to: str) -> None:
        """Pods that exist keep theirs."""
        data.draw(st.sampled_from(self.world.jobs)).priority = to
        self._session()

    @rule(data=st.data())
    def a_queue_closes_or_opens(self, data: st.DataObject) -> None:
        self.world.closed ^= {data.draw(st.sampled_from(sorted(set(self.world.queues) - {"root"})))}
        self._session()

    @rule(name=st.sampled_from(sorted(QUEUES)), drawn=queue_specs)
    def limits_change(self, name: str, drawn: dict[str, Any]) -> None:
        spec = self.world.queues[name]
        for word in ("deserved", "capability"):
            spec.pop(word, None)
            if drawn[word] is not None:
                spec[word] = quantities(drawn[word])
        self._session()

    @precondition(lambda self: self.world.jobs)
    @rule(data=st.data(), slow=st.integers(0, 5))
    def pods_terminate_slowly(self, data: st.DataObject, slow: int) -> None:
        """Those that are evicted from now on."""
        data.draw(st.sampled_from(self.world.jobs)).slow = slow

    def lose(self, gone: str, ends: bool) -> None:
        self.world.gone[gone] = self.world.nodes[gone]
        super().lose(gone, ends)

    @precondition(lambda self: self.world.gone and len(self.world.nodes) < 4)
    @rule(data=st.data())
    def a_node_returns(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.gone)))
        self.world.nodes.setdefault(name, self.world.gone.pop(name))
        self._session()

    @rule(loads=st.lists(st.sampled_from([5, 50, 95]), min_size=4, max_size=4))
    def loads_are_measured(self, loads: Sequence[int]) -> None:
        now = self.world.now
        usage = {name: NodeUsage(load, load, now, "5m") for name, load in zip(self.world.nodes, loads, strict=False)}
        self.world.environment = replace(self.world.environment, node_usage=usage)
        self._session()

    def teardown(self) -> None:
        self.hurried = False
        super().teardown()

    def _placed_next(self, beneficiaries: set[str], moved: set[str], running: dict[str, int]) -> None:
        if not self.hurried:
            super()._placed_next(beneficiaries, moved, running)


@dataclass
class RestlessLimitWorld(RestlessWorld, limits.LimitWorld):
    """With limits of users and run times."""

    now: float = limits.CREATED + limits.BEGINS


class RestlessLimitHistories(RestlessHistories, limits.LimitHistories):
    """A restless cluster with limits of users and run times, whose overdue jobs keep places."""

    make_world = RestlessLimitWorld
    world: RestlessLimitWorld

    @staticmethod
    def make_engine(order: tuple[str, ...], shares: str) -> Engine:
        return engine(limits.policy, order, shares)


@dataclass
class RestlessPoolWorld(RestlessWorld, pools.PoolWorld):
    """With node pools."""

    def of_pool(self, queue: str, pool: str, word: str) -> dict[str, int]:
        """A queue that takes nothing new keeps of its guarantees in pools what it uses, too."""
        return {} if word == "guarantee" and self.takes_nothing(queue) else super().of_pool(queue, pool, word)


class RestlessPoolHistories(RestlessHistories, pools.PoolHistories):
    """A restless cluster with node pools, borrowing and lending, and minimum run times."""

    pool_world = RestlessPoolWorld
    world: RestlessPoolWorld

    @staticmethod
    def make_engine(order: tuple[str, ...], shares: str) -> Engine:
        return engine(pools.policy, order, shares)


@pytest.mark.exhaustive
def test_restless_histories_of_limits() -> None:
    run_state_machine_as_test(
        RestlessLimitHistories,
        settings=settings(max_examples=HISTORIES, stateful_step_count=8, phases=PHASES, deadline=None),
    )


@pytest.mark.exhaustive
def test_restless_histories_of_pools() -> None:
    run_state_machine_as_test(
        RestlessPoolHistories,
        settings=settings(max_examples=HISTORIES, stateful_step_count=8, phases=PHASES, deadline=None),
    )
