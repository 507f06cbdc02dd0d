"""tdm: nodes that belong to somebody else for a part of the day (time division multiplexing).

A node with the label `volcano.sh/revocable-zone` takes pods only while its zone is open, and only those that agree to
be evicted when it closes; these go there first. Times are UTC.

When a zone closes, the action shuffle evicts its pods round by round. A job never loses more at a time than its
PodGroup's annotation `volcano.sh/jdb-min-available` or `volcano.sh/jdb-max-unavailable` leaves (a number or a
percentage of its pods), and one pod when it has neither. The same holds for preemption, which leaves revocable nodes
alone: pods that evict others may not go there.

Under strict rules a job has one limit over all zones, below its minimum it loses nothing, and a limit that cannot be
read protects all its pods. Volcano counts anew in every zone, takes one pod below the minimum, and reads a zero.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from pydantic import BaseModel, BeforeValidator, Field, model_validator

from stromboli.api import readers
from stromboli.api.duration import Duration, since
from stromboli.api.pod_state import PodState
from stromboli.api.resources import Mask, Vector
from stromboli.framework.job import Job
from stromboli.framework.nodes import NodeView
from stromboli.framework.plugin import Arguments, Filters, Plugin, Verdict, Vote
from stromboli.framework.view import View
from stromboli.state.pods import PREEMPTABLE, PodRecord
from stromboli.state.reads import Reads
from stromboli.tactics.candidates import preemptable

_ZONE = "volcano.sh/revocable-zone"
_MIN_AVAILABLE = "volcano.sh/jdb-min-available"
_MAX_UNAVAILABLE = "volcano.sh/jdb-max-unavailable"
_AMOUNT = re.compile(r"([+-]?[0-9]+)(%?)")
_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_SCORE = 100.0


class Hours(NamedTuple):
    """When a zone is open on a day; an end that is not after the start is on the next day."""

    start: time
    end: time

    def contain(self, now: datetime) -> bool:
        """Whether the zone is open. The start is always today's, so after midnight a night's zone is closed."""
        start = datetime.combine(now.date(), self.start, now.tzinfo)
        end = datetime.combine(now.date(), self.end, now.tzinfo)
        if end <= start:
            end += timedelta(days=1)
        return start <= now < end + timedelta(seconds=1)


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
    """`tdm.revocable-zone.NAME`: when a zone is open, `HH:MM-HH:MM`."""
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
    #: when pods last had to leave closed zones, seconds since the epoch; None for never
    left: float | None

    def open(self, view: View) -> None:
        now = datetime.fromtimestamp(view.time(), UTC)
        facts = view.nodes.facts
        numbers = facts.label_values(_ZONE)
        zones = {numbers[name]: hours for name, hours in self.arguments.zones.items() if name in numbers}
        open_zones = [number for number, hours in zones.items() if hours.contain(now)]
        zone = facts.label(_ZONE)
        self._view = view
        self._zone = zone
        #: nodes that are in no zone, and those whose zone is open
        self._plain: Mask = (zone == -1) | (zone == numbers.get("", -1))
        self._open: Mask = np.isin(zone, open_zones) & ~self._plain
        #: nodes whose zone the policy names and that is closed
        self._closed: Mask = np.isin(zone, list(zones)) & ~self._open & ~self._plain
        #: whether pending best-effort pods count as if they had a place
        self._generous = not view.rules.readiness

    def predicate(self, pod: PodRecord, nodes: NodeView) -> Filters:
        plain, is_open = self._plain[nodes.rows], self._open[nodes.rows]
        yield "node(s) were in a revocable zone that is closed", plain | is_open
        if not _revocable(pod):
            yield "node(s) were in a revocable zone, for which the pod does not allow", plain

    def node_order(self, pod: PodRecord, nodes: NodeView) -> Vector | None:
        if not _revocable(pod):
            return None
        return np.where(self._open[nodes.rows], _SCORE, 0.0)

    def job_order(self, job: Job) -> bool:
        return _preemptable(job)

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
        if last is not None and since(last, view.time()) < self.arguments.evict_period:
            return []
        leaving = [pod for pod in running if preemptable(pod) and self._is_on(pod, self._closed)]
        leaving.sort(key=view.task_key, reverse=True)
        victims = self._within_limits((self._account(pod), pod) for pod in leaving)
        if victims:
            self.left = view.time()
        return victims

    def _yields(self, pod: PodRecord) -> bool:
        """Whether a pod agrees to be evicted and so evicts nobody.

        Where this plugin's no is final it takes the pod's word for that: silence would be the end of preemption.
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
        """The first pods of each account, which belong to one job, as many as that may lose."""
        accounts: dict[Hashable, list[PodRecord]] = {}
        for account, pod in pods:
            accounts.setdefault(account, []).append(pod)
        jobs, strict = self._view.jobs, self._view.rules.budgets
        return [pod for own in accounts.values() for pod in own[: _expendable(jobs[own[0].job], strict=strict)]]


def _revocable(pod: PodRecord) -> bool:
    """Whether a pod may run on nodes that can be taken away."""
    annotations = pod.annotations
    if _ZONE in annotations:
        return annotations[_ZONE] == "*"
    return annotations.get(PREEMPTABLE) in _TRUE


def _preemptable(job: Job) -> bool:
    """Whether the job says that it may be evicted; without a word it does not."""
    metadata = job.pod_group.metadata
    return metadata.annotations.get(PREEMPTABLE, metadata.labels.get(PREEMPTABLE)) in _TRUE


def _expendable(job: Job, *, strict: bool) -> int:
    """How many running pods a job may lose now. Evictions of the session are in its counts."""
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
    """A number of pods, or a percentage of `size` rounded up; None when it is neither."""
    match = _AMOUNT.fullmatch(written)
    if match is None:
        return None
    number = readers.integer(match[1])
    return number if number is None or not match[2] else -(-number * size // 100)
