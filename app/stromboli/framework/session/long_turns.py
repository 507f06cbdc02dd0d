"""Long turns: a bound on the work of one turn, so that no gang keeps the sessions from all others.

A turn takes a few times the budget of a session at most, and beyond that what its queue has saved. A queue saves so
little in a second that its long turns take about a hundredth of the time, whatever it submits. A turn that would take
more is cut: what it tried is taken back, and the job has its next turn when its queue has saved enough for all its
pods, by what those took that had places, or for one of twice the length where that is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stromboli.framework.cluster.job import Job

#: what any turn may take, in budgets of a session
LONGEST = 4
#: what a queue saves in a second, what it has saved in all unless a job needs more, and what a job may need at most,
#: in budgets of a session
A_SECOND, SAVED, _MOST = 0.2, 6, 400
#: what a turn is given, in parts of what it took for the pods before, since the last ones may take longer
_MARGIN = 1.1


class LongTurns:
    """What queues have saved for long turns of one action, and which jobs wait for that."""

    def __init__(self, limit: int, left: Mapping[str, Any], time: Callable[[], float]) -> None:
        """`limit` is the budget of a session, `left` what the same action left in the session before."""
        self._limit = limit
        #: steps that any turn may take, and what the first turn of a queue may
        self.free, self.first = limit * LONGEST, limit * (LONGEST + SAVED)
        self._time = time
        #: what queues have used up of their savings, in steps, and when that was so
        #: negative is what they have saved beyond what others may have
        self._used: dict[str, tuple[float, float]] = dict(left.get("used", {}))
        #: steps that jobs need whose turns were cut, by key
        self._needs: dict[str, int] = dict(left.get("needs", {}))
        #: whether a queue has used up savings, or a job needs a longer turn
        self.any = bool(self._used or self._needs)

    def most(self, job: Job) -> float:
        """The steps that the turn of a job may take; 0 while it has to wait for its queue's savings."""
        need = self._needs.get(job.key, 0)
        most = self.first - self._used_up(job.queue.name, need)
        return most if most >= need else 0

    def _used_up(self, queue: str, need: int = 0) -> float:
        """What a queue has used up of its savings by now, in steps, when it saves for a turn that needs so many."""
        used, at = self._used.get(queue, (0.0, 0.0))
        saved = (self._time() - at) * self._limit * A_SECOND if queue in self._used else 0.0
        return max(float(min(0, self.first - need)), used - saved)

    def took(self, job: Job, steps: int) -> None:
        """The turn of a job took so many steps, more than any may."""
        beyond = max(0, steps - self.free)
        used = self._used_up(job.queue.name, self._needs.get(job.key, 0))
        self._used[job.queue.name] = used + beyond, self._time()
        self.any = True

    def cut(self, job: Job, steps: int, done: float = 0.0) -> None:
        """The turn of a job was cut after so many steps, and it needs a longer one.

        `done` is the part of its pods that had places by then, 0 where that says nothing of what is left.
        """
        need = steps * min(_MARGIN / done, _MOST) if done > 0 else 2 * steps
        self._needs[job.key] = int(min(need, self._limit * _MOST))
        self.any = True

    def whole(self, job: Job) -> None:
        """A job needs no longer turn."""
        self._needs.pop(job.key, None)

    def left(self, known: Callable[[str], bool]) -> dict[str, Any]:
        """What the next session has to know; `known` says which jobs are still there. Empty where there is nothing."""
        if not self.any:
            return {}
        used = {name: each for name, each in sorted(self._used.items()) if self._needs or self._used_up(name) > 0}
        needs = {key: need for key, need in sorted(self._needs.items()) if known(key)}
        return {name: each for name, each in (("used", used), ("needs", needs)) if each}
