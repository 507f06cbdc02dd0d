"""Predicted and actual starts of jobs, which give the next prediction a reliable range and its hit rate.

The queue is simulated forward several times. Even so, later arrivals may go before, and jobs may end sooner. How much
earlier and later than in the simulations jobs have started gives the range of the next prediction, by quantiles.

Of each job the first prediction counts, once it starts; later predictions would be no independent samples. A job that
is deleted before it starts counts only if it was late already.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any, NamedTuple

import numpy as np

from stromboli.explain.answers import Start

#: numbers of waiting jobs with a prediction, and of latest past ones, that are kept
_OPEN, _KEPT = 1_000, 200
#: past ones from which something follows
_ENOUGH = 20
#: seconds that binding takes, and by which clocks differ
_TOLERANCE = 10.0


#: the part of starts that is to be within the range
_AIM = 0.8


class Widening(NamedTuple):
    """The factors that widen the earliest and the latest simulated start to a range."""

    sooner: float
    later: float


#: until enough is known here: what gave that part on workloads, and the part that it gave on others, see
#: docs/concepts.md
MEASURED, WITHIN = Widening(0.5, 1.6), 0.8


class Told(NamedTuple):
    """The predicted start of a job, in seconds since the epoch."""

    uid: str
    earliest: float
    latest: float
    #: when it was predicted, and the earliest and latest simulated starts
    at: float = math.nan
    first: float = math.nan
    last: float = math.nan


class Past(NamedTuple):
    """A job that started."""

    #: whether the job started within the predicted range
    right: bool
    #: its wait as a part of the shortest and of the longest that was simulated, NaN where that is not known
    of_first: float = math.nan
    of_last: float = math.nan


class ToldStarts:
    """Told by answers in any thread, and by the event loop as jobs start."""

    def __init__(self) -> None:
        self._open: dict[str, Told] = {}
        #: of jobs that started since
        self._kept: deque[Past] = deque(maxlen=_KEPT)
        #: number of additions
        self.added = 0

    def __contains__(self, job: str) -> bool:
        return job in self._open

    @property
    def share(self) -> tuple[float, int] | None:
        """The part of jobs that started within their range, and their number; None if too few."""
        kept = list(self._kept)
        return (sum(each.right for each in kept) / len(kept), len(kept)) if len(kept) >= _ENOUGH else None

    @property
    def widening(self) -> Widening:
        """The factors that hold for eight of ten jobs that started here, or measured defaults while there are few."""
        kept = list(self._kept)
        of_first = [each.of_first for each in kept if not math.isnan(each.of_first)]
        of_last = [each.of_last for each in kept if not math.isnan(each.of_last)]
        if min(len(of_first), len(of_last)) < _ENOUGH:
            return MEASURED
        beyond = (1 - _AIM) / 2
        sooner = float(np.quantile(of_first, beyond, method="lower"))
        later = float(np.quantile(of_last, 1 - beyond, method="higher"))
        # What was simulated may always come.
        return Widening(min(sooner, 1.0), max(later, 1.0))

    def tell(self, job: str, uid: str, start: Start, now: float) -> None:
        """Record the first prediction for a waiting job, made at `now` in seconds since the epoch."""
        known = self._open.get(job)
        if start.expected is None or start.earliest is None or (known is not None and known.uid == uid):
            return
        latest = math.inf if start.latest is None else now + start.latest
        first, last = (now + (math.nan if each is None else each) for each in (start.first, start.last))
        self._open[job] = Told(uid, now + start.earliest, latest, now, first, last)
        if len(self._open) > _OPEN:
            self._open.pop(next(iter(self._open)), None)
        self.added += 1

    def started(self, job: str, uid: str, now: float) -> None:
        """Record that a job started: enough of its pods have nodes."""
        told = self._open.pop(job, None)
        if told is not None and told.uid == uid:
            self._keep(told, now, right=told.earliest - _TOLERANCE <= now <= told.latest + _TOLERANCE)

    def gone(self, job: str, now: float) -> None:
        """Record that a waiting job was deleted."""
        told = self._open.pop(job, None)
        if told is not None and now > told.latest + _TOLERANCE:
            self._keep(told, now, right=False)

    def _keep(self, told: Told, now: float, *, right: bool) -> None:
        of_first, of_last = ((now - told.at) / max(each - told.at, _TOLERANCE) for each in (told.first, told.last))
        self._kept.append(Past(right, of_first, of_last))
        self.added += 1

    # -- beyond the process ----------------------------------------------------------------------------------------

    def as_data(self) -> object:
        """The predictions as plain data, for storage."""
        of_open = [[job, each.uid, *map(_written, each[1:])] for job, each in list(self._open.items())]
        kept = [[int(each.right), _written(each.of_first, 4), _written(each.of_last, 4)] for each in list(self._kept)]
        return {"open": of_open, "kept": kept}

    def restore(self, data: Any) -> None:
        """Restore stored data. Raises ValueError, KeyError or TypeError."""
        known = {
            str(job): Told(str(uid), _read(earliest), math.inf if latest is None else _read(latest), *map(_read, rest))
            for job, uid, earliest, latest, *rest in data["open"][-_OPEN:]
        }
        if any(math.isnan(each.earliest + each.latest) for each in known.values()):
            raise ValueError("starts that were told are no times")
        # Releases before kept no more than whether it was right.
        rows = (each if isinstance(each, list) else [each] for each in data["kept"])
        kept = [Past(bool(right), *map(_read, rest)) for right, *rest in rows]
        # What this process told meanwhile comes after it.
        self._open = known | self._open
        self._kept = deque([*kept, *self._kept], maxlen=_KEPT)
        self.added += 1


def _written(value: float, digits: int = 1) -> float | None:
    return round(value, digits) if math.isfinite(value) else None


def _read(value: float | None) -> float:
    return math.nan if value is None else float(value)
