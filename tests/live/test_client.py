"""Logging in: every way that a kubeconfig knows, against a TLS server that looks at who asks."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import kubernetes.config.incluster_config as incluster
import pytest
import trustme
from aiohttp import web

from stromboli.live.api_server.client import ApiError, Credentials, CredentialsError, Kube


class Door:
    """Lets in who has the token or a certificate, and counts who was turned away."""

    def __init__(self) -> None:
        self.token = "first"
        self.refused = 0
        self.url = ""

    async def handle(self, request: web.BaseRequest) -> web.Response:
        assert request.transport is not None
        certificate = request.transport.get_extra_info("peercert")
        header = request.headers.get("Authorization", "")
        if certificate or header in (f"Bearer {self.token}", "Basic " + base64.b64encode(b"u:pw").decode()):
            return web.json_response({"via": "certificate" if certificate else header.split()[0]})
        self.refused += 1
        return web.json_response({"reason": "Unauthorized", "code": 401}, status=401)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
async def door(authority: trustme.CA) -> AsyncIterator[Door]:
    door = Door()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.verify_mode = ssl.CERT_OPTIONAL
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    runner = web.ServerRunner(web.Server(door.handle), shutdown_timeout=0.01)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    door.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
    yield door
    await runner.cleanup()


def kubeconfig(path: Path, door: Door, authority: trustme.CA, user: dict[str, Any]) -> Path:
    """A kubeconfig of two contexts, of which the current one is of use."""
    data = base64.b64encode(authority.cert_pem.bytes()).decode()
    clusters = [
        {"name": "here", "cluster": {"server": door.url, "certificate-authority-data": data}},
        {"name": "nowhere", "cluster": {"server": "https://127.0.0.1:1"}},
    ]
    contexts = [{"name": name, "context": {"cluster": name, "user": "me"}} for name in ("nowhere", "here")]
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": clusters,
        "contexts": contexts,
        "users": [{"name": "me", "user": user}],
        "current-context": "here",
    }
    path.write_text(json.dumps(config))
    return path


async def ask(credentials: Credentials, times: int = 1) -> str:
    kube = Kube(credentials)
    try:
        answers = await asyncio.gather(*(kube.get("/version") for _ in range(times)))
    finally:
        await kube.close()
    return str(answers[0]["via"])


async def test_a_token(tmp_path: Path, door: Door, authority: trustme.CA) -> None:
    path = kubeconfig(tmp_path / "config", door, authority, {"token": "first"})
    assert await ask(Credentials.load(path)) == "Bearer"
    assert Credentials.load(path, "nowhere").server == "https://127.0.0.1:1"


async def test_a_password(tmp_path: Path, door: Door, authority: trustme.CA) -> None:
    path = kubeconfig(tmp_path / "config", door, authority, {"username": "u", "password": "pw"})
    assert await ask(Credentials.load(path)) == "Basic"


async def test_a_certificate(tmp_path: Path, door: Door, authority: trustme.CA) -> None:
    certificate = authority.issue_cert("client.test")
    user = {
        "client-certificate-data": base64.b64encode(certificate.cert_chain_pems[0].bytes()).decode(),
        "client-key-data": base64.b64encode(certificate.private_key_pem.bytes()).decode(),
    }
    assert await ask(Credentials.load(kubeconfig(tmp_path / "config", door, authority, user))) == "certificate"


async def test_a_token_file_is_read_again_when_its_token_is_refused(
    tmp_path: Path, door: Door, authority: trustme.CA
) -> None:
    (tmp_path / "token").write_text("first")
    path = kubeconfig(tmp_path / "config", door, authority, {"tokenFile": str(tmp_path / "token")})
    credentials = Credentials.load(path)
    assert await ask(credentials) == "Bearer"
    door.token = "second"
    (tmp_path / "token").write_text("second")
    assert await ask(credentials, times=5) == "Bearer"
    assert 1 <= door.refused <= 5


async def test_a_login_program_is_run(tmp_path: Path, door: Door, authority: trustme.CA) -> None:
    api_version = "client.authentication.k8s.io/v1"
    answer = {"apiVersion": api_version, "kind": "ExecCredential", "status": {"token": "first"}}
    program = f"import json; print(json.dumps({answer!r}))"
    exec_ = {
        "apiVersion": api_version,
        "command": sys.executable,
        "args": ["-c", program],
        "interactiveMode": "Never",
    }
    path = kubeconfig(tmp_path / "config", door, authority, {"exec": exec_})
    assert await ask(Credentials.load(path)) == "Bearer"


async def test_the_account_of_a_pod(
    tmp_path: Path, door: Door, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("first")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    monkeypatch.setattr(incluster, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    host, port = door.url.removeprefix("https://").split(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    credentials = Credentials.load()
    assert await ask(credentials) == "Bearer"
    door.token = "second"
    (tmp_path / "token").write_text("second")
    assert await ask(credentials) == "Bearer"


async def test_a_token_that_stays_wrong_is_an_error(tmp_path: Path, door: Door, authority: trustme.CA) -> None:
    path = kubeconfig(tmp_path / "config", door, authority, {"token": "stale"})
    with pytest.raises(ApiError, match="401 Unauthorized") as caught:
        await ask(Credentials.load(path))
    assert not caught.value.retriable
    assert door.refused == 2


def test_a_kubeconfig_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="absent"):
        Credentials.load(tmp_path / "absent")
    (tmp_path / "empty").write_text("kind: Config")
    with pytest.raises(CredentialsError, match="empty"):
        Credentials.load(tmp_path / "empty")
