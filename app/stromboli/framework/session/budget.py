"""The turns that jobs get in the actions of a session, within its budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from stromboli.api.pod_state import PodState
from stromboli.api.resources import Mask
from stromboli.framework import reasons
from stromboli.framework.cluster.job import Job
from stromboli.framework.cluster.topology import has_topology
from stromboli.framework.cluster.view import View
from stromboli.framework.node_selection.kernel import Kernel
from stromboli.framework.runtime.failures import TurnCutError
from stromboli.framework.runtime.questions import Questions
from stromboli.framework.session.long_turns import LONGEST
from stromboli.framework.session.turns import TOLD, TURN, Beyond, Turns, line_up

T = TypeVar("T")
_PENDING = int(PodState.Pending)
#: no job is beyond what a session reaches
_ALL = Beyond()
#: the questions to plugins that a pod needs at most, usually
_QUESTIONS = 4


class Attempt(Protocol):
    """Gives a job its turn, or does something else if a plugin fails in it.

    Raises TurnCutError, with everything undone, if it takes more steps than `most`.
    """

    def __call__(self, job: Job, turn: Callable[[], T], otherwise: T, most: float | None = None) -> T: ...


class Budget:
    """The budget of an action in steps, and the turns left over for the next session."""

    def __init__(self, view: View, ask: Questions, kernel: Kernel, attempt: Attempt) -> None:
        self._view = view
        self._ask = ask
        self._kernel = kernel
        self._attempt = attempt
        self._steps = view.policy.session.steps
        #: the steps that a turn may take by default
        self.longest = LONGEST * self._steps if view.bounded else math.inf
        #: jobs that the budget of an action cannot reach, by its name
        self._beyond: dict[str, Beyond] = {}
        #: whether jobs had to wait for the turns of others in any action, even if all had theirs in the end
        self.divided = False
        #: parts that ended before they reached all jobs: actions and status updates
        self.unfinished: set[str] = set()
        #: keys of jobs that some action did not reach
        self.without_turn: set[str] = set()
        #: keys of jobs that wait for a longer turn
        self.too_long: set[str] = set()
        #: state of turns for the next session, by `turns of ACTION`
        self.left: dict[str, Any] = {}

    def line_up(self, action: str, waiting: Mask) -> list[Job]:
        """The jobs that may get turns in an action: of the waiting ones, no more than the budget can reach."""
        # As a rule some turns place pods.
        jobs, most = self._view.jobs, self._steps // (TURN + TOLD // 2) + 1
        self._beyond.pop(action, None)
        if not self._view.bounded or np.count_nonzero(waiting) <= most:
            return jobs.of(waiting)
        queues = {queue.name: self._view.in_strict_order(queue) for queue in self._view.queues.values()}
        order = self._ask.in_job_order(jobs, np.flatnonzero(waiting))
        chosen, self._beyond[action] = line_up(jobs, order, most, self._left_of(action), queues)
        return [jobs.at(index) for index in np.sort(chosen).tolist()]

    def turns(self, action: str, jobs: Mapping[str, Sequence[Job]], more: int = 0, *, places: bool = True) -> Turns:
        """The turns of an action for the waiting jobs, by queue; each takes `more` steps besides placing its pods.

        Without `places` the action looks for no places.
        """
        if not self._view.bounded:
            return Turns(None, {}, jobs, _ALL, divided=False)
        beyond, a_pod = self._beyond.get(action, _ALL), places * _QUESTIONS * self._kernel.steps_of_question
        work = sum(TURN + more + a_pod * job.counts[_PENDING] for of_queue in jobs.values() for job in of_queue)
        divided = bool(beyond.keys) or work > self._steps
        self.divided |= divided
        return Turns(self._steps, self._left_of(action), jobs, beyond, divided=divided, time=self._view.time)

    def _left_of(self, action: str) -> Mapping[str, Any]:
        """The state that the turns of an action left in the previous session."""
        left: Mapping[str, Any] = self._view.environment.left.get(f"turns of {action}", {})
        return left

    def take(self, turns: Turns, job: Job, turn: Callable[[], T], otherwise: T, more: int = 0) -> T:
        """Give a job its turn and charge its steps, plus `more` steps that the kernel does not count."""
        if turns.limit is None:
            return self._attempt(job, turn, otherwise)
        long = turns.long
        most = long.most(job) if long.any else long.first
        if not most:
            turns.drop((job,))
            self._wait_for_a_longer_turn(job)
            return otherwise
        before, counts, phase = self._kernel.steps, job.counts[:], job.phase
        try:
            found = self._attempt(job, turn, otherwise, most)
            if long.any:
                long.whole(job)
            return found
        except TurnCutError as cut:
            if job.counts == counts:
                # Without progress it would be cut at the same place again.
                missing = 0 if has_topology(job) else self._ask.job_missing(job)
                long.cut(job, self._kernel.steps - before, cut.placed / missing if missing > 0 else 0.0)
                self._wait_for_a_longer_turn(job)
            return otherwise
        finally:
            told = TOLD if (job.counts, job.phase) == (counts, phase) else 0
            turns.had(job, self._kernel.steps - before + more + told)

    def _wait_for_a_longer_turn(self, job: Job) -> None:
        self.too_long.add(job.key)
        self._view.trace.job(job.key, reasons.TURN_TOO_LONG)

    def serve(self, turns: Turns, job: Job, turn: Callable[[], object], more: int = 0) -> None:
        """The turn of a job in an action that has one round: without effect if the job is put off."""
        if turns.scarce and (
            turns.puts_off_queue(job.queue) or (not self._view.in_strict_order(job.queue) and turns.puts_off(job))
        ):
            return
        self.take(turns, job, turn, None, more)

    def end(self, action: str, turns: Turns) -> list[tuple[str, bool]]:
        """Remember which jobs the budget did not reach; their keys, and whether they had a turn in earlier sessions."""
        name = f"turns of {action}"
        known = name in self._view.environment.left
        if turns.done and not (known or turns.scarce or turns.long.any):
            return []
        left = turns.left(queue.name for queue in self._view.queues.values() if self._view.in_strict_order(queue))
        if left or known:
            self.left[name] = left
        if turns.waiting:
            self.unfinished.add(action)
        without = turns.without()
        self.without_turn.update(key for key, _ in without)
        return without

    def put_off(self, action: str, turns: Turns) -> None:
        """End the turns of an action, and record for the jobs without one that it is still to come."""
        for key, had_one in self.end(action, turns):
            self._view.trace.not_reached.add(key)
            self._view.trace.job(key, reasons.TURN_PENDING_AGAIN if had_one else reasons.TURN_PENDING)
