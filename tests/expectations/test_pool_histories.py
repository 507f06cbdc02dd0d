"""What holds in any history where queues have shares of node pools, borrow and lend, and gangs have minimum run times.

`STROMBOLI_HISTORIES` and the rest as for the other histories.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pytest
import yaml
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test
from msgspec.structs import replace as with_fields

from stromboli.api import crds, objects
from stromboli.api.decisions import Bind
from stromboli.engine import Engine, SessionResult
from stromboli.policy.document import DEFAULT_POLICY
from tests.expectations.test_histories import (
    HISTORIES,
    PHASES,
    SHAPES,
    SHARES,
    Histories,
    amounts,
    few_jobs,
    jobs,
    orders,
    queue_specs,
    sizes,
)
from tests.expectations.world import Size, World, amounts_of, evictions, job_of, quantities

#: the pools
POOLS = ("old", "new")
#: what each queue holds in each pool, with those below it, by resource
Holdings = Mapping[tuple[str, str], Mapping[str, int]]


def policy(order: tuple[str, ...], shares: str) -> Any:
    """A policy of the plugin in question, with the plugins for pools and run times."""
    text = DEFAULT_POLICY.replace("allocate, backfill", ", ".join(order)).replace("name: proportion", SHAPES[shares])
    made = yaml.safe_load(text.replace("  - name: drf\n", "") if shares.startswith("fairshare") else text)
    named = [{"name": name, "nodeSelector": {"pool": name}} for name in POOLS]
    pools = {"name": "nodepools", "arguments": {"pools": named}, "enableHierarchy": shares.endswith("tree")}
    first, second = made["tiers"]
    made["tiers"] = [first, {"plugins": [pools]}, {"plugins": [{"name": "minruntime"}, *second["plugins"]]}]
    return made


@cache
def engine(order: tuple[str, ...], shares: str) -> Engine:
    """An engine of that policy."""
    return Engine(yaml.safe_dump(policy(order, shares)))


few = st.fixed_dictionaries({"cpu": st.integers(1, 4)}, optional={"memory": st.integers(1, 4)})
shares_of_pools = st.fixed_dictionaries(
    {},
    optional={"deserved": amounts, "capability": few, "guarantee": st.fixed_dictionaries({"cpu": st.integers(1, 2)})},
)
seconds = st.sampled_from(["", "", "2s", "5s"])
#: what queues say of pools, borrowing, lending and run times
more_of_queues = st.fixed_dictionaries(
    {
        "pools": st.fixed_dictionaries({}, optional=dict.fromkeys(POOLS, shares_of_pools)),
        "borrowingLimit": st.one_of(st.none(), st.none(), few),
        "lendingLimit": st.one_of(st.none(), st.none(), few),
        "preemptMinRuntime": seconds,
        "reclaimMinRuntime": seconds,
    }
)
jobs_in_pools = st.tuples(jobs, st.sampled_from(["", "", "old", "new", "old,new", "new,old"])).map(
    lambda drawn: drawn[0] | {"pools": drawn[1]}
)


@dataclass
class PoolWorld(World):
    """Nodes are in pools, and when pods started is known."""

    shares: str = ""
    #: the pools of nodes, in turn; empty for none
    turns: Sequence[str] = POOLS
    #: when pods started, by name
    since: dict[str, float] = field(default_factory=dict)

    def pool(self, node: str) -> str:
        return self.turns[int(node[1:]) % len(self.turns)]

    def objects(self) -> list[Any]:
        pools = {job.name: job.pools for job in self.jobs}
        return [self._told(each, pools) for each in super().objects()]

    def _told(self, each: Any, pools: Mapping[str, str]) -> Any:
        match each:
            case objects.Node() if pool := self.pool(each.metadata.name):
                labels = {**each.metadata.labels, "pool": pool}
                return with_fields(each, metadata=with_fields(each.metadata, labels=labels))
            case objects.Pod() if at := self.since.get(each.metadata.name):
                return with_fields(each, status=with_fields(each.status, start_time=_written(at)))
            case crds.PodGroup() if may := pools[each.metadata.name]:
                each.metadata.annotations[crds.NODE_POOLS] = may
        return each

    def session(self) -> tuple[Counter[str], SessionResult]:
        now, before, before_now, running = self.now, self._in_pools(), self._in_pools(now=True), self._running()
        moving = self.environment.reservations
        changes, result = super().session()
        for job in self.jobs:
            self.since.update({name: now for name, node in job.pods.items() if node and name not in self.since})
        self._check_limits(before)
        self._check_starts(before_now, result)
        self._check_run_times(now, running, result)
        if not moving:
            self._check_guarantees(before)
        return changes, result

    # -- limits ------------------------------------------------------------------------------------------------------

    def limits(self, queue: str) -> dict[str, int]:
        found, spec = super().limits(queue), self.queues[queue]
        if self._borrows:
            for name, beyond in amounts_of(spec.get("borrowingLimit")).items():
                own = max(self._deserved(queue).get(name, 0), super().guaranteed(queue).get(name, 0))
                most = own + beyond
                found[name] = min(found.get(name, most), most)
        return found

    def guaranteed(self, queue: str) -> dict[str, int]:
        found, spec = super().guaranteed(queue), self.queues[queue]
        if self._borrows and (lent := amounts_of(spec.get("lendingLimit"))):
            for name, due in self._deserved(queue).items():
                found[name] = max(found.get(name, 0), due - lent.get(name, due))
        return found

    @property
    def _borrows(self) -> bool:
        """Whether limits on borrowing and lending are read."""
        return self.shares.startswith("capacity")

    def _deserved(self, queue: str) -> dict[str, int]:
        spec = self.queues[queue]
        if "deserved" in spec:
            return amounts_of(spec["deserved"])
        found: Counter[str] = Counter()
        for each in spec.get("pools", ()):
            found.update(amounts_of(each.get("deserved")))
        return found

    def of_pool(self, queue: str, pool: str, word: str) -> dict[str, int]:
        """What a queue says of a pool: its `capability`, `deserved` or `guarantee` there, by resource."""
        said = next((each for each in self.queues[queue].get("pools", ()) if each["name"] == pool), {})
        listed = said.get(word, {})
        return amounts_of(listed.get("resource") if word == "guarantee" else listed)

    # -- what is checked ---------------------------------------------------------------------------------------------

    def _counted(self, queue: str) -> set[str]:
        """The queues whose pods count to one."""
        return self.below(queue) if self.shares.endswith("tree") else {queue}

    def _in_pools(self, *, now: bool = False) -> Holdings:
        held: dict[tuple[str, str], Counter[str]] = {
            (queue, pool): Counter() for queue in self.queues for pool in POOLS
        }
        pods = [(job, name, node) for job in self.jobs for name, node in job.pods.items() if node]
        if now:
            pods += [(job, name, node) for name, (job, node, _) in self.leaving.items()]
        for queue in self.queues:
            for job, name, node in pods:
                if job.queue in self._counted(queue) and (pool := self.pool(node)):
                    held[queue, pool].update(job.asked(name))
        return held

    def _check_limits(self, before: Holdings) -> None:
        for (queue, pool), held in self._in_pools().items():
            for resource, most in self.of_pool(queue, pool, "capability").items():
                assert held[resource] <= max(most, before[queue, pool][resource]), f"{queue} holds too much of {pool}"

    def _check_starts(self, before: Holdings, result: SessionResult) -> None:
        named = {job.name: job for job in self.jobs}
        started: dict[tuple[str, str], Counter[str]] = {key: Counter() for key in before}
        for each in result.decisions:
            if isinstance(each, Bind):
                job, pool = named[job_of(each.name)], self.pool(each.node)
                assert not job.pools or pool in job.pools.split(","), f"{each.name} is in pool {pool}"
                for queue in self.queues if pool else ():
                    if job.queue in self._counted(queue):
                        started[queue, pool].update(job.asked(each.name))
        for (queue, pool), more in started.items():
            for resource, most in self.of_pool(queue, pool, "capability").items():
                if more[resource]:
                    used = before[queue, pool][resource] + more[resource]
                    assert used <= most, f"{queue} started too much in {pool}"

    def _check_guarantees(self, before: Holdings) -> None:
        """No queue came to hold CPUs that are guaranteed to others in a pool."""
        after = self._in_pools()
        for pool in POOLS:
            nodes = [Size(*size) for name, size in self.nodes.items() if self.pool(name) == pool]
            total, tops = sum(size.cpu for size in nodes), self._children("root" if "root" in self.queues else "")
            kept, used, was = (sum(self._kept(top, pool, at) for top in tops) for at in (None, after, before))
            if kept <= total and all(self._can_be_kept(queue, pool) for queue in self.queues):
                assert used <= max(total, was), f"what is guaranteed in {pool} was taken"

    def _can_be_kept(self, queue: str, pool: str) -> bool:
        return self._kept(queue, pool, None) <= self.of_pool(queue, pool, "capability").get("cpu", 10**6)

    def _kept(self, queue: str, pool: str, held: Holdings | None) -> int:
        """The CPUs that a queue holds, or is guaranteed with those below it."""
        children = self._children(queue) if self.shares.endswith("tree") else []
        below = sum(self._kept(child, pool, held) for child in children)
        own = held[queue, pool]["cpu"] if held and not children else 0
        return max(self.of_pool(queue, pool, "guarantee").get("cpu", 0), below, own)

    def _children(self, of: str) -> list[str]:
        return [name for name, spec in self.queues.items() if name != "root" and spec.get("parent", "") == of]

    def _running(self) -> dict[str, list[float]]:
        """When the pods of each job started, the first ones first."""
        return {job.name: sorted(self.since[name] for name, node in job.pods.items() if node) for job in self.jobs}

    def _check_run_times(self, now: float, running: Mapping[str, Sequence[float]], result: SessionResult) -> None:
        """No gang that has not run for its minimum falls below the pods that it needs.

        A pod that starts in the same session takes the place of one that is preempted.
        """
        named = {job.name: job for job in self.jobs}
        started_now = Counter(job_of(each.name) for each in result.decisions if isinstance(each, Bind))
        for name, lost in Counter(
            job_of(each.name) for each in evictions(result) if each.action in ("preempt", "gangpreempt")
        ).items():
            job, started = named[name], running[name]
            least = int(self._run_time(job.queue).removesuffix("s") or 0)
            if len(started) >= job.least and now - started[job.least - 1] < least:
                left = len(started) + started_now[name] - lost
                assert left >= job.least, f"{name} was preempted too soon"

    def _run_time(self, queue: str) -> str:
        """How long a gang of a queue may not be preempted."""
        while queue:
            spec = self.queues[queue]
            if found := spec.get("preemptMinRuntime"):
                return str(found)
            queue = spec.get("parent", "")
        return ""


def _written(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _more(drawn: Mapping[str, Any]) -> dict[str, Any]:
    """What a queue says, as its spec has it."""
    pools = []
    for name, said in drawn["pools"].items():
        of = {word: quantities(listed) for word, listed in said.items()}
        pools.append({"name": name} | of | ({"guarantee": {"resource": of["guarantee"]}} if "guarantee" in of else {}))
    limits = {word: quantities(drawn[word]) for word in ("borrowingLimit", "lendingLimit") if drawn[word]}
    times = {word: drawn[word] for word in ("preemptMinRuntime", "reclaimMinRuntime") if drawn[word]}
    return limits | times | ({"pools": pools} if pools else {})


class PoolHistories(Histories):
    """A cluster with pools that changes."""

    make_engine = staticmethod(engine)
    pool_world: type[PoolWorld] = PoolWorld

    @initialize(
        order=orders,
        shares=st.sampled_from(SHARES),
        nodes=st.lists(sizes, min_size=2, max_size=3),
        specs=st.tuples(*[queue_specs] * 5),
        more=st.tuples(*[more_of_queues] * 5),
        first=st.lists(jobs_in_pools, min_size=3, max_size=5),
        then=st.lists(jobs_in_pools, min_size=2, max_size=4),
        patience=st.integers(0, 3),
        absence=st.integers(0, 2),
        turns=st.sampled_from([("old", "new"), ("old", "new", ""), ("new", "new", "old")]),
    )
    def begin(
        self,
        specs: tuple[dict[str, Any], ...],
        more: tuple[dict[str, Any], ...],
        turns: Sequence[str],
        shares: str,
        **drawn: Any,
    ) -> None:
        self.make_world = lambda *of, **options: self.pool_world(*of, **options, shares=shares, turns=turns)
        told = tuple(spec | {"more": _more(each)} for spec, each in zip(specs, more, strict=True))
        super().begin(specs=told, shares=shares, **drawn)

    @few_jobs
    @rule(drawn=jobs_in_pools)
    def a_job_comes(self, drawn: dict[str, Any]) -> None:
        super().a_job_comes(drawn)


@pytest.mark.exhaustive
def test_histories_of_pools() -> None:
    """Those of `test_restless_histories.py` are these with more changes."""
    run_state_machine_as_test(
        PoolHistories,
        settings=settings(max_examples=HISTORIES, stateful_step_count=8, phases=PHASES, deadline=None),
    )
