"""Gauges of the last session, read when they are scraped.

A scrape shows one session from end to end, and a queue or job that is gone has no series, because none is kept.
"""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict

import msgspec
import numpy as np
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from pydantic import BaseModel

from stromboli.api.crds import PodGroupPhase
from stromboli.api.pod_state import PodState
from stromboli.api.reasons import Reason
from stromboli.api.resources import CPU, MEMORY, PODS, Vector
from stromboli.fairness.shares import dominant_share
from stromboli.framework.explain import pending_reasons
from stromboli.framework.report import QueueGauges
from stromboli.framework.session import Session
from stromboli.policy.document import Policy

#: what Volcano writes for amounts without a limit
_UNLIMITED = sys.float_info.max
_AMOUNTS = ("allocated", "request", "deserved", "inqueue", "capacity", "real_capacity")


class SessionCollector(Collector):
    """Reads the session that `last` returns; None before the first has ended."""

    def __init__(self, last: Callable[[], Session | None]) -> None:
        self._last = last

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """All gauges."""
        session = self._last()
        if session is None:
            return
        yield from _queue_amounts(session)
        yield from _queue_facts(session)
        yield from _fair_shares(session)
        yield from _pod_groups(session)
        yield from _gangs(session)
        yield from _job_shares(session)
        yield from _cluster(session)
        yield from _paused(session)
        yield _gauge("stromboli_policy_info", "The policy in force.", ["hash"], [([_hash(session.policy)], 1)])


def _paused(session: Session) -> Iterator[GaugeMetricFamily]:
    """How many jobs are not evicted any more, for a while, by the queue that they were evicted for."""
    counts = Counter(queue for _, queue in session.churn.paused)
    text = "Jobs that are not evicted for a queue for now, because they got their places back too often."
    yield _gauge(
        "stromboli_evictions_paused", text, ["queue_name"], [([name], n) for name, n in sorted(counts.items())]
    )


def _gauge(name: str, text: str, labels: list[str], samples: Iterable[tuple[list[str], float]]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


# -- queues ----------------------------------------------------------------------------------------------------------


def _queue_amounts(session: Session) -> Iterator[GaugeMetricFamily]:
    """Amounts of every queue in Volcano's units: milli-CPU, bytes, milli-units of all else, pods as they are."""
    scalars = {name: _scalar_columns(gauges) for name, gauges in session.report.gauges.items()}
    for amount in _AMOUNTS:
        vectors = [
            (name, _finite(g.amounts[amount])) for name, g in session.report.gauges.items() if amount in g.amounts
        ]
        if not vectors:
            continue
        prefix, text = f"volcano_queue_{amount}", f"{amount.replace('_', ' ').capitalize()} of a queue:"
        queue = ["queue_name"]
        memory = [([name], vector[MEMORY]) for name, vector in vectors]
        yield _gauge(f"{prefix}_milli_cpu", f"{text} milli-CPU.", queue, [([n], v[CPU]) for n, v in vectors])
        yield _gauge(f"{prefix}_memory_bytes", f"{text} memory in bytes.", queue, memory)
        yield _gauge(f"{prefix}_memory", f"{text} memory in bytes, under an older name.", queue, memory)
        yield _gauge(
            f"{prefix}_scalar_resources",
            f"{text} other resources, in thousandths except pods.",
            ["queue_name", "resource"],
            [
                ([name, session.view.dimensions[column]], vector[column])
                for name, vector in vectors
                for column in scalars[name]
            ],
        )


def _scalar_columns(gauges: QueueGauges) -> list[int]:
    """The columns that any amount of a queue names: each has a series, if only of 0, in all of its gauges."""
    named: set[int] = set()
    for vector in gauges.amounts.values():
        named.update(np.flatnonzero((vector != 0) & np.isfinite(vector)).tolist())
    return sorted(column for column in named if column >= PODS)


def _finite(vector: Vector) -> list[float]:
    out: list[float] = np.where(np.isinf(vector), _UNLIMITED, vector).tolist()
    return out


def _queue_facts(session: Session) -> Iterator[GaugeMetricFamily]:
    overused = [([name], float(session.report.queue(name).gets_nothing_more)) for name in session.view.queues]
    yield _gauge("volcano_queue_overused", "Whether a queue gets nothing more: 1 if so.", ["queue_name"], overused)
    for fact, text in (
        ("share", "The largest part of what a queue deserves that it holds, over all resources."),
        ("weight", "The weight of a queue."),
    ):
        values = ((name, getattr(gauges, fact)) for name, gauges in session.report.gauges.items())
        samples = [([name], float(value)) for name, value in values if value is not None]
        yield _gauge(f"volcano_queue_{fact}", text, ["queue_name"], samples)


def _fair_shares(session: Session) -> Iterator[GaugeMetricFamily]:
    """What fairshare worked out, by queue and resource; amounts in milli-CPU, bytes and milli-units of all else."""
    for amount, text in (
        ("fair_share", "What a queue is entitled to, over its quota as well."),
        ("usage", "What a queue held over time, as a part of the cluster."),
        ("cluster_part", "What a queue holds, as a part of what is divided between queues."),
        ("saturation", "What a queue holds, as a part of its fair share."),
    ):
        vectors = [(name, g.amounts[amount]) for name, g in session.report.gauges.items() if amount in g.amounts]
        if vectors:
            yield _gauge(
                f"stromboli_queue_{amount}",
                text,
                ["queue_name", "resource"],
                [
                    ([name, resource], value)
                    for name, vector in vectors
                    for resource, value in zip(session.view.dimensions, vector.tolist(), strict=True)
                    if np.isfinite(value) and (value or resource in ("cpu", "memory"))
                ],
            )


def _pod_groups(session: Session) -> Iterator[GaugeMetricFamily]:
    counts = Counter((job.queue.name, job.phase or PodGroupPhase.Pending) for job in session.view.jobs.values())
    for phase in PodGroupPhase:
        yield _gauge(
            f"volcano_queue_pod_group_{phase.lower()}_count",
            f"PodGroups of a queue in phase {phase}.",
            ["queue_name"],
            [([queue], counts[queue, phase]) for queue in session.view.queues],
        )


# -- jobs ------------------------------------------------------------------------------------------------------------


def _gangs(session: Session) -> Iterator[GaugeMetricFamily]:
    missing: Counter[str] = Counter()
    for job in session.view.jobs.values():
        missing[job.name] += max(0, session.ask.job_missing(job)) if job.unschedulable else 0
    blocked = sum(job.unschedulable for job in session.view.jobs.values())
    yield _gauge("volcano_unschedule_job_count", "Jobs that are not ready and cannot be.", [], [([], blocked)])
    yield _gauge(
        "volcano_unschedule_task_count",
        "Pods that a job lacks until it is ready; jobs of one name in several namespaces are added up.",
        ["job_id"],
        (([name], count) for name, count in missing.items()),
    )


def _job_shares(session: Session) -> Iterator[GaugeMetricFamily]:
    if not any(plugin.name == "drf" for plugin in session.plugins):
        return
    held = session.view.membership.allocated_now()
    yield _gauge(
        "volcano_job_share",
        "The largest part of the cluster that a job holds, over all resources.",
        ["job_ns", "job_id"],
        (
            ([job.namespace, job.name], dominant_share(held[job.index], session.view.total))
            for job in session.view.jobs.values()
        ),
    )


# -- the cluster -----------------------------------------------------------------------------------------------------


def _cluster(session: Session) -> Iterator[GaugeMetricFamily]:
    states = Counter(session.view.pods.state[session.view.pods.job >= -1].tolist())
    phases = Counter(job.phase or PodGroupPhase.Pending for job in session.view.jobs.values())
    yield _gauge("stromboli_nodes", "Nodes that the session saw.", [], [([], len(session.view.nodes))])
    yield _gauge("stromboli_queues", "Queues that the session saw.", [], [([], len(session.view.queues))])
    yield _gauge(
        "stromboli_jobs", "PodGroups in the session.", ["phase"], [([phase], phases[phase]) for phase in PodGroupPhase]
    )
    yield _gauge(
        "stromboli_pods", "Pods in the session.", ["state"], [([state.name], states[state]) for state in PodState]
    )
    yield _gauge(
        "stromboli_assumed_pods",
        "Pods that have a place by decision and wait for their binding to be seen.",
        [],
        [([], states[PodState.Binding])],
    )
    yield _gauge(
        "stromboli_pending_pods",
        "Pods without a place, by what keeps them from it.",
        ["stage", "reason"],
        (([reason.stage.name, reason.reason], count) for reason, count in _pending(session)),
    )


def _pending(session: Session) -> list[tuple[Reason, int]]:
    """Number of pods by stage and reason; one `Reason` stands for all that share both."""
    examples: dict[tuple[int, str], Reason] = {}
    counts: Counter[tuple[int, str]] = Counter()
    for reason in pending_reasons(session).values():
        key = (reason.stage, reason.reason)
        examples.setdefault(key, reason)
        counts[key] += 1
    return [(examples[key], count) for key, count in counts.items()]


def _hash(policy: Policy) -> str:
    """A short digest of what a policy means: comments and layout do not change it."""

    def plain(arguments: BaseModel) -> object:
        return arguments.model_dump(mode="json")

    content = msgspec.json.encode(asdict(policy), enc_hook=plain, order="deterministic")
    return hashlib.blake2b(content, digest_size=8).hexdigest()
