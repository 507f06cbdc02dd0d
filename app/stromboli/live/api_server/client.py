"""HTTP to the API server: credentials, requests, and typed errors.

The official client reads kubeconfigs and service accounts, with all their login methods. Requests are made by aiohttp,
and bodies stay plain JSON.
"""

from __future__ import annotations

import asyncio
import math
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, TypeAlias

import aiohttp
import msgspec
from kubernetes.client import Configuration
from kubernetes.config import KUBE_CONFIG_DEFAULT_LOCATION, ConfigException, load_incluster_config, load_kube_config
from msgspec import Struct

from stromboli.api.errors import StromboliError
from stromboli.live.api_server.json import Decoder
from stromboli.live.process.limits import Backoff
from stromboli.live.process.logs import Logger

log = Logger(__name__)

Object: TypeAlias = dict[str, Any]
"""A manifest as decoded JSON."""

#: failures without a readable answer
CONNECTION_ERRORS: Final = (aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError)

_JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
JSON_PATCH: Final = "application/json-patch+json"
#: our user agent, also the default field manager of writes
AGENT: Final = "stromboli"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
_RETRIED: Final = frozenset((429, 500, 502, 503, 504))
_TOKEN_PERIOD: Final = 60.0
_RELOAD_PAUSE: Final = 5.0
#: timeout of the first attempt, in seconds; it doubles with each attempt, and the last has none
_PATIENCE: Final = 3.0
#: upper bound in seconds on a server's Retry-After
_LONGEST_WAIT: Final = 30.0
#: length to which messages of a server are cut in errors
_SHOWN: Final = 500


def timestamp(moment: datetime | None = None) -> str:
    """A time, by default now, in Kubernetes' format."""
    return (moment or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")


class ApiError(StromboliError):
    """The API server refused a request. `retry_after` is in seconds, None if the server gave none."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in _RETRIED


def already_exists(error: ApiError) -> bool:
    """Whether a creation was refused because the object exists; other conflicts have the same status."""
    return error.status == 409 and error.reason == "AlreadyExists"


class NotSentError(StromboliError, ConnectionError):
    """A request was not sent: it was no longer wanted, or no longer allowed, when its turn came."""


class CredentialsError(StromboliError):
    """There are no credentials, or they cannot be used."""


class Credentials:
    """Address and credentials of the API server; its HTTP sessions always send the latest token."""

    def __init__(self, load: Callable[[], Configuration]) -> None:
        """`load` reads the configuration again each time and may block. Raises CredentialsError, as `load` does."""
        self._load = load
        # The annotations of the client's configuration do not match what its loaders store.
        self._config: Any = load()
        self.server: str = self._config.host.rstrip("/")
        if not self.server.startswith(("http://", "https://")):
            raise CredentialsError(f"{self.server!r} is not an API server URL (https://HOST:PORT)")
        try:
            self._tls = _tls_context(self._config) if self.server.startswith("https") else None
        except OSError as error:
            raise CredentialsError(f"the certificates for {self.server} cannot be used: {error}") from error
        self._authorization = _authorization(self._config)
        self._reloading = asyncio.Lock()
        self._reloaded = 0.0

    @classmethod
    def load(cls, kubeconfig: Path | None = None, context: str | None = None) -> Credentials:
        """From the kubeconfig named here or in $KUBECONFIG, else the pod's service account, else ~/.kube/config.

        Raises CredentialsError.
        """
        return cls(partial(_load, kubeconfig, context))

    def session(self, connections: int = 0) -> aiohttp.ClientSession:
        """A new HTTP session; `connections` limits its open connections, 0 means unlimited."""
        trace = aiohttp.TraceConfig()
        trace.on_request_start.append(self._authorize)
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections, ssl=self._tls or True),
            trace_configs=[trace] if self._authorization else [],
            # The API server compresses long lists, which costs more than a cluster's own network.
            headers={"Accept": _JSON, "Accept-Encoding": "identity", "User-Agent": AGENT},
            timeout=aiohttp.ClientTimeout(total=60, sock_connect=10),
            read_bufsize=1 << 20,
            proxy=self._config.proxy or None,
        )

    async def log_in_again(self) -> None:
        """The token was refused: load the credentials again, in a thread, since that may run a login program.

        If that fails the old token is kept, and requests continue to be refused.
        """
        async with self._reloading:
            if time.monotonic() - self._reloaded >= _RELOAD_PAUSE:
                self._reloaded = time.monotonic()
                await self._renew(self._load)

    async def keep_fresh(self) -> None:
        """Follow rotated tokens until cancelled."""
        while True:
            await asyncio.sleep(_TOKEN_PERIOD)
            await self._renew(lambda: self._config)

    async def _renew(self, load: Callable[[], Any]) -> None:
        def renewed() -> tuple[Any, str]:
            config = load()
            return config, _authorization(config)

        try:
            self._config, self._authorization = await asyncio.to_thread(renewed)
        except CredentialsError as error:
            log.recurring("login failed", error)

    async def _authorize(
        self, session: aiohttp.ClientSession, context: SimpleNamespace, request: aiohttp.TraceRequestStartParams
    ) -> None:
        request.headers["Authorization"] = self._authorization


def _load(kubeconfig: Path | None, context: str | None) -> Configuration:
    config = Configuration()
    in_pod = "KUBERNETES_SERVICE_HOST" in os.environ and "KUBECONFIG" not in os.environ
    try:
        if kubeconfig is None and in_pod:
            load_incluster_config(config)  # type: ignore[no-untyped-call]
        else:
            path = str(kubeconfig) if kubeconfig else None
            load_kube_config(path, context, config, persist_config=False)  # type: ignore[no-untyped-call]
    except Exception as error:
        named = str(kubeconfig or os.environ.get("KUBECONFIG") or KUBE_CONFIG_DEFAULT_LOCATION)
        files = [Path(each).expanduser() for each in named.split(os.pathsep)]
        if not any(file.exists() for file in files):
            why = "there is no such file"
        else:
            # The loaders validate little: a malformed file raises a TypeError or KeyError in them.
            why = _in_one_line(error).rstrip(".") if isinstance(error, ConfigException) else "it is no kubeconfig"
        raise CredentialsError(f"{named}: {why}; set --kubeconfig or $KUBECONFIG to use another") from error
    return config


def _authorization(config: Any) -> str:
    """The Authorization header; expiring tokens are renewed first. Raises CredentialsError."""
    try:
        key: str = (config.get_api_key_with_prefix("BearerToken", alias="authorization") or "").strip()
    except Exception as error:
        raise CredentialsError(f"the credentials were not renewed: {_in_one_line(error)}") from error
    scheme, _, token = key.rpartition(" ")
    return f"Bearer {token}" if scheme == "bearer" else key


def _tls_context(config: Configuration) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=config.ssl_ca_cert)
    if config.cert_file:
        context.load_cert_chain(config.cert_file, config.key_file)
    if not config.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class _ListMeta(Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Page(Struct):
    """One page of a list; the items are not decoded."""

    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None

    @property
    def version(self) -> str:
        """The resourceVersion of the list."""
        return self.metadata.resource_version


class Kube:
    """Requests to one API server. Methods raise ApiError for refusals and CONNECTION_ERRORS without an answer."""

    def __init__(self, credentials: Credentials, connections: int = 0) -> None:
        self.credentials = credentials
        self.server = credentials.server
        self._connections = connections
        self._page = Decoder(Page)

    @cached_property
    def _session(self) -> aiohttp.ClientSession:
        # Created by the first request, since there is no event loop before.
        return self.credentials.session(self._connections)

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def get(self, path: str) -> Object:
        """Get the resource at a path."""
        return _decoded(await self.request("GET", path))

    async def create(self, path: str, manifest: Mapping[str, Any]) -> Object:
        """Create an object in the collection at a path."""
        return _decoded(await self.request("POST", path, msgspec.json.encode(manifest)))

    async def replace(self, path: str, manifest: Mapping[str, Any]) -> Object:
        """Replace the object at a path."""
        return _decoded(await self.request("PUT", path, msgspec.json.encode(manifest)))

    async def patch(self, path: str, patch: Mapping[str, Any], content_type: str = MERGE_PATCH) -> Object:
        """Patch the object at a path."""
        return _decoded(await self.request("PATCH", path, msgspec.json.encode(patch), content_type))

    async def delete(self, path: str, options: Mapping[str, Any] | None = None) -> None:
        """Delete the object at a path."""
        await self.request("DELETE", path, msgspec.json.encode(options) if options else None)

    async def pages(self, path: str, params: Mapping[str, str], limit: int = 500) -> AsyncIterator[Page]:
        """A list, page by page."""
        token = ""
        while True:
            query = {**params, "limit": str(limit), **({"continue": token} if token else {})}
            page = self._page.decode(await self.request("GET", path, params=query))
            yield page
            token = page.metadata.continue_
            if not token:
                return

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | aiohttp.Payload | None = None,
        content_type: str = _JSON,
        params: Mapping[str, str] | None = None,
    ) -> bytes:
        """The body of the answer. After a 401 the request is repeated once with a new token."""
        headers = {"Content-Type": content_type} if body is not None else None
        for attempt in (0, 1):
            async with self._session.request(
                method, self.server + path, data=body, headers=headers, params=params
            ) as answer:
                content = await answer.read()
                if answer.status == 401 and attempt == 0:
                    await self.credentials.log_in_again()
                    continue
                if answer.status >= 400:
                    raise refusal(answer.status, answer.headers, content)
                return content
        raise AssertionError("unreachable")

    async def persist(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        content_type: str = _JSON,
        attempts: int = 5,
        *,
        wanted: Callable[[], bool] = lambda: True,
    ) -> bytes:
        """A request that is retried while the API server is overloaded, unreachable or silent.

        `wanted` is checked before each attempt. Raises NotSentError only if no attempt was made.
        """
        backoff, patience = Backoff(0.1, 5.0), _PATIENCE
        failure: Exception | None = None
        while True:
            attempts -= 1
            try:
                if not wanted():
                    raise NotSentError(f"{method} {path}: no longer wanted")
                async with asyncio.timeout(patience if attempts else None):
                    return await self.request(method, path, body, content_type)
            except NotSentError as error:
                raise failure or error from None
            except ApiError as error:
                if not error.retriable or attempts == 0:
                    raise
                failure, delay = error, backoff.delay(error.retry_after)
            except CONNECTION_ERRORS as error:
                if attempts == 0:
                    raise
                failure, delay = error, backoff.delay()
            patience *= 2
            await asyncio.sleep(delay)

    def websocket(self, path: str, protocol: str) -> Any:
        """Context manager of a WebSocket at a path."""
        # A kubelet, to which it may lead, refuses clients that accept JSON only.
        headers = {"Accept": "*/*"}
        return self._session.ws_connect(self.server + path, protocols=(protocol,), headers=headers, max_msg_size=0)

    def watch(self, path: str, params: Mapping[str, str], silence: float) -> Any:
        """Context manager of an open watch; it fails after `silence` seconds without a byte."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=silence)
        return self._session.get(self.server + path, params=params, timeout=timeout)


def refusal(status: int, headers: Mapping[str, str], content: bytes) -> ApiError:
    """The error for an answer with a status of 400 or more."""
    try:
        body = msgspec.json.decode(content)
    except msgspec.DecodeError:
        body = None
    if not isinstance(body, dict):
        # A proxy's error page is not a Status.
        body = {"message": content[:200].decode(errors="replace")}
    return status_error({**body, "code": status}, headers.get("Retry-After"))


def status_error(status: object, retry_after: object = None) -> ApiError:
    """The error for an object that should be a `Status`; `retry_after` takes precedence over the object's own."""
    fields = status if isinstance(status, dict) else {}
    code, details = fields.get("code"), fields.get("details")
    if retry_after is None and isinstance(details, dict):
        retry_after = details.get("retryAfterSeconds")
    reason, message = (str(fields.get(key) or "")[:_SHOWN] for key in ("reason", "message"))
    return ApiError(code if isinstance(code, int) else 0, reason, message, _seconds(retry_after))


def _seconds(asked: object) -> float | None:
    """The Retry-After of an answer in seconds, at most _LONGEST_WAIT; None if absent or invalid."""
    try:
        seconds = float(asked)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        seconds = _seconds_until(asked)
    except OverflowError:
        seconds = math.inf
    return None if math.isnan(seconds) else min(max(0.0, seconds), _LONGEST_WAIT)


def _seconds_until(date: object) -> float:
    """Seconds until an HTTP date, NaN if it is invalid."""
    try:
        moment = parsedate_to_datetime(str(date))
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - time.time()
    except (ValueError, OverflowError):
        return math.nan


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


_OBJECT = Decoder(dict[str, Any])


def _decoded(content: bytes) -> Object:
    decoded: Object = _OBJECT.decode(content)
    return decoded
