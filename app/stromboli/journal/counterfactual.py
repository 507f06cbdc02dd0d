"""Simulation of a journal's work under another policy: which jobs would have waited, held resources and been evicted.

Work arrives as recorded. Once it has a node it runs for as long as it did; evicted work starts over at once. Bindings
and evictions take no time, so the recorded policy is simulated in the same way, and the two simulations are compared.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappop, heappush

import msgspec

from stromboli.api import objects
from stromboli.api.decisions import Bind, Decision, Evict, SetPodGroupStatus
from stromboli.engine import Engine
from stromboli.explain.rehearsal import advance, pod_of, release
from stromboli.journal import wire
from stromboli.journal.events import Event, Gone, Put
from stromboli.journal.history import History, Told, Work
from stromboli.journal.replay import Engines
from stromboli.journal.wire import JournalError
from stromboli.kube.dra.reservation import is_special
from stromboli.state.cluster import ClusterState, object_key
from stromboli.state.pods import timestamp

#: the plugin that asks an HTTP extender
_EXTENDER = "extender"
#: seconds between two sessions at least
_PERIOD = 1.0
#: sessions in a row that nothing but the one before gives a reason for
_MOST_IN_A_ROW = 50


class Figures(msgspec.Struct, rename="camel"):
    """Figures of a queue; times are in seconds."""

    #: bindings of its pods
    started: int = 0
    #: their mean wait
    mean_wait: float = 0.0
    longest_wait: float = 0.0
    #: pods that wait at the end
    still_waiting: int = 0
    evicted: int = 0
    #: the part of the cluster that it held, by resource, over the whole time
    held: dict[str, float] = {}


@dataclass(slots=True, eq=False)
class _Piece:
    """Work as it stands."""

    work: Work
    #: of its pod
    key: str
    uid: str
    #: since when it waits
    since: float
    #: number of pods that it has had
    pods: int = 1
    node: str = ""
    over: bool = False
    request: Mapping[str, int] = field(default_factory=dict)
    queue: str = ""


@dataclass(slots=True)
class _Account:
    """The totals of a queue."""

    waits: list[float] = field(default_factory=list)
    evicted: int = 0
    holds: Counter[str] = field(default_factory=Counter)
    held: Counter[str] = field(default_factory=Counter)


class Counterfactual:
    """One run through a history."""

    def __init__(self, history: History, first: Engine, then: Callable[[Told], Engine | None]) -> None:
        """`first` decides at first, and `then` gives the engine that goes on when sessions are told something, None for
        the same one.
        """
        self._history = history
        self._engine = first
        self._then = then
        began, reads = history.began, first.registry.reads
        self._state = ClusterState(began.scheduler_names, began.extender_scheduler_names, reads)
        self._environment = history.environment
        self._pieces: dict[str, _Piece] = {}
        self._accounts: defaultdict[str, _Account] = defaultdict(_Account)
        self._there: Counter[str] = Counter()
        #: PodGroups that go as soon as their work is done
        self._leaving: set[str] = set()
        self._unfinished: Counter[str] = Counter()
        self._now = history.since
        #: pending events, the earliest first
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._entries = 0

    def run(self) -> dict[str, Figures]:
        """The figures of each queue. Raises JournalError."""
        try:
            self._live()
        except JournalError:
            raise
        except (Exception, SystemExit) as error:
            raise JournalError(f"at {self._now} its work cannot be scheduled: {wire.told(error)}") from None
        return self._figures()

    def _live(self) -> None:
        history = self._history
        for at, event in history.events:
            self._plan(at, partial(self._event, event))
        for work in history.works:
            self._plan(work.arrived, partial(self._arrive, work))
        for at, told in history.told:
            self._plan(at, partial(self._tell, told))
        for at in history.sessions:
            self._plan(at, _nothing)
        in_a_row, last = 0, float("-inf")
        while self._agenda and self._agenda[0][0] <= history.until:
            now = max(self._agenda[0][0], last + _PERIOD)
            expected = False
            while self._agenda and self._agenda[0][0] <= now:
                at, _, happen = heappop(self._agenda)
                expected = expected or happen is not _again
                self._pass(max(at, self._now))
                happen()
            self._pass(now)
            in_a_row = 0 if expected else in_a_row + 1
            if self._session(now) and in_a_row < _MOST_IN_A_ROW:
                self._plan(now + _PERIOD, _again)
            last = now
        self._pass(max(history.until, self._now))

    def _plan(self, at: float, happen: Callable[[], None]) -> None:
        self._entries += 1
        heappush(self._agenda, (at, self._entries, happen))

    def _pass(self, now: float) -> None:
        """Time goes on."""
        seconds = now - self._now
        if seconds <= 0:
            return
        for account in self._accounts.values():
            for resource, amount in account.holds.items():
                account.held[resource] += amount * seconds  # type: ignore[assignment]
        for name, row in zip(self._state.dimensions.names, self._state.nodes.allocatable, strict=True):
            self._there[name] += float(row.sum()) * seconds  # type: ignore[assignment]
        self._now = now

    # -- events of the cluster -------------------------------------------------------------------------------------

    def _event(self, event: Event) -> None:
        state = self._state
        match event:
            case Put("PodGroup", key, obj):
                self._leaving.discard(key)
                before = state.pod_group(key)
                if before is not None and before.metadata.uid == obj.metadata.uid:
                    obj = obj.model_copy(update={"status": before.status})
                state.upsert("PodGroup", obj)
            case Put("ResourceClaim", key, obj):
                # Which pods have its devices follows from decisions, and for which pods a claim is made.
                known = state.objects["ResourceClaim"].get(key)
                if is_special(obj) and known is None and not self._is_first:
                    return
                status = known.get("status") if known is not None else obj.get("status") if self._is_first else {}
                state.upsert("ResourceClaim", {**obj, "status": status or {}})
            case Gone("PodGroup", key):
                self._leaving.add(key)
                self._let_go(key)
            case Gone("ResourceClaim", key) if is_special(state.objects["ResourceClaim"].get(key, {})):
                # It goes with its pod.
                pass
            case Gone("Node", key):
                for piece in [piece for piece in self._pieces.values() if piece.node == key]:
                    self._end(piece)
                state.delete("Node", key)
            case Put(kind, _, obj):
                state.upsert(kind, obj)
            case Gone(kind, key):
                state.delete(kind, key)

    @property
    def _is_first(self) -> bool:
        """Whether nothing has been decided yet."""
        return self._now <= self._history.since

    def _let_go(self, key: str) -> None:
        if key in self._leaving and not self._unfinished[key]:
            self._leaving.discard(key)
            self._state.delete("PodGroup", key)

    def _tell(self, told: Told) -> None:
        self._engine = self._then(told) or self._engine
        if told.node_usage is not None:
            self._environment = replace(self._environment, node_usage=told.node_usage)
        if told.queue_usage is not None:
            self._environment = replace(self._environment, queue_usage=told.queue_usage)

    def _arrive(self, work: Work) -> None:
        key = object_key(work.pod)
        before = self._pieces.get(key)
        if before is not None:
            self._end(before)
        piece = self._pieces[key] = _Piece(work, key, work.pod.metadata.uid or key, self._now)
        self._unfinished[work.job] += 1
        self._show(piece, work.pod)
        if work.node:
            started = timestamp(self._now)
            status = msgspec.structs.replace(work.pod.status, phase="Running", start_time=started)
            spec = msgspec.structs.replace(work.pod.spec, node_name=work.node)
            self._show(piece, msgspec.structs.replace(work.pod, spec=spec, status=status))
            self._begin(piece, work.node)
        elif work.withdrawn is not None:
            self._plan(work.withdrawn, partial(self._end, piece))

    def _show(self, piece: _Piece, pod: objects.Pod) -> None:
        self._state.upsert("Pod", pod)
        record = self._state.record(piece.key)
        if record is not None:
            piece.request = record.pod_class.request

    def _begin(self, piece: _Piece, node: str) -> None:
        """A piece has a node, and runs."""
        piece.node, piece.queue = node, self._queue_of(piece)
        self._accounts[piece.queue].holds.update(piece.request)
        runs, pods = piece.work.runs, piece.pods
        if runs is not None:
            self._plan(self._now + runs, partial(self._done, piece, pods))

    def _queue_of(self, piece: _Piece) -> str:
        """The queue of its job, empty when that is not there."""
        group = self._state.pod_group(piece.work.job)
        return group.queue if group is not None else ""

    def _leave_node(self, piece: _Piece) -> None:
        if piece.node:
            self._accounts[piece.queue].holds.subtract(piece.request)
            piece.node = ""

    def _done(self, piece: _Piece, pods: int) -> None:
        """A pod of a piece has run as long as it does, unless it was evicted meanwhile."""
        if piece.pods == pods:
            self._end(piece)

    def _end(self, piece: _Piece) -> None:
        if piece.over:
            return
        piece.over = True
        self._leave_node(piece)
        record, state, ends_as = self._state.record(piece.key), self._state, piece.work.ends_as
        if record is not None and record.uid == piece.uid:
            release(state, record)
            if ends_as and record.node_name:
                state.upsert("Pod", pod_of(record, record.node_name, objects.PodStatus(phase=ends_as)))
            else:
                state.delete("Pod", piece.key)
        if self._pieces.get(piece.key) is piece:
            del self._pieces[piece.key]
        self._unfinished[piece.work.job] -= 1
        self._let_go(piece.work.job)

    # -- sessions --------------------------------------------------------------------------------------------------

    def _session(self, now: float) -> bool:
        """Run a session and carry it out; whether it changed something."""
        result = self._engine.decide(self._state.snapshot(), now=now, environment=self._environment)
        self._environment = result.environment
        advance(self._state, result.decisions, now)
        return self._carry_out(result.decisions, now)

    def _carry_out(self, decisions: Sequence[Decision], now: float) -> bool:
        changed = False
        for decision in decisions:
            match decision:
                case Bind(node=node):
                    changed = True
                    piece = self._pieces[decision.key]
                    self._begin(piece, node)
                    self._accounts[piece.queue].waits.append(now - piece.since)
                case Evict():
                    changed = True
                    self._evict(decision, now)
                case SetPodGroupStatus():
                    changed = True
        return changed

    def _evict(self, decision: Evict, now: float) -> None:
        """Its pod is gone, and another one waits."""
        piece = self._pieces.get(decision.key)
        if piece is None:
            return
        self._accounts[piece.queue].evicted += 1
        self._leave_node(piece)
        piece.pods += 1
        piece.since, piece.uid = now, f"{piece.work.pod.metadata.uid}~{piece.pods}"
        metadata = msgspec.structs.replace(piece.work.pod.metadata, uid=piece.uid, creation_timestamp=timestamp(now))
        self._show(piece, msgspec.structs.replace(piece.work.pod, metadata=metadata))

    # -- figures ---------------------------------------------------------------------------------------------------

    def _figures(self) -> dict[str, Figures]:
        waiting: Counter[str] = Counter()
        for piece in self._pieces.values():
            if not piece.node:
                waiting[self._queue_of(piece)] += 1
        names = {*self._state.queues, *self._accounts, *waiting} - {"root", ""}
        return {name: self._of(self._accounts[name], waiting[name]) for name in sorted(names)}

    def _of(self, account: _Account, waiting: int) -> Figures:
        waits = account.waits
        return Figures(
            started=len(waits),
            mean_wait=sum(waits) / len(waits) if waits else 0.0,
            longest_wait=max(waits, default=0.0),
            still_waiting=waiting,
            evicted=account.evicted,
            held={
                resource: round(account.held[resource] / there, 6)
                for resource, there in self._there.items()
                if there and account.held[resource] and resource != "pods"
            },
        )


def _nothing() -> None:
    """A session was held."""


def _again() -> None:
    """The session before changed something."""


class Comparison(msgspec.Struct, rename="camel"):
    """Figures of queues under a policy, and under the recorded one if that was run, too."""

    since: float
    until: float
    sessions: int
    #: by queue
    policy: dict[str, Figures]
    recorded: dict[str, Figures] | None = None
    remarks: list[str] = []


def compare(history: History, engines: Engines, policy: Engine, *, with_recorded: bool) -> Comparison:
    """Run a history under a policy, and under the recorded one if that is to be compared. Raises JournalError."""

    def recorded(told: Told) -> Engine | None:
        return engines.of(*told.policy) if told.policy else None

    first = next(filter(None, (recorded(told) for _, told in history.told)), None)
    if first is None:
        raise JournalError("the journal has no policy")
    asked = any(option.name == _EXTENDER for tier in policy.policy.tiers for option in tier.plugins)
    return Comparison(
        since=history.since,
        until=history.until,
        sessions=len(history.sessions),
        policy=Counterfactual(history, policy, lambda told: None).run(),
        recorded=Counterfactual(history, first, recorded).run() if with_recorded else None,
        remarks=["the policy asks an HTTP extender, which gives no answer here"] if asked else [],
    )
