"""Long turns: a bound on the work of one turn, so that no gang blocks the sessions for all others.

A turn takes at most a few times the budget of a session, plus what its queue has saved. A queue saves so little per
second that its long turns take about a hundredth of the time, whatever is submitted to it. A turn that would take more
is aborted: its operations are undone, and the job has its next turn when its queue has saved enough for all its pods,
extrapolated from those that found places, or for a turn twice as long if that is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stromboli.framework.cluster.job import Job

#: length of any turn, in budgets of a session
LONGEST = 4
#: what a queue saves in a second, what it has saved in all unless a job needs more, and what a job may need at most,
#: in budgets of a session
A_SECOND, SAVED, _MOST = 0.2, 6, 400
#: the steps granted to a turn relative to the estimate from its first pods, since the last ones may take longer
_MARGIN = 1.1


class LongTurns:
    """Steps that queues have saved for long turns of one action, and the jobs that wait for that."""

    def __init__(self, limit: int, left: Mapping[str, Any], time: Callable[[], float]) -> None:
        """`limit` is the budget of a session, `left` the state of the same action from the session before."""
        self._limit = limit
        #: steps that any turn may take, and what the first turn of a queue may
        self.free, self.first = limit * LONGEST, limit * (LONGEST + SAVED)
        self._time = time
        #: savings that queues have used up, in steps, and the time of that
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
        """The savings that a queue has used up by now, in steps, while it saves for a turn that needs `need` steps."""
        used, at = self._used.get(queue, (0.0, 0.0))
        saved = (self._time() - at) * self._limit * A_SECOND if queue in self._used else 0.0
        return max(float(min(0, self.first - need)), used - saved)

    def took(self, job: Job, steps: int) -> None:
        """Record that a job's turn took `steps` steps, beyond what every turn may take."""
        beyond = max(0, steps - self.free)
        used = self._used_up(job.queue.name, self._needs.get(job.key, 0))
        self._used[job.queue.name] = used + beyond, self._time()
        self.any = True

    def cut(self, job: Job, steps: int, done: float = 0.0) -> None:
        """Record that a job's turn was cut after `steps` steps, so that it needs a longer one.

        `done` is the fraction of its pods that had places by then, 0 if that does not predict the rest.
        """
        need = steps * min(_MARGIN / done, _MOST) if done > 0 else 2 * steps
        self._needs[job.key] = int(min(need, self._limit * _MOST))
        self.any = True

    def whole(self, job: Job) -> None:
        """A job needs no longer turn."""
        self._needs.pop(job.key, None)

    def left(self, known: Callable[[str], bool]) -> dict[str, Any]:
        """The state for the next session, empty if there is none; `known` says which jobs still exist."""
        if not self.any:
            return {}
        used = {name: each for name, each in sorted(self._used.items()) if self._needs or self._used_up(name) > 0}
        needs = {key: need for key, need in sorted(self._needs.items()) if known(key)}
        return {name: each for name, each in (("used", used), ("needs", needs)) if each}
