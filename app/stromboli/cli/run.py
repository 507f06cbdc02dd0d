"""`stromboli run`: the live service on a cluster."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from pydantic import ValidationError

from stromboli.api.errors import StromboliError
from stromboli.cli.options import CertFile, Compatible, KeyFile, PluginsDir, SchedulerNames, ShardMode, policy_option
from stromboli.cli.problems import misset
from stromboli.cli.scheduler import Scheduler
from stromboli.cli.workloads import kinds_with
from stromboli.discovery import discover
from stromboli.http.server import listen as open_socket
from stromboli.live.process.logs import LogFormat, Logger, configure
from stromboli.live.settings import Settings

log = Logger(__name__)

#: spec.schedulerName of pods that name none
KUBE_SCHEDULER = "default-scheduler"
_LEVELS = ("debug", "info", "warning", "error")
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
    stand_in: Annotated[
        list[str] | None,
        typer.Option(help="Lease of a shard to schedule for while none of its replicas does. May be repeated."),
    ] = None,
    stand_in_after: Annotated[float, typer.Option(help="Seconds without a leader after which it does.")] = 30.0,
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
            stand_in=tuple(stand_in or ()),
            stand_in_after=stand_in_after,
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
        scheduler = Scheduler(settings, discover(plugins_dir), compatibility.value if compatibility else None)
        listening = open_socket(settings.listen)
    except ValidationError as error:
        _fail("; ".join(map(misset, error.errors())), 2)
    except (StromboliError, OSError, ValueError) as error:
        _fail(str(error), 2)
    _serve(scheduler, listening)


def _serve(scheduler: Scheduler, listening: socket.socket) -> None:
    """Schedule until it ends, and the process with it if that was an error."""
    try:
        sys.setswitchinterval(_SWITCH)
        # uvloop saves a few percent, and loses track of descriptors when connections break as they open.
        with asyncio.Runner() as runner:
            runner.run(scheduler.run(listening))
    except Exception as error:
        _fail(str(error) if isinstance(error, StromboliError) else f"{type(error).__name__}: {error}", 1)


def _advised(names: Sequence[str] | None, own: Sequence[str]) -> tuple[str, ...]:
    """The schedulerName of pods that kube-scheduler binds, unless it is ours: the given one, or else its default."""
    said = [KUBE_SCHEDULER] if names is None else names
    return tuple(name for name in said if name and name not in own)


def _fail(problem: str, code: int) -> NoReturn:
    print(problem, file=sys.stderr)
    raise typer.Exit(code) from None
