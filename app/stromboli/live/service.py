"""The service: everything in this package, put together and run inside kopf's loop."""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import kopf

from stromboli.api.crds import SCHEDULING, TOPOLOGY, PodGroupPhase
from stromboli.api.decisions import (
    Bind,
    Decision,
    EmitEvent,
    Evict,
    Nominate,
    SetPodGroupStatus,
    SetPodUnscheduled,
    SetQueueStatus,
)
from stromboli.live.binder import Binder
from stromboli.live.client import CONNECTION_ERRORS, ApiError, Credentials, Kube
from stromboli.live.events import Events, Reference
from stromboli.live.evictor import Evictor
from stromboli.live.leader import LeaderLease
from stromboli.live.limits import Backoff
from stromboli.live.logs import Logger
from stromboli.live.loop import Decider, Result, TickLoop
from stromboli.live.mirror import Mirror
from stromboli.live.observer import Observer
from stromboli.live.operator import OPERATOR_SOURCES, end_tasks, operator_registry, operator_settings
from stromboli.live.pod_conditions import PodConditions
from stromboli.live.podgroups import PodGroupMaker
from stromboli.live.policy import PolicyFile
from stromboli.live.queues import QueueController, ensure_queues
from stromboli.live.recall import Recall
from stromboli.live.reflector import CLUSTER_SOURCES, Reflector
from stromboli.live.settings import Settings
from stromboli.live.status import StatusWriter, pod_group_fields
from stromboli.state.cluster import ClusterState
from stromboli.state.snapshot import Snapshot

__all__ = ["Decider", "Result", "Service"]

log = Logger(__name__)

_API_VERSIONS = {"Queue": SCHEDULING, "PodGroup": SCHEDULING, "HyperNode": TOPOLOGY}


class Service:
    """The scheduler on one cluster. `run` lasts until `stop`, SIGTERM or SIGINT."""

    def __init__(
        self,
        settings: Settings,
        load: Callable[[str | None], Decider],
        observer: Observer | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """`load` makes an engine from the text of a policy, or the built-in one; it raises PolicyError.

        Raises PolicyError, OSError when the policy file cannot be read, and CredentialsError.
        """
        self.settings = settings
        self.observer = observer = observer or Observer()
        self.state = ClusterState(settings.scheduler_names, settings.extender_scheduler_names)
        self._load = load
        self._credentials = credentials or Credentials.load(settings.kubeconfig, settings.context)
        self._kube = Kube(self._credentials)
        self._binder_kube = Kube(self._credentials, settings.bind_connections)
        self.mirror = mirror = Mirror(self.state, self._wake, observer)
        name = settings.scheduler_names[0]
        self._events = Events(self._kube, observer, name, settings.events_per_second)
        self._recall = Recall(self._kube, mirror)
        self._binder = Binder(
            self._binder_kube,
            mirror,
            self._events,
            self._recall,
            observer,
            workers=settings.bind_connections,
            rate=settings.binds_per_second,
            assume_timeout=settings.assume_timeout,
            pod_events=settings.pod_events,
        )
        self._evictor = Evictor(self._kube, mirror, self._events, observer, name)
        self._status = StatusWriter(self._kube, mirror, observer, settings.status_writes_per_second)
        self._pod_conditions = PodConditions(self._kube, self.state, settings.pod_conditions_per_second)
        self._queues = QueueController(mirror, self._status, settings.status_patience)
        self._pod_groups = PodGroupMaker(self._kube, mirror, self._events, inherit=settings.inherit_owner_annotations)
        self._reflectors = [Reflector(self._kube, source, mirror, observer) for source in CLUSTER_SOURCES]
        self._operator_kinds = [Reflector(self._kube, source, mirror, observer) for source in OPERATOR_SOURCES]
        self._lease = self._make_lease() if settings.leader_elect else None
        self._ticks = TickLoop(
            self.state,
            self._first_engine(),
            self._carry_out,
            self._evictor.settled,
            observer,
            debounce=settings.debounce,
            period=settings.schedule_period,
            allowed=lambda: self.leads,
        )
        self._stopping = asyncio.Event()
        self._ready = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._work: asyncio.Task[None] | None = None

    # -- life ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Schedule until stopped. Raises what made going on impossible, such as LeadershipLostError."""
        tasks = await kopf.spawn_tasks(
            registry=operator_registry(self._credentials, self.mirror, self._start_work),
            settings=operator_settings(),
            standalone=True,
            clusterwide=True,
            stop_flag=self._stopping,
        )
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ends = [*await end_tasks(tasks), *await self._end_work()]
        for end in ends:
            if isinstance(end, Exception):
                raise end

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

    @property
    def healthy(self) -> bool:
        """Whether everything runs that should run."""
        return self._work is None or not self._work.done()

    @property
    def leads(self) -> bool:
        """Whether this replica is the one that schedules."""
        return self._lease is None or self._lease.leads

    # -- work ------------------------------------------------------------------------------------------------------

    async def _start_work(self) -> None:
        self._work = asyncio.create_task(self._supervise(), name="stromboli-work")
        self._work.add_done_callback(lambda work: self._stopping.set())
        # kopf looks once what there is to watch: not before our definitions are there.
        for reflector in self._operator_kinds:
            if reflector.source.required:
                await reflector.synced.wait()

    async def _end_work(self) -> Sequence[BaseException | None]:
        ends: Sequence[BaseException | None] = ()
        if self._work is not None:
            self._work.cancel()
            ends = await asyncio.gather(self._work, return_exceptions=True)
        if self._lease is not None:
            await self._lease.release()
        await self._kube.close()
        await self._binder_kube.close()
        return ends

    async def _supervise(self) -> None:
        """All tasks of the service: the first that fails ends the others, and the service."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._credentials.keep_fresh(), name="credentials")
                for reflector in self._reflectors:
                    tasks.create_task(reflector.run(), name=f"reflector-{reflector.source.kind}")
                for reflector in self._operator_kinds:
                    tasks.create_task(self._reconcile(reflector), name=f"reconcile-{reflector.source.kind}")
                if self._policy_file is not None:
                    tasks.create_task(self._policy_file.run(), name="policy")
                tasks.create_task(self._lead(tasks), name="leader")
                for reflector in (*self._reflectors, *self._operator_kinds):
                    await reflector.synced.wait()
                log.info("synced", pods=len(self.state.pods.by_key), nodes=len(self.state.nodes.by_name))
                self._ready.set()
        except ExceptionGroup as errors:
            log.exception("service failed", errors.exceptions[0])
            raise errors.exceptions[0] from None

    async def _reconcile(self, reflector: Reflector) -> None:
        """List a kind that kopf watches: at first until it is there, and then periodically."""
        backoff, why = Backoff(0.2, 5.0), "start"
        while True:
            try:
                await reflector.list(why)
            except (ApiError, *CONNECTION_ERRORS) as error:
                absent = isinstance(error, ApiError) and error.status == 404
                if absent and not reflector.source.required:
                    reflector.absent()
                    await asyncio.sleep(self.settings.reconcile_period)
                else:
                    kind = reflector.source.kind
                    log.warning("list failed", kind=kind, error=str(error) or repr(error))
                    await asyncio.sleep(backoff.delay())
                continue
            why = "reconcile"
            await asyncio.sleep(self.settings.reconcile_period)

    async def _lead(self, tasks: asyncio.TaskGroup) -> None:
        """Become the leader, and begin to change the cluster."""
        if self._lease is not None:
            await self._lease.acquire()
        self.observer.leading(True)
        await self._ensure_queues()
        self._queues.begin()
        writers = (self._events, self._binder, self._recall, self._evictor, self._status, self._pod_conditions)
        for part in (*writers, self._pod_groups):
            tasks.create_task(part.run(), name=type(part).__name__)
        tasks.create_task(self._schedule(), name="ticks")
        if self._lease is not None:
            try:
                await self._lease.hold()
            finally:
                self.observer.leading(False)

    async def _schedule(self) -> None:
        await self._ready.wait()
        await self._ticks.run()

    async def _ensure_queues(self) -> None:
        backoff = Backoff(0.2, 5.0)
        while True:
            try:
                return await ensure_queues(self._kube, self.settings.default_queue)
            except (ApiError, *CONNECTION_ERRORS) as error:
                log.warning("queues not created", error=str(error) or repr(error))
            await asyncio.sleep(backoff.delay())

    def _make_lease(self) -> LeaderLease:
        settings = self.settings
        return LeaderLease(
            self._kube,
            settings.lease_namespace or os.environ.get("POD_NAMESPACE") or "default",
            settings.lease_name,
            f"{os.environ.get('POD_NAME') or socket.gethostname()}_{uuid.uuid4()}",
            duration=settings.lease_duration,
            renew_deadline=settings.renew_deadline,
            retry_period=settings.retry_period,
        )

    # -- policy ----------------------------------------------------------------------------------------------------

    def _first_engine(self) -> Decider:
        path = self.settings.policy
        self._policy_file = None
        if path is None:
            return self._load(None)
        self._policy_file = PolicyFile(path, self._take_up, self._policy_report)
        return self._load(self._policy_file.read())

    def _take_up(self, text: str) -> None:
        self._ticks.decider = self._load(text)
        self._ticks.wake()

    def _policy_report(self, problem: str | None) -> None:
        self.observer.policy(problem)
        about = Reference("v1", "Pod", os.environ.get("POD_NAMESPACE", ""), os.environ.get("POD_NAME", ""))
        if not about.name:
            about = Reference(SCHEDULING, "Queue", "", "root")
        if problem is None:
            self._events.emit(about, "Normal", "PolicyLoaded", "the policy file was taken up", "Configuring")
        else:
            note = f"the policy before stays in force: {problem}"
            self._events.emit(about, "Warning", "PolicyRefused", note, "Configuring")

    # -- decisions -------------------------------------------------------------------------------------------------

    def _wake(self, urgent: bool) -> None:
        self._ticks.wake(urgent)

    def _carry_out(self, decisions: Sequence[Decision], snapshot: Snapshot) -> None:
        by_type: defaultdict[type[Decision], list[Any]] = defaultdict(list)
        for decision in decisions:
            by_type[type(decision)].append(decision)
        self._binder.submit(by_type[Bind], snapshot)
        self._evictor.evict(by_type[Evict])
        self._evictor.nominate(by_type[Nominate])
        self._set_pod_group_statuses(by_type[SetPodGroupStatus], [*by_type[EmitEvent], *by_type[SetPodUnscheduled]])
        for queue in by_type[SetQueueStatus]:
            self._queues.allocated(queue.name, queue.allocated)
        self._queues.refresh()

    def _set_pod_group_statuses(
        self, statuses: Sequence[SetPodGroupStatus], news: Iterable[EmitEvent | SetPodUnscheduled]
    ) -> None:
        """Have statuses written, and what is new about those PodGroups told with them: it may be over soon."""
        decided = {f"{status.namespace}/{status.name}": status for status in statuses}
        told: defaultdict[str, list[EmitEvent | SetPodUnscheduled]] = defaultdict(list)
        for item in news:
            told[self._pod_group_of(item)].append(item)
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
                fields = pod_group_fields(decision.status, pod_group)
                self._status.put("PodGroup", key, fields, patience=self.settings.status_patience, then=tell)
        for others in told.values():
            self._tell(others)

    def _pod_group_of(self, item: EmitEvent | SetPodUnscheduled) -> str:
        """The key of the PodGroup that something is about, empty when it is about something else."""
        key = f"{item.namespace}/{item.name}"
        if isinstance(item, EmitEvent):
            return key if item.kind == "PodGroup" else ""
        record = self.state.record(key)
        return record.job if record else ""

    def _tell(self, news: Iterable[EmitEvent | SetPodUnscheduled]) -> None:
        for item in news:
            if isinstance(item, SetPodUnscheduled):
                self._pod_conditions.put(item)
                continue
            about = Reference(_API_VERSIONS.get(item.kind, "v1"), item.kind, item.namespace, item.name, item.uid)
            self._events.emit(about, item.type, item.reason, item.message)
