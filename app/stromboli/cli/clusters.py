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
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from stromboli.api.documents import read_yaml
from stromboli.api.errors import StromboliError
from stromboli.cli.options import DEFAULT_URL
from stromboli.cli.policies import engine_by
from stromboli.cli.problems import NotFoundError
from stromboli.discovery import discover
from stromboli.engine import Engine
from stromboli.explain.rehearsal import Rehearsal
from stromboli.framework.environment import Environment
from stromboli.simulation.admission import admit
from stromboli.simulation.files import LARGEST_FILE, LARGEST_POLICY, read_text
from stromboli.simulation.manifests import Loaded, load
from stromboli.simulation.run import feed
from stromboli.state.cluster import ClusterState

if TYPE_CHECKING:
    from stromboli.live.client import Kube

DEFAULT_NAMESPACE = "default"
#: seconds for an answer of the service
_PATIENCE = 60.0


class RemoteError(StromboliError):
    """The service did not answer, or refused."""

    def __init__(self, problem: str, status: int = 0) -> None:
        super().__init__(problem)
        self.status = status


@dataclass(slots=True)
class Known:
    """A cluster that is known here: an engine, and a state of its own."""

    engine: Engine
    state: ClusterState
    loaded: Loaded

    def rehearsal(self) -> Rehearsal:
        """Sessions on it; its state is not to be used otherwise."""
        return Rehearsal(self.engine, self.state, Environment(), time.time())


def scheduler_names(loaded: Loaded) -> list[str]:
    """Manifests are simulated whichever scheduler they name: all names that occur, but kube-scheduler's only alone.

    Where there are no pods those count that are to come.
    """
    names = {obj.spec.scheduler_name or "" for kind, obj in loaded.objects if kind == "Pod"}
    return sorted(names - {"default-scheduler"}) or sorted(names) or ["stromboli", "volcano"]


def known_from(
    paths: list[str] | None,
    kubeconfig: Path | None,
    context: str | None,
    policy: Path | None,
    names: list[str] | None,
) -> Known | None:
    """The cluster in files, or one that is read; None when neither is asked for. Raises StromboliError."""
    if not paths and kubeconfig is None and context is None:
        return None
    return known_here(paths, kubeconfig, context, policy, names)


def known_here(
    paths: list[str] | None,
    kubeconfig: Path | None,
    context: str | None,
    policy: Path | None,
    names: list[str] | None,
    refused: Callable[[str, int], None] | None = None,
) -> Known:
    """The cluster in files, or else the one that is read, which may be the one of the current context.

    `refused` is told of kinds that could not be listed, and the status. Raises StromboliError.
    """
    engine = engine_by(policy, discover())
    if paths:
        loaded = load(paths, sys.stdin.buffer, lenient=True, largest=LARGEST_FILE)
    else:
        dumped = asyncio.run(dump(kubeconfig, context, refused or _tell))
        loaded = load(["-"], BytesIO(dumped), lenient=True, largest=len(dumped))
        names = names or ["stromboli"]
    if not loaded.objects and (paths or refused is None):
        raise StromboliError("; ".join(loaded.problems) or f"{', '.join(paths or ())}: no objects")
    scheduled = names or scheduler_names(loaded)
    state = ClusterState(scheduled, reads=engine.registry.reads)
    feed(state, admit(loaded, scheduled))
    for line in loaded.problems:
        print(line, file=sys.stderr)
    return Known(engine, state, loaded)


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
    from stromboli.live.client import CONNECTION_ERRORS, Credentials, Kube

    kube = Kube(Credentials.load(kubeconfig, context))
    try:
        yield kube
    except CONNECTION_ERRORS as error:
        raise RemoteError(f"{kube.server}: {str(error) or type(error).__name__}") from error
    finally:
        await kube.close()


async def dump(kubeconfig: Path | None, context: str | None, refused: Callable[[str, int], None]) -> bytes:
    """All that sessions look at, as a list in JSON, read with one's own rights. Raises StromboliError."""
    from stromboli.live.client import ApiError
    from stromboli.live.sources import SOURCES

    lists: list[dict[str, Any]] = []
    async with connected(kubeconfig, context) as kube:
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
    return msgspec.json.encode({"kind": "List", "items": lists})


def ask(url: str, path: str, *, token: str = "", ca_file: Path | None = None, body: bytes | None = None) -> Any:
    """The service's answer. Raises RemoteError."""
    with fetched(url, path, token=token, ca_file=ca_file, body=body) as answer:
        return json.load(answer)


@contextmanager
def fetched(
    url: str, path: str, *, token: str = "", ca_file: Path | None = None, body: bytes | None = None
) -> Iterator[BinaryIO]:
    """The service's answer, to be read while the context lasts. Raises RemoteError."""
    address = f"{url.rstrip('/')}/api/v1/{path}"
    if not address.startswith(("http://", "https://")):
        raise RemoteError(f"--url: {url!r} is not an address such as {DEFAULT_URL}")
    headers = {"Accept": "application/json", "Content-Type": "application/yaml"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    try:
        tls = ssl.create_default_context(cafile=ca_file) if url.startswith("https") else None
        # Not by a proxy of the environment: the port is in the cluster or here.
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), *([urllib.request.HTTPSHandler(context=tls)] if tls else [])
        )
        with opener.open(urllib.request.Request(address, body, headers), timeout=_PATIENCE) as answer:
            yield answer
    except urllib.error.HTTPError as error:
        raise RemoteError(_refusal(error.read()) or f"{url}: {error.code} {error.reason}", error.code) from None
    except (OSError, ValueError, HTTPException) as error:
        why = getattr(error, "reason", None) or error
        hint = " (--url names a service, --context a cluster)" if url == DEFAULT_URL else ""
        raise RemoteError(f"{url}: {why}{hint}") from None


@contextmanager
def looking_for() -> Iterator[None]:
    """What the service does not have is not there. Raises NotFoundError."""
    try:
        yield
    except RemoteError as error:
        if error.status == 404:
            raise NotFoundError(str(error)) from None
        raise


def _refusal(body: bytes) -> str:
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        return ""


def quoted(*parts: str) -> str:
    """Parts of a path."""
    return "/".join(urllib.parse.quote(part, safe="") for part in parts)
