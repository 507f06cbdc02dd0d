"""The service: its parts are put together here and run in one event loop, from the first list to a clean shutdown."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from stromboli.api.decisions import Bind
from stromboli.explain.checkup import Finding
from stromboli.explain.past_runs import PastRuns
from stromboli.live.api_server.client import Credentials, Kube
from stromboli.live.api_server.contact import Contact
from stromboli.live.binding.asked_bindings import bind_as_asked
from stromboli.live.binding.takeover import Takeover
from stromboli.live.groups.provisioning import SOURCE as PROVISIONING
from stromboli.live.inputs.run_recorder import RunRecorder
from stromboli.live.inputs.usage_store import UsageMemory, UsageStore
from stromboli.live.leadership.fence import FencedKube
from stromboli.live.leadership.leader import LeaderLease, LeadershipLostError
from stromboli.live.leadership.leader_mark import LeaderMark
from stromboli.live.leadership.node_shard import ShardTerms
from stromboli.live.loop import Decider, Result, TickLoop
from stromboli.live.observer import Observer
from stromboli.live.policy import PolicyFile
from stromboli.live.process.logs import Logger
from stromboli.live.reporting.service_events import ServiceEvents
from stromboli.live.settings import Settings
from stromboli.live.watch.mirror import Mirror
from stromboli.live.watch.reflector import Reflector
from stromboli.live.watch.sources import SOURCES
from stromboli.live.writers import Part, Writers
from stromboli.state.cluster import ClusterState
from stromboli.state.reads import NOTHING_ELSE, Reads
from stromboli.state.snapshot import Snapshot

__all__ = ["Decider", "Result", "Service"]

log = Logger(__name__)

#: maximum wait of a new leader for the watches to catch up, and interval of its checks, in seconds
_CATCHING_UP = 5.0
_LOOK = 0.05
#: time limits on shutdown, in seconds: for running requests, the usage of queues, the lease, and closing connections
_PARTS, _LEFT, _LEASE, _CLOSE = 2.0, 1.0, 1.0, 1.0


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
        """`load` makes an engine of the text of a policy, or of the built-in one for None; it raises PolicyError.

        `reads` is what its plugins read of pods, `usage` the history of queues' usage, which outlives this process, and
        `state` an empty state to fill, by default a new one.

        A policy file that cannot be used is waited for. Raises CredentialsError, and PolicyError for the built-in one.
        """
        self.settings = settings
        self.observer = observer = observer or Observer()
        self.state = state or ClusterState(settings.scheduler_names, settings.extender_scheduler_names, reads)
        self._load = load
        self._credentials = credentials or Credentials.load(settings.kubeconfig, settings.context)
        self._kube = Kube(self._credentials)
        self._lease = self._make_lease() if settings.leader_elect else None
        # All changes go through these two, which require the lease; the lease itself is renewed through the one above.
        fenced = partial(FencedKube, remaining=self._lease.remaining) if self._lease else Kube
        self._writer_kube = fenced(self._credentials)
        self._binder_kube = fenced(self._credentials, settings.bind_connections)
        self.mirror = Mirror(self.state, self._wake, observer)
        #: run times of finished jobs
        self.past = PastRuns()
        RunRecorder(self.mirror, self.past)
        self._reflectors, self._writers = self._make_parts()
        self._service_events = ServiceEvents(self._writers.events)
        self._operator = self._writers.operator(self._credentials, self._kube)
        self._contact = Contact(self._kube)
        name = f"{settings.lease_name}-usage"
        usage_store = partial(UsageStore, self._writer_kube, settings.own_namespace, name)
        self._usage = usage_store(usage, self.past) if usage is not None else None
        first, caught_up = None if settings.policy else load(None), self._writers.evictor.caught_up
        self._ticks = TickLoop(
            self.state, first, self._carry_out, caught_up, observer, settings, allowed=lambda: self.leads
        )
        self._policy_file = self._make_policy_file()
        self._decidable = asyncio.Event()
        self._stopping = asyncio.Event()
        self._ready = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._work: asyncio.Task[None] | None = None

    # -- life ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Schedule until stopped. Raises the error that ended a part, such as LeadershipLostError.

        The shutdown takes seconds at most, even when requests hang.
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
        """Run in the background; returns when the initial lists have been applied."""
        running, ready = self.begin(), asyncio.create_task(self._ready.wait())
        await asyncio.wait((running, ready), return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
            await running

    async def wait(self) -> None:
        """Return when the run that `begin` or `start` began has ended; raises as `run` does."""
        if self._running is not None:
            await self._running

    async def stopping(self) -> None:
        """Return once the service has been asked to stop."""
        await self._stopping.wait()

    async def stop(self) -> None:
        """End the run that `begin` or `start` began, and return when it has ended."""
        self._stopping.set()
        if self._running is not None:
            await asyncio.wait((self._running,))

    def wake(self) -> None:
        """Have a session run: something that sessions depend on changed outside the cluster's objects."""
        self._ticks.wake(urgent=False)

    @property
    def changes(self) -> int:
        """The number of changes so far that may make a pod schedulable."""
        return self._ticks.changes

    def knows(self, changes: int) -> bool:
        """Whether a session that saw at least this many of them has ended."""
        return self._ticks.knows(changes)

    def overdue(self, seconds: float) -> str:
        """Activity of the current session, if it has taken longer than some seconds; else empty."""
        return self._ticks.overdue(seconds)

    async def bind_as_asked(self, bind: Bind) -> str:
        """Bind a pod for kube-scheduler; why that was not possible, empty when it has its node."""
        return await bind_as_asked(self._binder_kube, self.state, bind)

    async def news(self) -> None:
        """Return at the next change of the cluster or end of a session."""
        await self._ticks.news()

    @property
    def ready(self) -> bool:
        """Whether all initial lists have been applied."""
        return self._ready.is_set()

    def unready(self) -> list[str]:
        """Why this replica is not ready, one line per reason."""
        patience = self.settings.contact_timeout
        lines = [self._contact.trouble(patience)]
        lines += [each.trouble(patience) for each in self._reflectors if each.source.required or not self.ready]
        if self._policy_file is not None and not self._policy_file.loaded:
            lines.append(f"policy {self.settings.policy}: {self._policy_file.problem}")
        if not self.ready:
            lines.append("the initial lists have not been applied")
        return [line for line in lines if line]

    def notes(self) -> list[str]:
        """Problems of a ready replica: plugins that failed in the last session, a session that takes long."""
        if not self.leads:
            return []
        lines = [*self._service_events.failing.values(), self.overdue(self.settings.session_patience)]
        return [line for line in lines if line]

    def stuck(self) -> list[str]:
        """Why this process should be restarted, one line per reason."""
        ended = self._work is not None and self._work.done()
        lines = ["a part of the service has ended" if ended else "", self.overdue(self.settings.session_timeout)]
        return [line for line in lines if line]

    @property
    def leads(self) -> bool:
        """Whether this replica is the one that schedules."""
        return self._lease is None or self._lease.leads

    # -- work ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _stopped_by_signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT stop the service; only the main thread can handle signals."""
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
        """Cancel all tasks, release the lease and close the connections; each step is abandoned at its time limit."""
        work.cancel()
        await asyncio.wait((work,), timeout=_PARTS)
        if not work.done():
            log.warning("tasks did not end in time", seconds=_PARTS)
        if self._usage is not None and self.leads:
            await _within(_LEFT, "usage of queues not written", self._usage.save())
        if self._lease is not None:
            await _within(_LEASE, "lease not released", self._lease.release())
        for kube in (self._kube, self._writer_kube, self._binder_kube):
            await _within(_CLOSE, "connections not closed", kube.close())

    async def _supervise(self) -> None:
        """Run all tasks of the service; the first failure ends the others, and the service."""
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
        """Become the leader, then start all writers. A replica without a policy does not campaign."""
        await self._decidable.wait()
        if self._lease is not None:
            await self._lease.acquire()
            tasks.create_task(self._hold(self._lease), name="lease")
        self.observer.leading(True)
        if self._lease is not None:
            mark = LeaderMark(self._writer_kube, self.settings.own_namespace, self._pod_name)
            tasks.create_task(mark.run(), name="leader mark")
        self._writers.begin(tasks)
        if self._usage is not None:
            await self._usage.restore()
            tasks.create_task(self._usage.run(), name="usage")
        self._writers.start(tasks)
        tasks.create_task(self._operator.run(), name="operator")
        tasks.create_task(self._schedule(), name="ticks")
        tasks.create_task(self._ticks.watch(), name="ticks-watch")
        tasks.create_task(self._take_over(), name="takeover")
        for part in self._writers.releasing:
            tasks.create_task(self._when_ready(part), name=type(part).__name__)

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
        since = self._lease.unsettled_since if self._lease else None
        await Takeover(self.state, self._writers.events, self._writers.evictor, self.observer, since).run()
        if self._lease is not None:
            self._lease.settled()

    async def _caught_up(self) -> None:
        """Return when the mirror shows the former leader's writes, or after a time limit."""
        began = time.monotonic()
        await self._ready.wait()
        while self._lease is not None and time.monotonic() < began + _CATCHING_UP:
            if all(each.has_seen(began) for each in self._reflectors if each.source.required):
                break
            await asyncio.sleep(_LOOK)

    async def _when_ready(self, part: Part) -> None:
        await self._ready.wait()
        await part.run()

    @property
    def _pod_name(self) -> str:
        """The name of the pod that the leader labels; empty outside a cluster."""
        return os.environ.get("POD_NAME", "")

    def _make_parts(self) -> tuple[list[Reflector], Writers]:
        """The reflectors, which read the cluster, and the writers."""
        kube, mirror, observer = self._kube, self.mirror, self.observer
        reflectors = {source.kind: Reflector(kube, source, mirror, observer) for source in (*SOURCES, PROVISIONING)}
        claims = reflectors["ResourceClaim"]
        writers = Writers(
            self.settings, mirror, observer, self._writer_kube, self._binder_kube, claims_path=lambda: claims.path
        )
        return [*reflectors.values(), writers.native_groups.reflector(kube, observer)], writers

    def _make_lease(self) -> LeaderLease:
        return LeaderLease.of(self.settings, self._kube, ShardTerms.annotation(self.settings))

    # -- policy ----------------------------------------------------------------------------------------------------

    def _make_policy_file(self) -> PolicyFile | None:
        path, folder = self.settings.policy, self.settings.state_dir
        if path is None:
            return None
        return PolicyFile(path, self._take_up, self._policy_report, folder / "policy.conf" if folder else None)

    def _take_up(self, text: str) -> None:
        decider = self._load(text)
        self._ticks.decider = decider
        self._writers.follow(decider.queue_rules)
        self._decidable.set()
        self._ticks.wake()

    def _policy_report(self, problem: str | None) -> None:
        self.observer.policy(problem)
        self._service_events.policy(problem, in_force=self._decidable.is_set())

    def absent(self, kind: str, key: str) -> str:
        """Why sessions know no pod or job of a key, or too few pods of it: their scheduler is not served here, they or
        what owns them could not be read, it is suspended, or its controller makes none; else empty."""
        writers, unmade = self._writers, self._writers.why_no_pod_group(kind, key)
        if kind == "pod":
            return writers.unserved.why(key) or unmade
        return unmade or self.mirror.unreadable_of(key) or writers.unserved.of_gang(key) or writers.suspended.why(key)

    def outside_sessions(self) -> list[Finding]:
        """Problems that no session sees: schedulers that never respond, and a refused policy."""
        found, file = self._writers.unserved.findings(), self._policy_file
        if file is not None and file.loaded and file.problem is not None:
            problem = f"{self.settings.policy} was refused, and the policy before it is in force"
            advice = "fix it: `stromboli config check` names what is wrong in a file, and so does `config show --url`"
            found.append(Finding("policy", problem, advice))
        return found

    def report_plugins(self, failing: Mapping[tuple[str, str], str]) -> None:
        """`failing` are the plugins that failed in the last session; changes are reported by Events."""
        self._service_events.plugins(failing)

    # -- decisions -------------------------------------------------------------------------------------------------

    def _wake(self, urgent: bool) -> None:
        self._ticks.wake(urgent)

    def _carry_out(self, result: Result, snapshot: Snapshot) -> None:
        self._writers.carry_out(result.decisions, result.put_off, snapshot, self._ticks.number)


async def _within(seconds: float, otherwise: str, last: Awaitable[object]) -> None:
    """Await a step of the shutdown; log `otherwise` when it exceeds its time limit."""
    try:
        async with asyncio.timeout(seconds):
            await last
    except TimeoutError:
        log.warning(otherwise, seconds=seconds)
