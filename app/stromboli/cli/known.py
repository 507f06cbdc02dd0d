"""A cluster that sessions are run on here: of files or a dump, or one that is read with the user's own rights."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from io import BytesIO
from typing import TYPE_CHECKING, Any

import msgspec

from stromboli.api.errors import StromboliError
from stromboli.api.keys import NATIVE_GROUP
from stromboli.cli.clusters import connected, note
from stromboli.cli.located import Located, locate
from stromboli.cli.policies import engine_by
from stromboli.discovery import discover
from stromboli.engine import Engine
from stromboli.explain.past_runs import PastRuns, learned_from
from stromboli.explain.settled import SettledRehearsal
from stromboli.framework.cluster.environment import Environment
from stromboli.policy.document import DEFAULT_POLICY
from stromboli.policy.rules import Compatibility
from stromboli.simulation.admission import USUAL_NAMES, admit, misspelt_schedulers, unserved
from stromboli.simulation.files import LARGEST_FILE
from stromboli.simulation.manifests import Loaded, load
from stromboli.simulation.refusals import unlimited
from stromboli.simulation.run import feed
from stromboli.simulation.scenario import Scenario
from stromboli.state.cluster import ClusterState
from stromboli.workloads import known_kinds, native

if TYPE_CHECKING:
    from stromboli.cli.which import Which
    from stromboli.live.api_server.client import Kube

_KUBE_SCHEDULER = "default-scheduler"


@dataclass(slots=True)
class Known:
    """A cluster that is known here: an engine, and a state of its own."""

    engine: Engine
    state: ClusterState
    loaded: Loaded
    environment: Environment = field(default_factory=Environment)
    #: the time of its sessions; None for now
    now: float | None = None

    def past(self) -> PastRuns:
        """Run times of jobs whose pods have succeeded."""
        return learned_from(self.state)

    def rehearsal(self) -> SettledRehearsal:
        """Sessions on it; its state is not to be used otherwise."""
        now = time.time() if self.now is None else self.now
        return SettledRehearsal(self.engine, self.state, self.environment, now)


def scheduler_names(loaded: Loaded) -> list[str]:
    """Names of the schedulers whose pods in files are decided on: the usual ones, if pods have one of them.

    Manifests that name others are simulated all the same, which `taken_for_ours` tells; kube-scheduler's only alone.
    Where there are no pods those count that are to come.
    """
    names = {obj.spec.scheduler_name or "" for kind, obj in loaded.objects if kind == "Pod"}
    names -= misspelt_schedulers(loaded)
    usual = {name for name in names if name.startswith(USUAL_NAMES)}
    return sorted(usual or names - {"", _KUBE_SCHEDULER}) or sorted(names) or list(USUAL_NAMES)


def taken_for_ours(names: Iterable[str]) -> Iterator[str]:
    """A line for each scheduler whose pods are decided on although nothing says that it is served here."""
    for name in sorted(each or _KUBE_SCHEDULER for each in names if not each.startswith(USUAL_NAMES)):
        yield (
            f"no pod names scheduler {' or '.join(USUAL_NAMES)}: those of {name} are taken for ours here, and left "
            "to it on a cluster (--scheduler-name says whose are meant)"
        )


def known_in(which: Which, paths: list[str]) -> Known:
    """The cluster in files. A scenario brings its own policy, and is as its last session finds it.

    Raises StromboliError.
    """
    loaded = load(paths, sys.stdin.buffer, lenient=True, largest=LARGEST_FILE)
    if loaded.scenarios and not loaded.objects:
        return _of_scenario(which, loaded)
    if not loaded.objects:
        raise StromboliError("; ".join(loaded.problems) or f"{', '.join(paths)}: no objects")
    return _fed(engine_by(which.policy, discover(which.plugins_dir)), loaded, which.scheduler_name)


def _of_scenario(which: Which, loaded: Loaded) -> Known:
    if len(loaded.scenarios) > 1:
        raise StromboliError(f"{len(loaded.scenarios)} scenarios: only one can be asked about")
    scenario = Scenario.parse(loaded.scenarios[0], lenient=True)
    ready = scenario.prepared(registry=discover(which.plugins_dir))
    last = ready.run(scenario.cycles, nominating=scenario.writes_nominated).session
    loaded.objects = scenario.objects
    return Known(ready.engine, ready.state, loaded, last.view.environment, ready.now)


def known_of(
    which: Which, refused: Callable[[str, int], None] | None = None, told: Callable[[str], None] = note
) -> Known:
    """The cluster of a context, read with one's own rights, and decided by the policy that its service has.

    `refused` is told of kinds that could not be listed, and the status; `told` of the policy, unless it is named.
    Raises StromboliError.
    """
    service, dumped = asyncio.run(_read(which, refused or _tell))
    loaded = load(["-"], BytesIO(dumped), lenient=True, largest=len(dumped))
    if not loaded.objects and refused is None:
        raise StromboliError("; ".join(loaded.problems) or "the cluster has no objects")
    names = which.scheduler_name or list(service.scheduler_names if service else ()) or ["stromboli"]
    return _fed(_engine_of(which, service, told), loaded, names)


def _engine_of(which: Which, service: Located | None, told: Callable[[str], None]) -> Engine:
    """An engine for the policy that is named, else that of the service; that it is another one is never left unsaid."""
    registry = discover(which.plugins_dir)
    if which.policy is not None or service is None:
        if which.policy is None:
            told("decided here, by the default policy: no service was found in the cluster (--policy names another)")
        return engine_by(which.policy, registry)
    mode: Compatibility | None = "volcano" if service.compatibility == "volcano" else None
    mode = "strict" if service.compatibility == "strict" else mode
    where = f"{service.namespace}/{service.config_map}"
    if service.policy is not None:
        told(f"decided here, by the policy of the service {service.found_as}: ConfigMap {where}")
        return Engine(service.policy, registry=registry, compatibility=mode, source=f"ConfigMap {where}")
    if service.config_map:
        told(
            f"decided here, by the default policy: that of the service, in ConfigMap {where}, cannot be read, and the "
            "service may decide differently (--policy names a file)"
        )
    else:
        told(f"decided here, by the default policy, as the service {service.found_as} does")
    return Engine(DEFAULT_POLICY, registry=registry, compatibility=mode, source="default policy")


def _fed(engine: Engine, loaded: Loaded, names: list[str] | None) -> Known:
    scheduled = names or scheduler_names(loaded)
    loaded.doubts += unlimited(obj for kind, obj in loaded.objects if kind == "Pod")
    state = ClusterState(scheduled, reads=engine.registry.reads)
    feed(state, admit(loaded, scheduled, rules=engine.policy.queue_rules))
    for line in (*loaded.problems, *loaded.doubts, *(() if names else (*unserved(loaded), *taken_for_ours(scheduled)))):
        note(line)
    return Known(engine, state, loaded)


async def _read(which: Which, refused: Callable[[str, int], None]) -> tuple[Located | None, bytes]:
    async with connected(which.kubeconfig, which.context) as kube:
        return await locate(kube), await _dumped(kube, refused)


def _tell(kind: str, status: int) -> None:
    if status != 404:
        print(f"{kind} is not read: the API server answers {status}", file=sys.stderr)


async def _dumped(kube: Kube, refused: Callable[[str, int], None]) -> bytes:
    """All objects that sessions read, as a list in JSON. Raises CONNECTION_ERRORS."""
    from stromboli.live.api_server.client import ApiError
    from stromboli.live.watch.sources import SOURCES

    lists: list[dict[str, Any]] = []
    for source in SOURCES:
        for path in source.paths:
            try:
                kind = f"{source.kind}List"
                lists += [{"kind": kind, "items": page.items or []} async for page in kube.pages(path, {})]
            except ApiError as error:
                if error.status == 404 and path != source.paths[-1]:
                    continue
                refused(source.kind, error.status)
            break
    lists += [each async for each in _workloads(kube, refused)]
    return msgspec.json.encode({"kind": "List", "items": lists})


async def _workloads(kube: Kube, refused: Callable[[str, int], None]) -> AsyncIterator[dict[str, Any]]:
    """Possible owners of pods, and Kubernetes' own PodGroups, as far as they are served; each names its kind."""
    from stromboli.live.api_server.client import ApiError
    from stromboli.live.api_server.versions import versions_of

    try:
        groups = (await kube.get("/apis")).get("groups") or []
    except ApiError as error:
        refused("workloads", error.status)
        return
    served = {group["name"]: versions_of(group) for group in groups}
    named = [
        (row.group, served.get(row.group, []), row.plural, row.kind) for row in (each.row for each in known_kinds())
    ]
    own = [version for version in native.VERSIONS if version in served.get(NATIVE_GROUP, ())]
    named.append((NATIVE_GROUP, own, "podgroups", "PodGroup"))
    for group, versions, plural, kind in named:
        for version in versions:
            try:
                async for page in kube.pages(f"/apis/{group}/{version}/{plural}", {}):
                    for item in page.items or ():
                        yield {"apiVersion": f"{group}/{version}", "kind": kind, **msgspec.json.decode(item)}
            except ApiError as error:
                if error.status == 404:
                    continue
                refused(kind, error.status)
            break
