"""`stromboli queue create`, `set` and `delete`, each with a dry run."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from stromboli.api import quantity
from stromboli.api.crds import SCHEDULING, PodGroup
from stromboli.api.errors import InvalidQuantityError, StromboliError
from stromboli.api.resources import NATIVE, in_bytes, is_scheduled
from stromboli.api.validation import did_you_mean
from stromboli.api.words import first_few
from stromboli.cli.clusters import connected
from stromboli.cli.completion import queue_names
from stromboli.cli.options import URL, DryRun
from stromboli.cli.problems import NotFoundError
from stromboli.cli.sources import Source, opened
from stromboli.cli.which import Which, about_a_cluster
from stromboli.dashboard.filters import JobFilter
from stromboli.explain.overview import JobRow
from stromboli.explain.whatif import lines

if TYPE_CHECKING:
    from stromboli.live.api_server.client import Kube

_PATH = f"/apis/{SCHEDULING}/queues"
_COMPLETED = "Completed"
_ROOT = "root"
#: queues that the service makes again, and their purpose
_KEPT = {_ROOT: "all others are below it", "default": "jobs that name no queue are in it"}
#: the parents of the queues that there are, by name; empty for none
Parents: TypeAlias = Mapping[str, str]

New = Annotated[str, typer.Argument(help="Name of the queue.")]
Name = Annotated[str, typer.Argument(help="Name of the queue.", autocompletion=queue_names)]
Weight = Annotated[int | None, typer.Option(min=0, help="Its weight.")]
Parent = Annotated[str | None, typer.Option(help="The queue above it.", autocompletion=queue_names)]
Capability = Annotated[str | None, typer.Option(help="What it may hold at most, as cpu=8,memory=32Gi.")]
Deserved = Annotated[str | None, typer.Option(help="What it deserves.")]
Guarantee = Annotated[str | None, typer.Option(help="What is kept for it.")]
Reclaimable = Annotated[
    bool | None, typer.Option("--reclaimable/--no-reclaimable", help="Whether it gives back what it borrows.")
]
Priority = Annotated[int | None, typer.Option(help="Its priority.")]


@about_a_cluster
def create(
    name: New,
    which: Which,
    weight: Weight = None,
    parent: Parent = None,
    capability: Capability = None,
    deserved: Deserved = None,
    guarantee: Guarantee = None,
    reclaimable: Reclaimable = None,
    priority: Priority = None,
    dry_run: DryRun = False,
) -> None:
    """Create a queue.

    Example: stromboli queue create robotics --weight 3 --capability cpu=64,nvidia.com/gpu=8 --dry-run
    """
    spec = _spec(weight, parent, capability, deserved, guarantee, reclaimable, priority)
    manifest = _manifest(name, {"weight": 1, **spec})

    def refuse(parents: Parents) -> None:
        if name in parents:
            raise StromboliError(f"queue {name}: it exists already (stromboli queue set {name} changes it)")
        _place(name, parent, parents)

    async def change(kube: Kube) -> None:
        if (parents := await _parents(kube)) is not None:
            refuse(parents)
        await kube.create(_PATH, manifest)

    _do(which, (lambda source: refuse(_parents_in(source))) if dry_run else None, manifest, change, "created")


@about_a_cluster
def set_(
    name: Name,
    which: Which,
    weight: Weight = None,
    parent: Parent = None,
    capability: Capability = None,
    deserved: Deserved = None,
    guarantee: Guarantee = None,
    reclaimable: Reclaimable = None,
    priority: Priority = None,
    dry_run: DryRun = False,
) -> None:
    """Change what a queue's spec says; what is not named stays.

    Example: stromboli queue set research --weight 5 --dry-run
    """
    spec = _spec(weight, parent, capability, deserved, guarantee, reclaimable, priority)
    if not spec:
        raise StromboliError(f"queue {name}: nothing to change (see stromboli queue set --help)")

    def refuse(parents: Parents) -> None:
        _demand(name, parents)
        _place(name, parent, parents)

    async def change(kube: Kube) -> None:
        if (parents := await _parents(kube)) is not None:
            refuse(parents)
        await kube.patch(f"{_PATH}/{name}", {"spec": spec})

    manifest = _manifest(name, spec)
    _do(which, (lambda source: refuse(_parents_in(source))) if dry_run else None, manifest, change, "changed")


@about_a_cluster
def delete(name: Name, which: Which, dry_run: DryRun = False) -> None:
    """Delete a queue in which no job waits or runs.

    Example: stromboli queue delete retired --dry-run
    """
    manifest = {**_manifest(name, {}), "$patch": "delete"}

    if name in _KEPT:
        raise StromboliError(f"queue {name}: it cannot be deleted: {_KEPT[name]}")

    def refuse(source: Source) -> None:
        parents = _parents_in(source)
        _demand(name, parents)
        _spare_children(name, parents)
        rows = source.jobs(JobFilter(queue=name))
        _spare(name, [_called(row) for row in rows if row.queue == name and row.phase != _COMPLETED])

    _do(which, refuse if dry_run else None, manifest, lambda kube: _delete(kube, name), "deleted")


def _called(row: JobRow) -> str:
    return f"{row.namespace}/{row.called or row.name}"


def _parents_in(source: Source) -> Parents:
    return {row.name: row.parent for row in source.queues()}


async def _parents(kube: Kube) -> Parents | None:
    """None where one may not list queues."""
    from stromboli.live.api_server.client import ApiError

    try:
        queues = (await kube.get(_PATH)).get("items") or ()
    except ApiError as error:
        if error.status != 403:
            raise
        return None
    return {str(each["metadata"]["name"]): str((each.get("spec") or {}).get("parent") or "") for each in queues}


def _demand(name: str, parents: Parents) -> None:
    """Raises NotFoundError for a queue that is not there."""
    if name not in parents:
        raise NotFoundError(f"there is no queue {name}{did_you_mean(name, parents)}")


def _place(name: str, parent: str | None, parents: Parents) -> None:
    """Raises StromboliError for a parent below which a queue would be in no tree."""
    if not parent or parent == _ROOT:
        return
    if parent not in parents and parent != name:
        raise StromboliError(f"queue {name}: there is no parent {parent}{did_you_mean(parent, parents)}")
    above, seen = parent, set[str]()
    while above and above not in seen:
        if above == name:
            raise StromboliError(f"queue {name}: {parent} cannot be its parent: it is {_relation(name, parent)}")
        seen.add(above)
        above = parents.get(above, "")


def _relation(name: str, parent: str) -> str:
    return "the queue itself" if name == parent else f"below {name}"


async def _delete(kube: Kube, name: str) -> None:
    """Raises StromboliError while jobs are in the queue."""
    left: list[str] = []
    async for page in kube.pages(f"/apis/{SCHEDULING}/podgroups", {}):
        groups = (PodGroup.parse(json.loads(bytes(item))) for item in page.items or ())
        left += [each.called for each in groups if each.spec.queue == name and each.status.phase != _COMPLETED]
    _spare(name, left)
    if (parents := await _parents(kube)) is not None:
        _demand(name, parents)
        _spare_children(name, parents)
    await kube.delete(f"{_PATH}/{name}")


def _spare(name: str, left: list[str]) -> None:
    """Raises StromboliError for jobs that are in a queue: without it they could not go on."""
    if left:
        raise StromboliError(f"queue {name}: {first_few(left, 3)} would have no queue: move or delete them first")


def _spare_children(name: str, parents: Parents) -> None:
    """Raises StromboliError for queues that are below one: without it they would be in no tree."""
    if below := sorted(each for each, parent in parents.items() if parent == name):
        raise StromboliError(f"queue {name}: {first_few(below, 3)} would have no parent: move or delete them first")


def _manifest(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": SCHEDULING, "kind": "Queue", "metadata": {"name": name}, **({"spec": spec} if spec else {})}


def _spec(
    weight: int | None,
    parent: str | None,
    capability: str | None,
    deserved: str | None,
    guarantee: str | None,
    reclaimable: bool | None,
    priority: int | None,
) -> dict[str, Any]:
    """The fields that are named. Raises StromboliError for amounts that cannot be read."""
    said: dict[str, Any] = {
        "weight": weight,
        "parent": parent,
        "capability": _amounts("--capability", capability),
        "deserved": _amounts("--deserved", deserved),
        "reclaimable": reclaimable,
        "priority": priority,
    }
    kept = _amounts("--guarantee", guarantee)
    said["guarantee"] = None if kept is None else {"resource": kept}
    return {field: value for field, value in said.items() if value is not None}


def _amounts(option: str, written: str | None) -> dict[str, str] | None:
    """`cpu=8,memory=32Gi` as a resource list. Raises StromboliError."""
    if written is None:
        return None
    out: dict[str, str] = {}
    for part in filter(None, written.split(",")):
        name, _, value = part.strip().partition("=")
        if name and not is_scheduled(name):
            near = did_you_mean(name, NATIVE)
            raise StromboliError(f"{option}: {name} is no resource of nodes{near} (others are named DOMAIN/NAME)")
        try:
            quantity.parse(value)
        except InvalidQuantityError as error:
            meant = f", did you mean {name}={error.meant}?" if error.meant and in_bytes(name) else ""
            raise StromboliError(f"{option}: {part!r} is no amount such as cpu=8 or memory=32Gi{meant}") from None
        out[name] = value
    return out


def _do(
    which: Which,
    refuse: Callable[[Source], None] | None,
    manifest: dict[str, Any],
    change: Callable[[Kube], Awaitable[object]],
    done: str,
) -> None:
    """Make a change; or tell what it would do, unless `refuse` raises what it would end with."""
    what = f"queue {manifest['metadata']['name']}"
    if refuse is None:
        asyncio.run(written(which, change, what))
        print(f"{what} is {done}")
        return
    source = opened(which)
    refuse(source)
    for line in lines(source.whatif({"the change": json.dumps(manifest)})):
        print(line)


def names_cluster(which: Which) -> bool:
    """Whether a command is about the cluster of the kubeconfig, and not about files or the service at --url.

    A shell that has the variable set for commands which ask the service may change something, too.
    """
    return not which.filename and which.url in ("", os.environ.get(URL))


async def written(which: Which, change: Callable[[Kube], Awaitable[object]], what: str) -> None:
    """Write to the cluster. Raises StromboliError, and NotFoundError for a missing object."""
    from stromboli.live.api_server.client import ApiError

    if not names_cluster(which):
        raise StromboliError("files and --url are for --dry-run: changes are written to the cluster of the kubeconfig")
    try:
        async with connected(which.kubeconfig, which.context) as kube:
            await change(kube)
    except ApiError as error:
        if error.status == 404:
            raise NotFoundError(f"there is no {what}") from None
        raise StromboliError(f"{what}: {error}") from error
