"""A small cluster that lives from session to session: bound pods run, evicted ones come back as new pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from stromboli.api import objects
from stromboli.api.decisions import Bind, Evict, Nominate, SetPodGroupStatus
from stromboli.engine import Engine, SessionResult
from stromboli.framework.environment import Environment
from tests import builders

CLASSES = [
    objects.PriorityClass(metadata=objects.Metadata(name=name), value=value)
    for name, value in (("low", 10), ("middle", 50), ("high", 100), ("critical", 2_000_000_000))
]
VALUES = {each.metadata.name: each.value for each in CLASSES}


@dataclass
class Job:
    """A PodGroup whose controller replaces pods that are evicted."""

    name: str
    queue: str
    count: int
    least: int
    cpu: int
    memory: int = 1
    priority: str = "low"
    created: int = 0
    phase: str = "Inqueue"
    #: the node of each pod by its name, empty while it waits
    pods: dict[str, str] = field(default_factory=dict)
    #: pods that were made so far
    made: int = 0

    def __post_init__(self) -> None:
        self.replace_pods()

    def replace_pods(self) -> None:
        """Make pods until there are as many as there should be."""
        while len(self.pods) < self.count:
            self.pods[f"{self.name}-{self.made}"] = ""
            self.made += 1

    @property
    def running(self) -> int:
        return sum(bool(node) for node in self.pods.values())


@dataclass
class World:
    """The cluster between sessions."""

    engine: Engine
    #: cpu and memory in Gi by name of the node
    nodes: dict[str, tuple[int, int]]
    #: the spec of each queue by name
    queues: dict[str, dict[str, Any]]
    jobs: list[Job] = field(default_factory=list)
    environment: Environment = field(default_factory=Environment)
    now: float = builders.NOON
    nominated: dict[str, str] = field(default_factory=dict)
    #: how often pods of a job were evicted for another
    evicted_for: Counter[tuple[str, str]] = field(default_factory=Counter)

    def session(self) -> tuple[Counter[str], SessionResult]:
        """Decide once and carry it out; how many pods were bound and evicted."""
        result = self.engine.decide(self.state().snapshot(), now=self.now, environment=self.environment)
        self.environment = result.environment
        self.now += 1
        jobs = {job.name: job for job in self.jobs}
        changes: Counter[str] = Counter()
        pairs: set[tuple[str, str]] = set()
        for decision in result.decisions:
            match decision:
                case Bind(_, name, _, node):
                    jobs[name.rpartition("-")[0]].pods[name] = node
                    changes["bound"] += 1
                case Evict(_, name, _, _, _, beneficiary):
                    job = name.rpartition("-")[0]
                    del jobs[job].pods[name]
                    changes["evicted"] += 1
                    pairs.add((job, beneficiary.rpartition("/")[2]))
                case Nominate(_, name, _, node):
                    self.nominated[name] = node
                case SetPodGroupStatus(_, name, status):
                    jobs[name].phase = status.phase
        self.evicted_for.update(pairs)
        for job in self.jobs:
            job.replace_pods()
        return changes, result

    def state(self) -> Any:
        objs: list[Any] = [*CLASSES]
        objs += [builders.node(name, cpu=str(cpu), memory=f"{gi}Gi") for name, (cpu, gi) in self.nodes.items()]
        objs += [builders.queue(name, **spec) for name, spec in self.queues.items()]
        for job in self.jobs:
            objs.append(
                builders.pod_group(
                    job.name,
                    job.least,
                    job.queue,
                    job.phase,
                    created=job.created,
                    priorityClassName=job.priority,
                    minResources={"cpu": str(job.cpu * job.least), "memory": f"{job.memory * job.least}Gi"},
                )
            )
            objs += [
                builders.pod(
                    name,
                    job.name,
                    cpu=str(job.cpu),
                    memory=f"{job.memory}Gi",
                    node=node,
                    nominated="" if node else self.nominated.get(name, ""),
                    priority=VALUES[job.priority],
                )
                for name, node in job.pods.items()
            ]
        return builders.state(*objs)

    def held(self, queue: str) -> Mapping[str, int]:
        """CPUs and memory that a queue and those below it hold."""
        below = [queue, *(name for name, spec in self.queues.items() if spec.get("parent") == queue)]
        jobs = [job for job in self.jobs if job.queue in below]
        return {"cpu": sum(j.running * j.cpu for j in jobs), "memory": sum(j.running * j.memory for j in jobs)}

    def forget(self) -> None:
        """The scheduler is started anew."""
        self.environment = replace(self.environment, room={}, churn=None)
