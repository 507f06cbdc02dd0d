"""Whether jobs started within the range that they were told, so that the next answer can say how good it is.

The first answer about a job counts, as it starts; what is told while it waits on is no better known. Jobs that are
deleted before count only if they were late already.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any, NamedTuple

from stromboli.explain.answers import Start

#: jobs that wait for what they were told, and past ones that count, the newest
_OPEN, _KEPT = 1_000, 200
#: past ones from which something follows
_ENOUGH = 20
#: seconds that binding takes, and by which clocks differ
_TOLERANCE = 10.0


class Range(NamedTuple):
    """When a job was told to start, in seconds since the epoch."""

    uid: str
    earliest: float
    latest: float


class ToldStarts:
    """Told by answers in any thread, and by the event loop as jobs start."""

    def __init__(self) -> None:
        self._open: dict[str, Range] = {}
        #: whether it was right, of jobs that started since
        self._kept: deque[bool] = deque(maxlen=_KEPT)
        #: how often something was added
        self.added = 0

    def __contains__(self, job: str) -> bool:
        return job in self._open

    @property
    def share(self) -> tuple[float, int] | None:
        """The part of jobs that started within their range, and how many there were; None if too few."""
        kept = list(self._kept)
        return (sum(kept) / len(kept), len(kept)) if len(kept) >= _ENOUGH else None

    def tell(self, job: str, uid: str, start: Start, now: float) -> None:
        """A job that waits was told a start at a time in seconds since the epoch, or none."""
        known = self._open.get(job)
        if start.expected is None or start.earliest is None or (known is not None and known.uid == uid):
            return
        latest = math.inf if start.latest is None else now + start.latest
        self._open[job] = Range(uid, now + start.earliest, latest)
        if len(self._open) > _OPEN:
            self._open.pop(next(iter(self._open)), None)
        self.added += 1

    def started(self, job: str, uid: str, now: float) -> None:
        """As many pods of a job have nodes as start together."""
        told = self._open.pop(job, None)
        if told is not None and told.uid == uid:
            self._kept.append(told.earliest - _TOLERANCE <= now <= told.latest + _TOLERANCE)
            self.added += 1

    def gone(self, job: str, now: float) -> None:
        """A job was deleted that waited."""
        told = self._open.pop(job, None)
        if told is not None and now > told.latest + _TOLERANCE:
            self._kept.append(False)
            self.added += 1

    # -- beyond the process ----------------------------------------------------------------------------------------

    def as_data(self) -> object:
        """What is written of them."""
        of_open = [
            [job, each.uid, round(each.earliest, 1), None if math.isinf(each.latest) else round(each.latest, 1)]
            for job, each in list(self._open.items())
        ]
        return {"open": of_open, "kept": [int(each) for each in list(self._kept)]}

    def restore(self, data: Any) -> None:
        """Go on with what was written before. Raises ValueError, KeyError or TypeError."""
        known = {
            str(job): Range(str(uid), float(earliest), math.inf if latest is None else float(latest))
            for job, uid, earliest, latest in data["open"][-_OPEN:]
        }
        if any(math.isnan(each.earliest + each.latest) for each in known.values()):
            raise ValueError("starts that were told are no times")
        kept = [bool(each) for each in data["kept"]]
        # What this process told meanwhile comes after it.
        self._open = known | self._open
        self._kept = deque([*kept, *self._kept], maxlen=_KEPT)
        self.added += 1
