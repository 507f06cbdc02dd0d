"""`stromboli support-bundle`: what a person needs to help, in one archive."""

from __future__ import annotations

import asyncio
import io
import platform
import re
import shutil
import tarfile
import tempfile
from collections.abc import Awaitable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import quote

import msgspec
import typer

from stromboli.api.errors import StromboliError
from stromboli.api.secrets import without_secrets
from stromboli.api.version import version
from stromboli.cli import clusters
from stromboli.cli.doctor import lines, looked
from stromboli.cli.located import Located, locate
from stromboli.cli.output import columns
from stromboli.cli.queue import rows
from stromboli.cli.record import opened as written
from stromboli.cli.sources import OfService, Source, opened
from stromboli.cli.which import Which, about_a_cluster

if TYPE_CHECKING:
    from stromboli.live.api_server.client import Kube

T = TypeVar("T")

#: paths that the service is asked for, by the name of the file
_ANSWERS = {
    "policy.json": "policy",
    "overview.json": "overview",
    "sessions.json": "sessions",
    "freshness.json": "freshness",
}
#: fields of a pod's status that tell how it fares
_STATUS = ("phase", "reason", "message", "startTime", "conditions", "initContainerStatuses", "containerStatuses")
#: labels that identify the service's build in its metrics
_BUILD = re.compile(r"^stromboli_build_info(\{.*\})", re.MULTILINE)
#: lines of each replica's log
_LINES = 20_000


@about_a_cluster
def support_bundle(
    which: Which,
    output: Annotated[Path, typer.Option("-o", "--output", help="The archive to write; - for standard output.")] = Path(
        "stromboli-support.tar.gz"
    ),
    log: Annotated[
        list[Path] | None,
        typer.Option(help="File with more of a log, of a service that runs in no pod. May be repeated."),
    ] = None,
) -> None:
    """Collect what others need to help into one archive: versions, the policy in force, the queue tree, the newest
    sessions as a journal, metrics, what `stromboli doctor` finds, definitions that differ, the leases, and how all
    replicas are, with their logs.

    Nothing in it is secret: the journal has no environments, commands and arguments of containers, policies no
    passwords, and logs no tokens. It names queues, namespaces, jobs, pods and nodes. What could not be had is in
    missing.txt.

    Example: stromboli support-bundle -o incident.tar.gz
    """
    bundle = _Bundle()
    refused: list[tuple[str, int]] = []
    service = _tell(bundle, "a service", lambda: opened(which, refused=lambda *told: refused.append(told)))
    if service is not None:
        _of_service(bundle, service)
        found = _tell(bundle, "doctor", lambda: looked(which, service, refused))
        if found is not None:
            bundle.add("doctor.txt", "".join(f"{line}\n" for line in lines(found)))
    _tell(bundle, "the cluster", lambda: asyncio.run(_of_cluster(bundle, which)))
    for path in log or ():
        bundle.add(f"logs/{path.name}", path.read_text(errors="replace"))
    bundle.add("versions.json", bundle.versions)
    with written(output) as out:
        bundle.write(out)


class _Bundle:
    """The contents of the archive, without secrets."""

    def __init__(self) -> None:
        self._made = datetime.now(UTC).replace(microsecond=0)
        self.versions: dict[str, Any] = {
            "made": self._made.isoformat(),
            "command": version(),
            "python": platform.python_version(),
        }
        self.missing: list[str] = []
        self._files: dict[str, bytes] = {}

    def add(self, name: str, content: Any) -> None:
        """Add a file: a text, or anything else as JSON."""
        text = content if isinstance(content, str) else msgspec.json.format(msgspec.json.encode(content)).decode()
        self._files[name] = without_secrets(text).encode()

    def add_journal(self, content: bytes) -> None:
        """Add the sessions of a service, which has left out confidential parts."""
        self._files["sessions.journal"] = content

    def write(self, out: Any) -> None:
        """Write the archive, with a list of what is missing."""
        self.add("missing.txt", "".join(f"{line}\n" for line in self.missing))
        with tarfile.open(fileobj=out, mode="w|gz") as archive:
            for name, content in sorted(self._files.items()):
                entry = tarfile.TarInfo(f"stromboli-support/{name}")
                entry.size, entry.mode, entry.mtime = len(content), 0o600, int(self._made.timestamp())
                archive.addfile(entry, io.BytesIO(content))


def _tell(bundle: _Bundle, what: str, ask: Any) -> Any:
    """An answer; None, and a line in missing.txt, without one."""
    try:
        return ask()
    except StromboliError as error:
        bundle.missing.append(f"{what}: {error}")
        return None


def _of_service(bundle: _Bundle, service: Source) -> None:
    queues = _tell(bundle, "queues", service.queues)
    if queues is not None:
        bundle.add("queues.json", queues)
        bundle.add("queues.txt", "".join(f"{line}\n" for line in columns(rows(queues, wide=True, indented=True))))
    if not isinstance(service, OfService):
        bundle.missing.append("policy, sessions and journal: no service was asked; the queues are as they were found")
        return
    bundle.versions["service"] = {"asked": service.told}
    metrics = _tell(bundle, "metrics", lambda: _fetched(service, "metrics", below="").decode())
    if metrics is not None:
        bundle.add("metrics.txt", metrics)
        bundle.versions["service"] |= re.findall(r'(\w+)="([^"]*)"', "".join(_BUILD.findall(metrics)))
    for name, path in _ANSWERS.items():
        answer = _tell(bundle, path, lambda path=path: clusters.ask(service.address, path))
        if answer is not None:
            bundle.add(name, answer)
    journal = _tell(bundle, "journal", lambda: _fetched(service, "journal"))
    if journal is not None:
        bundle.add_journal(journal)


def _fetched(service: OfService, path: str, below: str = "api/v1/") -> bytes:
    with clusters.fetched(service.address, path, below=below) as answer, tempfile.SpooledTemporaryFile(1 << 26) as kept:
        shutil.copyfileobj(answer, kept)
        kept.seek(0)
        return kept.read()


async def _of_cluster(bundle: _Bundle, which: Which) -> None:
    """Data from the API server: its version, the definitions, the leases, and the state of the replicas."""
    from stromboli.live.api_server.definitions import installed

    async with clusters.connected(which.kubeconfig, which.context) as kube:
        about = await _answer(bundle, "version of Kubernetes", kube.get("/version"))
        bundle.versions["kubernetes"] = (about or {}).get("gitVersion")
        definitions = await _answer(bundle, "definitions", installed(kube))
        if definitions is not None:
            lacks = {each.name: each.lacks if each.found else ["not defined"] for each in definitions}
            bundle.add("definitions.json", lacks)
        service = await locate(kube)
        if service is None:
            bundle.missing.append("leases, replicas and logs: no service was found in the cluster")
            return
        path = f"/apis/coordination.k8s.io/v1/namespaces/{service.namespace}/leases"
        leases = await _answer(bundle, "leases", kube.get(path))
        if leases is not None:
            bundle.add("leases.json", {each["metadata"]["name"]: each.get("spec") for each in leases["items"]})
        await _of_replicas(bundle, kube, service)


async def _of_replicas(bundle: _Bundle, kube: Kube, service: Located) -> None:
    of = f"/api/v1/namespaces/{service.namespace}/pods"
    listed = await _answer(bundle, "replicas and logs", kube.get(f"{of}?labelSelector={quote(service.beside)}"))
    if listed is None:
        return
    pods = {pod["metadata"]["name"]: pod for pod in listed.get("items") or ()}
    if service.pod and service.pod not in pods:
        pods |= {service.pod: await _answer(bundle, service.pod, kube.get(f"{of}/{service.pod}")) or {}}
    bundle.add("replicas.json", {name: _state(pod) for name, pod in sorted(pods.items())})
    for name, pod in sorted(pods.items()):
        container, restarted = _container(pod, service.container)
        # One that restarts again and again says why in the log of the container before.
        logs = {"": {}, ".before": {"previous": "true"}} if restarted else {"": {}}
        for suffix, which in logs.items():
            asked = {"container": container, "tailLines": str(_LINES), **which}
            text = await _answer(bundle, f"log of {name}", kube.request("GET", f"{of}/{name}/log", params=asked))
            if text is not None:
                bundle.add(f"logs/{name}{suffix}.log", text.decode(errors="replace"))


def _state(pod: dict[str, Any]) -> dict[str, Any]:
    """A pod's node and state, with the images that were pulled."""
    status = pod.get("status") or {}
    kept = {key: status[key] for key in _STATUS if key in status}
    return {"node": (pod.get("spec") or {}).get("nodeName", ""), **kept}


def _container(pod: dict[str, Any], usual: str) -> tuple[str, bool]:
    """The container of a pod that has the service, and whether it was restarted."""
    names = [each["name"] for each in (pod.get("spec") or {}).get("containers") or ()]
    name = usual if usual in names or not names else names[0]
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return name, any(each.get("restartCount") for each in statuses if each["name"] == name)


async def _answer(bundle: _Bundle, what: str, asked: Awaitable[T]) -> T | None:
    """The API server's answer; None, and a line in missing.txt, if it refuses."""
    from stromboli.live.api_server.client import ApiError

    try:
        return await asked
    except ApiError as error:
        bundle.missing.append(f"{what}: {error}")
        return None
