"""A client for the contract tests that hides nothing: JSON over HTTP, statuses returned, not raised."""

from __future__ import annotations

import base64
import json
import ssl
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

Json = dict[str, Any]


@dataclass(frozen=True)
class Endpoint:
    """An API server and the credentials for it."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    ssl: ssl.SSLContext | bool = True


@dataclass(frozen=True)
class Answer:
    code: int
    body: Any
    content_type: str

    @property
    def version(self) -> str:
        version: str = self.body["metadata"]["resourceVersion"]
        return version


class Client:
    """Requests to one API server."""

    def __init__(self, endpoint: Endpoint, session: aiohttp.ClientSession) -> None:
        self._endpoint = endpoint
        self._session = session

    @property
    def secure(self) -> bool:
        """Whether this is a real server, which keeps versions until it compacts them, minutes later."""
        return self._endpoint.url.startswith("https://")

    async def get(self, path: str, *, accept: str = "application/json", **query: str) -> Answer:
        return await self.request("GET", path, query=query, headers={"Accept": accept})

    async def post(self, path: str, body: Any, **query: str) -> Answer:
        return await self.request("POST", path, body, query=query)

    async def put(self, path: str, body: Any, **query: str) -> Answer:
        return await self.request("PUT", path, body, query=query)

    async def patch(self, path: str, content_type: str, body: Any, **query: str) -> Answer:
        return await self.request("PATCH", path, body, query=query, headers={"Content-Type": content_type})

    async def delete(self, path: str, body: Any = None, **query: str) -> Answer:
        return await self.request("DELETE", path, body, query=query)

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        sent = {"Accept": "application/json", **self._endpoint.headers}
        data = None
        if body is not None:
            sent["Content-Type"] = "application/json"
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent.update(headers or {})
        url = self._endpoint.url + path
        async with self._session.request(
            method, url, data=data, params=query or {}, headers=sent, ssl=self._endpoint.ssl
        ) as response:
            text = await response.text()
            parsed = json.loads(text) if response.content_type == "application/json" else text
            return Answer(response.status, parsed, response.headers.get("Content-Type", ""))

    @asynccontextmanager
    async def watch(
        self, path: str, *, accept: str = "application/json", **query: str
    ) -> AsyncIterator[AsyncIterator[Json]]:
        """The events of a watch, which ends after `timeoutSeconds`, 8 by default."""
        async with self._session.get(
            self._endpoint.url + path,
            params={"watch": "true", "timeoutSeconds": "8", **query},
            headers={**self._endpoint.headers, "Accept": accept},
            ssl=self._endpoint.ssl,
        ) as response:
            assert response.status == 200, await response.text()

            async def events() -> AsyncIterator[Json]:
                async for line in response.content:
                    yield json.loads(line)

            yield events()


def read_kubeconfig(path: Path) -> Endpoint:
    """The endpoint of a kubeconfig's current context: a token or a client certificate."""
    config = yaml.safe_load(path.read_text())
    context = _named(config["contexts"], config["current-context"])["context"]
    cluster = _named(config["clusters"], context["cluster"])["cluster"]
    user = _named(config["users"], context["user"]).get("user") or {}
    headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
    if cluster["server"].startswith("http://"):
        return Endpoint(cluster["server"], headers)
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder)
        authority = _file(cluster, "certificate-authority", files)
        tls = ssl.create_default_context(cafile=str(authority) if authority else None)
        if certificate := _file(user, "client-certificate", files):
            tls.load_cert_chain(certificate, _file(user, "client-key", files))
    return Endpoint(cluster["server"], headers, tls)


def _named(entries: list[Json], name: str) -> Json:
    return next(entry for entry in entries if entry["name"] == name)


def _file(section: Json, name: str, folder: Path) -> Path | None:
    if name in section:
        return Path(section[name])
    if inline := section.get(f"{name}-data"):
        path = folder / name
        path.write_bytes(base64.b64decode(inline))
        return path
    return None
