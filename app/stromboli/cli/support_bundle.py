"""`stromboli support-bundle`: what somebody needs who is asked for help, in one archive."""

from __future__ import annotations

import asyncio
import io
import platform
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
import typer

from stromboli.api.errors import StromboliError
from stromboli.api.secrets import without_secrets
from stromboli.api.version import version
from stromboli.cli import clusters
from stromboli.cli.located import NAMES_OF_CHART, locate
from stromboli.cli.output import columns
from stromboli.cli.queue import rows
from stromboli.cli.record import opened as written
from stromboli.cli.sources import OfService, Source, opened
from stromboli.cli.which import Which, about_a_cluster

#: what the service is asked for, by the name of the file
_ANSWERS = {
    "policy.json": "policy",
    "overview.json": "overview",
    "sessions.json": "sessions",
    "freshness.json": "freshness",
}
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
    """Write what helps others to help into one archive: versions, the policy in force, the queue tree, the newest
    sessions as a journal, definitions that differ, and the logs of all replicas.

    Nothing in it is secret: the journal has no environments, commands and arguments of containers, policies no
    passwords, and logs no tokens. It names queues, namespaces, jobs, pods and nodes. What could not be had is in
    missing.txt.

    Example: stromboli support-bundle -o incident.tar.gz
    """
    bundle = _Bundle()
    service = _tell(bundle, "a service", lambda: opened(which))
    if service is not None:
        _of_service(bundle, service)
    _tell(bundle, "the cluster", lambda: asyncio.run(_of_cluster(bundle, which)))
    for path in log or ():
        bundle.add(f"logs/{path.name}", path.read_text(errors="replace"))
    bundle.add("versions.json", bundle.versions)
    with written(output) as out:
        bundle.write(out)


class _Bundle:
    """What goes into the archive, in which nothing secret is left."""

    def __init__(self) -> None:
        self.versions: dict[str, Any] = {"command": version(), "python": platform.python_version()}
        self.missing: list[str] = []
        self._files: dict[str, bytes] = {}

    def add(self, name: str, content: Any) -> None:
        """Add a file: a text, or anything else as JSON."""
        text = content if isinstance(content, str) else msgspec.json.format(msgspec.json.encode(content)).decode()
        self._files[name] = without_secrets(text).encode()

    def add_journal(self, content: bytes) -> None:
        """Add the sessions of a service, which has left out what nobody else is to see."""
        self._files["sessions.journal"] = content

    def write(self, out: Any) -> None:
        """Write the archive, with what is missing."""
        self.add("missing.txt", "".join(f"{line}\n" for line in self.missing))
        with tarfile.open(fileobj=out, mode="w|gz") as archive:
            for name, content in sorted(self._files.items()):
                entry = tarfile.TarInfo(f"stromboli-support/{name}")
                entry.size, entry.mode = len(content), 0o600
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
    bundle.versions["service"] = service.told
    for name, path in _ANSWERS.items():
        answer = _tell(bundle, path, lambda path=path: clusters.ask(service.address, path))
        if answer is not None:
            bundle.add(name, answer)
    journal = _tell(bundle, "journal", lambda: _journal(service))
    if journal is not None:
        bundle.add_journal(journal)


def _journal(service: OfService) -> bytes:
    with clusters.fetched(service.address, "journal") as answer, tempfile.SpooledTemporaryFile(1 << 26) as kept:
        shutil.copyfileobj(answer, kept)
        kept.seek(0)
        return kept.read()


async def _of_cluster(bundle: _Bundle, which: Which) -> None:
    """What the API server tells: its version, the definitions, the images of the replicas, and their logs."""
    from stromboli.live.client import ApiError
    from stromboli.live.definitions import installed

    async with clusters.connected(which.kubeconfig, which.context) as kube:
        try:
            bundle.versions["kubernetes"] = (await kube.get("/version")).get("gitVersion")
            lacks = {each.name: each.lacks if each.found else ["not defined"] for each in await installed(kube)}
            bundle.add("definitions.json", lacks)
        except ApiError as error:
            bundle.missing.append(f"versions and definitions: {error}")
        service = await locate(kube)
        if service is None:
            bundle.missing.append("logs: no service was found in the cluster")
            return
        of = f"/api/v1/namespaces/{service.namespace}/pods"
        try:
            pods = (await kube.get(f"{of}?labelSelector={quote(NAMES_OF_CHART)}")).get("items") or []
        except ApiError as error:
            bundle.missing.append(f"logs: {error}")
            return
        names = {pod["metadata"]["name"] for pod in pods} | ({service.pod} if service.pod else set())
        bundle.versions["images"] = {pod["metadata"]["name"]: list(_images(pod)) for pod in pods}
        for name in sorted(names):
            try:
                text = await kube.request("GET", f"{of}/{name}/log", params={"tailLines": str(_LINES)})
                bundle.add(f"logs/{name}.log", text.decode(errors="replace"))
            except ApiError as error:
                bundle.missing.append(f"log of {name}: {error}")


def _images(pod: dict[str, Any]) -> Iterator[str]:
    """The images of a pod, with the digests that were pulled."""
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        yield str(status.get("imageID") or status.get("image"))
