"""A small cluster that lives from session to session: bound pods run, evicted ones come back as new pods.

What sessions write on PodGroups, Queues and pods is there in the next session, as on a real cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

from msgspec.structs import replace as with_fields

from stromboli.api import crds, objects
from stromboli.api.decisions import Bind, Evict, Nominate, SetPodGroupStatus, SetPodUnscheduled, SetQueueStatus
from stromboli.engine import Engine, SessionResult
from stromboli.framework.cluster.environment import Environment
from tests import builders

CLASSES = [
    objects.PriorityClass(metadata=objects.Metadata(name=name), value=value)
    for name, value in (("low", 10), ("middle", 50), ("high", 100), ("critical", 2_000_000_000))
]
VALUES = {each.metadata.name: each.value for each in CLASSES}
GPU = "nvidia.com/gpu"
#: a pod's conditions by its name
Said = tuple[str, str]


class Size(NamedTuple):
    """What a node has."""

    cpu: int
    #: Gi
    memory: int
    gpu: int = 0
    pods: int = 110


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
    gpu: int = 0
    #: how many of its pods request nothing
    best_effort: int = 0
    #: whether all of it has to lie in one rack
    tight: bool = False
    #: whether each of its pods takes the same port of its node
    port: bool = False
    #: whether no two of its pods may share a node
    apart: bool = False
    #: the node pools that it may use, separated by commas; empty for all nodes
    pools: str = ""
    #: what each of its pods brings along beside amounts, such as a claim; empty for nothing
    brings: str = ""
    #: annotations of its PodGroup
    notes: Mapping[str, str] = field(default_factory=dict)
    #: for how many more sessions than others its evicted pods terminate
    slow: int = 0
    #: how many of its pods a disruption budget lets be away; None without one
    budget: int | None = None
    #: the node of each pod by its name, empty while it waits
    pods: dict[str, str] = field(default_factory=dict)
    #: pods that were made so far
    made: int = 0
    #: which of its pods each one is, from 0; another one comes instead of the same one
    ordinals: dict[str, int] = field(default_factory=dict)
    #: the CPUs that count of pods that were resized in place, by name
    resized: dict[str, int] = field(default_factory=dict)
    #: whether it lost pods that it cannot do without, with a node
    short: bool = False
    #: for how many sessions its controller has not made new pods yet
    away: int = 0
    #: what sessions wrote
    status: crds.PodGroupStatus | None = None

    def __post_init__(self) -> None:
        self.replace_pods()

    def replace_pods(self) -> None:
        """Make pods until there are as many as there should be."""
        free = sorted(set(range(self.count)) - {self.ordinals[name] for name in self.pods}, reverse=True)
        while len(self.pods) < self.count:
            self.pods[f"{self.name}-{self.made}"] = ""
            self.ordinals[f"{self.name}-{self.made}"] = free.pop()
            self.made += 1

    @property
    def running(self) -> int:
        return sum(bool(node) for node in self.pods.values())

    @property
    def disruptions(self) -> int:
        """How many of its pods may be evicted now."""
        return self.count if self.budget is None else max(0, self.running - (self.count - self.budget))

    def asked(self, pod: str) -> dict[str, int]:
        """What one of its pods requests, by resource."""
        if self.ordinals[pod] >= self.count - self.best_effort:
            return {}
        return asked(self) | ({"cpu": self.resized[pod]} if pod in self.resized else {})

    @property
    def least_amounts(self) -> dict[str, int]:
        """What it requests at its minimum, by resource, at least."""
        count = max(0, self.least - self.best_effort)
        return {name: amount * count for name, amount in asked(self).items()}


@dataclass
class World:
    """The cluster between sessions."""

    engine: Engine
    #: by name; plain tuples are sizes
    nodes: dict[str, tuple[int, ...]]
    #: the spec of each queue by name
    queues: dict[str, dict[str, Any]]
    jobs: list[Job] = field(default_factory=list)
    environment: Environment = field(default_factory=Environment)
    now: float = builders.NOON
    #: how many sessions long an evicted pod terminates, and then others are missing that come instead of a job's pods
    patience: int = 0
    absence: int = 0
    #: pods that terminate: their job, node, and the sessions that they stay
    leaving: dict[str, tuple[Job, str, int]] = field(default_factory=dict)
    nominated: dict[str, str] = field(default_factory=dict)
    #: the nodes of each rack, by its name
    racks: dict[str, list[str]] = field(default_factory=dict)
    #: what pods that were resized in place have of a node, by its name and the resource
    overcommitted: dict[tuple[str, str], int] = field(default_factory=dict)
    #: what waiting pods say, and queues
    said: dict[str, Said] = field(default_factory=dict)
    statuses: dict[str, crds.QueueStatus] = field(default_factory=dict)
    #: how often pods of a job were evicted for another, moves apart
    evicted_for: Counter[tuple[str, str]] = field(default_factory=Counter)

    def decide(self) -> SessionResult:
        """What a session decides now; nothing comes of it."""
        return self.engine.decide(self.state().snapshot(), now=self.now, environment=self.environment)

    def session(self) -> tuple[Counter[str], SessionResult]:
        """Decide once and carry it out; how many pods were bound and evicted."""
        result = self.decide()
        self.environment = result.environment
        self.now += 1
        changes: Counter[str] = Counter()
        self._let_go()
        for decision in result.decisions:
            match decision:
                case Bind(_, name, _, node):
                    self._job(name).pods[name] = node
                    changes["bound"] += 1
                case Evict(_, name):
                    job = self._job(name)
                    self.leaving[name] = job, job.pods.pop(name), self.patience + job.slow
                    changes["evicted"] += 1
                case Nominate(_, name, _, node):
                    self.nominated[name] = node
                case SetPodUnscheduled(_, name, _, word, message):
                    self.said[name] = word, message
                case SetPodGroupStatus(_, name, status):
                    self._job(f"{name}-").phase, self._job(f"{name}-").status = status.phase, status
                case SetQueueStatus(name, allocated, conditions):
                    before = self.statuses.get(name, crds.QueueStatus())
                    now = {
                        "allocated": allocated,
                        "conditions": before.conditions if conditions is None else conditions,
                    }
                    self.statuses[name] = before.model_copy(update=now)
        self.evicted_for.update(
            {
                (job_of(each.name), each.beneficiary.rpartition("/")[2])
                for each in evictions(result)
                if each.action != "consolidation"
            }
        )
        self._replace()
        return changes, result

    def delete_pods(self, job: Job, sessions: int) -> None:
        """A tenant deletes the pods of a job that run, which terminate for so many sessions; others come at once."""
        for name in [name for name, node in job.pods.items() if node]:
            self.leaving[name] = job, job.pods.pop(name), sessions
        job.replace_pods()

    def _job(self, pod: str) -> Job:
        name = pod.rpartition("-")[0]
        return next(job for job in self.jobs if job.name == name)

    def _let_go(self) -> None:
        """A session is over for the pods that terminate."""
        self.leaving = {name: (job, node, left - 1) for name, (job, node, left) in self.leaving.items()}

    def _replace(self) -> None:
        self.leaving = {
            name: (job, node, left)
            for name, (job, node, left) in self.leaving.items()
            if left > 0 and job in self.jobs and node in self.nodes
        }
        waiting = {name for name, _ in self.leaving.items()}
        for job in self.jobs:
            if any(name.rpartition("-")[0] == job.name for name in waiting):
                job.away = self.absence
            elif len(job.pods) < job.count and job.away:
                job.away -= 1
            else:
                job.away = self.absence
                job.replace_pods()

    def state(self) -> Any:
        made = builders.state(*self.objects())
        for job in self.jobs:
            if job.budget is not None:
                made.upsert("PodDisruptionBudget", _budget(job))
        return made

    def objects(self) -> list[Any]:
        objs: list[Any] = [*CLASSES]
        objs += [_node(name, Size(*size)) for name, size in self.nodes.items()]
        for name, spec in self.queues.items():
            made = builders.queue(name, **spec)
            made.status = self.statuses.get(name, made.status).model_copy(update={"state": "Open"})
            objs.append(made)
        objs += [builders.hyper_node(name, 1, "Node", nodes) for name, nodes in self.racks.items()]
        for job in self.jobs:
            objs.append(self._pod_group(job))
            for name, node in job.pods.items():
                made_pod = _pod(job.name, name, _request(job, name), VALUES[job.priority], node)
                objs.append(made_pod if node else self._waiting(made_pod))
        objs += [
            _pod(job.name, name, _request(job, name), VALUES[job.priority], node, deleted=True)
            for name, (job, node, _) in self.leaving.items()
        ]
        return objs

    def _pod_group(self, job: Job) -> crds.PodGroup:
        made = builders.pod_group(
            job.name,
            job.least,
            job.queue,
            job.phase,
            created=job.created,
            priorityClassName=job.priority,
            minResources=quantities(job.least_amounts),
            **({"networkTopology": {"mode": "hard", "highestTierAllowed": 1}} if job.tight else {}),
        )
        made.metadata.annotations.update(job.notes)
        made.status = (job.status or made.status).model_copy(update={"phase": job.phase})
        return made

    def _waiting(self, pod: objects.Pod) -> objects.Pod:
        """A pod with what sessions wrote on it."""
        word, message = self.said.get(pod.metadata.name, ("", ""))
        conditions = [objects.PodCondition("PodScheduled", "False", word, message)] if word else []
        nominated = self.nominated.get(pod.metadata.name, "")
        return with_fields(pod, status=with_fields(pod.status, conditions=conditions, nominated_node_name=nominated))

    def below(self, queue: str) -> set[str]:
        """A queue and those below it."""
        children = [name for name, spec in self.queues.items() if spec.get("parent") == queue and name != queue]
        return {queue}.union(*(self.below(child) for child in children))

    def limits(self, queue: str) -> dict[str, int]:
        """The most that a queue may hold, by resource, where it is limited."""
        return amounts_of(self.queues[queue].get("capability"))

    def guaranteed(self, queue: str) -> dict[str, int]:
        """What is kept for a queue itself, by resource."""
        return amounts_of(self.queues[queue].get("guarantee", {}).get("resource"))

    def held(self, queue: str) -> Mapping[str, int]:
        """What a queue and those below it hold, by resource."""
        below = self.below(queue)
        held: Counter[str] = Counter()
        for job in self.jobs:
            if job.queue in below:
                for name, node in job.pods.items():
                    held.update(job.asked(name) if node else {})
        return held

    def held_now(self, queue: str) -> Mapping[str, int]:
        """What a queue and those below it hold with their terminating pods, by resource."""
        held = Counter(self.held(queue))
        for name, (job, _, _) in self.leaving.items():
            if job.queue in self.below(queue):
                held.update(job.asked(name))
        return held

    def forget(self) -> None:
        """The scheduler is started anew."""
        self.environment = replace(self.environment, reservations={}, churn=None, left={}, nominated_hyper_nodes={})


def job_of(pod: str) -> str:
    """The name of the job of a pod."""
    return pod.rpartition("-")[0]


def evictions(result: SessionResult) -> Iterator[Evict]:
    """The evictions of a session that make room for other pods."""
    return (decision for decision in result.decisions if isinstance(decision, Evict) and decision.beneficiary)


def asked(job: Job) -> dict[str, int]:
    """What each pod of a job requests, by resource."""
    return {"cpu": job.cpu, "memory": job.memory} | ({GPU: job.gpu} if job.gpu else {})


def quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    """Amounts as they are written, memory in Gi."""
    return {name: f"{value}Gi" if name == "memory" else str(value) for name, value in amounts.items()}


def amounts_of(written: Mapping[str, str] | None) -> dict[str, int]:
    """Amounts from how they are written."""
    return {name: int(value.removesuffix("Gi")) for name, value in (written or {}).items()}


def _request(job: Job, pod: str) -> tuple[int, int, int, bool, bool]:
    asks = job.asked(pod)
    return asks.get("cpu", 0), asks.get("memory", 0), asks.get(GPU, 0), job.port, job.apart


def _budget(job: Job) -> dict[str, Any]:
    return {
        "metadata": {"name": job.name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"job": job.name}}, "maxUnavailable": job.budget},
        "status": {"disruptionsAllowed": job.disruptions},
    }


@cache
def _node(name: str, size: Size) -> objects.Node:
    gpus = {"resources": {GPU: str(size.gpu)}} if size.gpu else {}
    return builders.node(name, cpu=str(size.cpu), memory=f"{size.memory}Gi", pods=str(size.pods), **gpus)


@cache
def _pod(
    job: str, name: str, request: tuple[int, int, int, bool, bool], priority: int, node: str, *, deleted: bool = False
) -> objects.Pod:
    cpu, memory, gpu, port, apart = request
    ports = [{"containerPort": 80, "hostPort": 80}] if port else []
    labels = {"job": job}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return builders.pod(
        name,
        job,
        cpu=str(cpu) if cpu else "",
        memory=f"{memory}Gi" if memory else "",
        resources={GPU: str(gpu)} if gpu else None,
        node=node,
        priority=priority,
        deleted=deleted,
        ports=ports,
        labels=labels,
        **({"affinity": affinity} if apart else {}),
    )
