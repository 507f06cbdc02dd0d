"""What a search has tried so far: units that were evicted, each on a statement, and places that were promised."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from stromboli.api.resources import Rows, Vector, fits
from stromboli.eviction.context import PreemptionContext
from stromboli.eviction.units import Unit
from stromboli.framework.cluster.job import Job
from stromboli.framework.session.statement import Statement
from stromboli.state.pods import PodRecord

#: a unit, and the statement on which it is evicted
Evicted = tuple[Unit, Statement]


class Trial:
    """Evictions and promises for identical pods of a job; each unit is evicted on a statement of its own."""

    def __init__(self, context: PreemptionContext, job: Job, pod: PodRecord) -> None:
        """`pod` is any of the pods."""
        self._context = context
        self._session = session = context.session
        self._job = job
        #: what one of the pods requests, shape (dimensions,)
        self.request: Vector = session.view.request(pod)
        self._varies = session.kernel.varies(pod)
        #: nodes that the pods may have besides, if there is room; none where more than amounts counts
        self.alternatives: Rows = np.zeros(0, np.intp)
        self.evicted: list[Evicted] = []
        self.placed: list[tuple[PodRecord, int]] = []
        self._promises = session.statement()

    # -- one place after the other -------------------------------------------------------------------------------------

    def evict(self, unit: Unit) -> Evicted:
        """Evict a unit, of which some pods may have been evicted before."""
        statement = self._session.statement()
        for pod in unit.pods:
            if self._session.view.pods.state[pod.row] in self._context.pod_index.states:
                statement.evict(pod, self._context.action, self._job.key)
        return unit, statement

    def fits(self, pod: PodRecord, node: int) -> bool:
        """Whether a pod has its place, as things stand on the statements."""
        session = self._session
        nodes = session.view.nodes
        if not fits(self.request, nodes.future_idle(node), nodes.always):
            return False
        if not self.has_share(pod) or session.ask.refusal(pod, node) is not None:
            return False
        return not self._varies or bool(session.kernel.feasible(pod)[node])

    def has_share(self, pod: PodRecord) -> bool:
        """Whether the queue may take one more pod, as things stand on the statements."""
        return self._session.ask.allocatable(self._job.queue, pod)[0] > 0

    def keep(self, evicted: Sequence[Evicted], pod: PodRecord, node: int) -> None:
        """Keep evictions, and promise a pod the place."""
        self.evicted += evicted
        for unit, statement in evicted:
            if unit.whole:
                join(statement, unit.job, [other for _, other in self.evicted])
        self.evicted = [each for each in self.evicted if each[1]]
        self._promise_place(pod, node, after_eviction=bool(self.evicted))
        self.placed.append((pod, node))

    def _promise_place(self, pod: PodRecord, node: int, *, after_eviction: bool) -> None:
        sub_job = self._session.view.sub_job_of(self._job, pod)
        self._promises.pipeline(sub_job, pod, node, after_eviction=after_eviction)

    # -- all places ----------------------------------------------------------------------------------------------------

    def within_share(self, granted: Statement, *, last: bool = False) -> bool:
        """Whether the queue may take all the pods; on a statement, they have what they were granted before.

        `last` says that nobody is asked about more pods afterwards, so that not all of it has to be there.
        """
        left = self.placed
        while left:
            allowed, _ = self._session.ask.allocatable(self._job.queue, left[0][0], len(left))
            if allowed <= 0:
                return False
            # A plugin that limits what pods bring along, as devices, may grant fewer at a time than in the end.
            for pod, node in left[:allowed] if allowed < len(left) or not last else ():
                granted.pipeline(self._session.view.sub_job_of(self._job, pod), pod, node)
            left = left[allowed:]
        return True

    def promise(self, places: list[tuple[PodRecord, int]]) -> bool:
        """Promise pods places instead; False, and none is promised, if one does not fit."""
        self.placed, self._promises = places, self._session.statement()
        for pod, node in places:
            if not self.fits(pod, node):
                self._promises.discard()
                return False
            self._promise_place(pod, node, after_eviction=bool(self.evicted))
        return True

    def withdraw(self) -> None:
        """Take the promises back; the evictions stand."""
        self._promises.discard()

    # -- the end -------------------------------------------------------------------------------------------------------

    def hand_over(self, statement: Statement, *, after_eviction: bool) -> None:
        """Move the promises to a statement."""
        if any(promise.after_eviction != after_eviction for promise in self._promises.operations):
            self._promises.discard()
            for pod, node in self.placed:
                self._promise_place(pod, node, after_eviction=after_eviction)
        statement.merge(self._promises)

    def take_back(self) -> None:
        """Leave everything as it was."""
        self._promises.discard()
        undo(self.evicted)


def undo(evicted: Sequence[Evicted]) -> None:
    """Undo evictions, the last first."""
    take_back(statement for _, statement in reversed(evicted))


def give_back(units: Iterable[Statement], still_fits: Callable[[], bool]) -> None:
    """Undo, in the order given, each unit without which the preemptor still fits; such units are empty then."""
    for unit in units:
        operations = unit.save()
        unit.discard()
        if not still_fits():
            unit.recover(operations)


def join(unit: Statement, gang: Job, units: Iterable[Statement]) -> None:
    """Move what a gang gave before into the unit in which the rest of it is evicted: it is given back whole or not."""
    unit.merge(*[other for other in units if other is not unit and other and other.operations[0].job is gang])


def take_back(units: Iterable[Statement]) -> None:
    """Undo everything that was tried."""
    for unit in units:
        unit.discard()


def take_back_all(trials: Sequence[Trial]) -> None:
    """Undo all trials, the last first."""
    for trial in reversed(trials):
        trial.take_back()
