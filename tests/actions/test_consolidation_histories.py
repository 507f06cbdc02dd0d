"""consolidation over time: what moves comes back, later and under another name, and all pods end up with a place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from stromboli.api.decisions import Bind, Evict
from stromboli.engine import Engine, SessionResult
from stromboli.framework.cluster.environment import OFFLINE, Environment
from tests import builders
from tests.fuzz import tried

ACTIONS = "enqueue, allocate, consolidation, stalegangeviction"
#: one that spreads pods, so that replacements would like to have the room that was made, and one that packs them
ENGINES = {
    "spreading": Engine(builders.policy("gang", "proportion predicates nodeorder", actions=ACTIONS)),
    "packing": Engine(builders.policy("gang", "predicates fairshare binpack", actions=ACTIONS)),
}
#: sessions until a moved pod is gone, and until its replacement is there
Delays = tuple[int, int]
#: sessions after which a small cluster has come to rest
ENOUGH = 25


@dataclass
class Cluster:
    """Nodes of four CPUs, and jobs by name: how many pods, and how many CPUs each."""

    nodes: int
    jobs: dict[str, tuple[int, int]]
    delays: Delays
    places: dict[str, str] = field(default_factory=dict)
    #: of pods that were evicted, the session in which they are gone, and in which another comes
    gone: dict[str, Delays] = field(default_factory=dict)
    environment: Environment = OFFLINE
    at: int = 0

    def decide(self, engine: Engine) -> SessionResult:
        """A session and what comes of it."""
        self.places = {n: node for n, node in self.places.items() if n not in self.gone or self.gone[n][0] > self.at}
        self.gone = {name: due for name, due in self.gone.items() if due[1] > self.at}
        now = builders.NOON + self.at
        result = engine.decide(self._snapshot(), now=now, environment=self.environment)
        self.environment, self.at = result.environment, self.at + 1
        for decision in result.decisions:
            match decision:
                case Bind(_, name, _, node):
                    self.places[name] = node
                case Evict(_, name):
                    self.gone[name] = self.at + self.delays[0], self.at + self.delays[0] + self.delays[1]
        return result

    def _snapshot(self) -> Any:
        objs: list[Any] = [builders.queue("default"), *(builders.node(f"n{i}", cpu="4") for i in range(self.nodes))]
        for created, (job, (count, cpu)) in enumerate(self.jobs.items()):
            objs.append(builders.pod_group(job, count, created=created))
            for i in range(count):
                name = f"{job}-{i}"
                node, leaves = self.places.get(name, ""), name in self.gone
                if node or not leaves:
                    objs.append(builders.pod(name, job, cpu=str(cpu), node=node, deleted=leaves))
        return builders.state(*objs).snapshot()

    def running(self) -> set[str]:
        """The jobs all of whose pods run."""
        whole = {job for job, (count, _) in self.jobs.items() if all(f"{job}-{i}" in self.places for i in range(count))}
        return {job for job in whole if not any(name.startswith(f"{job}-") for name in self.gone)}


@pytest.mark.parametrize("policy", ENGINES)
@settings(tried(10), phases=[Phase.generate])
@given(
    st.lists(st.integers(0, 2), min_size=3, max_size=9),
    st.lists(st.tuples(st.integers(1, 2), st.integers(2, 4)), min_size=1, max_size=3),
    st.tuples(st.integers(0, 2), st.integers(0, 2)),
)
def test_who_ran_runs_again_and_who_was_served_runs(
    policy: str, old: list[int], new: list[tuple[int, int]], delays: Delays
) -> None:
    """Jobs of one and two CPUs lie about; others of up to four come."""
    engine, cluster = ENGINES[policy], Cluster(3, {}, delays)
    free = {f"n{i}": 4 for i in range(cluster.nodes)}
    for number, node in enumerate(f"n{at}" for at in old):
        cpu = 1 + number % 2
        if cpu <= free[node]:
            cluster.jobs[f"old{number}"], cluster.places[f"old{number}-0"] = (1, cpu), node
            free[node] -= cpu
    before = cluster.running()
    cluster.jobs |= {f"new{number}": job for number, job in enumerate(new)}
    served: set[str] = set()
    for _ in range(ENOUGH):
        session = cluster.decide(engine).session
        served |= {d.beneficiary.partition("/")[2] for d in session.decisions if isinstance(d, Evict)}
        if not (session.bound or session.evicted or cluster.gone):
            break
    else:
        pytest.fail("pods still come and go")
    assert before | served <= cluster.running()
