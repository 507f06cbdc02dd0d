"""Missing objects that workloads without pods name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from stromboli.api.validation import did_you_mean
from stromboli.explain.checkup import KUBE_SCHEDULER, Finding, some_of
from stromboli.workloads import said

if TYPE_CHECKING:
    from stromboli.live.api_server.client import Kube

_CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
#: kinds whose templates are looked at, and where they are listed
_PATHS = {
    "Deployment": "/apis/apps/v1/deployments",
    "StatefulSet": "/apis/apps/v1/statefulsets",
    "Job": "/apis/batch/v1/jobs",
    "CronJob": "/apis/batch/v1/cronjobs",
}


@dataclass(frozen=True, slots=True)
class Template:
    """The pods that a workload is going to have."""

    #: kind and key of the workload
    name: str
    scheduler: str
    #: names given by them or their workload, empty for none
    queue: str
    #: extended resources, such as those of GPUs
    cards: frozenset[str]


async def templates_in(kube: Kube) -> list[Template]:
    """The templates of all workloads without pods, as far as these may be listed."""
    found: list[Template] = []
    for kind, path in _PATHS.items():
        found += [_template(kind, each) for each in await _listed(kube, path) if not _has_pods(each)]
    return found


async def misnamed(
    kube: Kube, found: list[Template], queues: Collection[str], served: Collection[str]
) -> list[Finding]:
    """Missing objects that the templates name. `served` are the known schedulers."""
    asked: set[str] = set().union(*(each.cards for each in found))
    offered = await _offered(kube) if asked else set()
    known = {KUBE_SCHEDULER, *served}
    for name in {each.scheduler for each in found} - known:
        if await _places(kube, name):
            known.add(name)
    return list(_findings(found, queues, offered, known, served))


def _findings(
    found: Iterable[Template], queues: Collection[str], offered: set[str], known: set[str], served: Collection[str]
) -> Iterator[Finding]:
    naming: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for each in found:
        if each.scheduler not in known:
            naming["schedulers", each.scheduler].append(each.name)
        elif each.scheduler in served and each.queue and each.queue not in queues:
            naming["queues", each.queue].append(each.name)
        for card in each.cards - offered:
            naming["pods", card].append(each.name)
    for (area, name), workloads in naming.items():
        who = some_of(workloads, "workload")
        if area == "schedulers":
            problem = f"there is no scheduler {name}{did_you_mean(name, known)}, for {who}"
            yield Finding(
                area, problem, f"name {' or '.join(sorted(served))}, or serve it with --scheduler-name {name}"
            )
        elif area == "queues":
            problem = f"there is no queue {name}{did_you_mean(name, queues)}, for {who}"
            yield Finding(area, problem, "create it, or name another")
        else:
            problem = f"no node offers {name}{did_you_mean(name, offered)}, for {who}"
            yield Finding(area, problem, "correct the name, or add nodes that have it")


def _template(kind: str, workload: dict[str, Any]) -> Template:
    meta, spec = workload["metadata"], workload.get("spec") or {}
    made = (spec.get("jobTemplate") or {}) if kind == "CronJob" else {}
    template = ((made.get("spec") or {}) if made else spec).get("template") or {}
    pods = template.get("spec") or {}
    containers = [*(pods.get("containers") or ()), *(pods.get("initContainers") or ())]
    amounts = [(each.get("resources") or {}).get(part) or {} for each in containers for part in ("requests", "limits")]
    return Template(
        name=f"{kind} {meta.get('namespace')}/{meta['name']}",
        scheduler=pods.get("schedulerName") or KUBE_SCHEDULER,
        queue=said.first([workload, made, template], said.QUEUE),
        cards=frozenset(name for amount in amounts for name in amount if "/" in name),
    )


def _has_pods(workload: dict[str, Any]) -> bool:
    """Whether it has pods, which tell more, or has had all its pods."""
    status = workload.get("status") or {}
    return bool(status.get("replicas") or status.get("active") or status.get("completionTime"))


async def _offered(kube: Kube) -> set[str]:
    """The extended resources that nodes have, or devices by their class."""
    nodes, classes = await _listed(kube, "/api/v1/nodes"), await _listed(kube, _CLASSES)
    offered = {name for node in nodes for name in (node.get("status") or {}).get("allocatable") or ()}
    offered |= {f"deviceclass.resource.kubernetes.io/{each['metadata']['name']}" for each in classes}
    return offered | {str((each.get("spec") or {}).get("extendedResourceName")) for each in classes}


async def _places(kube: Kube, scheduler: str) -> bool:
    """Whether a scheduler has given a pod its node."""
    chosen = quote(f"spec.schedulerName={scheduler},spec.nodeName!=")
    return bool(await _listed(kube, f"/api/v1/pods?limit=1&fieldSelector={chosen}"))


async def _listed(kube: Kube, path: str) -> list[Any]:
    """Objects, none where they may not be listed or there is no such kind."""
    from stromboli.live.api_server.client import ApiError

    try:
        return (await kube.get(path)).get("items") or []
    except ApiError:
        return []
