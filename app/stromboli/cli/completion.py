"""Completion of `kubectl stromboli`.

kubectl runs `kubectl_complete-stromboli` with the words after the plugin's name; the last word is the one to complete
and may be empty. It reads candidates from standard output, one per line with a tab before the description, and from the
last line a number that tells the shell how to proceed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import typer
from typer._completion_classes import FishComplete

from stromboli.cli import make_app
from stromboli.cli.problems import open_streams

if TYPE_CHECKING:
    from stromboli.cli.sources import Source

#: the candidates are all there are, or the shell may go on with files
_ALL, _FILES = ":4", ":0"
#: names of jobs that are looked at
_MOST = 1_000


def completed(words: Sequence[str]) -> Iterator[str]:
    """Completions for the last of some words, a line each."""
    *typed, last = words or [""]
    # The shell only says how answers are written, and that is done here.
    shell = FishComplete(typer.main.get_command(make_app()), {}, "stromboli", "")
    found = [item for item in shell.get_completions(typed, last) if item.type == "plain"]
    for item in found:
        about = " ".join((item.help or "").split())
        yield f"{item.value}\t{about}" if about else item.value
    yield _ALL if found else _FILES


def queue_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of queues that begin so."""
    return _begun(incomplete, lambda source: [queue.name for queue in source.queues()], ctx)


def job_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of jobs of the namespace that is meant, or `NAMESPACE/NAME` once there is a slash."""
    return _begun(incomplete, lambda source: _of_jobs(source, ctx, incomplete), ctx)


def of_kind(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of queues, jobs or waiting pods, whichever is asked about."""
    kind = str(ctx.params.get("kind") or "").rpartition(".")[2]
    return queue_names(ctx, incomplete) if kind == "queue" else job_names(ctx, incomplete) if kind == "job" else []


def _of_jobs(source: Source, ctx: typer.Context, incomplete: str) -> list[str]:
    from stromboli.cli import clusters
    from stromboli.dashboard.filters import JobFilter

    given = ctx.params
    if "/" in incomplete:
        return [f"{job.namespace}/{job.name}" for job in source.jobs(JobFilter(name=incomplete), _MOST)]
    named = str(given.get("namespace") or "")
    namespace = clusters.namespace_of(named, given.get("filename"), given.get("kubeconfig"), given.get("context"))
    return [job.name for job in source.jobs(JobFilter(namespace=namespace, name=f"/{incomplete}"), _MOST)]


def _begun(incomplete: str, names: Callable[[Source], list[str]], ctx: typer.Context) -> list[str]:
    """The names that begin so; none where the cluster does not answer: a message would not be seen."""
    from stromboli.api.errors import StromboliError
    from stromboli.cli.sources import opened
    from stromboli.cli.which import OPTIONS, Which

    which = Which.of({name: ctx.params[name] for name in OPTIONS if ctx.params.get(name)})
    try:
        found = names(opened(which, lambda line: None))
    except StromboliError:
        return []
    return [name for name in found if name.startswith(incomplete)]


def main() -> None:
    """Entry point of the console script."""
    open_streams()
    for line in completed(sys.argv[1:]):
        print(line)
