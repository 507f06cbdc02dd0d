"""The transport to HTTP extenders, against a server on this machine."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from stromboli.framework.cluster.environment import ExtenderError
from stromboli.live.inputs.extender_transport import HttpExtenderTransport


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    #: the client's port of each request
    clients: list[int]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.clients.append(self.client_address[1])
        verb = self.path.rsplit("/", 1)[-1]
        if verb == "slow":
            time.sleep(0.5)
        answer = {
            "echo": json.dumps({"path": self.path, "got": body}).encode(),
            "list": b"[]",
            "empty": b"",
            "text": b"not JSON",
        }.get(verb, b"{}")
        with contextlib.suppress(ConnectionError):  # the client may have given up
            self.send_response(500 if verb == "fails" else 200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)
        if verb == "hangup":
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    _Handler.clients = []
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def url(server: ThreadingHTTPServer) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}/base"


def test_questions_and_answers_share_a_connection(url: str) -> None:
    transport = HttpExtenderTransport()
    for number in range(3):
        answer = transport.post(f"{url}/echo", {"number": number}, 5.0)
        assert answer == {"path": "/base/echo", "got": {"number": number}}
    assert transport.post(f"{url}/empty", {}, 5.0) == {}
    assert len(set(_Handler.clients)) == 1


def test_a_connection_that_the_server_closed_is_opened_again(url: str) -> None:
    transport = HttpExtenderTransport()
    transport.post(f"{url}/hangup", {}, 5.0)
    assert transport.post(f"{url}/echo", {}, 5.0)["got"] == {}
    assert len(set(_Handler.clients)) == 2


@pytest.mark.parametrize(
    ("verb", "message"),
    [("fails", "HTTP status 500"), ("list", "not a JSON object"), ("text", "not a JSON object")],
)
def test_answers_that_cannot_be_used(url: str, verb: str, message: str) -> None:
    with pytest.raises(ExtenderError, match=message):
        HttpExtenderTransport().post(f"{url}/{verb}", {}, 5.0)


def test_after_the_timeout_it_gives_up_and_goes_on(url: str) -> None:
    transport = HttpExtenderTransport()
    with pytest.raises(ExtenderError, match="timed out"):
        transport.post(f"{url}/slow", {}, 0.05)
    assert transport.post(f"{url}/echo", {"after": 1}, 5.0)["got"] == {"after": 1}


@pytest.mark.parametrize("url", ["ftp://example.com/x", "example.com", "http://127.0.0.1:1/x", "http://"])
def test_nobody_there(url: str) -> None:
    with pytest.raises(ExtenderError):
        HttpExtenderTransport().post(url, {}, 1.0)
