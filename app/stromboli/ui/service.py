"""Queries to the service, with the token of the page's user."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from stromboli.api.errors import StromboliError
from stromboli.live.process.logs import Logger

log = Logger(__name__)

T = TypeVar("T")

#: timeout in seconds: finding remedies takes dozens of sessions
_PATIENCE = 60.0
#: status of a replica that does not lead, or is not ready
_ELSEWHERE = 503


class ServiceError(StromboliError):
    """The service refused, or did not answer."""

    def __init__(self, problem: str, status: int) -> None:
        super().__init__(problem)
        self.status = status


class Service:
    """The service at an address. If the name resolves to several replicas, the leader is found."""

    def __init__(self, url: str, *, token_file: Path | None = None, ca_file: Path | None = None) -> None:
        """`token_file` has the token for users without one; it is read for each request, since tokens expire.

        `ca_file` has the CA certificates for the service, and is read again when it has been replaced.

        Raises ValueError for an invalid address, and OSError if the CA certificates cannot be read.
        """
        self.url = URL(url)
        if self.url.scheme not in ("http", "https") or not self.url.host:
            raise ValueError(f"{url!r} is not an address such as http://127.0.0.1:8080")
        self.token_file = token_file
        self._ca_file = ca_file if self.url.scheme == "https" else None
        self._vouching = b"" if self._ca_file is None else self._ca_file.read_bytes()
        self._tls = ssl.create_default_context(cafile=ca_file) if self.url.scheme == "https" else None
        self._session: aiohttp.ClientSession | None = None
        #: the address that answered last
        self._leader = ""

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def get(
        self, path: tuple[str, ...], kind: type[T], token: str = "", asked: Mapping[str, str | int] | None = None
    ) -> T:
        """An answer. Raises ServiceError."""
        return _read(await self._ask("GET", path, token, asked or {}, None), kind)

    async def post(self, path: tuple[str, ...], kind: type[T], token: str, body: bytes) -> T:
        """The answer to a request with a body. Raises ServiceError."""
        return _read(await self._ask("POST", path, token, {}, body), kind)

    async def _ask(
        self, method: str, path: tuple[str, ...], token: str, asked: Mapping[str, str | int], body: bytes | None
    ) -> bytes:
        headers = {"Host": self.url.authority, "Content-Type": "application/yaml"}
        told = token or await self._own_token()
        if told:
            headers["Authorization"] = f"Bearer {told}"
        refusal = ServiceError(f"{self.url}: does not resolve to an address", _ELSEWHERE)
        parts = "/".join(quote(part, safe="") for part in path)
        for address in await self._addresses():
            url = URL(f"{self.url.with_host(address).origin()}/api/v1/{parts}", encoded=True).with_query(dict(asked))
            try:
                answer = await self._send(method, url, headers, body)
            except ServiceError as error:
                refusal = error
                if error.status != _ELSEWHERE:
                    raise
            else:
                self._leader = address
                return answer
        raise refusal

    async def _send(self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None) -> bytes:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_PATIENCE))
        # The certificate must match the name, whichever of its addresses is used.
        name = self.url.host if self._tls is not None else None
        await self._renew()
        try:
            async with self._session.request(
                method,
                url,
                headers=headers,
                data=body,
                allow_redirects=False,
                ssl=self._tls or True,
                server_hostname=name,
            ) as answer:
                content = await answer.read()
        except (aiohttp.ClientError, OSError) as error:
            raise ServiceError(f"The service at {self.url} does not answer: {_why(error)}", _ELSEWHERE) from None
        if answer.status != 200:
            raise ServiceError(_refusal(content) or f"{self.url}: {answer.status}", answer.status)
        return content

    async def _renew(self) -> None:
        """Trust the certificates that are in the file now; those before stay while they cannot be read."""
        if self._ca_file is None:
            return
        try:
            found = await asyncio.to_thread(self._ca_file.read_bytes)
            if found != self._vouching:
                self._tls = ssl.create_default_context(cadata=found.decode())
                self._vouching = found
        except (OSError, ValueError) as error:
            log.recurring("certificates not read", error, path=str(self._ca_file))

    async def _addresses(self) -> list[str]:
        """The addresses of the name, starting with the last one that answered."""
        assert self.url.host is not None
        try:
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(self.url.host, self.url.port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise ServiceError(f"{self.url} does not answer: {error}", _ELSEWHERE) from None
        addresses = list(dict.fromkeys(str(info[4][0]) for info in found))
        return sorted(addresses, key=lambda address: address != self._leader)

    async def _own_token(self) -> str:
        if self.token_file is None:
            return ""
        try:
            return (await asyncio.to_thread(self.token_file.read_text)).strip()
        except OSError as error:
            raise ServiceError(f"{self.token_file}: {error.strerror or error}", 500) from None


def _why(error: Exception) -> str:
    """Why a request got no answer, in words."""
    if isinstance(error, TimeoutError):
        return f"nothing came within {_PATIENCE:.0f} s"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate is not trusted ({error.certificate_error})"
    cause: Any = getattr(error, "os_error", None) or error
    # What is raised for several addresses at once has no number of its own.
    return os.strerror(cause.errno) if getattr(cause, "errno", None) else str(cause) or type(cause).__name__


def _read(content: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise ServiceError(f"the service has another version than this page: {error}", 502) from None


class _Refusal(msgspec.Struct):
    detail: str


def _refusal(content: bytes) -> str:
    try:
        return msgspec.json.decode(content, type=_Refusal).detail
    except msgspec.DecodeError:
        return ""
