"""Which cluster a command is about: files or a dump, a cluster that is read with one's own rights, or a service."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from stromboli.api.documents import read_yaml
from stromboli.api.errors import StromboliError, in_words
from stromboli.api.keys import NATIVE_GROUP
from stromboli.cli.located import Located, locate
from stromboli.cli.options import DEFAULT_URL
from stromboli.cli.policies import engine_by
from stromboli.cli.problems import NotFoundError
from stromboli.discovery import discover
from stromboli.engine import Engine
from stromboli.explain.past_runs import PastRuns, learned_from
from stromboli.explain.settled import SettledRehearsal
from stromboli.framework.cluster.environment import Environment
from stromboli.policy.document import DEFAULT_POLICY
from stromboli.policy.rules import Compatibility
from stromboli.simulation.admission import USUAL_NAMES, admit, misspelt_schedulers, unserved
from stromboli.simulation.files import LARGEST_FILE, LARGEST_POLICY, read_text
from stromboli.simulation.manifests import Loaded, load
from stromboli.simulation.refusals import unlimited
from stromboli.simulation.run import feed
from stromboli.simulation.scenario import Scenario
from stromboli.state.cluster import ClusterState
from stromboli.workloads import known_kinds, native

if TYPE_CHECKING:
    from stromboli.cli.which import Which
    from stromboli.live.api_server.client import Kube

DEFAULT_NAMESPACE = "default"
_KUBE_SCHEDULER = "default-scheduler"
#: what OpenSSL calls an answer that is not encrypted
_PLAIN = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
#: seconds for an answer of the service
_PATIENCE = 60.0


class RemoteError(StromboliError):
    """The service did not answer, or refused."""

    def __init__(self, problem: str, status: int = 0) -> None:
        super().__init__(problem)
        self.status = status


@dataclass(frozen=True, slots=True)
class Address:
    """Where a service answers."""

    url: str
    token: str = ""
    certificate_authority: Path | None = None
    #: whether it is the near end of a way that the API server opened
    forwarded: bool = False


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
        """For how long jobs ran whose pods have succeeded."""
        return learned_from(self.state)

    def rehearsal(self) -> SettledRehearsal:
        """Sessions on it; its state is not to be used otherwise."""
        now = time.time() if self.now is None else self.now
        return SettledRehearsal(self.engine, self.state, self.environment, now)


def scheduler_names(loaded: Loaded) -> list[str]:
    """Which schedulers' pods are decided on in files: those of the usual names, where pods have one.

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


def note(line: str) -> None:
    """Tell on standard error how an answer came about."""
    print(line, file=sys.stderr)


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
            "service may decide otherwise (--policy names a file)"
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


def namespace_of(given: str, paths: list[str] | None, kubeconfig: Path | None, context: str | None) -> str:
    """The namespace that is meant: the one that is given, or as kubectl has it, that of the context."""
    if given or paths:
        return given or DEFAULT_NAMESPACE
    named = os.environ.get("KUBECONFIG", "").split(os.pathsep)
    files = [kubeconfig] if kubeconfig else [Path(each) for each in named if each] or [Path("~/.kube/config")]
    contexts: dict[str, str] = {}
    for file in files:
        try:
            current, known = _contexts(next(read_yaml(read_text(file.expanduser(), LARGEST_POLICY)), None))
        except (StromboliError, OSError, RuntimeError):
            continue
        # As for kubectl, what the first file says holds.
        contexts, context = known | contexts, context or current
    return contexts.get(context or "") or DEFAULT_NAMESPACE


def _contexts(document: Any) -> tuple[str, dict[str, str]]:
    """The current context of a kubeconfig, and the namespace of each; what is not as it should be is left out."""
    found = document if isinstance(document, dict) else {}
    entries = found.get("contexts")
    namespaces: dict[str, str] = {}
    for entry in entries if isinstance(entries, list) else ():
        inner = entry.get("context") if isinstance(entry, dict) else None
        namespace = inner.get("namespace") if isinstance(inner, dict) else None
        if isinstance(namespace, str):
            namespaces[str(entry.get("name"))] = namespace
    return str(found.get("current-context") or ""), namespaces


def _tell(kind: str, status: int) -> None:
    if status != 404:
        print(f"{kind} is not read: the API server answers {status}", file=sys.stderr)


@asynccontextmanager
async def connected(kubeconfig: Path | None, context: str | None) -> AsyncIterator[Kube]:
    """A cluster, for as long as the context lasts. Raises RemoteError when it does not answer."""
    from stromboli.live.api_server.client import CONNECTION_ERRORS, Credentials, Kube

    kube = Kube(Credentials.load(kubeconfig, context))
    try:
        yield kube
    except CONNECTION_ERRORS as error:
        raise RemoteError(f"{kube.server}: {in_words(error)}") from error
    finally:
        await kube.close()


async def _dumped(kube: Kube, refused: Callable[[str, int], None]) -> bytes:
    """All that sessions look at, as a list in JSON. Raises CONNECTION_ERRORS."""
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
    """What may own pods, and Kubernetes' own PodGroups, as far as they are served; each names its kind."""
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


def ask(address: Address, path: str, *, body: bytes | None = None) -> Any:
    """The service's answer. Raises RemoteError."""
    with fetched(address, path, body=body) as answer:
        return json.load(answer)


@contextmanager
def fetched(to: Address, path: str, *, body: bytes | None = None, below: str = "api/v1/") -> Iterator[BinaryIO]:
    """The service's answer, to be read while the context lasts. Raises RemoteError."""
    url = to.url
    address = f"{url.rstrip('/')}/{below}{path}"
    if not address.startswith(("http://", "https://")):
        raise RemoteError(f"--url: {url!r} is not an address such as {DEFAULT_URL}")
    headers = {"Accept": "application/json", "Content-Type": "application/yaml"}
    if to.token:
        headers["Authorization"] = f"Bearer {to.token}"
    try:
        tls = ssl.create_default_context(cafile=to.certificate_authority) if url.startswith("https") else None
        if tls is not None and to.forwarded:
            # The API server vouches for the pod, whose certificate names another host.
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        # Not by a proxy of the environment: the port is in the cluster or here.
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), *([urllib.request.HTTPSHandler(context=tls)] if tls else [])
        )
        with opener.open(urllib.request.Request(address, body, headers), timeout=_PATIENCE) as answer:
            yield answer
    except urllib.error.HTTPError as error:
        raise RemoteError(_refusal(error.read()) or f"{url}: {_no_service(error)}", error.code) from None
    except (OSError, ValueError, HTTPException) as error:
        why = getattr(error, "reason", None) or error
        plain = getattr(why, "reason", "") in _PLAIN
        raise RemoteError(f"{url}: {'what answers there speaks HTTP, not HTTPS' if plain else why}") from None


@contextmanager
def looking_for() -> Iterator[None]:
    """What the service does not have is not there. Raises NotFoundError."""
    try:
        yield
    except RemoteError as error:
        if error.status == 404:
            raise NotFoundError(str(error)) from None
        raise


def _no_service(error: urllib.error.HTTPError) -> str:
    """What something answered that gives no reason, as the service does."""
    if error.code == 404:
        return "what answers there is no service of stromboli"
    return f"{error.code} {error.reason}"


def _refusal(body: bytes) -> str:
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        return ""


def quoted(*parts: str) -> str:
    """Parts of a path."""
    return "/".join(urllib.parse.quote(part, safe="") for part in parts)
