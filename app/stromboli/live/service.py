"""The service: everything in this package, put together and run in one event loop."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from stromboli.api.crds import SCHEDULING, TOPOLOGY, PodGroup, PodGroupPhase
from stromboli.api.decisions import (
    Bind,
    Decision,
    EmitEvent,
    Evict,
    LiftGate,
    Nominate,
    SetPodGroupStatus,
    SetPodUnscheduled,
    SetQueueStatus,
)
from stromboli.live.binder import Binder
from stromboli.live.claims import Claims
from stromboli.live.client import CONNECTION_ERRORS, ApiError, Credentials, Kube
from stromboli.live.contact import Contact
from stromboli.live.events import Events, Reference
from stromboli.live.evictor import Evictor
from stromboli.live.fence import FencedKube
from stromboli.live.gates import Gates
from stromboli.live.leader import LeaderLease, LeadershipLostError
from stromboli.live.limits import Backoff, Reluctance
from stromboli.live.logs import Logger
from stromboli.live.loop import Decider, Result, TickLoop
from stromboli.live.mirror import Mirror
from stromboli.live.observer import Observer
from stromboli.live.operator import QueueOperator
from stromboli.live.pod_conditions import PodConditions
from stromboli.live.podgroups import PodGroupMaker
from stromboli.live.policy import PolicyFile
from stromboli.live.queue_states import QueueStates
from stromboli.live.queues import QueueController, ensure_queues
from stromboli.live.recall import Recall
from stromboli.live.reflector import COMMANDS, SOURCES, Reflector
from stromboli.live.set_aside import REASON, SetAside
from stromboli.live.settings import Settings
from stromboli.live.state_field import release_states
from stromboli.live.status import StatusWriter, pod_group_fields
from stromboli.live.takeover import Takeover
from stromboli.live.usage_store import UsageMemory, UsageStore
from stromboli.state.cluster import ClusterState
from stromboli.state.reads import NOTHING_ELSE, Reads
from stromboli.state.snapshot import Snapshot

__all__ = ["Decider", "Result", "Service"]

log = Logger(__name__)

#: how long somebody who restores the definition of queues has to restore the queues, in seconds
_RESTORED = 60.0
#: for how long a new leader waits for news of the cluster at most, and how often it looks whether they came, in seconds
_CATCHING_UP = 5.0
_LOOK = 0.05
#: how long each may take when the service ends, in seconds: what is under way, what the next leader reads, the lease
#: itself, and hanging up
_PARTS, _LEFT, _LEASE, _CLOSE = 2.0, 1.0, 1.0, 1.0
#: fields of a PodGroup's status that are no words
_FACTS = ("phase", "running", "succeeded", "failed")
_API_VERSIONS = {"Queue": SCHEDULING, "PodGroup": SCHEDULING, "HyperNode": TOPOLOGY}


class Service:
    """The scheduler on one cluster. `run` lasts until `stop`, SIGTERM or SIGINT."""

    def __init__(
        self,
        settings: Settings,
        load: Callable[[str | None], Decider],
        observer: Observer | None = None,
        credentials: Credentials | None = None,
        reads: Reads = NOTHING_ELSE,
        usage: UsageMemory | None = None,
        state: ClusterState | None = None,
    ) -> None:
        """`load` makes an engine from the text of a policy, or the built-in one; it raises PolicyError. `reads` is
        what its plugins read of pods.

        `usage` is where sessions remember what queues held, to be kept beyond this process. `state` is an empty one
        to be used, by default one of its own.

        A policy file that cannot be used is waited for. Raises CredentialsError, and PolicyError for the built-in one.
        """
        self.settings = settings
        self.observer = observer = observer or Observer()
        self.state = state or ClusterState(settings.scheduler_names, settings.extender_scheduler_names, reads)
        self._load = load
        self._credentials = credentials or Credentials.load(settings.kubeconfig, settings.context)
        self._kube = Kube(self._credentials)
        self._lease = self._make_lease() if settings.leader_elect else None
        # Whatever changes the cluster goes through these two, and the lease alone through the one above.
        fenced = partial(FencedKube, remaining=self._lease.remaining) if self._lease else Kube
        self._writer_kube = fenced(self._credentials)
        self._binder_kube = fenced(self._credentials, settings.bind_connections)
        self.mirror = mirror = Mirror(self.state, self._wake, observer)
        name = settings.scheduler_names[0]
        self._events = Events(self._writer_kube, observer, name, settings.events_per_second)
        mirror.complain(self._tell_of_problem)
        self._recall = Recall(self._writer_kube, mirror)
        self._gates = Gates(self._writer_kube)
        workers, rate = settings.bind_connections, settings.binds_per_second
        reflectors = {source.kind: Reflector(self._kube, source, mirror, observer) for source in (*SOURCES, COMMANDS)}
        self._reflectors = list(reflectors.values())
        claimed = reflectors["ResourceClaim"]
        self._claims = Claims(self._binder_kube, mirror, lambda: claimed.path, workers=workers, rate=rate)
        self._binder = Binder(
            self._binder_kube,
            mirror,
            self._events,
            self._recall,
            self._claims,
            observer,
            workers=workers,
            rate=rate,
            assume_timeout=settings.assume_timeout,
            pod_events=settings.pod_events,
        )
        self._evictor = Evictor(self._writer_kube, mirror, self._events, observer, name, delete=settings.delete_victims)
        self._status = StatusWriter(self._writer_kube, mirror, observer, settings.status_writes_per_second)
        # Most pods find a place while their gang is still being created.
        rate, patience = settings.pod_conditions_per_second, 2 * settings.status_patience
        self._pod_conditions = PodConditions(self._writer_kube, mirror, self._events, rate, patience)
        self._group_reluctance = Reluctance(settings.status_patience)
        self._set_aside = SetAside(self._writer_kube, mirror, settings.pod_conditions_per_second)
        # What a queue holds changes with each of its gangs.
        self._queues = QueueController(mirror, self._status, 2 * settings.status_patience, self._queue_gone)
        #: what failed in the last session, by plugin and extension point
        self.failing: dict[tuple[str, str], str] = {}
        self._queues_missing = asyncio.Event()
        self._queues_missing.set()
        self._queue_states = QueueStates(self._writer_kube, mirror, self._events)
        inherit = settings.inherit_owner_annotations
        self._pod_groups = PodGroupMaker(self._writer_kube, mirror, self._events, inherit=inherit)
        self._operator = QueueOperator(self._credentials, self._queues.seen)
        self._contact = Contact(self._kube)
        self._usage: UsageStore | None = None
        if usage is not None:
            self._usage = UsageStore(self._writer_kube, self._namespace, f"{settings.lease_name}-usage", usage)
        self._ticks = TickLoop(
            self.state,
            None if settings.policy else load(None),
            self._carry_out,
            self._evictor.caught_up,
            observer,
            debounce=settings.debounce,
            period=settings.schedule_period,
            allowed=lambda: self.leads,
        )
        self._policy_file = self._make_policy_file()
        self._decidable = asyncio.Event()
        self._stopping = asyncio.Event()
        self._ready = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._work: asyncio.Task[None] | None = None

    # -- life ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Schedule until stopped. Raises what made going on impossible, such as LeadershipLostError.

        The end takes seconds at most, whatever hangs.
        """
        self._work = asyncio.create_task(self._supervise(), name="stromboli-work")
        stopping = asyncio.create_task(self._stopping.wait(), name="stromboli-stop")
        try:
            with self._stopped_by_signals():
                await asyncio.wait((self._work, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            await self._end(self._work)
        if self._work.done() and not self._work.cancelled():
            self._work.result()

    def begin(self) -> asyncio.Task[None]:
        """Run in the background."""
        self._running = asyncio.create_task(self.run(), name="stromboli")
        return self._running

    async def start(self) -> None:
        """Run in the background; returns when everything is known of the cluster that a session needs."""
        running, ready = self.begin(), asyncio.create_task(self._ready.wait())
        await asyncio.wait((running, ready), return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
            await running

    async def wait(self) -> None:
        """Return when what `begin` or `start` began has ended; raises as `run` does."""
        if self._running is not None:
            await self._running

    async def stopping(self) -> None:
        """Return when it was told to end."""
        await self._stopping.wait()

    async def stop(self) -> None:
        """End what `begin` or `start` began, and return when that is done."""
        self._stopping.set()
        if self._running is not None:
            await asyncio.wait((self._running,))

    def wake(self) -> None:
        """Something changed that sessions depend on, beside the cluster."""
        self._ticks.wake(urgent=False)

    @property
    def ready(self) -> bool:
        """Whether all initial lists have been applied."""
        return self._ready.is_set()

    def unready(self) -> list[str]:
        """Why this replica should not be relied on, a line for each reason."""
        patience = self.settings.contact_timeout
        lines = [self._contact.trouble(patience)]
        lines += [each.trouble(patience) for each in self._reflectors if each.source.required or not self.ready]
        if self._policy_file is not None and not self._policy_file.loaded:
            lines.append(f"policy {self.settings.policy}: {self._policy_file.problem}")
        if not self.ready:
            lines.append("the initial lists have not been applied")
        return [line for line in lines if line]

    def stuck(self) -> list[str]:
        """Why this process should be replaced, a line for each reason."""
        lines = []
        if self._work is not None and self._work.done():
            lines.append("a part has ended")
        if self._ticks.session_age > self.settings.session_timeout:
            lines.append(f"a session has been running for {self._ticks.session_age:.0f} s")
        return lines

    @property
    def leads(self) -> bool:
        """Whether this replica is the one that schedules."""
        return self._lease is None or self._lease.leads

    # -- work ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _stopped_by_signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT stop the service; only the main thread can be told of them."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop, signals = asyncio.get_running_loop(), (signal.SIGTERM, signal.SIGINT)
        for number in signals:
            loop.add_signal_handler(number, self._stop_by, number)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)

    def _stop_by(self, number: signal.Signals) -> None:
        log.info("stopping", signal=number.name)
        self._stopping.set()

    async def _end(self, work: asyncio.Task[None]) -> None:
        """End all tasks, hand the lease on and hang up; what takes longer than its time is left behind."""
        work.cancel()
        await asyncio.wait((work,), timeout=_PARTS)
        if not work.done():
            log.warning("parts did not end in time", seconds=_PARTS)
        if self._usage is not None and self.leads:
            await _within(_LEFT, "usage of queues not written", self._usage.save())
        if self._lease is not None:
            await _within(_LEASE, "lease not released", self._lease.release())
        for kube in (self._kube, self._writer_kube, self._binder_kube):
            await _within(_CLOSE, "connections not closed", kube.close())

    async def _supervise(self) -> None:
        """All tasks of the service: the first that fails ends the others, and the service."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._credentials.keep_fresh(), name="credentials")
                tasks.create_task(self._contact.run(), name="contact")
                for reflector in self._reflectors:
                    tasks.create_task(reflector.run(), name=f"reflector-{reflector.source.kind}")
                if self._policy_file is not None:
                    tasks.create_task(self._policy_file.run(), name="policy")
                else:
                    self._decidable.set()
                tasks.create_task(self._lead(tasks), name="leader")
                for reflector in self._reflectors:
                    await reflector.synced.wait()
                log.info("synced", pods=len(self.state.pods.by_key), nodes=len(self.state.nodes.by_name))
                self._ready.set()
        except ExceptionGroup as errors:
            error = errors.exceptions[0]
            if not isinstance(error, LeadershipLostError):
                log.exception("service failed", error)
            raise error from None

    async def _lead(self, tasks: asyncio.TaskGroup) -> None:
        """Become the leader, and begin to change the cluster. Who has no policy to go by leaves that to others."""
        await self._decidable.wait()
        if self._lease is not None:
            await self._lease.acquire()
            tasks.create_task(self._hold(self._lease), name="lease")
        self.observer.leading(True)
        tasks.create_task(self._ensure_queues(), name="queues")
        self._queues.begin()
        if self._usage is not None:
            await self._usage.restore()
            tasks.create_task(self._usage.run(), name="usage")
        writers = (self._events, self._binder, self._recall, self._evictor, self._status, self._pod_conditions)
        for part in (*writers, self._gates, self._set_aside, self._pod_groups, self._queue_states):
            tasks.create_task(part.run(), name=type(part).__name__)
        tasks.create_task(self._operator.run(), name="operator")
        tasks.create_task(self._schedule(), name="ticks")
        tasks.create_task(self._take_over(), name="takeover")
        tasks.create_task(self._release_claims(), name="claims")

    async def _hold(self, lease: LeaderLease) -> None:
        try:
            await lease.hold()
        finally:
            self.observer.leading(False)

    async def _schedule(self) -> None:
        await self._caught_up()
        await self._ticks.run()

    async def _take_over(self) -> None:
        await self._caught_up()
        await Takeover(self.state, self._events, self._evictor, self.observer).run()

    async def _caught_up(self) -> None:
        """Return when what a former leader did is known, or will not be before long."""
        began = time.monotonic()
        await self._ready.wait()
        while self._lease is not None and time.monotonic() < began + _CATCHING_UP:
            if all(each.has_seen(began) for each in self._reflectors if each.source.required):
                break
            await asyncio.sleep(_LOOK)

    async def _release_claims(self) -> None:
        await self._ready.wait()
        await self._claims.run()

    async def _ensure_queues(self) -> None:
        """Create the root and the default queue at first, and whenever one of them is gone."""
        backoff = Backoff(0.2, 5.0)
        while True:
            await self._queues_missing.wait()
            self._queues_missing.clear()
            try:
                await ensure_queues(self._writer_kube, self.settings.default_queue)
                await release_states(self._writer_kube)
            except (ApiError, *CONNECTION_ERRORS) as error:
                log.recurring("queues not created", error)
                self._queues_missing.set()
                await asyncio.sleep(backoff.delay())
            else:
                # Queues that go with their definition come back with it, if somebody restores both.
                backoff = Backoff(_RESTORED, _RESTORED)

    def _queue_gone(self, name: str, seen: bool) -> None:
        if name not in ("root", self.settings.default_queue):
            return
        if seen:
            self._queues_missing.set()
        else:
            asyncio.get_running_loop().call_later(_RESTORED, self._queues_missing.set)

    @property
    def _namespace(self) -> str:
        """Where the service keeps what is its own."""
        return self.settings.lease_namespace or os.environ.get("POD_NAMESPACE") or "default"

    def _make_lease(self) -> LeaderLease:
        settings = self.settings
        return LeaderLease(
            self._kube,
            self._namespace,
            settings.lease_name,
            f"{os.environ.get('POD_NAME') or socket.gethostname()}_{uuid.uuid4()}",
            duration=settings.lease_duration,
            renew_deadline=settings.renew_deadline,
            retry_period=settings.retry_period,
        )

    # -- policy ----------------------------------------------------------------------------------------------------

    def _make_policy_file(self) -> PolicyFile | None:
        path, folder = self.settings.policy, self.settings.state_dir
        if path is None:
            return None
        return PolicyFile(path, self._take_up, self._policy_report, folder / "policy.conf" if folder else None)

    def _take_up(self, text: str) -> None:
        self._ticks.decider = self._load(text)
        self._decidable.set()
        self._ticks.wake()

    def _policy_report(self, problem: str | None) -> None:
        self.observer.policy(problem)
        about = _itself()
        if problem is None:
            self._events.emit(about, "Normal", "PolicyLoaded", "the policy file was taken up", "Configuring")
        else:
            in_force = "the policy before stays in force" if self._decidable.is_set() else "nothing is scheduled"
            note = f"{in_force}: {problem}"
            self._events.emit(about, "Warning", "PolicyRefused", note, "Configuring")

    def tell_of_plugins(self, failing: Mapping[tuple[str, str], str]) -> None:
        """Tell by Events which plugins failed in the last session, by plugin and extension point, and which no more."""
        for (plugin, point), problem in failing.items():
            if (plugin, point) not in self.failing:
                self._events.emit(_itself(), "Warning", "PluginFailed", problem, "Configuring")
        for plugin, point in self.failing.keys() - failing.keys():
            note = f"plugin {plugin} did not fail in {point} in the last session"
            self._events.emit(_itself(), "Normal", "PluginRecovered", note, "Configuring")
        self.failing = dict(failing)

    # -- decisions -------------------------------------------------------------------------------------------------

    def _wake(self, urgent: bool) -> None:
        self._ticks.wake(urgent)

    def _carry_out(self, decisions: Sequence[Decision], snapshot: Snapshot) -> None:
        by_type: defaultdict[type[Decision], list[Any]] = defaultdict(list)
        for decision in decisions:
            by_type[type(decision)].append(decision)
        self._binder.submit(by_type[Bind], snapshot, self._ticks.number)
        self._evictor.evict(by_type[Evict], self._ticks.number)
        self._evictor.nominate(by_type[Nominate])
        self._gates.lift(by_type[LiftGate])
        self._set_pod_group_statuses(by_type[SetPodGroupStatus], by_type[EmitEvent])
        self._pod_conditions.tell(by_type[SetPodUnscheduled])
        for queue in by_type[SetQueueStatus]:
            self._queues.decided(queue)
        self._queues.refresh()

    def _set_pod_group_statuses(self, statuses: Sequence[SetPodGroupStatus], news: Iterable[EmitEvent]) -> None:
        """Have statuses written, and what is new about those PodGroups told with them: it may be over soon."""
        decided = {status.key: status for status in statuses}
        told: defaultdict[str, list[EmitEvent]] = defaultdict(list)
        for item in news:
            told[item.key if item.kind == "PodGroup" else ""].append(item)
        self._status.withdraw("PodGroup", but=decided)
        for key, decision in decided.items():
            pod_group = self.state.pod_group(key)
            if pod_group is None:
                continue
            tell = partial(self._tell, told.pop(key, ()))
            if decision.status.phase == PodGroupPhase.Inqueue != pod_group.status.phase:
                # Whoever creates the pods waits for the admission; that they are not there yet is no news.
                self._status.put("PodGroup", key, {"phase": PodGroupPhase.Inqueue})
            else:
                fields, uid = pod_group_fields(decision.status, pod_group), pod_group.metadata.uid
                patience = self._patience_with(decision, pod_group)
                then = partial(self._written, uid, decision.minor, tell)
                self._status.put("PodGroup", key, fields, patience=patience, then=then)
        for others in told.values():
            self._tell(others)

    def _patience_with(self, decision: SetPodGroupStatus, pod_group: PodGroup) -> float:
        """How long a status may wait: a phase or a count for a moment, what else conditions say ever longer."""
        if any(getattr(decision.status, field) != getattr(pod_group.status, field) for field in _FACTS):
            self._group_reluctance.forget(pod_group.metadata.uid)
            return self.settings.status_patience
        return self._group_reluctance.pause(pod_group.metadata.uid, minor=decision.minor)

    def _written(self, uid: str, minor: bool, tell: Callable[[], None]) -> None:
        self._group_reluctance.told(uid, minor=minor)
        tell()

    def _tell_of_problem(self, kind: str, key: str, uid: str, problem: str) -> None:
        namespace, _, name = key.rpartition("/")
        about = Reference(_API_VERSIONS.get(kind, "v1"), kind, namespace, name, uid)
        self._events.emit(about, "Warning", REASON, problem)

    def _tell(self, news: Iterable[EmitEvent]) -> None:
        for item in news:
            about = Reference(_API_VERSIONS.get(item.kind, "v1"), item.kind, item.namespace, item.name, item.uid)
            self._events.emit(about, item.type, item.reason, item.message)


def _itself() -> Reference:
    """What Events about the service as a whole are about: its pod, or outside of a cluster the root queue."""
    namespace, name = os.environ.get("POD_NAMESPACE", ""), os.environ.get("POD_NAME", "")
    return Reference("v1", "Pod", namespace, name) if name else Reference(SCHEDULING, "Queue", "", "root")


async def _within(seconds: float, otherwise: str, last: Awaitable[object]) -> None:
    """Do something last, or leave it and say so."""
    try:
        async with asyncio.timeout(seconds):
            await last
    except TimeoutError:
        log.warning(otherwise, seconds=seconds)
