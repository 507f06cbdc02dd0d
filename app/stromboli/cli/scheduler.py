"""The service and its HTTP side, put together."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from stromboli.dashboard.history import History
from stromboli.dashboard.routes import dashboard_routes
from stromboli.engine import Engine, Successive
from stromboli.explain.log_lines import log_lines
from stromboli.extender import Published
from stromboli.framework.cluster.churn import Churn
from stromboli.framework.cluster.environment import Admitted, Environment, Sharding
from stromboli.framework.reasons import error_told
from stromboli.framework.registry import Registry
from stromboli.framework.runtime.failures import summaries
from stromboli.framework.session.session import Session
from stromboli.http.api import api_routes
from stromboli.http.cluster import LiveCluster
from stromboli.http.extender import LiveSessions
from stromboli.http.server import Probes, make_app, serve
from stromboli.journal import Folder, Journal, RecordedSessions, Tape
from stromboli.live.api_server import definitions
from stromboli.live.api_server.access import AccessReviews
from stromboli.live.api_server.client import Credentials, Kube
from stromboli.live.inputs import node_load, queue_usage
from stromboli.live.inputs.extender_transport import HttpExtenderTransport
from stromboli.live.leadership.leader import LeaderLease
from stromboli.live.leadership.node_shard import NodeShardWriter, ShardTerms
from stromboli.live.observer import Observers
from stromboli.live.process.garbage import Garbage
from stromboli.live.process.logs import Logger
from stromboli.live.process.watchdog import end_within, watch_loop
from stromboli.live.service import Service
from stromboli.live.settings import Settings
from stromboli.live.stand_in import Deputy, StandIn, StandInLease
from stromboli.metrics import Metrics
from stromboli.plugins.fairshare import FairShare
from stromboli.plugins.fairshare.usage import UsageHistory
from stromboli.policy.document import DEFAULT_POLICY
from stromboli.policy.model import Policy
from stromboli.policy.rules import Compatibility
from stromboli.state.cluster import ClusterState
from stromboli.tracing import from_environment

log = Logger(__name__)

#: seconds for which the event loop may stand still, and those that the end may take
_PATIENCE = 60.0
_GRACE = 10.0
#: seconds for what the journal still has to write, and for threads whose answers are awaited no longer
_FLUSH = 3.0
_REST = 1.0


class _Watcher(Metrics):
    """Counts, and keeps the last session and its state before for questions over HTTP."""

    def __init__(self) -> None:
        super().__init__()
        self.published: Published | None = None
        self.history = History()
        self._garbage = Garbage()
        self._number = 0
        self.service: Service | None = None
        #: errors of plugins in the last session, which are not logged again
        self._failures: set[tuple[str, str, str, str]] = set()

    def session(self, snapshot: Any, result: Any, now: float, seconds: float) -> None:
        super().session(snapshot, result, now, seconds)
        assert self.service is not None
        self.published = Published(result.session, self.service.state.pods.by_key)
        # A thread that answers a question may add to them.
        found = list(result.session.failures)
        for failure in found:
            if (*failure.key, error_told(failure.error)) not in self._failures:
                of = {"plugin": failure.plugin, "point": failure.point, "where": failure.where}
                log.exception("plugin failed", failure.error, **of)  # noqa: LOG004
        self._failures = {(*failure.key, error_told(failure.error)) for failure in found}
        self.service.report_plugins(summaries(found, result.session.view.jobs))
        self.history.session(result.session, now, seconds)
        if log.tells_all:
            for event, fields in log_lines(result.session):
                log.debug(event, **fields, session=self._number)
        self._garbage.session_ended(bool(result.session.bound))

    def session_began(self, number: int) -> None:
        super().session_began(number)
        self._garbage.session_began()
        self.history.began(number)
        self._number = number

    def session_failed(self, error: BaseException) -> None:
        super().session_failed(error)
        self.history.failed(error, time.time())

    def snapshot(self, seconds: float) -> None:
        super().snapshot(seconds)
        self.history.snapshot(seconds)

    def policy(self, error: str | None) -> None:
        super().policy(error)
        self.history.problem = error or ""

    def last(self) -> Session | None:
        """The last session of this replica, while it leads."""
        leads = self.service is not None and self.service.leads
        return self.published.session if self.published is not None and leads else None

    def notes(self) -> Sequence[str]:
        """Problems that do not keep the service from working."""
        return self.service.notes() if self.service is not None else []

    def missing(self) -> Sequence[str]:
        """Reasons why the service is not ready; empty when it is."""
        if self.service is None:
            return ["the service has not started"]
        problems = self.service.unready()
        if not problems and self.published is None and self.service.leads:
            return ["no session has run yet"]
        return problems


class _Usage:
    """Past usage of queues, as sessions hand it on."""

    def __init__(self, sessions: Successive) -> None:
        self._sessions = sessions

    def recall(self) -> UsageHistory | None:
        """Usage history that the last session left; None without one."""
        history = self._sessions.environment.left.get(FairShare.name)
        return history if isinstance(history, UsageHistory) else None

    def remember(self, history: UsageHistory) -> None:
        """Set the state from which the next session continues; none runs yet."""
        environment = self._sessions.environment
        self._sessions.environment = replace(environment, left={**environment.left, FairShare.name: history})


def _recorded(
    settings: Settings, engine: Engine, environment: Environment
) -> tuple[Journal | None, ClusterState | None, Successive]:
    """Sessions, the state that they are to be on, and their journal, if one is kept. Raises OSError."""
    if not settings.journal_memory and settings.journal_dir is None:
        return None, None, Successive(engine, environment, time.perf_counter)
    dropped = partial(log.recurring, "oldest segments of the journal dropped")
    folder = Folder(settings.journal_dir, settings.journal_disk, dropped) if settings.journal_dir else None
    state = ClusterState(settings.scheduler_names, settings.extender_scheduler_names, engine.registry.reads)
    tape = Tape(state)
    journal = Journal(tape, settings.journal_memory, folder, partial(log.recurring, "journal not written", traced=True))
    return journal, state, RecordedSessions(journal, tape, engine, environment)


def _environment(settings: Settings) -> Environment:
    """The environment of a service's first session."""
    sharding = Sharding(settings.shard_mode, settings.shard) if settings.shard else None
    return Environment(extender=HttpExtenderTransport(), sharding=sharding, admitted=Admitted(), churn=Churn())


def _loading(sessions: Successive, engine_of: Callable[..., Engine]) -> Callable[[str | None], Successive]:
    """A function that has sessions follow the text of a policy, or the built-in one for None."""

    def load(text: str | None) -> Successive:
        sessions.engine = engine_of(text or DEFAULT_POLICY)
        return sessions

    return load


def _shard_writer(kube: Kube, settings: Settings, leads: Callable[[], bool]) -> NodeShardWriter | None:
    """The writer of the status of a service's NodeShard; None if it has all nodes."""
    return NodeShardWriter(kube, settings.shard, leads) if settings.shard else None


class Scheduler:
    """The service and its HTTP side, put together."""

    def __init__(self, settings: Settings, registry: Registry, compatibility: Compatibility | None) -> None:
        engine_of = partial(Engine, registry=registry, compatibility=compatibility)
        self._journal, state, sessions = _recorded(settings, engine_of(), _environment(settings))
        watcher = _Watcher()
        credentials = Credentials.load(settings.kubeconfig, settings.context)
        self._spans = from_environment()
        self._reviews = Kube(credentials)
        self._node_shard = _shard_writer(self._reviews, settings, lambda: self._service.leads)
        observers = [each for each in (watcher, self._spans, self._node_shard) if each is not None]
        load, usage = _loading(sessions, engine_of), _Usage(sessions)
        watcher.service = self._service = Service(
            settings, load, Observers(*observers), credentials, reads=registry.reads, usage=usage, state=state
        )
        self._stand_ins = [
            StandIn(partial(self._lease_of, name), partial(self._schedule_for, registry, engine_of))
            for name in settings.stand_in
        ]
        reviews = AccessReviews(self._reviews)
        self._settings = settings
        self._sessions = sessions
        asked = LiveSessions(self._service, lambda: watcher.published)
        self._app = make_app(
            asked,
            watcher.registry,
            Probes(watcher.missing, asked.stuck, watcher.notes),
            scheduler_names=settings.scheduler_names,
            extender_scheduler_names=settings.extender_scheduler_names,
            more=[
                api_routes(
                    LiveCluster(self._service, sessions, engine_of, watcher.last),
                    reviews,
                    self._journal.content if self._journal else None,
                ),
                dashboard_routes(watcher, reviews, settings.lease_namespace, self._service.absent),
            ],
        )

    async def run(self, listening: socket.socket) -> None:
        """Schedule and serve, in one loop, until either ends."""
        service = asyncio.create_task(self._service.run(), name="service")
        http = asyncio.create_task(serve(self._app, listening, self._settings), name="http")
        others = (
            asyncio.create_task(watch_loop(_PATIENCE), name="watchdog"),
            asyncio.create_task(node_load.follow(self._policy, self._tell), name="node load"),
            asyncio.create_task(queue_usage.follow(self._policy, self._tell_usage), name="queue usage"),
            *([asyncio.create_task(self._node_shard.run(), name="node shard")] if self._node_shard else ()),
            *(asyncio.create_task(each.run(), name="stand-in") for each in self._stand_ins),
            asyncio.create_task(definitions.tell_what_is_lost(self._reviews), name="definitions"),
            asyncio.create_task(self._service.stopping(), name="stopping"),
        )
        try:
            await asyncio.wait((service, http, others[-1]), return_when=asyncio.FIRST_COMPLETED)
        finally:
            end_within(_GRACE)
            await self._service.stop()
            for task in (http, *others):
                task.cancel()
            outcomes = await asyncio.gather(service, http, *others, return_exceptions=True)
            await self._reviews.close()
            if self._spans:
                self._spans.close()
            if self._journal is not None:
                await asyncio.to_thread(self._journal.flush, _FLUSH)
        problem = next((each for each in outcomes if isinstance(each, Exception)), None)
        end_within(_REST, 1 if problem else 0)
        if problem is not None:
            raise problem

    def _lease_of(self, name: str) -> StandInLease:
        """The lease of another shard, to be watched."""
        return StandInLease.of(self._settings.model_copy(update={"lease_name": name}), self._reviews)

    async def _schedule_for(
        self, registry: Registry, engine_of: Callable[..., Engine], terms: ShardTerms, lease: LeaderLease
    ) -> None:
        """Schedule for another shard until the lease is lost, and raise LeadershipLostError then."""
        settings = terms.applied_to(self._settings, lease.name)
        sessions = Successive(engine_of(), _environment(settings), time.perf_counter)
        load, usage = _loading(sessions, engine_of), _Usage(sessions)
        writer = _shard_writer(self._reviews, settings, lambda: lease.leads)
        assert writer is not None
        credentials = Credentials.load(settings.kubeconfig, settings.context)
        deputy = Deputy(lease, settings, load, writer, credentials, registry.reads, usage)
        told = asyncio.create_task(writer.run(), name="node shard of another")
        try:
            await deputy.run()
        finally:
            told.cancel()

    def _tell(self, loads: node_load.Loads) -> None:
        self._sessions.node_usage = loads
        self._service.wake()

    def _tell_usage(self, usage: queue_usage.Usage) -> None:
        self._sessions.queue_usage = usage
        self._service.wake()

    def _policy(self) -> Policy:
        return self._sessions.engine.policy
