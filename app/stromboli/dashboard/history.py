"""The history of sessions and shares, in ring buffers of bounded size."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from stromboli.api.resources import UNKNOWN
from stromboli.dashboard.report import in_units
from stromboli.explain.overview import SessionRow, Shares
from stromboli.framework.session import Session

#: seconds between two samples of shares, and their number: half an hour of a busy cluster
_BETWEEN = 2.0
_SAMPLES = 900
#: size limit of all samples in bytes: with thousands of queues fewer are kept
_BYTES = 16 << 20
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


class History:
    """Written in the event loop after each session; readable from any thread."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()
        #: the last session and when it began
        self._newest: tuple[Session, float] | None = None
        self._bytes = 0
        self._sessions: deque[SessionRow] = deque(maxlen=_SESSIONS)
        self._snapshot = 0.0
        #: why the current policy file was refused
        self.problem = ""

    # -- what is told ------------------------------------------------------------------------------------------------

    def snapshot(self, seconds: float) -> None:
        """The snapshot of the next session was taken."""
        self._snapshot = seconds

    def session(self, session: Session, now: float, seconds: float) -> None:
        """A session ended, which began at `now`."""
        timings = session.timings
        self._sessions.append(
            SessionRow(
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
        # A sample takes milliseconds, so it is computed on demand, or when the next one replaces it.
        newest, self._newest = self._newest, (session, now)
        if newest is not None and (not self._samples or newest[1] - self._samples[-1].at >= _BETWEEN):
            self._keep(_sample(*newest))

    def failed(self, error: BaseException, now: float) -> None:
        """A session raised."""
        said = f"{type(error).__name__}: {error}"[:500]
        self._sessions.append(SessionRow(at=now, error=said))

    def _keep(self, sample: _Sample) -> None:
        self._samples.append(sample)
        self._bytes += sample.amounts.nbytes
        while len(self._samples) > _SAMPLES or (self._bytes > _BYTES and len(self._samples) > 1):
            self._bytes -= self._samples.popleft().amounts.nbytes

    # -- what is asked -----------------------------------------------------------------------------------------------

    def sessions(self, limit: int) -> list[SessionRow]:
        """The last sessions, the newest first."""
        return list(islice(reversed(self._sessions.copy()), limit))

    def shares(self, resource: str, limit: int, *, queue: str = "", parent: str = "root") -> Shares:
        """Shares over time in one resource, of one queue or of those children of a queue that used or deserved most."""
        newest = self._newest
        samples = [*self._samples.copy(), *([_sample(*newest)] if newest else [])]
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
            at=[sample.at for sample in samples],
            held=told["allocated"],
            deserved=told["deserved"],
            requested=told["request"],
            parent=parent,
            queues=len(queues),
            inner=[each for each in queues[:limit] if each in inner],
        )


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
