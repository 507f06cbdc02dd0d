"""Time: sessions of an engine on a cluster on which jobs arrive, run, are evicted and return, and end.

A discrete-event loop. Events between two sessions are applied first, in the order of time, and at equal times in this
order: jobs end, nodes come and go, jobs arrive. A session runs when something changed, as in the service, but no sooner
than a period after the last one; if it placed or evicted pods, another follows.

A job starts when as many of its pods run as start together, and ends its run time later, with all its pods. If it has
fewer, because some were evicted or lost their node, it starts over: its other pods return, too. A pod that its gang can
spare returns alone.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec
import numpy as np

from stromboli.api import crds, objects
from stromboli.api.decisions import Bind, Evict, LiftGate, Nominate
from stromboli.engine import Engine, SessionResult, Successive
from stromboli.explain.rehearsal import advance, pod_of, remove
from stromboli.framework.cluster.environment import Environment
from stromboli.state.cluster import ClusterState
from stromboli.state.pods import PodRecord, timestamp

#: sessions without a decision after which none is expected any more, if nothing else can happen
_PATIENCE = 1_000
#: actions that decide nothing while no pod waits
_PLACING = frozenset(("enqueue", "allocate", "backfill", "preempt", "gangpreempt", "reclaim", "gangreclaim"))
#: decisions that change what other jobs find
_ACTS = Bind | Evict | LiftGate | Nominate
_END, _NODE, _ARRIVAL = range(3)


class Arrival(NamedTuple):
    """A job that is submitted: its PodGroup and pods, and the seconds for which it runs."""

    time: float
    group: crds.PodGroup
    pods: Sequence[objects.Pod]
    run_time: float


class NodeChange(NamedTuple):
    """A node that comes, or goes with its pods."""

    time: float
    node: objects.Node
    there: bool


Event = TypeVar("Event", Arrival, NodeChange)


class Log(Protocol):
    """Receives events, and the time before each."""

    def passed(self, now: float) -> None:
        """Take note that it is `now`, in seconds since the epoch, and that nothing has changed since the last time."""

    def arrived(self, job: str) -> None: ...

    def placed(self, pod: PodRecord) -> None: ...

    def removed(self, pod: PodRecord) -> None:
        """A pod that had a node ended, was evicted or lost its node."""

    def started_job(self, job: str) -> None: ...

    def restarted(self, job: str, lost: float) -> None:
        """A job has to start again, and a number of seconds of its run are lost."""

    def evicted(self, pod: PodRecord) -> None: ...

    def ended_job(self, job: str) -> None: ...


@dataclass(slots=True)
class Run:
    """A job on its way."""

    #: pods that start together
    need: int
    #: seconds for which it runs, infinite if that is not known
    length: float
    pods: list[str] = field(default_factory=list)
    #: number of them that have a node
    placed: int = 0
    #: when it started, NaN before
    started: float = math.nan
    #: number of its starts and stops: an end that was foreseen for another number does not come
    turn: int = 0


class Timeline:
    """Runs one simulation. Deterministic: the same engine, state and events give the same decisions."""

    def __init__(
        self,
        engine: Engine,
        state: ClusterState,
        environment: Environment,
        *,
        period: float = 1.0,
        begin: float,
        log: Log,
    ) -> None:
        """`state` is the timeline's own; `running` are the pods that run in it already."""
        self.state, self.now = state, begin
        self._sessions = Successive(engine, environment)
        self._always = not _PLACING.issuperset(engine.policy.actions)
        #: seconds between two sessions at least, and until one is repeated only because time has passed
        self.period = self.pause = period
        self._log = log
        self._ends: list[tuple[float, int, str, int]] = []
        self._serial = 0
        self._last = -math.inf
        self._changed = False
        #: when time alone may have a session decide differently than the last one
        self._again = math.inf
        #: pods without a node
        self.waiting = 0
        self.runs: dict[str, Run] = {}
        #: number of sessions
        self.sessions = 0
        #: number of sessions, since something last happened, that neither bound nor evicted a pod
        self._in_vain = 0

    @property
    def environment(self) -> Environment:
        """Environment of the next session."""
        return self._sessions.environment

    def running(self, job: str, run: Run) -> None:
        """Tell of a job that the state has already, with its pods."""
        self.runs[job] = run
        self.waiting += len(run.pods) - run.placed
        self._changed = True
        if run.placed >= run.need and run.started == run.started:
            self._foresee(job, run)

    def go(
        self,
        arrivals: Iterable[Arrival] = (),
        changes: Iterable[NodeChange] = (),
        *,
        until: float = math.inf,
        enough: Callable[[], bool] = lambda: False,
    ) -> None:
        """Run until nothing more can happen, the time `until`, or it is `enough`; events are in the order of time."""
        arriving, changing = _Ahead(arrivals), _Ahead(changes)
        while not enough():
            due = self._due
            time, kind = min(
                (self._ends[0][0] if self._ends else math.inf, _END), (changing.time, _NODE), (arriving.time, _ARRIVAL)
            )
            nothing = math.isinf(time) and (math.isinf(due) or self._in_vain >= _PATIENCE)
            if nothing or min(time, due) >= until:
                return
            if due < time:
                self._pass(due)
                self._session()
                continue
            self._pass(time)
            self._in_vain = 0
            if kind == _END:
                self._end_next()
            elif kind == _NODE:
                self._change(changing.take())
            else:
                self._arrive(arriving.take())

    @property
    def _due(self) -> float:
        """Time of the next session, infinite if nothing calls for one."""
        if not (self.waiting > 0 or self._always):
            return math.inf
        due = self._last + self.period if self._changed else max(self._last + self.pause, self._again)
        return max(self.now, due)

    def _pass(self, now: float) -> None:
        if now > self.now:
            self._log.passed(now)
            self.now = now

    # -- events ----------------------------------------------------------------------------------------------------

    def _arrive(self, arrival: Arrival) -> None:
        group, state = arrival.group, self.state
        state.upsert("PodGroup", group)
        run = self.runs[group.key] = Run(group.spec.min_member, arrival.run_time)
        for pod in arrival.pods:
            state.upsert("Pod", pod)
            run.pods.append(f"{pod.metadata.namespace}/{pod.metadata.name}")
        self.waiting += len(run.pods)
        self._changed = True
        self._log.arrived(group.key)

    def _foresee(self, job: str, run: Run) -> None:
        if math.isfinite(run.length):
            heapq.heappush(self._ends, (max(run.started + run.length, self.now), self._serial, job, run.turn))
            self._serial += 1

    def _end_next(self) -> None:
        _, _, job, turn = heapq.heappop(self._ends)
        run = self.runs.get(job)
        if run is None or run.turn != turn:
            return
        for key in run.pods:
            record = self.state.record(key)
            assert record is not None
            if record.node_name:
                self._log.removed(record)
            else:
                self.waiting -= 1
            remove(self.state, key)
        self.state.delete("PodGroup", job)
        del self.runs[job]
        self._changed = True
        self._log.ended_job(job)

    def _change(self, change: NodeChange) -> None:
        name, self._changed = change.node.metadata.name, True
        if change.there:
            self.state.upsert("Node", change.node)
            return
        pods = self.state.pods
        rows = np.flatnonzero(pods.node[: pods.size] == self.state.nodes.by_name.get(name, -2)).tolist()
        lost = [record for row in rows if (record := pods.records[row]) is not None]
        for record in lost:
            remove(self.state, record.key)
            self._log.removed(record)
        self.state.delete("Node", name)
        self._come_back(lost)

    def _session(self) -> None:
        self._changed, self._last = False, self.now
        self.sessions += 1
        result = self._sessions.decide(self.state.snapshot(), now=self.now)
        acted = any(isinstance(each, _ACTS) for each in result.decisions)
        self._in_vain = 0 if acted else self._in_vain + 1
        self._carry_out(result)
        # Mere reports, such as why pods wait, do not change the next session's decisions.
        self._changed |= acted or result.unfinished
        self._again = result.again_at
        # A collection of garbage for every few sessions would take a tenth of the time.
        result.session.dismantle()

    def _carry_out(self, result: SessionResult) -> None:
        evicted = []
        for decision in result.decisions:
            if isinstance(decision, Evict) and (record := self.state.record(decision.key)) is not None:
                evicted.append(record)
                self._log.evicted(record)
                self._log.removed(record)
        advance(self.state, result.decisions, self.now)
        for decision in result.decisions:
            if isinstance(decision, Bind) and (record := self.state.record(decision.key)) is not None:
                self._placed(record)
        self._come_back(evicted)

    def _placed(self, pod: PodRecord) -> None:
        self.waiting -= 1
        self._log.placed(pod)
        run = self.runs.get(pod.job)
        if run is None:
            return
        run.placed += 1
        if run.placed >= run.need and math.isnan(run.started):
            run.started, run.turn = self.now, run.turn + 1
            self._foresee(pod.job, run)
            self._log.started_job(pod.job)

    def _come_back(self, gone: Sequence[PodRecord]) -> None:
        """Create pods anew that had a node and are gone, with the others of a gang that cannot go on without them."""
        of_job: defaultdict[str, int] = defaultdict(int)
        for record in gone:
            self._create(record)
            of_job[record.job] += 1
        for job, lost in of_job.items():
            run = self.runs.get(job)
            if run is None:
                continue
            run.placed -= lost
            if run.placed < run.need and not math.isnan(run.started):
                self._restart(job, run)

    def _restart(self, job: str, run: Run) -> None:
        self._log.restarted(job, self.now - run.started)
        run.started, run.turn = math.nan, run.turn + 1
        for record in list(map(self.state.record, run.pods)):
            if record is not None and record.node_name:
                remove(self.state, record.key)
                self._log.removed(record)
                self._create(record)
        run.placed = 0

    def _create(self, record: PodRecord) -> None:
        """Another pod of the same name, which waits."""
        pod = pod_of(record, "", objects.PodStatus(phase="Pending"))
        self._serial += 1
        renewed = {"uid": f"{record.key}-{self._serial}", "creation_timestamp": timestamp(self.now)}
        metadata = msgspec.structs.replace(pod.metadata, **renewed)
        self.state.upsert("Pod", objects.Pod(metadata=metadata, spec=pod.spec, status=objects.PodStatus("Pending")))
        self.waiting += 1
        self._changed = True


class _Ahead(Generic[Event]):
    """Events in the order of their time, with the next one in sight."""

    def __init__(self, source: Iterable[Event]) -> None:
        self._source: Iterator[Event] = iter(source)
        self._next: Event | None = next(self._source, None)
        self.time: float = math.inf if self._next is None else self._next.time

    def take(self) -> Event:
        taken, self._next = self._next, next(self._source, None)
        self.time = math.inf if self._next is None else self._next.time
        assert taken is not None
        return taken
