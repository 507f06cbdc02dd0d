"""The history of sessions and shares, in ring buffers of bounded size."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from stromboli.api.resources import UNKNOWN
from stromboli.dashboard.decided import DecidedSessions
from stromboli.dashboard.nodes import in_units
from stromboli.explain.overview import SessionRow, Shares
from stromboli.framework.session.session import Session

#: seconds between two samples of shares, and their number: half an hour of a busy cluster, and a day
_RINGS = ((2.0, 900), (60.0, 1_440))
#: size limit of the samples of each in bytes: with thousands of queues fewer are kept
_BYTES = 8 << 20
#: the shortest time span shown, in seconds
_SHORTEST = 300.0
_SESSIONS = 500
#: the amounts in a sample
_KINDS = ("allocated", "deserved", "request")


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    queues: tuple[str, ...]
    parents: tuple[str, ...]
    resources: tuple[str, ...]
    #: shape (kinds, queues, resources); NaN for unknown amounts
    amounts: npt.NDArray[np.float32]


class _Ring:
    """Samples at a minimum distance, up to a maximum number."""

    def __init__(self, between: float, most: int) -> None:
        self.between = between
        self.samples: deque[_Sample] = deque()
        self._most = most
        self._bytes = 0

    def wants(self, at: float) -> bool:
        """Whether the last sample is old enough for another one."""
        return not self.samples or at - self.samples[-1].at >= self.between

    def keep(self, sample: _Sample) -> None:
        """Add a sample."""
        self.samples.append(sample)
        self._bytes += sample.amounts.nbytes
        while len(self.samples) > self._most or (self._bytes > _BYTES and len(self.samples) > 1):
            self._bytes -= self.samples.popleft().amounts.nbytes


class History:
    """Written in the event loop after each session; readable from any thread."""

    def __init__(self) -> None:
        self._rings = [_Ring(between, most) for between, most in _RINGS]
        #: the last session and when it began
        self._newest: tuple[Session, float] | None = None
        self._sessions: deque[SessionRow] = deque(maxlen=_SESSIONS)
        self._number = 0
        self._snapshot = 0.0
        self.decided = DecidedSessions()
        #: why the current policy file was refused
        self.problem = ""

    # -- events ------------------------------------------------------------------------------------------------------

    def began(self, number: int) -> None:
        """A session begins; `number` counts from the start of the process."""
        self._number = number

    def snapshot(self, seconds: float) -> None:
        """The snapshot of the next session was taken."""
        self._snapshot = seconds

    def session(self, session: Session, now: float, seconds: float) -> None:
        """A session ended, which began at `now`."""
        timings = session.timings
        self._sessions.append(
            SessionRow(
                number=self._number,
                at=now,
                seconds=seconds,
                snapshot=self._snapshot,
                actions=dict(timings.actions),
                plugins=sum(timings.plugins.values()),
                bound=len(session.bound),
                evicted=len(session.evicted),
                unplaced=len(session.view.trace.pods),
            )
        )
        self.decided.add(self._number, now, session)
        # A sample takes milliseconds, so it is computed on demand, or when the next one replaces it.
        newest, self._newest = self._newest, (session, now)
        wanting = [ring for ring in self._rings if newest is not None and ring.wants(newest[1])]
        if newest is not None and wanting:
            sample = _sample(*newest)
            for ring in wanting:
                ring.keep(sample)

    def failed(self, error: BaseException, now: float) -> None:
        """A session raised."""
        said = f"{type(error).__name__}: {error}"[:500]
        self._sessions.append(SessionRow(number=self._number, at=now, error=said))

    # -- queries -----------------------------------------------------------------------------------------------------

    def sessions(self, limit: int) -> list[SessionRow]:
        """The last sessions, the newest first."""
        return list(islice(reversed(self._sessions.copy()), limit))

    def row(self, number: int) -> SessionRow | None:
        """A session by its number, if it is known."""
        return next((each for each in reversed(self._sessions.copy()) if each.number == number), None)

    def shares(
        self, resource: str, limit: int, now: float, *, span: float = 0.0, queue: str = "", parent: str = "root"
    ) -> Shares:
        """Shares over time in one resource, of one queue or of those children of a queue that used or deserved most.

        They are those of the last `span` seconds, of all that is known for 0.
        """
        samples, since = self._samples(now, span)
        last = samples[-1] if samples else None
        resources = [name for name in last.resources if name not in ("pods", UNKNOWN)] if last else []
        resource = resource if resource in resources else "cpu"
        inner = frozenset(last.parents) if last else frozenset[str]()
        # Only siblings share; a parent's amounts include its children's and would dwarf them.
        queues = [each for each in _ranked(samples, resource, None if queue else parent) if queue in ("", each)]
        told = {
            kind: {name: [_told(sample, at, name, resource) for sample in samples] for name in queues[:limit]}
            for at, kind in enumerate(_KINDS)
        }
        return Shares(
            resource=resource,
            resources=resources,
            since=since,
            until=now,
            at=[sample.at for sample in samples],
            held=told["allocated"],
            deserved=told["deserved"],
            requested=told["request"],
            parent=parent,
            queues=len(queues),
            inner=[each for each in queues[:limit] if each in inner],
        )

    def _samples(self, now: float, span: float) -> tuple[list[_Sample], float]:
        """The samples of a time that ends now, with the last one before it, and when it begins.

        They are as close together as it allows: those of the first ring that reaches back far enough.
        """
        newest = self._newest
        rings = [ring.samples.copy() for ring in self._rings]
        first = min((ring[0].at for ring in rings if ring), default=newest[1] if newest else now)
        since = min(now - span if span else first, now - _SHORTEST)
        ring = next((ring for ring in rings if ring and ring[0].at <= max(since, first)), rings[-1])
        samples = [*ring, *([_sample(*newest)] if newest else [])]
        begin = max((at for at, sample in enumerate(samples) if sample.at <= since), default=0)
        return samples[begin:], since


def _sample(session: Session, now: float) -> _Sample:
    view, gauges = session.view, session.report.gauges
    amounts = np.full((len(_KINDS), len(view.queues), len(view.dimensions)), np.nan, np.float32)
    held, requested = view.membership.allocated_now(), view.membership.requested()
    sums = {"allocated": view.by_queue(held), "request": view.by_queue(requested)}
    for row, name in enumerate(view.queues):
        known = gauges[name].amounts if name in gauges else {}
        for kind, what in enumerate(_KINDS):
            vector = sums[what][name] if what in sums else known.get(what)
            if vector is not None:
                amounts[kind, row] = vector
    parents = tuple(queue.parent for queue in view.queues.values())
    return _Sample(now, tuple(view.queues), parents, tuple(view.dimensions), amounts)


def _ranked(samples: list[_Sample], resource: str, parent: str | None) -> list[str]:
    """The children of a queue, or all queues, by their peak of used and deserved amounts, without queues that are
    always zero."""
    most: dict[str, float] = {}
    for sample in samples:
        if resource in sample.resources:
            peaks = np.nan_to_num(sample.amounts[:2, :, sample.resources.index(resource)]).max(axis=0)
            for name, above, peak in zip(sample.queues, sample.parents, peaks.tolist(), strict=True):
                if parent in (None, above):
                    most[name] = max(peak, most.get(name, 0.0))
    return sorted((name for name, peak in most.items() if peak), key=lambda name: (-most[name], name))


def _told(sample: _Sample, kind: int, queue: str, resource: str) -> float | None:
    if queue not in sample.queues or resource not in sample.resources:
        return None
    column = sample.resources.index(resource)
    amount = float(sample.amounts[kind, sample.queues.index(queue), column])
    return None if not np.isfinite(amount) else in_units(column, amount)
