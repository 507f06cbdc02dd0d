"""What holds in any history under a policy with fairshare: evictions end, limits hold, gangs are whole.

A history is a small cluster with a tree of queues and jobs that never end. Sessions follow each other until nothing
changes: evicted pods come back as pending ones, bound pods run.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from stromboli.api.decisions import Bind, Evict
from stromboli.engine import Engine
from stromboli.framework.cluster.environment import OFFLINE, Environment
from tests import builders
from tests.fuzz import tried

ENGINE = Engine(
    builders.policy(
        "priority gang conformance",
        "predicates fairshare binpack",
        actions="allocate, consolidation, reclaim, preempt, stalegangeviction",
    )
)
CLASSES = [
    builders.decode("PriorityClass", {"metadata": {"name": f"p{value}"}, "value": value}, "") for value in (50, 75, 100)
]
#: leaves, with their parents
LEAVES = {"a": "left", "b": "left", "c": "", "d": ""}
#: sessions after which a small cluster has come to rest
ENOUGH = 30

cpus = st.integers(0, 6)
specs = st.fixed_dictionaries(
    {
        "weight": st.integers(0, 3),
        "priority": st.integers(0, 1),
        "deserved": st.one_of(st.none(), cpus),
        "capability": st.one_of(st.none(), cpus),
    }
)
jobs = st.lists(
    st.tuples(
        st.sampled_from("abcd"),
        st.integers(1, 4),  # pods
        st.integers(1, 4),  # minMember
        st.integers(1, 2),  # cpus each
        st.sampled_from([50, 75, 100]),
    ),
    min_size=1,
    max_size=9,
)


@dataclass
class World:
    """A cluster between sessions."""

    queues: dict[str, dict[str, Any]]
    jobs: list[tuple[str, int, int, int, int]]
    nodes: list[int]
    #: the node of each pod that runs
    places: dict[str, str] = field(default_factory=dict)
    #: what the next session is told
    environment: Environment = OFFLINE

    def session(self) -> Counter[str]:
        """Decide once and carry it out; how many pods were bound and evicted."""
        changes: Counter[str] = Counter()
        result = ENGINE.decide(self.state().snapshot(), now=builders.NOON, environment=self.environment)
        self.environment = result.environment
        for decision in result.decisions:
            match decision:
                case Bind(_, name, _, node):
                    self.places[name] = node
                    changes["bound"] += 1
                case Evict(_, name):
                    del self.places[name]
                    changes["evicted"] += 1
        return changes

    def state(self) -> Any:
        objs: list[Any] = [*CLASSES, *(builders.node(f"n{i}", cpu=str(cpu)) for i, cpu in enumerate(self.nodes))]
        for name, spec in self.queues.items():
            amounts = {key: {"cpu": str(spec[key])} for key in ("deserved", "capability") if spec[key] is not None}
            plain = {"weight": spec["weight"], "priority": spec["priority"], "parent": LEAVES.get(name, "")}
            objs.append(builders.queue(name, **plain, **amounts))
        for number, (queue, count, minimum, cpu, priority) in enumerate(self.jobs):
            name, least = f"j{number}", min(count, minimum)
            objs.append(builders.pod_group(name, least, queue, created=number, priorityClassName=f"p{priority}"))
            pods = [f"{name}-{i}" for i in range(count)]
            objs += [
                builders.pod(pod, name, cpu=str(cpu), memory="", node=self.places.get(pod, ""), priority=priority)
                for pod in pods
            ]
        return builders.state(*objs)

    def check(self) -> None:
        """Nothing above a limit, gangs whole or not at all, what is never evicted within its quota."""
        held: Counter[str] = Counter()
        for number, (queue, count, minimum, cpu, _) in enumerate(self.jobs):
            running = sum(f"j{number}-{i}" in self.places for i in range(count))
            assert running == 0 or running >= min(count, minimum)
            held[queue] += running * cpu
            held[LEAVES[queue]] += running * cpu
        for name, spec in self.queues.items():
            assert spec["capability"] is None or held[name] <= spec["capability"]


# A failing history is small as it is, and making it smaller takes many minutes.
@settings(tried(15), phases=[Phase.generate])
@given(
    st.fixed_dictionaries(dict.fromkeys(("left", *LEAVES), specs)),
    jobs,
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.data(),
)
def test_every_history_comes_to_rest(
    queues: dict[str, dict[str, Any]], jobs: list[tuple[str, int, int, int, int]], nodes: list[int], data: st.DataObject
) -> None:
    world = World(queues, [], nodes)
    arrivals = data.draw(st.integers(1, 3))
    for arrival in range(arrivals):
        world.jobs = jobs[: len(jobs) * (arrival + 1) // arrivals]
        for _ in range(ENOUGH):
            changes = world.session()
            world.check()
            if not changes:
                break
        assert not changes, f"after {ENOUGH} sessions pods still come and go"
