"""`stromboli job suspend`, `resume` and `delete`: by what made the job's pods, for its controller makes them again."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stromboli.api.crds import SCHEDULING, PodGroup
from stromboli.api.errors import StromboliError
from stromboli.api.validation import did_you_mean
from stromboli.cli import clusters
from stromboli.cli.completion import job_names
from stromboli.cli.options import DryRun, Namespace
from stromboli.cli.problems import NotFoundError
from stromboli.cli.question import Question
from stromboli.cli.queue_edit import names_cluster, written
from stromboli.cli.sources import opened
from stromboli.cli.which import Which, about_a_cluster
from stromboli.explain.answers import Answer
from stromboli.explain.whatif import lines
from stromboli.state.pods import GROUP_ANNOTATION
from stromboli.workloads import WorkloadKind, known_kinds
from stromboli.workloads.names import workload_of

if TYPE_CHECKING:
    from stromboli.live.api_server.client import Kube

Object = dict[str, Any]
Name = Annotated[
    str, typer.Argument(help="Its name or that of its PodGroup, or NAMESPACE/NAME.", autocompletion=job_names)
]

_VOLCANO = "batch.volcano.sh/"
_UNOWNED = "job {}: its pods have no controller that could make them again"
_UNSUSPENDED = "{} cannot be suspended: scale it to 0, or delete it"
#: levels of owners that are followed
_DEEPEST = 5


@dataclass(frozen=True, slots=True)
class _Owner:
    """The topmost owner of the pods of a job."""

    version: str
    kind: str
    namespace: str
    name: str
    uid: str

    @property
    def path(self) -> str:
        root = "/api" if "/" not in self.version else "/apis"
        plural = self.row.plural if self.row else f"{self.kind.lower()}s"
        return f"{root}/{self.version}/namespaces/{self.namespace}/{plural}/{self.name}"

    @property
    def row(self) -> WorkloadKind | None:
        kind = known_kinds().get(self.version, self.kind)
        return kind.row if kind is not None else None

    @property
    def told(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


@about_a_cluster
def suspend(name: Name, which: Which, namespace: Namespace = "", dry_run: DryRun = False) -> None:
    """Suspend a job: its pods end, and it keeps its place among jobs. What made its pods is told to make none.

    Example: stromboli job suspend train -n research --dry-run
    """
    _change(which, namespace, name, dry_run, "suspended")


@about_a_cluster
def resume(name: Name, which: Which, namespace: Namespace = "") -> None:
    """Resume a job that is suspended.

    Example: stromboli job resume train -n research
    """
    _change(which, namespace, name, False, "resumed")


@about_a_cluster
def delete(name: Name, which: Which, namespace: Namespace = "", dry_run: DryRun = False) -> None:
    """Delete a job: what made its pods or, where nothing did, the pods and the PodGroup.

    Example: stromboli job delete train -n research --dry-run
    """
    _change(which, namespace, name, dry_run, "deleted")


def _change(which: Which, namespace: str, name: str, dry_run: bool, done: str) -> None:
    if "/" in name:
        namespace, _, name = name.partition("/")
    namespace = clusters.namespace_of(namespace, which.filename, which.kubeconfig, which.context)
    if dry_run:
        print(*_tried(which, namespace, name, done), sep="\n")
        return

    async def change(kube: Kube) -> None:
        group = await _group(kube, namespace, name)
        if group is None:
            # What is suspended has neither.
            pods, owner = [], await _suspendable(kube, namespace, name)
            if owner is None:
                meant = did_you_mean(name, await _names(kube, namespace))
                raise NotFoundError(f"there is no job {namespace}/{name}{meant}")
        else:
            pods = await _pods(kube, namespace, group["metadata"]["name"])
            owner = await _owner(kube, [*pods, group])
        if done == "deleted":
            await _delete(kube, owner, group, pods)
        elif owner is None:
            raise StromboliError(_UNOWNED.format(f"{namespace}/{name}"))
        else:
            await _suspend(kube, owner, suspended=done == "suspended")
        print(f"{owner.told if owner else f'job {namespace}/{name}'} is {done}")

    asyncio.run(written(which, change, f"job {namespace}/{name}"))


def _tried(which: Which, namespace: str, name: str, done: str) -> list[str]:
    """Outcome of a dry run, in lines: the pods go, and with a deleted job its PodGroup."""
    source = opened(which)
    found = source.explain(Question("job", namespace, name, tries=False))
    name = found.name
    if done == "suspended" and isinstance(found, Answer):
        _demand_suspendable(namespace, name, found.workload or _controlling(which, namespace, name))
    pods = source.pods(f"{namespace}/{name}")
    gone = [("v1", "Pod", pod.name) for pod in pods] + ([(SCHEDULING, "PodGroup", name)] if done == "deleted" else [])
    if not gone:
        raise NotFoundError(f"job {namespace}/{name} has no pods")
    documents = (
        {"apiVersion": version, "kind": kind, "metadata": {"name": each, "namespace": namespace}, "$patch": "delete"}
        for version, kind, each in gone
    )
    return list(lines(source.whatif({"the change": "\n---\n".join(map(json.dumps, documents))})))


def _controlling(which: Which, namespace: str, name: str) -> str:
    """The controller (`KIND/NAME`) of the pods of a PodGroup that was made by hand; empty without one.

    Sessions know owners of PodGroups alone, so the cluster is asked, if one is named.
    """
    if not names_cluster(which):
        return ""
    found = list[_Owner | None]()

    async def look(kube: Kube) -> None:
        group = await _group(kube, namespace, name)
        found.append(await _owner(kube, await _pods(kube, namespace, name)) if group else None)

    asyncio.run(written(which, look, f"job {namespace}/{name}"))
    return f"{found[0].kind}/{found[0].name}" if found[0] else ""


def _demand_suspendable(namespace: str, name: str, workload: str) -> None:
    """Raises StromboliError for a job whose workload (`KIND/NAME`) cannot be suspended, or that has none."""
    kind, _, called = workload.partition("/")
    if not kind:
        raise StromboliError(_UNOWNED.format(f"{namespace}/{name}"))
    rows = [each.row for each in known_kinds() if each.row.kind == kind]
    if not any(row.suspend or _VOLCANO.startswith(f"{row.group}/") for row in rows):
        raise StromboliError(_UNSUSPENDED.format(f"{kind} {namespace}/{called}"))


async def _names(kube: Kube, namespace: str) -> set[str]:
    """The names of jobs of a namespace, and of their workloads."""
    names = set[str]()
    async for page in kube.pages(f"/apis/{SCHEDULING}/namespaces/{namespace}/podgroups", {}):
        for item in page.items or ():
            group = PodGroup.parse(json.loads(bytes(item)))
            names |= {group.metadata.name, *(each for _, each in group.owners)}
    return names


async def _group(kube: Kube, namespace: str, name: str) -> Object | None:
    """The PodGroup of a name, or of the one workload that is called so; None without one. Raises StromboliError for one
    of several.
    """
    from stromboli.live.api_server.client import ApiError

    path = f"/apis/{SCHEDULING}/namespaces/{namespace}/podgroups"
    try:
        return await kube.get(f"{path}/{name}")
    except ApiError as error:
        if error.status != 404:
            raise
    found: dict[str, Object] = {}
    async for page in kube.pages(path, {}):
        for item in page.items or ():
            group: Object = json.loads(bytes(item))
            parsed = PodGroup.parse(group)
            if name in (each for _, each in parsed.owners):
                found.setdefault(workload_of(parsed), group)
    if len(found) > 1:
        raise StromboliError(f"{' and '.join(sorted(found))} are called {name}: name the PodGroup of one")
    return next(iter(found.values()), None)


async def _suspendable(kube: Kube, namespace: str, name: str) -> _Owner | None:
    """The workload of a name of a kind that can be suspended, where the cluster has the kind."""
    from stromboli.live.api_server.client import ApiError
    from stromboli.live.api_server.versions import versions_of

    async def found(path: str) -> Object:
        try:
            return await kube.get(path)
        except ApiError as error:
            if error.status not in (403, 404):
                raise
            return {}

    for row in (kind.row for kind in known_kinds() if kind.row.suspend):
        for version in versions_of(await found(f"/apis/{row.group}")):
            root = f"{row.group}/{version}"
            made = await found(f"/apis/{root}/namespaces/{namespace}/{row.plural}/{name}")
            if made:
                return _Owner(root, row.kind, namespace, name, made["metadata"].get("uid", ""))
    return None


async def _pods(kube: Kube, namespace: str, group: str) -> list[Object]:
    """The pods of a PodGroup."""
    pods: list[Object] = []
    async for page in kube.pages(f"/api/v1/namespaces/{namespace}/pods", {}):
        pods += [json.loads(bytes(item)) for item in page.items or ()]
    return [pod for pod in pods if (pod["metadata"].get("annotations") or {}).get(GROUP_ANNOTATION) == group]


async def _owner(kube: Kube, objects: list[Object]) -> _Owner | None:
    """The controller at the top of the first object that has one."""
    for each in objects:
        found, owned = None, each
        for _ in range(_DEEPEST):
            above = _controller(owned)
            if above is None:
                break
            found, owned = above, await kube.get(above.path)
        if found is not None:
            return found
    return None


def _controller(owned: Object) -> _Owner | None:
    meta = owned["metadata"]
    for each in meta.get("ownerReferences") or ():
        if each.get("controller") and each["kind"] != "Node":
            return _Owner(each["apiVersion"], each["kind"], meta["namespace"], each["name"], each.get("uid", ""))
    return None


async def _suspend(kube: Kube, owner: _Owner, *, suspended: bool) -> None:
    """Raises StromboliError for a job that cannot be suspended."""
    if owner.row is not None and owner.row.suspend:
        value: Any = suspended
        for part in reversed(owner.row.suspend.split(".")):
            value = {part: value}
        await kube.patch(owner.path, value)
        return
    if not owner.version.startswith(_VOLCANO):
        raise StromboliError(_UNSUSPENDED.format(owner.told))
    command = {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {"generateName": f"{owner.name}-", "namespace": owner.namespace},
        "action": "AbortJob" if suspended else "ResumeJob",
        "target": {"apiVersion": owner.version, "kind": owner.kind, "name": owner.name, "uid": owner.uid},
    }
    await kube.create(f"/apis/bus.volcano.sh/v1alpha1/namespaces/{owner.namespace}/commands", command)


async def _delete(kube: Kube, owner: _Owner | None, group: Object | None, pods: list[Object]) -> None:
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
    if owner is not None:
        await kube.delete(owner.path, options)
        return
    assert group is not None
    meta = group["metadata"]
    for pod in pods:
        await kube.delete(f"/api/v1/namespaces/{meta['namespace']}/pods/{pod['metadata']['name']}")
    await kube.delete(f"/apis/{SCHEDULING}/namespaces/{meta['namespace']}/podgroups/{meta['name']}")
