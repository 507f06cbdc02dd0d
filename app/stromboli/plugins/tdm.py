"""tdm: nodes that are available for a part of the day only (time division multiplexing).

A node with the label `volcano.sh/revocable-zone` accepts pods only while its zone is open, and only revocable ones,
which are evicted when the zone closes and prefer these nodes. Times are UTC.

When a zone closes, the action shuffle evicts its pods in rounds. A job never loses more pods at a time than its
PodGroup's annotation `volcano.sh/jdb-min-available` or `volcano.sh/jdb-max-unavailable` permits (a number or a
percentage of its pods), and one pod without either. The same limit applies to preemption, which does not use revocable
nodes: preemptors may not run there.

Under strict rules a job has one limit over all zones, loses nothing below its minimum, and an invalid limit protects
all its pods. Volcano counts separately in every zone, evicts one pod below the minimum, and reads an invalid limit as
zero.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterable, Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from pydantic import BaseModel, BeforeValidator, Field, model_validator

from stromboli.api import readers
from stromboli.api.crds import Metadata
from stromboli.api.duration import Duration, since
from stromboli.api.pod_state import PodState
from stromboli.api.resources import Mask, Rows, Vector
from stromboli.eviction.eligibility import preemptable
from stromboli.framework.cluster.job import Job
from stromboli.framework.cluster.nodes import NodeView
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Arguments, Plugin, Verdict, Vote
from stromboli.framework.plugin.causes import Filters
from stromboli.state.pods import PREEMPTABLE, PodRecord
from stromboli.state.reads import Reads

_ZONE = "volcano.sh/revocable-zone"
_MIN_AVAILABLE = "volcano.sh/jdb-min-available"
_MAX_UNAVAILABLE = "volcano.sh/jdb-max-unavailable"
_AMOUNT = re.compile(r"([+-]?[0-9]+)(%?)")
_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_SCORE = 100.0


class Hours(NamedTuple):
    """The opening hours of a zone; an end before the start is on the next day."""

    start: time
    end: time

    def contain(self, now: datetime) -> bool:
        """Whether the zone is open. The start is always today's, so after midnight an overnight zone is closed."""
        start = datetime.combine(now.date(), self.start, now.tzinfo)
        end = datetime.combine(now.date(), self.end, now.tzinfo)
        if end <= start:
            end += timedelta(days=1)
        return start <= now < end + timedelta(seconds=1)

    def changes(self, now: datetime) -> float:
        """Time at which it opens or closes next, or midnight before that, in seconds since the epoch."""
        day, second = timedelta(days=1), timedelta(seconds=1)
        midnight, start, end = (datetime.combine(now.date(), each, now.tzinfo) for each in (time(), *self))
        return min(each for each in (start, end + second, midnight + day) if each > now).timestamp()


def _hours(written: object) -> Hours:
    try:
        start, end = (datetime.strptime(part, "%H:%M").time() for part in str(written).strip().split("-"))
    except ValueError:
        raise ValueError(f"should be HH:MM-HH:MM, not {written!r}") from None
    return Hours(start, end)


class TdmArguments(Arguments):
    """Arguments of tdm."""

    zones: dict[str, Annotated[Hours, BeforeValidator(_hours)]] = Field(
        default_factory=dict, alias="tdm.revocable-zone"
    )
    """`tdm.revocable-zone.NAME`: opening hours, `HH:MM-HH:MM`."""
    evict_period: Duration = Field(default=60.0, alias="tdm.evict.period")
    """Time between two rounds of evictions from closed zones."""

    @model_validator(mode="before")
    @classmethod
    def _gather_zones(cls, values: Any) -> Any:
        """Every zone is a key of its own in the policy."""
        if not isinstance(values, dict):
            return values
        prefix = "tdm.revocable-zone."
        zones = {key.removeprefix(prefix): hours for key, hours in values.items() if str(key).startswith(prefix)}
        rest = {key: value for key, value in values.items() if not str(key).startswith(prefix)}
        return rest | ({"tdm.revocable-zone": zones} if zones else {})


class Tdm(Plugin):
    name = "tdm"
    protects = True
    reads = Reads(annotations=(_ZONE, PREEMPTABLE))
    Arguments: ClassVar[type[BaseModel]] = TdmArguments
    #: start of the last round of evictions, seconds since the epoch; None before the first
    left: float | None

    def open(self, view: View) -> None:
        now = datetime.fromtimestamp(view.time(math.inf), UTC)
        facts = view.nodes.facts
        numbers = facts.label_values(_ZONE)
        zones = {numbers[name]: hours for name, hours in self.arguments.zones.items() if name in numbers}
        open_zones = [number for number, hours in zones.items() if hours.contain(now)]
        view.time(min((hours.changes(now) for hours in zones.values()), default=math.inf))
        zone = facts.label(_ZONE)
        self._view = view
        self._zone = zone
        #: nodes without zone, and nodes whose zone is open
        self._plain: Mask = (zone == -1) | (zone == numbers.get("", -1))
        self._open: Mask = np.isin(zone, open_zones) & ~self._plain
        #: nodes whose zone the policy names and is closed
        self._closed: Mask = np.isin(zone, list(zones)) & ~self._open & ~self._plain
        #: whether pending best-effort pods count as placed
        self._generous = not view.rules.readiness

    def predicate(self, pod: PodRecord, nodes: NodeView) -> Filters:
        plain, is_open = self._plain[nodes.rows], self._open[nodes.rows]
        yield "node(s) were in a revocable zone that is closed", plain | is_open
        if not _revocable(pod):
            yield "node(s) were in a revocable zone, and the pod is not revocable", plain

    def node_order(self, pod: PodRecord, nodes: NodeView) -> Vector | None:
        if not _revocable(pod):
            return None
        return np.where(self._open[nodes.rows], _SCORE, 0.0)

    def job_order(self, job: Job) -> bool:
        return _preemptable(job)

    def job_orders(self) -> Rows:
        agrees = self._view.jobs.holds("agrees to be evicted", lambda group: _agrees(group.metadata))
        orders: Rows = agrees.astype(np.intp)
        return orders

    def job_pipelined(self, job: Job) -> Verdict:
        held = job.waiting_count + job.ready_count + (job.pending_best_effort if self._generous else 0)
        return Vote.Permit if held >= job.min_available else Vote.Reject

    def job_starving(self, job: Job) -> bool:
        return not _preemptable(job) and job.counts[PodState.Pending] > 0

    def preemptable(self, pod: PodRecord, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        if _revocable(pod) or self._yields(pod):
            return []
        states = self._view.pods.state
        return self._within_limits(
            (other.job, other)
            for other in candidates
            if states[other.row] == PodState.Running and self._is_on(other, self._plain)
        )

    def victim_tasks(self, running: Sequence[PodRecord]) -> list[PodRecord]:
        view = self._view
        last = self.left
        now = view.time(math.inf)
        if last is not None and since(last, now) < self.arguments.evict_period:
            view.time(last + self.arguments.evict_period)
            return []
        leaving = [pod for pod in running if preemptable(pod) and self._is_on(pod, self._closed)]
        leaving.sort(key=view.task_key, reverse=True)
        victims = self._within_limits((self._account(pod), pod) for pod in leaving)
        if victims:
            self.left = now
        return victims

    def _yields(self, pod: PodRecord) -> bool:
        """Whether a pod is revocable and so cannot preempt.

        Where this plugin's answer is final, revocable means what the pod says; otherwise no pod could preempt.
        """
        silent = PREEMPTABLE not in pod.annotations and PREEMPTABLE not in pod.labels
        return preemptable(pod) and not (silent and self._view.rules.veto)

    def _is_on(self, pod: PodRecord, nodes: Mask) -> bool:
        node = self._view.pods.node[pod.row]
        return bool(node >= 0 and nodes[node])

    def _account(self, pod: PodRecord) -> Hashable:
        """Pods that share one limit when their zones close."""
        if self._view.rules.budgets:
            return pod.job
        return pod.job, int(self._zone[self._view.pods.node[pod.row]])

    def _within_limits(self, pods: Iterable[tuple[Hashable, PodRecord]]) -> list[PodRecord]:
        """The first pods of each account, which belong to one job, within its limit."""
        accounts: dict[Hashable, list[PodRecord]] = {}
        for account, pod in pods:
            accounts.setdefault(account, []).append(pod)
        jobs, strict = self._view.jobs, self._view.rules.budgets
        return [pod for own in accounts.values() for pod in own[: _expendable(jobs[own[0].job], strict=strict)]]


def _revocable(pod: PodRecord) -> bool:
    """Whether a pod may run on revocable nodes."""
    annotations = pod.annotations
    if _ZONE in annotations:
        return annotations[_ZONE] == "*"
    return annotations.get(PREEMPTABLE) in _TRUE


def _preemptable(job: Job) -> bool:
    """Whether the job declares itself preemptable; the default is no."""
    return _agrees(job.pod_group.metadata)


def _agrees(metadata: Metadata) -> bool:
    return metadata.annotations.get(PREEMPTABLE, metadata.labels.get(PREEMPTABLE)) in _TRUE


def _expendable(job: Job, *, strict: bool) -> int:
    """Number of running pods that a job may lose now, including evictions of the session."""
    annotations, counts = job.pod_group.metadata.annotations, job.counts
    running = counts[PodState.Running]
    if least := annotations.get(_MIN_AVAILABLE):
        available = _amount(least, job.size)
        if strict:
            return 0 if available is None else max(running - available, 0)
        spare = running - (available or 0)
        return spare if spare >= 0 else 1
    if most := annotations.get(_MAX_UNAVAILABLE):
        unavailable = job.size - counts[PodState.Succeeded] - counts[PodState.Failed] - running
        return max((_amount(most, job.size) or 0) - unavailable, 0)
    return 1


def _amount(written: str, size: int) -> int | None:
    """A number of pods, or a percentage of `size` rounded up; None if it is invalid."""
    match = _AMOUNT.fullmatch(written)
    if match is None:
        return None
    number = readers.integer(match[1])
    return number if number is None or not match[2] else -(-number * size // 100)
