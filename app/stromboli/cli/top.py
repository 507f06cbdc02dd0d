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
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from stromboli.api.errors import StromboliError
from stromboli.cli.options import Format, Output
from stromboli.cli.output import show
from stromboli.cli.sources import Source, opened
from stromboli.cli.top_screen import Glance, resources, screen
from stromboli.cli.which import Which, about_a_cluster
from stromboli.dashboard.filters import JobFilter

#: number of waiting jobs, and of nodes, that are read
_JOBS, _NODES = 50, 10_000
#: seconds between two looks at a service, and between two at a cluster, which is read as a whole
_INTERVAL, _CLUSTER_INTERVAL = 2.0, 15.0
#: columns of the output without a terminal, which is printed once
_WIDTH = 100

#: looks at nodes by one resource
Look = Callable[[str], Glance]


@about_a_cluster
def top(
    which: Which,
    once: Annotated[bool, typer.Option("--once", help="Print it once and exit, as without a terminal.")] = False,
    interval: Annotated[
        float | None,
        typer.Option(min=0.1, max=86_400, help="Seconds between updates; 2, or 15 where a cluster is read."),
    ] = None,
    resource: Annotated[str, typer.Option(help="The resource that is shown first.")] = "cpu",
    output: Format = Output.text,
) -> None:
    """Show queues and their shares, waiting jobs by reason, and how full nodes are, continuously.

    Asks the service at --url, on this machine or in the cluster; with -f or --policy it runs a session here instead.
    Keys: r shows the next resource, q or Ctrl-C quits.

    Example: stromboli top --once -o json
    """
    source = opened(which)

    def look(resource: str) -> Glance:
        return _glance(source if source.follows else opened(which, lambda line: None), resource)

    first = _glance(source, resource)
    if once or output in (Output.json, Output.yaml) or not sys.stdout.isatty():
        console = Console(width=None if sys.stdout.isatty() else _WIDTH, highlight=False, markup=False)
        with console.capture() as printed:
            console.print(screen(first, resource, width=console.width))
        show(first, output, (line.rstrip() for line in printed.get().splitlines()))
    else:
        _follow(look, first, resource, interval or (_INTERVAL if source.follows else _CLUSTER_INTERVAL))


def _glance(source: Source, resource: str) -> Glance:
    """The current state. Raises StromboliError."""
    return Glance(
        source=source.told,
        overview=source.overview(),
        queues=source.queues(),
        jobs=source.jobs(JobFilter(), _JOBS),
        nodes=source.nodes(resource, _NODES),
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
    """Waits a number of seconds for a key, and returns it, or nothing."""
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
