"""Gauges of the last session, computed on each scrape.

A scrape is consistent with one session, and a deleted queue or job has no series.
"""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict

import msgspec
import numpy as np
from prometheus_client import Metric
from prometheus_client.registry import Collector
from pydantic import BaseModel

from stromboli.api.crds import PodGroupPhase
from stromboli.api.pod_state import PodState
from stromboli.api.resources import CPU, MEMORY, PODS, ResourceAmounts, Vector
from stromboli.api.resources import amounts as resource_amounts
from stromboli.fairness.shares import dominant_share
from stromboli.framework.cluster.job import Queue
from stromboli.framework.diagnosis.explain import waiting
from stromboli.framework.plugin.report import QueueGauges
from stromboli.framework.session.session import Session
from stromboli.metrics.definitions import Decisions, Jobs, Queues, Service, Sessions
from stromboli.plugins.fgd.fragmentation import fragments
from stromboli.policy.model import Policy

#: Volcano's value of unlimited amounts
_UNLIMITED = sys.float_info.max


class SessionCollector(Collector):
    """Reads the session that `last` returns; None before the first has ended."""

    def __init__(self, last: Callable[[], Session | None]) -> None:
        self._last = last

    def collect(self) -> Iterator[Metric]:
        """All gauges."""
        session = self._last()
        if session is None:
            return
        yield from _queue_amounts(session)
        yield from _queue_facts(session)
        yield from _specified(session)
        yield from _fair_shares(session)
        yield from _pod_groups(session)
        yield from _gangs(session)
        yield from _job_shares(session)
        yield from _cluster(session)
        yield _pending(session)
        paused = Counter(queue for _, queue in session.churn.paused)
        yield Decisions.PAUSED.family(([name], count) for name, count in sorted(paused.items()))
        yield Service.POLICY.family([([_hash(session.policy)], 1)])


# -- queues ----------------------------------------------------------------------------------------------------------


def _queue_amounts(session: Session) -> Iterator[Metric]:
    """Amounts of every queue that the plugins know."""
    names = session.view.dimensions
    scalars = {name: _scalar_columns(gauges) for name, gauges in session.report.gauges.items()}
    for amount, of in Queues.AMOUNTS.items():
        vectors = [
            (name, _finite(g.amounts[amount])) for name, g in session.report.gauges.items() if amount in g.amounts
        ]
        if not vectors:
            continue
        memory = [([name], vector[MEMORY]) for name, vector in vectors]
        yield of.milli_cpu.family(([name], vector[CPU]) for name, vector in vectors)
        yield of.memory_bytes.family(memory)
        yield of.memory.family(memory)
        yield of.scalars.family(
            ([name, names[column]], vector[column]) for name, vector in vectors for column in scalars[name]
        )


def _scalar_columns(gauges: QueueGauges) -> list[int]:
    """The columns named by any amount of a queue: all its gauges have a series for each, possibly 0."""
    named: set[int] = set()
    for vector in gauges.amounts.values():
        named.update(np.flatnonzero((vector != 0) & np.isfinite(vector)).tolist())
    return sorted(column for column in named if column >= PODS)


def _finite(vector: Vector) -> list[float]:
    out: list[float] = np.where(np.isinf(vector), _UNLIMITED, vector).tolist()
    return out


def _queue_facts(session: Session) -> Iterator[Metric]:
    overused = (([name], float(session.report.queue(name).gets_nothing_more)) for name in session.view.queues)
    yield Queues.OVERUSED.family(overused)
    of_queues = session.report.gauges.items()
    yield Queues.SHARE.family(([name], gauges.share) for name, gauges in of_queues if gauges.share is not None)
    yield Queues.WEIGHT.family(([name], gauges.weight) for name, gauges in of_queues if gauges.weight is not None)


def _specified(session: Session) -> Iterator[Metric]:
    """Amounts in the specs of queues, whether or not a plugin uses them."""

    def amounts(of: Callable[[Queue], ResourceAmounts | None]) -> Iterator[tuple[list[str], float]]:
        for name, queue in session.view.queues.items():
            for resource, amount in resource_amounts(of(queue)).items():
                yield [name, resource], amount

    yield Queues.CAPABILITY.family(amounts(lambda queue: queue.spec.capability))
    yield Queues.GUARANTEE.family(amounts(lambda queue: queue.spec.guarantee.resource))


def _fair_shares(session: Session) -> Iterator[Metric]:
    for amount, definition in Queues.FAIR_SHARES.items():
        vectors = [(name, g.amounts[amount]) for name, g in session.report.gauges.items() if amount in g.amounts]
        if vectors:
            yield definition.family(
                ([name, resource], value)
                for name, vector in vectors
                for resource, value in zip(session.view.dimensions, vector.tolist(), strict=True)
                if np.isfinite(value) and (value or resource in ("cpu", "memory"))
            )


def _pod_groups(session: Session) -> Iterator[Metric]:
    counts = Counter((job.queue.name, job.phase or PodGroupPhase.Pending) for job in session.view.jobs.values())
    for phase, definition in Queues.POD_GROUPS.items():
        yield definition.family(([queue], counts[queue, phase]) for queue in session.view.queues)


# -- jobs and pods ---------------------------------------------------------------------------------------------------


def _gangs(session: Session) -> Iterator[Metric]:
    missing: Counter[str] = Counter()
    for job in session.view.jobs.values():
        missing[job.name] += max(0, session.ask.job_missing(job)) if job.unschedulable else 0
    yield Jobs.UNSCHEDULABLE.family([([], sum(job.unschedulable for job in session.view.jobs.values()))])
    yield Jobs.MISSING.family(([name], count) for name, count in missing.items())


def _job_shares(session: Session) -> Iterator[Metric]:
    if not any(plugin.name == "drf" for plugin in session.plugins):
        return
    held = session.view.membership.allocated_now()
    yield Jobs.SHARE.family(
        ([job.namespace, job.name], dominant_share(held[job.index], session.view.total))
        for job in session.view.jobs.values()
    )


def _cluster(session: Session) -> Iterator[Metric]:
    states = Counter(session.view.pods.state[session.view.pods.job >= -1].tolist())
    phases = Counter(job.phase or PodGroupPhase.Pending for job in session.view.jobs.values())
    yield Sessions.NODES.family([([], len(session.view.nodes))])
    yield Sessions.QUEUES.family([([], len(session.view.queues))])
    kinds = list(fragments(session.view))
    yield Sessions.FREE_CARDS.family(([each.resource], float(each.free.sum())) for each in kinds)
    yield Sessions.FRAGMENTED_CARDS.family(([each.resource], float(each.fragments.sum())) for each in kinds)
    yield Jobs.PHASES.family(([phase], phases[phase]) for phase in PodGroupPhase)
    yield Jobs.PODS.family(([state.name], states[state]) for state in PodState)
    yield Jobs.ASSUMED.family([([], states[PodState.Binding])])


def _pending(session: Session) -> Metric:
    jobs, counts = session.view.jobs, Counter[tuple[str, str, str]]()
    for pod, reason, _ in waiting(session):
        job = jobs.get(pod.job)
        counts["" if job is None else job.queue.name, reason.stage.name, reason.reason] += 1
    return Jobs.PENDING.family(counts.items())


def _hash(policy: Policy) -> str:
    """A short digest of a policy's meaning, independent of comments and layout."""

    def plain(arguments: BaseModel) -> object:
        return arguments.model_dump(mode="json")

    content = msgspec.json.encode(asdict(policy), enc_hook=plain, order="deterministic")
    return hashlib.blake2b(content, digest_size=8).hexdigest()
