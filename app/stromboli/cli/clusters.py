"""A cluster that is read with the user's own rights, or its service, and what is asked there."""

from __future__ import annotations

import json
import os
import ssl
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from stromboli.api.documents import read_yaml
from stromboli.api.errors import StromboliError, in_words
from stromboli.cli.options import DEFAULT_URL
from stromboli.cli.problems import NotFoundError
from stromboli.simulation.files import LARGEST_POLICY, read_text

if TYPE_CHECKING:
    from stromboli.live.api_server.client import Kube

DEFAULT_NAMESPACE = "default"
#: OpenSSL's name for an answer that is not encrypted
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


def note(line: str) -> None:
    """Tell on standard error how an answer came about."""
    print(line, file=sys.stderr)


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
    """The current context of a kubeconfig, and the namespace of each; malformed entries are left out."""
    found = document if isinstance(document, dict) else {}
    entries = found.get("contexts")
    namespaces: dict[str, str] = {}
    for entry in entries if isinstance(entries, list) else ():
        inner = entry.get("context") if isinstance(entry, dict) else None
        namespace = inner.get("namespace") if isinstance(inner, dict) else None
        if isinstance(namespace, str):
            namespaces[str(entry.get("name"))] = namespace
    return str(found.get("current-context") or ""), namespaces


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
    """Raises NotFoundError for an object that the service does not have."""
    try:
        yield
    except RemoteError as error:
        if error.status == 404:
            raise NotFoundError(str(error)) from None
        raise


def _no_service(error: urllib.error.HTTPError) -> str:
    """The text of an error response that is not the service's."""
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
