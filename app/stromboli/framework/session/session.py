"""One scheduling session: a snapshot, the plugins of a policy, and what the actions decide.

Actions read the `view`, ask the plugins through `ask`, find nodes with the `kernel` and try operations on statements.
What was decided is in `decisions`. A session reads no clock: `now` is passed in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from stromboli.api.pod_state import PodState
from stromboli.api.resources import CPU, MEMORY, Mask, Rows, fits
from stromboli.framework import reasons
from stromboli.framework.cluster.environment import OFFLINE, Environment
from stromboli.framework.cluster.job import Job, Queue
from stromboli.framework.cluster.nodes import NodeLedger
from stromboli.framework.cluster.reservation import PLACE_RESERVED
from stromboli.framework.cluster.view import View, claimless
from stromboli.framework.node_selection.kernel import Kernel
from stromboli.framework.plugin.base import Plugin
from stromboli.framework.plugin.operation import Kind, Operation
from stromboli.framework.plugin.report import Report
from stromboli.framework.runtime.failures import JobHeldError, PluginFailure, PluginLeftError, TurnCutError
from stromboli.framework.runtime.participants import Tiers
from stromboli.framework.runtime.points import Points
from stromboli.framework.runtime.questions import Questions
from stromboli.framework.session import remarks
from stromboli.framework.session.admissions import Admissions
from stromboli.framework.session.breaker import ChurnBreaker
from stromboli.framework.session.budget import Budget
from stromboli.framework.session.keeper import Keeper
from stromboli.framework.session.ledger import Ledger
from stromboli.framework.session.limits_first import correct_for_limits
from stromboli.framework.session.never_fits import anything_waits, judge
from stromboli.framework.session.outcome import Outcome
from stromboli.framework.session.statement import Statement, eviction
from stromboli.framework.session.turns import TURN
from stromboli.policy.model import Policy
from stromboli.policy.rules import Rules
from stromboli.state.pods import PodRecord
from stromboli.state.snapshot import Snapshot

T = TypeVar("T")


@dataclass(slots=True)
class Timings:
    """Seconds spent, for metrics; decisions never depend on it."""

    actions: dict[str, float] = field(default_factory=dict)
    plugins: dict[tuple[str, str], float] = field(default_factory=dict)


class Session:
    """One run of a policy's actions over a snapshot."""

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        tiers: Tiers,
        rules: Rules,
        *,
        now: float,
        environment: Environment = OFFLINE,
        plain: bool = False,
    ) -> None:
        """`tiers` are the plugins, made for this session; it may change the columns of the snapshot.

        `plain` has the kernel keep nothing, see `kernel`.
        """
        self.policy = policy
        self.rules = rules
        if not rules.missing_claims:
            _take_from_jobs(snapshot)
        nodes = NodeLedger(snapshot.nodes, () if rules.requested_resources else (CPU, MEMORY))
        self.view = View(snapshot, nodes.nodes, policy, rules, environment, now)
        self.plugins: list[Plugin] = [plugin for tier in tiers for plugin, _ in tier]
        self.points = Points(tiers)
        self.ask = Questions(self.points, rules, snapshot.refused)
        self.view.task_key = self.ask.task_key
        self.kernel = Kernel(self.view.nodes, self.points, self.view.request, plain=plain)
        self.ledger = Ledger(snapshot.pods, nodes, self.points, self._leave_out)
        self.keeper = Keeper(self.view, nodes)
        #: which jobs have a claim to what they start with; None if no job is admitted, or all admitted ones have
        self.admissions = _admissions(self.view)
        self.report = Report()
        self.timings = Timings()
        self.failures: list[PluginFailure] = self.points.failures.found
        #: state that actions leave for the next session, by name
        self.actions_left: dict[str, Any] = {}
        #: rows of the pods that terminate since before the session
        self._leaving: Rows = np.flatnonzero(snapshot.pods.state == PodState.Releasing)
        #: which jobs must not be evicted again
        self.churn = ChurnBreaker(self.view)
        self.outcome = Outcome(self.view, self.ask, self.ledger, self.churn)
        self.decisions, self.bound, self.evicted = self.outcome.decisions, self.outcome.bound, self.outcome.evicted
        self.budget = Budget(self.view, self.ask, self.kernel, self.attempt)
        #: keys of jobs that wait because one before them in their queue does
        self.behind: set[str] = set()
        #: statements of the current turn
        self._open: list[Statement] = []
        #: promises of the current action to pods that can be placed at once
        self._deferred: list[Statement] = []
        #: keys of jobs for which a plugin failed: their pods are neither placed nor evicted
        self.aside: set[str] = set()

    # -- running -----------------------------------------------------------------------------------------------------

    def run(self, actions: Mapping[str, Callable[[Session], None]], clock: Callable[[], float]) -> None:
        """Open the plugins, run the policy's actions in order, close the plugins."""
        if self.rules.never_fits and anything_waits(self.view):
            self._set_aside_what_never_fits()
        self._each_plugin("open", self.view, clock)
        self.points.forget()
        if self.view.never_fits:
            correct_for_limits(self.view, self.ask, self.kernel, self.attempt, self.statement)
        for name in (*((PLACE_RESERVED,) if self.keeper.reservations else ()), *self.policy.actions):
            started = clock()
            self._run_action(name, actions[name])
            self.timings.actions[name] = self.timings.actions.get(name, 0.0) + clock() - started
        for operation in self.outcome.moved.values():
            self.ledger.settle(operation)
        if self.admissions is not None:
            self.admissions.after_actions()
        remarks.add_refusals(self.view)
        remarks.add_failures(self.view, self.failures)
        self.points.closed = True
        self._each_plugin("close", self.report, clock)

    def _set_aside_what_never_fits(self) -> None:
        """Take pods and jobs that could not run even on the empty cluster out of the competition."""
        view, found = self.view, None
        while found is None:
            try:
                own = self.ask.job_ceilings(view)
                found = judge(view, partial(self.ask.ceiling, view), own, gangs=bool(self.points.all["job_missing"]))
            except PluginLeftError:
                continue
            except BaseException as error:
                self._leave_out(error, "ceiling")
        view.never_fits, view.too_large, view.job_requested = found.reasons, frozenset(found.pods), found.requested
        view.trace.pods.update(found.pods)
        view.trace.jobs.update(found.reasons)
        view.jobs.set_aside(found.jobs)

    def _each_plugin(self, what: str, subject: object, clock: Callable[[], float]) -> None:
        for plugin in self.points.plugins:
            started = clock()
            try:
                getattr(plugin, what)(subject)
            except BaseException as error:
                if what == "open":
                    self._leave_out(error, what, plugin)
                else:
                    self.points.failures.add(plugin.name, what, what, error)
            self.timings.plugins[plugin.name, what] = clock() - started

    def _run_action(self, name: str, action: Callable[[Session], None]) -> None:
        """Run an action, again without a plugin that broke it; what it had committed stands.

        Keys of an order that lost a plugin midway cannot be compared with those from before.
        """
        while True:
            self._open.clear()
            try:
                action(self)
                if self._deferred or self.ledger.left:
                    self._give_back_deferred()
                return
            except PluginLeftError:
                self._take_back()
            except JobHeldError as held:
                self._take_back()
                self._set_aside(held)
            except BaseException as error:
                self._take_back()
                self._leave_out(error, name)

    def attempt(self, job: Job, turn: Callable[[], T], otherwise: T, most: float | None = None) -> T:
        """Run a job's turn. If a plugin fails in it, what was tried is undone and the job is set aside.

        Attempts of a turn that takes too many steps are undone, too. Raises TurnCutError beyond `most` steps.
        """
        if job.key in self.aside:
            return otherwise
        if self.kernel.watch is not None:
            self.kernel.watch(TURN)
        self._open.clear()
        if self.keeper.nominations and self.keeper.bars(job):
            turn = partial(self._with_nominations, job, turn)
        self.kernel.most = self.kernel.steps + (self.budget.longest if most is None else most)
        before = job.ready_count + job.waiting_count
        try:
            return turn()
        except PluginLeftError:
            raise
        except TurnCutError as cut:
            cut.placed = job.ready_count + job.waiting_count - before
            self._take_back_turn()
            if most is not None:
                raise
            return otherwise
        except JobHeldError as held:
            if held.job != job.key:
                # Its pods are no victims from here on.
                self._set_aside(held)
                raise PluginLeftError from held
            self._take_back_turn()
            self._set_aside(held)
            return otherwise
        except BaseException as error:
            plugin = self.points.culprit(error)
            if plugin is None:
                raise
            self._take_back_turn()
            self.points.failures.add(plugin.name, "", job.key, error)
            self._set_aside(JobHeldError(job.key, plugin.name, error))
            return otherwise
        finally:
            self.kernel.most = math.inf

    def _set_aside(self, held: JobHeldError) -> None:
        """Set a job aside until the next session, because a plugin failed when it was asked about it."""
        self.aside.add(held.job)
        self.view.trace.job(held.job, reasons.plugin_failed(held.plugin, held.error))

    def _with_nominations(self, job: Job, turn: Callable[[], T]) -> T:
        """The turn of a job that may have nodes which kube-scheduler nominated."""
        self.keeper.lift(job)
        try:
            return turn()
        finally:
            self.keeper.restore()

    def _leave_out(self, error: BaseException, where: str, plugin: Plugin | None = None) -> None:
        """Disable the plugin that raised an error for the rest of the session; re-raise errors that are no plugin's."""
        plugin = plugin or self.points.culprit(error)
        if plugin is None or plugin not in self.points or isinstance(error, KeyboardInterrupt):
            raise error
        self.points.failures.add(plugin.name, where, where, error)
        self.points.disable(plugin)
        self.kernel.forget()

    def _take_back(self) -> None:
        self._take_back_turn()
        for statement in reversed(self._deferred):
            statement.take_back()
        self._deferred.clear()

    def _take_back_turn(self) -> None:
        """Undo the operations of the current turn."""
        for statement in reversed(self._open):
            statement.take_back()
        self._open.clear()

    def _give_back_deferred(self) -> None:
        """Take back the promises to pods that can be placed at once: from here on they wait for an action to do so."""
        while self._deferred:
            self._deferred.pop().take_back()
        self.ledger.raise_if_left()

    # -- deciding ----------------------------------------------------------------------------------------------------

    def hold_back(self, queue: Queue, keys: Collection[str]) -> None:
        """Hold jobs back, by key, because one before them in their queue waits."""
        self.behind.update(keys)
        self.view.trace.all_jobs(keys, reasons.behind(queue))

    @property
    def undecided(self) -> list[Statement]:
        """The statements of the current turn that hold something and were not committed."""
        return [statement for statement in self._open if statement]

    def statement(self) -> Statement:
        """A new statement."""
        statement = Statement(self.view, self.ledger, self.outcome.commit)
        self._open.append(statement)
        return statement

    def promise(self, job: Job, parts: Sequence[Statement]) -> None:
        """Decide evictions and the places that a job's pods are promised; each part consists of pods placed together.

        If pods fit without any eviction and without what terminating pods still hold, nothing is decided: they keep
        their places until the action is over, so that no pod is evicted for these, and stay Pending for an action that
        binds. The parts of a gang that is not ready are decided together or not at all.
        """
        if self.rules.evict_only_what_helps:
            if job.divided or self.ask.job_missing(job) > 0:
                parts[0].merge(*parts[1:])
            for part in parts:
                if self._fit_now(part.operations):
                    self._deferred.append(part)
                else:
                    part.commit()
            return
        for part in parts:
            part.commit()

    def _fit_now(self, operations: Sequence[Operation]) -> bool:
        """Whether operations only promise places that are free, those of other promises not counted."""
        nodes = self.view.nodes
        return all(
            operation.kind is Kind.Pipeline
            and fits(
                operation.request, nodes.idle[:, node] - nodes.pipelined[:, node] + operation.request, nodes.always
            )
            for operation in operations
            for node in operation.nodes
        )

    def admit(self, job: Job) -> None:
        """Let a job compete from now on."""
        job.phase = "Inqueue"
        job.claims = True
        self.ledger.tell("job_enqueued", job)
        self.ledger.raise_if_left()

    def is_vacated(self, pod: PodRecord, node: int) -> bool:
        """Whether victims of this session still hold what a pod may need on a node besides amounts, such as a port."""
        return node in self.outcome.vacated and self.rules.served_next and self.kernel.varies(pod)

    def passing_later(self, pod: PodRecord) -> Mask:
        """The nodes that pass a pod when those that terminate have gone, amounts not considered, shape (nodes,).

        What these leave, such as devices, promised pods have then.
        """
        view, varies = self.view, self.kernel.varies
        if not len(self._leaving) or not varies(pod):
            return self.kernel.feasible(pod)
        leaving = [eviction(view, each, "") for each in view.records(self._leaving) if view.pods.node[each.row] >= 0]
        promised = view.records(np.flatnonzero(view.pods.state == PodState.Pipelined))
        moving = [replace(eviction(view, each, ""), kind=Kind.Pipeline) for each in promised if varies(each)]
        steps = [(each, False) for each in (*moving, *leaving)] + [(each, True) for each in moving]
        self._pretend(steps)
        try:
            return self.kernel.feasible(pod)
        finally:
            self._pretend([(each, not there) for each, there in reversed(steps)])

    def _pretend(self, steps: Iterable[tuple[Operation, bool]]) -> None:
        """Tell plugins that filter that pods have their nodes, or that they do not."""
        placed, gone = self.points.of_filters("on_allocate"), self.points.of_filters("on_deallocate")
        for operation, there in steps:
            for tell in placed if there else gone:
                tell(operation)

    # -- nominations -------------------------------------------------------------------------------------------------

    def nominated(self, pod: PodRecord, within: Mask | None = None) -> tuple[int, bool] | None:
        """The node that was nominated for a pod, when the pod may go there now (True) or later (False)."""
        node = self.view.nodes.facts.index.get(pod.nominated_node)
        if node is None or (within is not None and not within[node]):
            return None
        return self.kernel.best_on(pod, node)

    # -- the end -----------------------------------------------------------------------------------------------------

    def dismantle(self) -> None:
        """Break the session's reference cycles, so that it is freed without a garbage collection.

        It cannot be used afterwards; only its decisions and the environment that it left remain.
        """
        view, points = self.view, self.points
        for job in view.jobs.made:
            job.forget_groups()
        for each in (*self.plugins, points, self.kernel, view.jobs, view, self):
            vars(each).clear()


def _take_from_jobs(snapshot: Snapshot) -> None:
    """Take pods whose claims are missing out of their jobs, where Volcano's cache does not have them either."""
    pods, rows = snapshot.pods, claimless(snapshot)
    pods.job = pods.job.copy()
    pods.job[rows] = np.minimum(pods.job[rows], -1)


def _admissions(view: View) -> Admissions | None:
    """Jobs with a claim to their minimum; None if no job is admitted, or all admitted ones have a claim."""
    if not view.rules.admission or "enqueue" not in view.policy.actions:
        return None
    return Admissions(view, view.environment.admitted)
