"""A plan: units that are evicted for pods of a job, each on a statement, and the places that these are promised."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from stromboli.api.resources import Rows, fits
from stromboli.eviction.context import PreemptionContext
from stromboli.eviction.ordering import Cost
from stromboli.eviction.units import Unit
from stromboli.framework.cluster.job import NO_ROWS, Job
from stromboli.framework.plugin.operation import Operation
from stromboli.framework.session.session import Session
from stromboli.framework.session.statement import Statement
from stromboli.state.pods import PodRecord

#: a unit, and the statement on which it is evicted
Evicted = tuple[Unit, Statement]


class Place(NamedTuple):
    """A place that a pod is promised."""

    pod: PodRecord
    node: int
    #: nodes that it may have instead, if there is room; none where more than amounts counts
    instead: Rows = NO_ROWS


class Plan:
    """Evictions and promises for pods of a job, in effect until they are set aside."""

    def __init__(self, context: PreemptionContext, job: Job) -> None:
        self.context = context
        self.job = job
        self._session = context.session
        self.evicted: list[Evicted] = []
        self.placed: list[Place] = []
        #: the promises, in effect
        self.promises: Statement = self._session.statement()
        #: while it is set aside, the operations of each statement
        self._aside: list[list[Operation]] = []

    @property
    def cost(self) -> Cost:
        """The cost of the evictions."""
        return Cost.of(unit for unit, _ in self.evicted)

    def evict(self, unit: Unit) -> Evicted:
        """Evict a unit; some of its pods may have been evicted before."""
        return unit, self.context.evict(unit.pods, self.job)

    def fits(self, pod: PodRecord, node: int) -> bool:
        """Whether a pod has its place, as things stand on the statements."""
        return has_place(self._session, self.job, pod, node)

    def has_share(self, pod: PodRecord) -> bool:
        """Whether the queue may take one more pod, as things stand on the statements."""
        return self._session.ask.allocatable(self.job.queue, pod)[0] > 0

    def keep(self, evicted: Sequence[Evicted], *places: Place) -> None:
        """Keep evictions, and promise pods their places."""
        self.evicted += [each for each in evicted if each[1]]
        for place in places:
            self._promise_place(place)
        self.placed += places

    def _promise_place(self, place: Place) -> None:
        sub_job = self._session.view.sub_job_of(self.job, place.pod)
        self.promises.pipeline(sub_job, place.pod, place.node, after_eviction=bool(self.evicted))

    def absorb(self, other: Plan) -> None:
        """Merge another plan, for more pods of the job."""
        other.join_gangs()
        self.evicted += other.evicted
        self.placed += other.placed
        self.promises.merge(other.promises)

    def join_gangs(self) -> None:
        """Merge what a broken gang gave up alone into its unit, so that the gang is given back as a whole."""
        statements = [statement for _, statement in self.evicted]
        for unit, statement in self.evicted:
            if unit.whole:
                join(statement, unit.job, statements)
        self.evicted = [each for each in self.evicted if each[1]]

    def promise(self, places: Sequence[Place]) -> bool:
        """Promise pods places instead; False, and none is promised, if one does not fit."""
        for place in places:
            if not self.fits(place.pod, place.node):
                self.promises.discard()
                return False
            self._promise_place(place)
        self.placed = [*places]
        return True

    def promise_again(self, places: list[Place]) -> None:
        """Promise pods places that they had before."""
        self.promises.discard()
        self.placed = places
        for place in places:
            self._promise_place(place)

    def settle(self) -> None:
        """Drop units that were given back, count pods with those that are evicted with them, and promise all places."""
        self.evicted = [
            # What a gang gave up alone before the rest of it went is of its unit, too.
            (replace(unit, pods=[each.pods[0] for each in statement.operations]), statement)
            for unit, statement in self.evicted
            if statement
        ]
        evicts = bool(self.evicted)
        if any(promise.after_eviction != evicts for promise in self.promises.operations):
            self.promise_again(self.placed)

    def nominate(self, of_groups: Mapping[str, int]) -> None:
        """Keep the HyperNodes of groups, by uid. Without victims their pods have no nominated nodes either."""
        for uid, hyper_node in of_groups.items() if self.evicted else ():
            self.promises.nominate(self.job.sub_jobs[uid], hyper_node)

    def set_aside(self) -> None:
        """Take it out of effect, so that another plan can be tried."""
        statements = self._statements()
        self._aside = [statement.save() for statement in statements]
        take_back(reversed(statements))

    def resume(self) -> None:
        """Put it into effect, if it was set aside."""
        for statement, operations in zip(self._statements(), self._aside, strict=False):
            statement.recover(operations)
        self._aside = []

    def decide(self) -> None:
        """Decide for the evictions and then the promises."""
        statement = self._session.statement()
        statement.merge(*self._statements())
        self.context.promise(self.job, [statement])

    def take_back(self) -> None:
        """Undo all promises and evictions."""
        take_back(reversed(self._statements()))
        self.evicted, self.placed = [], []

    def _statements(self) -> list[Statement]:
        return [*(statement for _, statement in self.evicted), self.promises]


def has_place(session: Session, job: Job, pod: PodRecord, node: int) -> bool:
    """Whether a pod fits on a node once terminating pods are gone, its queue may hold it, and no plugin refuses."""
    nodes = session.view.nodes
    if not fits(session.view.request(pod), nodes.future_idle(node), nodes.always):
        return False
    if session.ask.allocatable(job.queue, pod)[0] <= 0 or session.ask.refusal(pod, node) is not None:
        return False
    if not session.kernel.varies(pod):
        return True
    return bool(session.kernel.feasible(pod)[node] or session.passing_later(pod)[node])


def undo(evicted: Sequence[Evicted]) -> None:
    """Undo evictions, the last first."""
    take_back(statement for _, statement in reversed(evicted))


def evict_until(enough: Callable[[], bool], evictions: Iterable[Statement]) -> list[Statement] | None:
    """Evict lazily until `enough` holds, and return these evictions; None, and all undone, if it never does."""
    made: list[Statement] = []
    for eviction in evictions:
        made.append(eviction)
        if enough():
            return made
    take_back(reversed(made))
    return None


def give_back(units: Iterable[Statement], still_fits: Callable[[], bool]) -> None:
    """Undo, in order, each unit without which the preemptor still fits; its statement is then empty."""
    for unit in units:
        operations = unit.save()
        unit.discard()
        if not still_fits():
            unit.recover(operations)


def join(unit: Statement, gang: Job, units: Iterable[Statement]) -> None:
    """Merge earlier evictions of a gang into the unit with the rest of it, so that all are given back together."""
    unit.merge(*[other for other in units if other is not unit and other and other.operations[0].job is gang])


def take_back(units: Iterable[Statement]) -> None:
    """Undo everything that was tried."""
    for unit in units:
        unit.discard()
