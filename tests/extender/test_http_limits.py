"""The port when strangers ask: what is too long, too slow or too much ends, and probes are answered meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
from fastapi import APIRouter
from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from stromboli.extender import Published, Standing
from stromboli.http.server import Probes, listen, make_app, serve
from stromboli.live.settings import Settings
from tests import builders
from tests.extender.questions import by_name, published

Connect = Callable[[], Any]


@pytest.fixture(scope="module")
def seen() -> Published:
    pod = builders.pod("a", "a")
    state = builders.state(builders.node("n0"), builders.queue("default"), builders.pod_group("a"), pod)
    return published(state, builders.policy("gang", "predicates"))


QUESTION = by_name(builders.pod("a", "a"), ["n0", "n1"])


@contextlib.asynccontextmanager
async def served(seen: Published, more: Sequence[APIRouter] = (), **settings: Any) -> AsyncIterator[int]:
    """The port of a server with these settings, and with more routes."""
    listening = listen("127.0.0.1:0")
    app = make_app(Standing(lambda: seen), CollectorRegistry(), Probes(), more=more)
    server = asyncio.create_task(serve(app, listening, Settings(**settings)))
    try:
        yield listening.getsockname()[1]
    finally:
        server.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await server


async def said(port: int, *parts: bytes) -> bytes:
    """What a connection says to these bytes until it ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.suppress(ConnectionError):
        for part in parts:
            writer.write(part)
            await writer.drain()
        return await reader.read()
    writer.close()
    return b""


def post(body: bytes = b"", *headers: str) -> bytes:
    return "\r\n".join(("POST /filter HTTP/1.1", "host: x", *headers, "", "")).encode() + body


async def healthy(port: int) -> bool:
    async with httpx.AsyncClient(timeout=60) as http:
        return (await http.get(f"http://127.0.0.1:{port}/healthz")).status_code == 200


async def test_questions_of_the_usual_size_are_answered(seen: Published) -> None:
    async with served(seen) as port, httpx.AsyncClient() as http:
        for _ in range(2):
            answer = await http.post(f"http://127.0.0.1:{port}/filter", content=QUESTION)
            assert answer.json()["NodeNames"] == ["n0"]


async def test_a_body_that_is_announced_too_long_is_not_read(seen: Published) -> None:
    async with served(seen, http_max_body=1_000) as port:
        answer = await said(port, post(b"x" * 600, "content-length: 600000000"), b"x" * 600)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert answer.endswith(b"the body exceeds 1000 bytes\n")


async def test_a_body_of_unknown_length_is_read_up_to_the_limit(seen: Published) -> None:
    chunk = b"64\r\n" + b"x" * 100 + b"\r\n"
    async with served(seen, http_max_body=1_000) as port:
        answer = await said(port, post(b"", "transfer-encoding: chunked"), *[chunk] * 1_000)
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert await healthy(port)


async def test_a_refused_client_that_sends_no_more_is_not_waited_for(seen: Published) -> None:
    """All of its body has come when the service looks, and none of it ends."""
    async with served(seen, http_max_body=100, http_timeout=300) as port, asyncio.timeout(60):
        answer = await said(port, post(b"3e8\r\n" + b"x" * 1_000 + b"\r\n", "transfer-encoding: chunked"))
    assert answer.startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("end", [b"\r\n\r\n", b""], ids=["complete", "unending"])
@pytest.mark.parametrize("head", [b"x: " + b"y" * 2_000, b"x: y\r\n" * 400], ids=["long", "many"])
async def test_headers_that_are_too_long_are_refused(seen: Published, head: bytes, end: bytes) -> None:
    async with served(seen, http_max_header=1_000) as port:
        answer = await said(port, b"GET /metrics HTTP/1.1\r\n" + head + end)
    assert answer.startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize(
    ("half", "status"),
    [(b"", b""), (b"POST /filter HT", b"HTTP/1.1 408 "), (post(b"{", "content-length: 9"), b"HTTP/1.1 408 ")],
    ids=["nothing", "half a head", "half a body"],
)
async def test_requests_that_do_not_end_are_ended(seen: Published, half: bytes, status: bytes) -> None:
    async with served(seen, http_timeout=0.8, http_max_requests=300, http_max_connections=400) as port:
        answers = await asyncio.gather(*[said(port, half) for _ in range(300)])
        assert {answer[: len(status)] for answer in answers} == {status}
        assert await healthy(port)


async def test_an_answer_that_nobody_reads_is_dropped(seen: Published) -> None:
    names = [f"node-{number:06}-{'x' * 300}" for number in range(60_000)]
    question = by_name(builders.pod("other", "other", scheduler="default-scheduler"), names)
    async with served(seen, http_timeout=0.5) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(post(question, f"content-length: {len(question)}"))
        await writer.drain()
        await asyncio.sleep(1)
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        with contextlib.suppress(ConnectionError):
            assert len(await reader.read()) < len(question) // 2
        writer.close()


async def until(port: int, status: int) -> None:
    """Ask until the answer has a status."""
    async with httpx.AsyncClient() as http:
        while (await http.post(f"http://127.0.0.1:{port}/filter", content=QUESTION)).status_code != status:
            pass


async def test_too_many_requests_at_once_are_told_to_come_again_and_probes_are_not(seen: Published) -> None:
    async with served(seen, http_max_requests=1) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(post(b"{", "content-length: 1000"))
        await writer.drain()
        await until(port, 503)
        assert b"retry-after: 1" in await said(port, post(b"", "content-length: 0"))
        assert await healthy(port)
        writer.close()
        await until(port, 200)


async def test_questions_take_no_place_of_the_extender(seen: Published) -> None:
    async with served(seen, http_max_requests=1) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(post(b"{", "content-length: 1000").replace(b"/filter", b"/api/v1/whatif", 1))
        await writer.drain()
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
            while (await http.get("/api/v1/overview")).status_code != 503:
                pass
            assert (await http.post("/filter", content=QUESTION)).status_code == 200
            assert (await http.get("/metrics")).status_code == 200
        writer.close()


async def test_what_is_not_answered_when_the_server_stops_is_told_to_come_again(
    seen: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stromboli.http.server._GRACE", 0.1)
    router, asked = APIRouter(), asyncio.Event()

    @router.get("/api/v1/endless")
    async def endless() -> None:
        asked.set()
        await asyncio.Event().wait()

    async with httpx.AsyncClient() as http:
        async with served(seen, more=[router]) as port:
            answer = asyncio.create_task(http.get(f"http://127.0.0.1:{port}/api/v1/endless"))
            await asked.wait()
        found = await asyncio.wait_for(answer, 60)
    assert (found.status_code, found.text) == (503, "the service is stopping\n")
    assert found.headers["retry-after"] == "1"


async def test_the_connection_that_waits_longest_makes_room(seen: Published) -> None:
    async with served(seen, http_max_connections=2) as port:
        first, _ = await asyncio.open_connection("127.0.0.1", port)
        second, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await healthy(port)
        with contextlib.suppress(ConnectionError):
            assert await first.read() == b""
        writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert (await second.read()).endswith(b"ok\n")


async def test_requests_on_top_of_each_other_are_refused(seen: Published) -> None:
    async with served(seen) as port:
        answer = await said(port, b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n" * 1_000)
    assert answer.startswith(b"HTTP/1.1 400 ")


# -- certificates ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def files(authority: trustme.CA, tmp_path: Path) -> dict[str, Path]:
    own = authority.issue_cert("127.0.0.1")
    paths = {name: tmp_path / name for name in ("tls_cert_file", "tls_private_key_file", "client_ca_file")}
    own.cert_chain_pems[0].write_to_path(paths["tls_cert_file"])
    own.private_key_pem.write_to_path(paths["tls_private_key_file"])
    authority.cert_pem.write_to_path(paths["client_ca_file"])
    return paths


@pytest.fixture
def clients(authority: trustme.CA) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A client without a certificate, and kube-scheduler with its own."""
    stranger, known = ssl.create_default_context(), ssl.create_default_context()
    for context in (stranger, known):
        authority.configure_trust(context)
    authority.issue_cert("kube-scheduler").configure_cert(known)
    return stranger, known


async def test_the_extender_asks_for_a_certificate_and_probes_do_not(
    seen: Published, clients: tuple[ssl.SSLContext, ssl.SSLContext], files: dict[str, Path]
) -> None:
    stranger, known = clients
    async with served(seen, **files) as port:
        url = f"https://127.0.0.1:{port}"
        async with httpx.AsyncClient(verify=stranger, base_url=url) as http:
            assert (await http.get("/healthz")).status_code == 200
            assert (await http.get("/metrics")).status_code == 200
            assert (await http.post("/filter", content=QUESTION)).status_code == 403
        async with httpx.AsyncClient(verify=known, base_url=url) as http:
            assert (await http.post("/filter", content=QUESTION)).json()["NodeNames"] == ["n0"]


BINDING = {"PodName": "p", "PodNamespace": "default", "PodUID": "u", "Node": "n0"}


@pytest.mark.parametrize("path", ["/bind", "/bind/", "//bind", "/%62ind"])
@pytest.mark.parametrize("headers", [{"Host": "stromboli.example.com"}, {"X-Forwarded-For": "10.0.0.1"}])
async def test_nothing_is_bound_for_who_is_neither_on_loopback_nor_has_a_certificate(
    seen: Published, path: str, headers: dict[str, str]
) -> None:
    async with served(seen) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
        refused = await http.post(path, json=BINDING, headers=headers)
        assert refused.status_code in (403, 404)
        assert (await http.post("/bind", json=BINDING)).json() == {"Error": "nothing is bound here"}


async def test_a_certificate_lets_bind_and_loopback_does_not_where_certificates_are_asked_for(
    seen: Published, clients: tuple[ssl.SSLContext, ssl.SSLContext], files: dict[str, Path]
) -> None:
    async with served(seen, **files) as port:
        for context, status in zip(clients, (403, 200), strict=True):
            async with httpx.AsyncClient(verify=context, base_url=f"https://127.0.0.1:{port}") as http:
                assert (await http.post("/bind", json=BINDING)).status_code == status


async def test_a_certificate_that_was_replaced_is_used_by_the_next_connection(
    seen: Published, authority: trustme.CA, files: dict[str, Path]
) -> None:
    def write(certificate: trustme.LeafCert, key: trustme.LeafCert) -> str:
        certificate.cert_chain_pems[0].write_to_path(files["tls_cert_file"])
        key.private_key_pem.write_to_path(files["tls_private_key_file"])
        return certificate.cert_chain_pems[0].bytes().decode()

    def shown() -> str:
        return ssl.get_server_certificate(("127.0.0.1", port))

    async def becomes(expected: str) -> bool:
        for _ in range(200):
            if (await asyncio.to_thread(shown)).split() == expected.split():
                return True
            await asyncio.sleep(0.02)
        return False

    new, other = authority.issue_cert("127.0.0.1"), authority.issue_cert("127.0.0.1")
    async with served(seen, **files, tls_period=0.02) as port:
        assert await becomes(files["tls_cert_file"].read_text())
        assert await becomes(write(new, new))
        refused = write(other, new)
        await asyncio.sleep(0.2)
        assert (await asyncio.to_thread(shown)).split() != refused.split()
        assert await becomes(write(other, other))


@pytest.mark.parametrize("given", [["tls_cert_file"], ["client_ca_file"], ["tls_private_key_file", "client_ca_file"]])
def test_half_of_what_https_needs_is_refused(files: dict[str, Path], given: list[str]) -> None:
    with pytest.raises(ValidationError, match=r"together|needs"):
        Settings(**{name: files[name] for name in given})
