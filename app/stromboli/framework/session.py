"""One scheduling session: a snapshot, the plugins of a policy, and what the actions decide.

Actions read the `view`, ask the plugins through `ask`, find nodes with the `kernel` and try operations on statements.
What was decided is in `decisions`. A session reads no clock: `now` is passed in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np

from stromboli.api.decisions import Bind, ClaimUse, Decision, Evict, VolumeUse
from stromboli.api.pod_state import PodState
from stromboli.api.resources import CPU, MEMORY, Mask, Rows, fits
from stromboli.framework import reasons
from stromboli.framework.admissions import Admissions
from stromboli.framework.breaker import ChurnBreaker
from stromboli.framework.environment import OFFLINE, Environment
from stromboli.framework.failures import JobHeldError, PluginFailure, PluginLeftError
from stromboli.framework.job import NOWHERE, Job, Queue
from stromboli.framework.keeper import Keeper
from stromboli.framework.kernel import Kernel
from stromboli.framework.ledger import Ledger
from stromboli.framework.never_fits import judge
from stromboli.framework.nodes import NodeLedger
from stromboli.framework.operation import Kind, Operation
from stromboli.framework.participants import Tiers
from stromboli.framework.plugin import Plugin
from stromboli.framework.points import Points
from stromboli.framework.questions import Questions
from stromboli.framework.report import Report
from stromboli.framework.reservation import PLACE_RESERVED, Reservation
from stromboli.framework.statement import Statement, eviction
from stromboli.framework.turns import TURN, Beyond, Turns, line_up
from stromboli.framework.view import View, claimless
from stromboli.policy.model import Policy
from stromboli.policy.rules import Rules
from stromboli.state.pods import PodRecord
from stromboli.state.snapshot import Snapshot

T = TypeVar("T")
_NO_ANNOTATIONS: Mapping[str, str] = {}
_PENDING = int(PodState.Pending)
#: no job is beyond what a session reaches
_ALL = Beyond()
#: questions to plugins that a pod takes at most, as a rule
_QUESTIONS = 4


@dataclass(slots=True)
class Timings:
    """Seconds spent, for metrics; decisions never depend on it."""

    actions: dict[str, float] = field(default_factory=dict)
    plugins: dict[tuple[str, str], float] = field(default_factory=dict)


class Session:
    """See the module's docstring."""

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
            # In Volcano's cache such pods are in no job.
            pods, rows = snapshot.pods, claimless(snapshot)
            pods.job = pods.job.copy()
            pods.job[rows] = np.minimum(pods.job[rows], -1)
        nodes = NodeLedger(snapshot.nodes, () if rules.requested_resources else (CPU, MEMORY))
        self.view = View(snapshot, nodes.nodes, policy, rules, environment, now)
        self.plugins: list[Plugin] = [plugin for tier in tiers for plugin, _ in tier]
        self.points = Points(tiers)
        self.ask = Questions(self.points, rules, snapshot.refused)
        self.view.task_key = self.ask.task_key
        self.kernel = Kernel(self.view.nodes, self.points, self.view.request, plain=plain)
        self.ledger = Ledger(snapshot.pods, nodes, self.points, self._leave_out)
        self.keeper = Keeper(self.view, nodes)
        #: whose phase is believed; None where all are, and where nobody is admitted
        self.admissions: Admissions | None = None
        if environment.admitted is not None and rules.admission and "enqueue" in policy.actions:
            self.admissions = Admissions(self.view.jobs, environment.admitted)
        self.report = Report()
        self.timings = Timings()
        self.failures: list[PluginFailure] = self.points.failures.found
        self.decisions: list[Decision] = []
        #: rows of the pods whose scheduling gate was lifted
        self.lifted: set[int] = set()
        #: pods bound and evicted, by key -> node
        self.bound: dict[str, str] = {}
        self.evicted: dict[str, str] = {}
        #: rows of the pods that terminate since before the session
        self._leaving: Rows = np.flatnonzero(snapshot.pods.state == PodState.Releasing)
        #: pods evicted, by key
        self.victims: dict[str, PodRecord] = {}
        #: node of each pod that waits for victims of this session to go, by row
        self.promised: dict[int, int] = {}
        #: the promise of another place to each pod that was moved, by row
        self.moved: dict[int, Operation] = {}
        #: what actions leave for the next session, by name
        self.actions_left: dict[str, Any] = {}
        #: who must not be evicted again
        self.churn = ChurnBreaker(self.view)
        #: keys of jobs that wait because one before them in their queue does
        self.behind: set[str] = set()
        #: jobs that the budget of an action cannot reach, by its name
        self._beyond: dict[str, Beyond] = {}
        #: actions whose budget ended before all jobs had their turns
        self.unfinished: set[str] = set()
        #: statements of the current turn
        self._open: list[Statement] = []
        #: promises of the current action to pods that can be placed at once
        self._deferred: list[Statement] = []
        #: keys of jobs for which a plugin failed: nobody places their pods, nor evicts them
        self.aside: set[str] = set()

    # -- running -----------------------------------------------------------------------------------------------------

    def run(self, actions: Mapping[str, Callable[[Session], None]], clock: Callable[[], float]) -> None:
        """Open the plugins, run the policy's actions in order, close the plugins."""
        if self.rules.never_fits:
            self._set_aside_what_never_fits()
        self._each_plugin("open", self.view, clock)
        self.points.forget()
        for name in ((PLACE_RESERVED,) if self.keeper.reservations else ()) + tuple(self.policy.actions):
            started = clock()
            self._run_action(name, actions[name])
            self.timings.actions[name] = self.timings.actions.get(name, 0.0) + clock() - started
        for operation in self.moved.values():
            self.ledger.settle(operation)
        self._tell_of_refusals()
        self._tell_of_failures()
        self.points.closed = True
        self._each_plugin("close", self.report, clock)

    def _set_aside_what_never_fits(self) -> None:
        """Take what could not run even on the empty cluster out of the competition."""
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

    def _tell_of_refusals(self) -> None:
        """Add to the reasons of jobs that wait whose eviction for them was refused."""
        refused: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        for each in self.view.snapshot.refused.values():
            refused[each.beneficiary].add((each.job, each.why))
        for key in filter(self.view.jobs.__contains__, refused):
            namespace = self.view.jobs[key].namespace
            told = partial(reasons.with_refusals, namespace=namespace, refused=sorted(refused[key]))
            trace = self.view.trace
            if key in trace.jobs:
                trace.jobs[key] = told(trace.jobs[key])
            for pod in self.view.pending(self.view.jobs[key]):
                if pod.row in trace.pods:
                    trace.pods[pod.row] = told(trace.pods[pod.row])

    def _tell_of_failures(self) -> None:
        """Add to the reasons of jobs that wait which plugins failed when they were asked about them."""
        trace = self.view.trace
        for failure in self.failures:
            job = self.view.jobs.get(failure.where)
            if job is None:
                continue
            failed = reasons.plugin_failed(failure.plugin, failure.error)
            if job.key in trace.jobs:
                trace.jobs[job.key] = reasons.with_failure(trace.jobs[job.key], failed)
            for pod in self.view.pending(job):
                if pod.row in trace.pods:
                    trace.pods[pod.row] = reasons.with_failure(trace.pods[pod.row], failed)

    def _each_plugin(self, what: str, subject: object, clock: Callable[[], float]) -> None:
        for plugin in [p for p in self.plugins if p in self.points]:
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

    def attempt(self, job: Job, turn: Callable[[], T], otherwise: T) -> T:
        """A job's turn. When a plugin fails in it, what was tried is taken back and the job is set aside."""
        if job.key in self.aside:
            return otherwise
        if self.kernel.watch is not None:
            self.kernel.watch(TURN)
        self._open.clear()
        if self.keeper.nominations and self.keeper.bars(job):
            turn = partial(self._with_nominations, job, turn)
        try:
            return turn()
        except PluginLeftError:
            raise
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

    # -- turns within the budget -------------------------------------------------------------------------------------

    def line_up(self, action: str, waiting: Mask) -> list[Job]:
        """The jobs that may have turns of an action: of those that wait no more than the budget reaches at most."""
        jobs, most = self.view.jobs, self.policy.session.steps // (TURN + self.kernel.steps_of_question) + 1
        self._beyond.pop(action, None)
        if not self.view.bounded or np.count_nonzero(waiting) <= most:
            return jobs.of(waiting)
        queues = {queue.name: self.in_strict_order(queue) for queue in self.view.queues.values()}
        order = self.ask.in_job_order(jobs, np.flatnonzero(waiting))
        chosen, self._beyond[action] = line_up(jobs, order, most, self._left_of(action), queues)
        return [jobs.at(index) for index in np.sort(chosen).tolist()]

    def turns(self, action: str, jobs: Mapping[str, Sequence[Job]], more: int = 0) -> Turns:
        """The turns of an action, in which jobs wait, by queue; each takes so many steps `more` than to be placed."""
        if not self.view.bounded:
            return Turns(None, {}, jobs, _ALL, divided=False)
        beyond, a_pod = self._beyond.get(action, _ALL), _QUESTIONS * self.kernel.steps_of_question
        work = sum(TURN + more + a_pod * job.counts[_PENDING] for of_queue in jobs.values() for job in of_queue)
        divided = bool(beyond.keys) or work > self.policy.session.steps
        return Turns(self.policy.session.steps, self._left_of(action), jobs, beyond, divided=divided)

    def _left_of(self, action: str) -> Mapping[str, Any]:
        """What the turns of an action left in the session before."""
        left: Mapping[str, Any] = self.view.environment.left.get(f"turns of {action}", {})
        return left

    def take_turn(self, turns: Turns, job: Job, turn: Callable[[], T], otherwise: T, more: int = 0) -> T:
        """A job's turn, see `attempt`, whose steps count; it takes so many `more` than the kernel knows of."""
        if turns.limit is None:
            return self.attempt(job, turn, otherwise)
        before = self.kernel.steps
        try:
            return self.attempt(job, turn, otherwise)
        finally:
            turns.had(job, self.kernel.steps - before + more)

    def serve(self, turns: Turns, job: Job, turn: Callable[[], object], more: int = 0) -> None:
        """The same when the action has one round: a job that is put off has no turn in it."""
        if turns.scarce and (
            turns.puts_off_queue(job.queue) or (not self.in_strict_order(job.queue) and turns.puts_off(job))
        ):
            return
        self.take_turn(turns, job, turn, None, more)

    def end_turns(self, action: str, turns: Turns) -> list[tuple[str, bool]]:
        """Remember which jobs the budget did not reach; their keys, and whether they had a turn in earlier sessions."""
        name = f"turns of {action}"
        if turns.done:
            if name in self.view.environment.left:
                self.actions_left[name] = {}
            return []
        left = turns.left(queue.name for queue in self.view.queues.values() if self.in_strict_order(queue))
        if left or name in self.view.environment.left:
            self.actions_left[name] = left
        if left:
            self.unfinished.add(action)
        return turns.without()

    def put_off(self, action: str, turns: Turns) -> None:
        """The same, and tell those jobs that their turns are still to come."""
        for key, had_one in self.end_turns(action, turns):
            self.view.trace.not_reached.add(key)
            self.view.trace.job(key, reasons.TURN_PENDING_AGAIN if had_one else reasons.TURN_PENDING)

    def _set_aside(self, held: JobHeldError) -> None:
        """Let a job wait until the next session, for the plugin that failed when it was asked about it."""
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
        """Ask the plugin that raised nothing more in this session; an error that is no plugin's goes on."""
        plugin = plugin or self.points.culprit(error)
        if plugin is None or plugin not in self.points or isinstance(error, KeyboardInterrupt):
            raise error
        self.points.failures.add(plugin.name, where, where, error)
        self.points.disable(plugin)
        self.kernel.forget()

    def left(self) -> dict[str, Any]:
        """What the next session has to know of plugins and actions. Who failed leaves what was left before."""
        left = {**self.view.environment.left, **self.actions_left}
        for plugin in [p for p in self.plugins if p in self.points]:
            try:
                mine = plugin.leave()
            except BaseException as error:
                self.points.failures.add(plugin.name, "leave", "leave", error)
                continue
            if mine is not None:
                left[plugin.name] = mine
        return left

    def _take_back(self) -> None:
        self._take_back_turn()
        for statement in reversed(self._deferred):
            statement.take_back()
        self._deferred.clear()

    def _take_back_turn(self) -> None:
        """Take back what the current turn tried."""
        for statement in reversed(self._open):
            statement.take_back()
        self._open.clear()

    def _give_back_deferred(self) -> None:
        """Take back the promises to pods that can be placed at once: from here on they wait for an action to do so."""
        while self._deferred:
            self._deferred.pop().take_back()
        self.ledger.raise_if_left()

    # -- deciding ----------------------------------------------------------------------------------------------------

    def in_strict_order(self, queue: Queue) -> bool:
        """Whether nobody in a queue is served before a job that cannot be."""
        return self.rules.fifo and queue.spec.dequeue_strategy == "fifo"

    def hold_back(self, queue: Queue, keys: Collection[str]) -> None:
        """Let jobs wait, by key, for one before them in their queue."""
        self.behind.update(keys)
        self.view.trace.all_jobs(keys, reasons.behind(queue))

    def statement(self) -> Statement:
        """A new statement."""
        statement = Statement(self.view, self.ledger, self._decide)
        self._open.append(statement)
        return statement

    def promise(self, job: Job, parts: Sequence[Statement]) -> None:
        """Decide for evictions and the places that a job's pods are promised; each part is of pods placed together.

        Where pods fit without any eviction, and without room that terminating pods still hold, nothing is decided: they
        keep their places until the action is over, so that nobody is evicted in this room, and are left Pending for an
        action that binds. The parts of a gang that is not ready stand or fall together.
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

    def commit_held(self, job: Job) -> None:
        """Decide for all that a job holds and that earlier turns left undecided."""
        view = self.view
        self._decide(
            [
                Operation(
                    Kind.Allocate,
                    job,
                    view.sub_job_of(job, pod),
                    (pod,),
                    (int(view.pods.node[pod.row]),),
                    view.request(pod),
                )
                for pod in view.members(job)
                if view.pods.state[pod.row] == PodState.Allocated
            ]
        )

    def _decide(self, operations: Sequence[Operation]) -> None:
        """Turn operations into decisions. Plugins are asked before anything is done."""
        annotations = self._annotations(operations) if self.ask.may_annotate else {}
        claimed = self.view.snapshot.claimed
        claims: Mapping[int, Sequence[ClaimUse]] = {}
        volumes: Mapping[int, Sequence[VolumeUse]] = {}
        for operation in operations:
            pod_class = operation.pods[0].pod_class
            if claimed or pod_class.claims or pod_class.spec.resource_claims:
                claims, volumes = self._claims(operations), self._volumes(operations)
                break
        for operation in operations:
            if operation.kind is Kind.Allocate:
                self._bind(operation, annotations, claims, volumes)
            elif operation.kind is Kind.Evict:
                self._evict(operation)
            elif operation.origin >= 0:
                self.moved[operation.pods[0].row] = operation
            elif operation.after_eviction:
                self.promised[operation.pods[0].row] = operation.nodes[0]
            for pod in operation.pods:
                self.ledger.tried.pop(pod.row, None)

    def _annotations(self, operations: Sequence[Operation]) -> dict[int, Mapping[str, str]]:
        """What goes on pods with their bindings, by row."""
        return {
            pod.row: self.ask.bind_annotations(pod, node)
            for operation in operations
            if operation.kind is Kind.Allocate
            for pod, node in zip(operation.pods, operation.nodes, strict=True)
        }

    def _claims(self, operations: Sequence[Operation]) -> dict[int, Sequence[ClaimUse]]:
        """What is reserved for pods before they are bound, by row."""
        return {
            pod.row: self.ask.bind_claims(pod, node)
            for operation in operations
            if operation.kind is Kind.Allocate and operation.pods[0].pod_class.needs_claims(self.view.snapshot.claimed)
            for pod, node in zip(operation.pods, operation.nodes, strict=True)
        }

    def _volumes(self, operations: Sequence[Operation]) -> dict[int, Sequence[VolumeUse]]:
        """The claims of volumes that are bound before pods are, by row."""
        return {
            pod.row: self.ask.bind_volumes(pod, node)
            for operation in operations
            if operation.kind is Kind.Allocate and operation.pods[0].pod_class.claims
            for pod, node in zip(operation.pods, operation.nodes, strict=True)
        }

    def _bind(
        self,
        operation: Operation,
        annotations: Mapping[int, Mapping[str, str]],
        claims: Mapping[int, Sequence[ClaimUse]],
        volumes: Mapping[int, Sequence[VolumeUse]],
    ) -> None:
        self.ledger.bind(operation)
        self.view.trace.placed(operation.pods)
        for pod, node in zip(operation.pods, operation.nodes, strict=True):
            self.bound[pod.key] = name = self.view.nodes.name(node)
            on_pod = annotations.get(pod.row, _NO_ANNOTATIONS) if annotations else _NO_ANNOTATIONS
            uses = claims.get(pod.row, ()) if claims else ()
            bound = volumes.get(pod.row, ()) if volumes else ()
            self.decisions.append(Bind(pod.namespace, pod.name, pod.uid, name, on_pod, uses, bound))

    def _evict(self, operation: Operation) -> None:
        pod, node = operation.pods[0], operation.nodes[0]
        self.victims[pod.key] = pod
        self.churn.evicted(operation)
        self.evicted[pod.key] = name = self.view.nodes.name(node) if node >= 0 else pod.node_name
        self.decisions.append(Evict(pod.namespace, pod.name, pod.uid, name, operation.reason, operation.beneficiary))

    def passing_later(self, pod: PodRecord) -> Mask:
        """The nodes that pass a pod when those that terminate have gone, room not considered, shape (nodes,)."""
        view = self.view
        if not len(self._leaving) or not self.kernel.varies(pod):
            return self.kernel.feasible(pod)
        leaving = [eviction(view, each, "") for each in view.records(self._leaving) if view.pods.node[each.row] >= 0]
        for operation in leaving:
            self.ledger.tell("on_deallocate", operation)
        found = self.kernel.feasible(pod)
        for operation in reversed(leaving):
            self.ledger.tell("on_allocate", operation)
        self.ledger.raise_if_left()
        return found

    # -- nominations -------------------------------------------------------------------------------------------------

    def nominated(self, pod: PodRecord, within: Mask | None = None) -> tuple[int, bool] | None:
        """The node that was nominated for a pod, when the pod may go there now (True) or later (False)."""
        node = self.view.nodes.facts.index.get(pod.nominated_node)
        if node is None or (within is not None and not within[node]):
            return None
        return self.kernel.best_on(pod, node)

    def reservations(self) -> Mapping[str, Reservation]:
        """What the next session has to know of places that are reserved, by key of the job."""
        return self.keeper.after_session(
            self.promised if self.rules.served_next else (), self.policy.evictions.keep
        )

    def nominated_hyper_nodes(self) -> dict[str, str]:
        """What the next session has to know of the HyperNodes that were nominated, by uid of the group."""
        if not self.rules.nominations:
            return {}
        return {
            sub_job.uid: self.view.topology.name(sub_job.nominated_hyper_node)
            for job in self.view.jobs.made
            for sub_job in job.opened_sub_jobs
            if sub_job.nominated_hyper_node != NOWHERE
        }
