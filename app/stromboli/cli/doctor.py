"""`stromboli doctor`: likely mistakes, before a job waits for them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterator
from io import BytesIO
from typing import TYPE_CHECKING

import typer

from stromboli.api.crds import SCHEDULING
from stromboli.api.errors import StromboliError
from stromboli.cli import clusters
from stromboli.cli.located import values_of
from stromboli.cli.options import Format, Output
from stromboli.cli.output import show
from stromboli.cli.sources import Source, opened
from stromboli.cli.templates import misnamed, templates_in
from stromboli.cli.which import Which, about_a_cluster
from stromboli.explain.checkup import Finding
from stromboli.simulation.files import LARGEST_FILE
from stromboli.simulation.manifests import load

if TYPE_CHECKING:
    from stromboli.live.api_server.client import Kube

#: the exit code when something was found
FOUND = 1
_OPTION = "--scheduler-name"
_DEPLOYMENTS = "/apis/apps/v1/deployments"


@about_a_cluster
def doctor(
    which: Which,
    output: Format = Output.text,
) -> None:
    """Look for what keeps pods waiting: missing CRDs and rights, scheduler names without takers, pods in no queue,
    workloads that name missing objects, two schedulers on one name, misspelt fields in files, and policies that
    hardly mean what they say. Exits with 1 when something is found.

    Example: stromboli doctor --context production --policy volcano-scheduler.conf
    """
    problems: list[tuple[str, int]] = []

    def refused(kind: str, status: int) -> None:
        problems.append((kind, status))

    found = looked(which, opened(which, refused=refused), problems)
    show(found, output, lines(found))
    if found:
        raise typer.Exit(FOUND)


def looked(which: Which, source: Source, refused: list[tuple[str, int]]) -> list[Finding]:
    """Findings in a cluster, `refused` being kinds that could not be listed and the status. Raises StromboliError."""
    told = source.findings()
    found = [*_access(refused), *told.items]
    queues = [queue.name for queue in source.queues()]
    return found + (list(_misspelt(which.filename)) if which.filename else _of_cluster(which, queues, told.served))


def lines(found: list[Finding]) -> Iterator[str]:
    """The answer as text."""
    for finding in found:
        yield f"{finding.area}: {finding.problem}"
        yield f"  {finding.advice}"
    if not found:
        yield "nothing found"


def _misspelt(files: list[str]) -> Iterator[Finding]:
    """Fields that are not read and named much like some that are; a dump may well have others."""
    again = [path for path in files if path != "-"]
    problems = load(again, BytesIO(), largest=LARGEST_FILE).problems if again else []
    for problem in problems:
        if ": unknown field" in problem and ", did you mean " in problem:
            yield Finding("files", problem, "correct the name: nothing is read under this one")


def _access(problems: list[tuple[str, int]]) -> Iterator[Finding]:
    """Kinds that were not listed: their definition is missing, or the right to read them."""
    for kind, status in problems:
        if status == 404 and kind in ("Queue", "PodGroup"):
            yield Finding("crds", f"{SCHEDULING} {kind} is not defined", "stromboli crds apply")
        elif status in (401, 403):
            yield Finding(
                "access", f"{kind} may not be listed", "grant list and watch, as the chart's ClusterRole does"
            )


def _of_cluster(which: Which, queues: Collection[str], served: Collection[str]) -> list[Finding]:
    """Objects that are read with the user's rights, as the service has none to read them."""

    async def look() -> list[Finding]:
        async with clusters.connected(which.kubeconfig, which.context) as kube:
            names, found = await _deployments(kube)
            found += await misnamed(kube, await templates_in(kube), queues, {*served, *names})
            return found + await _definitions(kube)

    try:
        return asyncio.run(look())
    except StromboliError as error:
        if not which.url:
            raise
        clusters.note(f"Deployments and definitions are not looked at: {error}")
        return []


async def _deployments(kube: Kube) -> tuple[Collection[str], list[Finding]]:
    """The names by which Deployments schedule; those of which two do, and replicas that do not take turns."""
    from stromboli.live.api_server.client import ApiError

    try:
        listed = (await kube.get(_DEPLOYMENTS)).get("items") or []
    except ApiError:
        problem = "Deployments may not be listed"
        return (), [Finding("access", problem, "two schedulers on one name would not be noticed")]
    by_name: defaultdict[str, list[str]] = defaultdict(list)
    found = []
    for deployment in listed:
        meta, spec = deployment["metadata"], deployment.get("spec") or {}
        key, names, words = f"{meta.get('namespace')}/{meta['name']}", set[str](), list[str]()
        for container in ((spec.get("template") or {}).get("spec") or {}).get("containers") or ():
            words += [*(container.get("command") or ()), *(container.get("args") or ())]
            names |= set(values_of(words, _OPTION))
        for name in names:
            by_name[name].append(key)
        if names and (spec.get("replicas") or 1) > 1 and not any(word.startswith("--leader-elect") for word in words):
            problem = f"Deployment {key} has {spec['replicas']} replicas that do not take turns"
            found.append(Finding("schedulers", problem, "give it --leader-elect, or one replica"))
    for name, keys in by_name.items():
        if len(keys) > 1:
            problem = f"{' and '.join(keys)} both schedule the pods of {name}"
            found.append(
                Finding("schedulers", problem, "give each its own name: both bind pods to the same free resources")
            )
    return by_name, found


async def _definitions(kube: Kube) -> list[Finding]:
    """Installed definitions that lack fields of ours; nothing where they may not be read."""
    from stromboli.live.api_server.client import ApiError
    from stromboli.live.api_server.definitions import installed

    try:
        found = await installed(kube)
    except ApiError:
        return []
    advice = "do without, or have ours: stromboli crds apply --take-over"
    return [Finding("crds", f"{each.name}: {line}", advice) for each in found for line in each.lacks]
