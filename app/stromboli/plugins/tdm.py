"""tdm: nodes that belong to somebody else for a part of the day (time division multiplexing).

A node with the label `volcano.sh/revocable-zone` takes pods only while its zone is open, and only those that agree to
be evicted when it closes; these go there first. Times are UTC.
"""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from pydantic import BaseModel, BeforeValidator, Field, model_validator

from stromboli.api.duration import Duration
from stromboli.api.resources import Mask, Vector
from stromboli.api.status import PodState
from stromboli.framework.job import Job
from stromboli.framework.nodes import NodeView
from stromboli.framework.plugin import Arguments, Filters, Plugin, Verdict, Vote
from stromboli.framework.session import Session
from stromboli.state.pods import PodRecord

_ZONE = "volcano.sh/revocable-zone"
_PREEMPTABLE = "volcano.sh/preemptable"
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
    Arguments: ClassVar[type[BaseModel]] = TdmArguments

    def open(self, session: Session) -> None:
        now = datetime.fromtimestamp(session.now, UTC)
        facts = session.nodes.facts
        numbers = facts.label_values(_ZONE)
        zones = self.arguments.zones.items()
        open_zones = [numbers[name] for name, hours in zones if name in numbers and hours.contain(now)]
        zone = facts.label(_ZONE)
        #: nodes that are in no zone, and those whose zone is open
        self._plain: Mask = (zone == -1) | (zone == numbers.get("", -1))
        self._open: Mask = np.isin(zone, open_zones) & ~self._plain
        #: whether pending best-effort pods count as if they had a place
        self._generous = not session.rules.readiness

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


def _revocable(pod: PodRecord) -> bool:
    """Whether a pod may run on nodes that can be taken away."""
    annotations = pod.pod_class.annotations
    if _ZONE in annotations:
        return annotations[_ZONE] == "*"
    return annotations.get(_PREEMPTABLE) in _TRUE


def _preemptable(job: Job) -> bool:
    """Whether the job says that it may be evicted; without a word it does not."""
    metadata = job.pod_group.metadata
    return metadata.annotations.get(_PREEMPTABLE, metadata.labels.get(_PREEMPTABLE)) in _TRUE
