"""`stromboli run`: the live service on a cluster."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop

from stromboli.api.errors import StromboliError
from stromboli.cli.simulate import Mode
from stromboli.discovery import discover
from stromboli.engine import Engine, Successive
from stromboli.extender import Published
from stromboli.framework.environment import Environment
from stromboli.framework.registry import Registry
from stromboli.http import listen as open_socket
from stromboli.http import make_app, serve
from stromboli.live import node_load
from stromboli.live.extender_transport import HttpExtenderTransport
from stromboli.live.logs import Logger
from stromboli.live.service import Service
from stromboli.live.settings import Settings
from stromboli.metrics import Metrics
from stromboli.policy.document import DEFAULT_POLICY
from stromboli.policy.rules import Compatibility

log = Logger(__name__)


def run(
    kubeconfig: Annotated[Path | None, typer.Option(help="Kubeconfig; by default the usual places.")] = None,
    context: Annotated[str | None, typer.Option(help="Context in it; by default the current one.")] = None,
    scheduler_name: Annotated[
        list[str] | None, typer.Option(help="spec.schedulerName of pods that are ours. May be repeated.")
    ] = None,
    extender_scheduler_name: Annotated[
        list[str] | None,
        typer.Option(help="Like --scheduler-name, but kube-scheduler binds the pods and asks through its extender."),
    ] = None,
    policy: Annotated[Path | None, typer.Option(help="Policy file (volcano-scheduler.conf), followed.")] = None,
    compatibility: Annotated[Mode | None, typer.Option(help="Overrides what the policy says.")] = None,
    plugins_dir: Annotated[Path | None, typer.Option(help="Folder of Python files with more plugins.")] = None,
    listen: Annotated[str, typer.Option(help="Where metrics, probes and the extender are served.")] = "127.0.0.1:8080",
    schedule_period: Annotated[float, typer.Option(help="Longest time between two sessions, in seconds.")] = 1.0,
    default_queue: Annotated[str, typer.Option(help="Queue that is created when it is absent.")] = "default",
    binds_per_second: Annotated[float, typer.Option(help="Limit on bindings.")] = 2_000,
    pod_events: Annotated[
        bool, typer.Option("--pod-events", help="Tell each binding by an Event on the pod, not one on its PodGroup.")
    ] = False,
    leader_elect: Annotated[bool, typer.Option("--leader-elect", help="Take turns with other replicas.")] = False,
    lease_namespace: Annotated[str, typer.Option(envvar="POD_NAMESPACE", help="Namespace of the lease.")] = "default",
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Schedule on a cluster until stopped."""
    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s")
    # A line for every event of every object says nothing that is not in the objects.
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    settings = Settings(
        kubeconfig=kubeconfig,
        context=context,
        scheduler_names=tuple(scheduler_name or ("stromboli",)),
        extender_scheduler_names=tuple(extender_scheduler_name or ()),
        policy=policy,
        listen=listen,
        schedule_period=schedule_period,
        default_queue=default_queue,
        binds_per_second=binds_per_second,
        pod_events=pod_events,
        leader_elect=leader_elect,
        lease_namespace=lease_namespace,
    )
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(settings, discover(plugins_dir), compatibility.value if compatibility else None))
    except (StromboliError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        raise typer.Exit(2) from None


class _Watcher(Metrics):
    """Counts, and keeps the last session for whoever asks over HTTP."""

    def __init__(self) -> None:
        super().__init__()
        self.published: Published | None = None
        self.service: Service | None = None
        #: what plugins raised in the last session, which is not logged again
        self._failures: set[tuple[str, str, str]] = set()

    def session(self, snapshot: Any, result: Any, now: float, seconds: float) -> None:
        super().session(snapshot, result, now, seconds)
        assert self.service is not None
        if self.published is None:
            # What the first lists brought mostly stays; full collections over it would take longer than sessions.
            gc.freeze()
        self.published = Published(result.session, self.service.state.pods.by_key)
        failures = {(f.plugin, f.where, str(f.error)) for f in result.session.failures}
        for failure in result.session.failures:
            if (failure.plugin, failure.where, str(failure.error)) not in self._failures:
                log.exception("plugin failed", failure.error, plugin=failure.plugin, where=failure.where)  # noqa: LOG004
        self._failures = failures

    def missing(self) -> list[str]:
        """What the service still waits for."""
        if self.service is None or not self.service.ready:
            return ["the initial lists have not been applied"]
        if self.published is None and self.service.leads:
            return ["no session has run yet"]
        return []


async def _serve(settings: Settings, registry: Registry, compatibility: Compatibility | None) -> None:
    """The service and its HTTP side, in one loop, until either ends."""
    watcher = _Watcher()
    environment = Environment(extender=HttpExtenderTransport(), unallocating=frozenset(settings.scheduler_names))
    sessions = Successive(Engine(registry=registry, compatibility=compatibility), environment)

    def load(text: str | None) -> Successive:
        sessions.engine = Engine(text or DEFAULT_POLICY, registry=registry, compatibility=compatibility)
        return sessions

    def tell(loads: node_load.Loads) -> None:
        sessions.node_usage = loads
        service.wake()

    watcher.service = service = Service(settings, load, watcher)
    app = make_app(
        lambda: watcher.published,
        watcher.registry,
        watcher.missing,
        healthy=lambda: service.healthy,
        scheduler_names=settings.scheduler_names,
        extender_scheduler_names=settings.extender_scheduler_names,
    )
    tasks = (
        asyncio.create_task(serve(app, open_socket(settings.listen)), name="http"),
        asyncio.create_task(node_load.follow(lambda: sessions.engine.policy, tell), name="node load"),
    )
    try:
        await service.run()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
