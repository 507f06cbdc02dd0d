"""What a search has tried so far: units that were evicted, each on a statement, and places that were promised."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from stromboli.api.resources import Vector, fits
from stromboli.eviction.context import PreemptionContext
from stromboli.eviction.ordering import Cost, unit_cost
from stromboli.eviction.units import Unit, may_go_in_part
from stromboli.framework.cluster.job import Job
from stromboli.framework.plugin.operation import Operation
from stromboli.framework.session.session import Session
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
        self._request: Vector = session.view.request(pod)
        self._varies = session.kernel.varies(pod)
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
        if not fits(self._request, nodes.future_idle(node), nodes.always):
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

    def within_share(self) -> bool:
        """Whether the queue may take all the pods that found places; asked while none of them is promised its place."""
        session, left, trial = self._session, self.placed, self._session.statement()
        allowed = 1
        while left and allowed > 0:
            allowed, _ = session.ask.allocatable(self._job.queue, left[0][0], len(left))
            # A plugin that limits what pods bring along, as devices, may grant fewer at a time than in the end.
            for pod, node in left[:allowed] if allowed < len(left) else ():
                trial.pipeline(session.view.sub_job_of(self._job, pod), pod, node)
            left = left[allowed:]
        trial.discard()
        return not left

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


def settle(session: Session, trials: Sequence[Trial]) -> tuple[Statement, Cost]:
    """The evictions and promises of trials on one statement, all evictions first, and what the evictions cost.

    What all pods together can do without is given back before.
    """
    _reprieve(session, trials)
    evicted = [each for trial in trials for each in trial.evicted]
    statement = session.statement()
    statement.merge(*(unit for _, unit in evicted))
    for trial in trials:
        trial.hand_over(statement, after_eviction=bool(evicted))
    return statement, Cost.of(unit for unit, _ in evicted)


def _reprieve(session: Session, trials: Sequence[Trial]) -> None:
    """Give back, the most expensive first, what the pods of all trials can do without where they are.

    What was evicted for the first of them may be needless once more was evicted for the others.
    """
    evicting = [trial for trial in trials if trial.evicted]
    if len(evicting) < 2 and not any(unit.whole for trial in evicting for unit, _ in trial.evicted):
        return
    _join_gangs(trials)
    entries = [(trial, at) for trial in trials for at in range(len(trial.evicted))]
    for trial, at in sorted(entries, key=lambda each: unit_cost(each[0].evicted[each[1]][0]), reverse=True):
        unit, statement = trial.evicted[at]
        operations = statement.save()
        back = _with_room(session, unit, operations)
        if back:
            for each in reversed(trials):
                each.withdraw()
            statement.discard()
            statement.recover([each for each in operations if each not in back])
            if _promise_again(trials):
                trial.evicted[at] = unit.without([each.pods[0] for each in back]), statement
            else:
                statement.discard()
                statement.recover(operations)
                for each in trials:
                    each.promise(each.placed)
    for trial in trials:
        trial.evicted = [each for each in trial.evicted if each[1]]


def _join_gangs(trials: Sequence[Trial]) -> None:
    """Have a gang that is broken for one of the trials go back as a whole, with what it gave for the others."""
    statements = [statement for trial in trials for _, statement in trial.evicted]
    for trial in trials:
        for unit, statement in trial.evicted:
            if unit.whole:
                join(statement, unit.job, statements)
    for trial in trials:
        trial.evicted = [each for each in trial.evicted if each[1]]


def _with_room(session: Session, unit: Unit, operations: Sequence[Operation]) -> list[Operation]:
    """The evictions that free what is promised to nobody: all of a unit, or as many of a gang as it needs to run."""
    nodes, free, found = session.view.nodes, dict[int, Vector](), list[Operation]()
    for each in operations:
        node = each.nodes[0]
        if node not in free:
            free[node] = nodes.future_idle(node)
        if fits(each.request, free[node], nodes.always):
            free[node] = free[node] - each.request
            found.append(each)
    if len(found) < len(operations):
        runs = unit.job.ready_count + len(found) >= unit.job.min_available
        if not (unit.whole and runs and may_go_in_part(unit.job)):
            return []
    return found


def _promise_again(trials: Sequence[Trial]) -> bool:
    """Promise all pods their places again; False, and none is promised, if one does not fit."""
    for at, trial in enumerate(trials):
        if not trial.promise(trial.placed):
            for other in reversed(trials[:at]):
                other.withdraw()
            return False
    return True


def undo(evicted: Sequence[Evicted]) -> None:
    """Undo evictions, the last first."""
    take_back(statement for _, statement in reversed(evicted))


def give_back(units: Iterable[Statement], still_fits: Callable[[], bool]) -> list[tuple[Statement, list[Operation]]]:
    """Undo, in the order given, each unit without which the preemptor still fits.

    Returns the units that were undone, which are empty now, with what to recover to have them evicted after all.
    """
    given = []
    for unit in units:
        operations = unit.save()
        unit.discard()
        if still_fits():
            given.append((unit, operations))
        else:
            unit.recover(operations)
    return given


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
