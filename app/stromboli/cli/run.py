"""`stromboli run`: the live service on a cluster."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from pydantic import ValidationError

from stromboli.api.errors import StromboliError
from stromboli.cli.options import CertFile, Compatible, KeyFile, PluginsDir, SchedulerNames, ShardMode, policy_option
from stromboli.cli.problems import misset
from stromboli.cli.workloads import kinds_with
from stromboli.dashboard.history import History
from stromboli.dashboard.routes import dashboard_routes
from stromboli.discovery import discover
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
from stromboli.http.server import listen as open_socket
from stromboli.journal import Folder, Journal, RecordedSessions, Tape
from stromboli.live import definitions, node_load, queue_usage
from stromboli.live.access import AccessReviews
from stromboli.live.client import Credentials, Kube
from stromboli.live.extender_transport import HttpExtenderTransport
from stromboli.live.garbage import Garbage
from stromboli.live.logs import LogFormat, Logger, configure
from stromboli.live.node_shard import NodeShardWriter
from stromboli.live.observer import Observers
from stromboli.live.service import Service
from stromboli.live.settings import Settings
from stromboli.live.watchdog import end_within, watch_loop
from stromboli.metrics import Metrics
from stromboli.plugins.fairshare import FairShare
from stromboli.plugins.fairshare.usage import UsageHistory
from stromboli.policy.document import DEFAULT_POLICY
from stromboli.policy.model import Policy
from stromboli.policy.rules import Compatibility
from stromboli.state.cluster import ClusterState
from stromboli.tracing import from_environment

log = Logger(__name__)

#: spec.schedulerName of pods that name none
KUBE_SCHEDULER = "default-scheduler"
_LEVELS = ("debug", "info", "warning", "error")
#: seconds for which the event loop may stand still, and those that the end may take
_PATIENCE = 60.0
_GRACE = 10.0
#: seconds for what the journal still has to write, and for threads whose answers are awaited no longer
_FLUSH = 3.0
_REST = 1.0
#: seconds for which a session may keep the interpreter while questions and events wait
_SWITCH = 0.001


def run(
    kubeconfig: Annotated[Path | None, typer.Option(help="Kubeconfig; by default the usual places.")] = None,
    context: Annotated[str | None, typer.Option(help="Context in it; by default the current one.")] = None,
    scheduler_name: SchedulerNames = None,
    extender_scheduler_name: Annotated[
        list[str] | None,
        typer.Option(
            help="Like --scheduler-name, but kube-scheduler binds the pods and asks through its extender; by default "
            "default-scheduler. Empty for none."
        ),
    ] = None,
    policy: Annotated[Path | None, policy_option(" (volcano-scheduler.conf), followed")] = None,
    state_dir: Annotated[
        Path | None, typer.Option(help="Folder in which the last good policy is kept, for a start with a bad one.")
    ] = None,
    journal_memory: Annotated[
        int, typer.Option(help="Bytes of the newest sessions that are kept for `stromboli record`; 0 keeps none.")
    ] = 32 << 20,
    journal_dir: Annotated[Path | None, typer.Option(help="Folder that keeps them beyond the process.")] = None,
    journal_disk: Annotated[int, typer.Option(help="Largest size of that folder, in bytes.")] = 1 << 30,
    compatibility: Compatible = None,
    plugins_dir: PluginsDir = None,
    listen: Annotated[str, typer.Option(help="Where metrics, probes and the extender are served.")] = "127.0.0.1:8080",
    tls_cert_file: CertFile = None,
    tls_private_key_file: KeyFile = None,
    client_ca_file: Annotated[
        Path | None, typer.Option(help="Authorities (PEM): clients of the extender need a certificate of one of them.")
    ] = None,
    http_max_body: Annotated[int, typer.Option(help="Longest request, in bytes.")] = 32 << 20,
    schedule_period: Annotated[float, typer.Option(help="Longest time between two sessions, in seconds.")] = 1.0,
    shard: Annotated[
        str, typer.Option(help="NodeShard with the nodes to schedule on; by default all nodes.", show_default=False)
    ] = "",
    shard_mode: Annotated[
        ShardMode, typer.Option(help="hard never leaves the nodes of the shard, soft takes them first.")
    ] = ShardMode.hard,
    workloads: Annotated[
        list[Path] | None, typer.Option(help="File with more kinds of workloads (WorkloadKind). May be repeated.")
    ] = None,
    default_queue: Annotated[str, typer.Option(help="Queue that is created when it is absent.")] = "default",
    binds_per_second: Annotated[float, typer.Option(help="Limit on bindings.")] = 2_000,
    pod_events: Annotated[
        bool,
        typer.Option("--pod-events", help="Report each binding by an Event on the pod instead of one on its PodGroup."),
    ] = False,
    delete_victims: Annotated[
        bool,
        typer.Option("--delete-victims", help="Delete victims without asking disruption budgets, as Volcano does."),
    ] = False,
    leader_elect: Annotated[bool, typer.Option("--leader-elect", help="Take turns with other replicas.")] = False,
    lease_namespace: Annotated[str, typer.Option(envvar="POD_NAMESPACE", help="Namespace of the lease.")] = "default",
    lease_name: Annotated[
        str,
        typer.Option(
            help="Name of the lease that replicas share; by default stromboli, or stromboli-SHARD of a shard."
        ),
    ] = "",
    lease_duration: Annotated[
        float, typer.Option(help="Seconds without a sign of the leader after which another replica takes over.")
    ] = 6.0,
    renew_deadline: Annotated[
        float, typer.Option(help="Seconds without a renewal after which a leader stops writing.")
    ] = 4.0,
    retry_period: Annotated[float, typer.Option(help="Seconds between checks of the lease.")] = 1.0,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    log_format: Annotated[
        LogFormat, typer.Option(help="Lines of text, or an object in JSON for each.")
    ] = LogFormat.text,
) -> None:
    """Schedule on a cluster until stopped.

    Example: stromboli run --kubeconfig ~/.kube/config --scheduler-name volcano --policy volcano-scheduler.conf
    """
    if log_level.lower() not in _LEVELS:
        _fail(f"--log-level: {log_level!r} is none of {', '.join(_LEVELS)}", 2)
    configure(log_level, log_format)
    try:
        settings = Settings(
            kubeconfig=kubeconfig,
            context=context,
            scheduler_names=tuple(scheduler_name or ("stromboli",)),
            extender_scheduler_names=_advised(extender_scheduler_name, scheduler_name or ()),
            policy=policy,
            state_dir=state_dir,
            journal_memory=journal_memory,
            journal_dir=journal_dir,
            journal_disk=journal_disk,
            listen=listen,
            tls_cert_file=tls_cert_file,
            tls_private_key_file=tls_private_key_file,
            client_ca_file=client_ca_file,
            http_max_body=http_max_body,
            schedule_period=schedule_period,
            kinds=kinds_with(workloads or ()),
            shard=shard,
            shard_mode=shard_mode.value,
            default_queue=default_queue,
            binds_per_second=binds_per_second,
            pod_events=pod_events,
            delete_victims=delete_victims,
            leader_elect=leader_elect,
            lease_namespace=lease_namespace,
            lease_name=lease_name or (f"stromboli-{shard}" if shard else "stromboli"),
            lease_duration=lease_duration,
            renew_deadline=renew_deadline,
            retry_period=retry_period,
        )
        scheduler = _Scheduler(settings, discover(plugins_dir), compatibility.value if compatibility else None)
        listening = open_socket(settings.listen)
    except ValidationError as error:
        _fail("; ".join(map(misset, error.errors())), 2)
    except (StromboliError, OSError, ValueError) as error:
        _fail(str(error), 2)
    _serve(scheduler, listening)


def _serve(scheduler: _Scheduler, listening: socket.socket) -> None:
    """Schedule until it ends, and the process with it if that was an error."""
    try:
        sys.setswitchinterval(_SWITCH)
        # uvloop saves a few percent, and loses track of descriptors when connections break as they open.
        with asyncio.Runner() as runner:
            runner.run(scheduler.run(listening))
    except Exception as error:
        _fail(str(error) if isinstance(error, StromboliError) else f"{type(error).__name__}: {error}", 1)


def _advised(names: Sequence[str] | None, own: Sequence[str]) -> tuple[str, ...]:
    """The schedulerName of pods that kube-scheduler binds, unless it is ours: what is said, or else its own."""
    said = [KUBE_SCHEDULER] if names is None else names
    return tuple(name for name in said if name and name not in own)


def _fail(problem: str, code: int) -> NoReturn:
    print(problem, file=sys.stderr)
    raise typer.Exit(code) from None


class _Watcher(Metrics):
    """Counts, and keeps the last session and what was before it for questions over HTTP."""

    def __init__(self) -> None:
        super().__init__()
        self.published: Published | None = None
        self.history = History()
        self._garbage = Garbage()
        self._number = 0
        self.service: Service | None = None
        #: None when all nodes are its own
        self.node_shard: NodeShardWriter | None = None
        #: what plugins raised in the last session, which is not logged again
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
        self.service.report_plugins(summaries(found))
        self.history.session(result.session, now, seconds)
        if log.tells_all:
            for event, fields in log_lines(result.session):
                log.debug(event, **fields, session=self._number)
        self._garbage.session_ended(bool(result.session.bound))
        if self.node_shard is not None:
            self.node_shard.tell(result.session.view.shard.new_status)

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
        """What is not as it should be though the service does its work: the plugins that failed in the last session."""
        return list(self.service.failing.values()) if self.service is not None and self.service.leads else []

    def missing(self) -> Sequence[str]:
        """What the service waits for."""
        if self.service is None:
            return ["the service has not started"]
        problems = self.service.unready()
        if not problems and self.published is None and self.service.leads:
            return ["no session has run yet"]
        return problems


class _Usage:
    """What queues held over time, as the sessions hand it on."""

    def __init__(self, sessions: Successive) -> None:
        self._sessions = sessions

    def recall(self) -> UsageHistory | None:
        """What the last session left."""
        history = self._sessions.environment.left.get(FairShare.name)
        return history if isinstance(history, UsageHistory) else None

    def remember(self, history: UsageHistory) -> None:
        """What the next session is to go on with; none runs yet."""
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


class _Scheduler:
    """The service and its HTTP side, put together."""

    def __init__(self, settings: Settings, registry: Registry, compatibility: Compatibility | None) -> None:
        sharding = Sharding(settings.shard_mode, settings.shard) if settings.shard else None
        environment = Environment(
            extender=HttpExtenderTransport(), sharding=sharding, admitted=Admitted(), churn=Churn()
        )
        engine_of = partial(Engine, registry=registry, compatibility=compatibility)
        self._journal, state, sessions = _recorded(settings, engine_of(), environment)

        def load(text: str | None) -> Successive:
            sessions.engine = engine_of(text or DEFAULT_POLICY)
            return sessions

        watcher = _Watcher()
        credentials = Credentials.load(settings.kubeconfig, settings.context)
        self._spans = from_environment()
        observer = Observers(watcher, self._spans) if self._spans else watcher
        watcher.service = self._service = Service(
            settings, load, observer, credentials, reads=registry.reads, usage=_Usage(sessions), state=state
        )
        self._reviews = Kube(credentials)
        if settings.shard:
            watcher.node_shard = NodeShardWriter(self._reviews, settings.shard, lambda: self._service.leads)
        self._node_shard = watcher.node_shard
        reviews = AccessReviews(self._reviews)
        self._settings = settings
        self._sessions = sessions
        self._app = make_app(
            LiveSessions(self._service, lambda: watcher.published),
            watcher.registry,
            Probes(watcher.missing, self._service.stuck, watcher.notes),
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

    def _tell(self, loads: node_load.Loads) -> None:
        self._sessions.node_usage = loads
        self._service.wake()

    def _tell_usage(self, usage: queue_usage.Usage) -> None:
        self._sessions.queue_usage = usage
        self._service.wake()

    def _policy(self) -> Policy:
        return self._sessions.engine.policy
