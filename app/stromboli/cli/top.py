"""`stromboli top`: queues, the jobs that wait and why, and nodes, in a terminal that follows them."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated, TypeVar

import msgspec
import typer
from rich.console import Console
from rich.live import Live

from stromboli.api.errors import StromboliError
from stromboli.cli import clusters
from stromboli.cli.options import (
    DEFAULT_URL,
    CaFile,
    Context,
    Files,
    Format,
    Kubeconfig,
    Output,
    PolicyFile,
    SchedulerNames,
    Token,
    Url,
)
from stromboli.cli.output import show
from stromboli.cli.top_screen import Glance, resources, screen
from stromboli.dashboard.report import SessionReport
from stromboli.explain.overview import JobPage, Nodes, Overview, QueuePage

T = TypeVar("T")

#: how many queues, jobs that wait, and nodes are looked at
_QUEUES, _JOBS, _NODES = 1_000, 50, 10_000
#: seconds between two looks at a service, and between two at a cluster, which is read as a whole
_INTERVAL, _CLUSTER_INTERVAL = 2.0, 15.0
#: columns of what is printed once, where there is no terminal
_WIDTH = 100

#: looks at nodes by one resource
Look = Callable[[str], Glance]


def top(
    once: Annotated[bool, typer.Option("--once", help="Print it once and end, as without a terminal.")] = False,
    interval: Annotated[
        float | None,
        typer.Option(min=0.1, max=86_400, help="Seconds between two looks; 2, or 15 where a cluster is read."),
    ] = None,
    resource: Annotated[str, typer.Option(help="The resource that is shown first.")] = "cpu",
    output: Format = Output.text,
    files: Files = None,
    url: Url = DEFAULT_URL,
    token: Token = "",
    certificate_authority: CaFile = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    policy: PolicyFile = None,
    scheduler_name: SchedulerNames = None,
) -> None:
    """Follow queues and their shares, what waits by reason, and how full nodes are.

    The service is asked, or with -f or --context a session is run here. Keys: r shows the next resource, q ends, as
    does Ctrl-C.

    Example: stromboli top --once -o json
    """
    reads = bool(files or kubeconfig or context)
    look: Look
    if reads:
        look = partial(_here, files, kubeconfig, context, policy, scheduler_name)
    else:
        look = partial(_of_service, url, token, certificate_authority)
    first = look(resource)
    if once or output in (Output.json, Output.yaml) or not sys.stdout.isatty():
        console = Console(width=None if sys.stdout.isatty() else _WIDTH, highlight=False, markup=False)
        with console.capture() as printed:
            console.print(screen(first, resource, width=console.width))
        show(first, output, (line.rstrip() for line in printed.get().splitlines()))
    else:
        _follow(look, first, resource, interval or (_CLUSTER_INTERVAL if reads else _INTERVAL))


def _of_service(url: str, token: str, ca_file: Path | None, resource: str) -> Glance:
    """What the service says. Raises RemoteError."""

    def asked(path: str, kind: type[T]) -> T:
        return msgspec.convert(clusters.ask(url, path, token=token, ca_file=ca_file), kind)

    return Glance(
        source=url,
        overview=asked("overview", Overview),
        queues=asked(f"queues?limit={_QUEUES}", QueuePage).items,
        jobs=asked(f"jobs?limit={_JOBS}", JobPage).items,
        nodes=asked(f"nodes?limit={_NODES}&resource={clusters.quoted(resource)}", Nodes),
    )


def _here(
    files: list[str] | None,
    kubeconfig: Path | None,
    context: str | None,
    policy: Path | None,
    names: list[str] | None,
    resource: str,
) -> Glance:
    """What a session on files, or on a cluster that is read, finds. Raises StromboliError."""
    session = clusters.known_here(files, kubeconfig, context, policy, names).rehearsal().session()
    report = SessionReport(session, time.time(), sum(session.timings.actions.values()))
    return Glance(
        source=", ".join(files or ()) or str(context or kubeconfig),
        overview=report.overview(),
        queues=report.queues(0, _QUEUES).items,
        jobs=report.jobs(0, _JOBS).items,
        nodes=report.nodes(0, _NODES, resource=resource),
    )


def _follow(look: Look, glance: Glance, resource: str, interval: float) -> None:
    """Show what is there until it is interrupted; a failure is told, and what was shown before stays."""
    console, problem = Console(highlight=False, markup=False), ""
    live = Live(console=console, screen=True, auto_refresh=False)
    with suppress(KeyboardInterrupt), _ctrl_c() as ended, _keys() as pressed, live:
        while not ended():
            live.update(screen(glance, resource, problem, *console.size), refresh=True)
            key = pressed(interval)
            if key in ("q", "Q"):
                return
            if key in ("r", "R"):
                known = resources(glance)
                resource = known[(known.index(resource) + 1) % len(known)] if resource in known else known[0]
            try:
                glance, problem = look(resource), ""
            except StromboliError as error:
                problem = str(error)


@contextmanager
def _ctrl_c() -> Iterator[Callable[[], bool]]:
    """Whether it was pressed. The exception alone is lost when it is raised while an object is being finalized."""
    pressed = False

    def press(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, press)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Waits for a key so many seconds, and gives it, or nothing."""
    if not sys.stdin.isatty():
        yield _sleep
        return
    before = termios.tcgetattr(sys.stdin)

    def pressed(seconds: float) -> str:
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        # Not through sys.stdin, which would keep the next keys to itself.
        return os.read(sys.stdin.fileno(), 1).decode(errors="replace") if ready else ""

    try:
        tty.setcbreak(sys.stdin)
        yield pressed
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _sleep(seconds: float) -> str:
    time.sleep(seconds)
    return ""
