"""HTTP requests of sessions to extenders: JSON over persistent connections, one for each thread and server.

Sessions run in a worker thread and block until the answer or the plugin's timeout. Nothing is retried, except on a
connection that the server has closed in between.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec

from stromboli.api.errors import in_words
from stromboli.framework.cluster.environment import ExtenderError

#: limit on the size of an answer in bytes
_LONGEST_ANSWER = 10 << 20
_OK = 200
#: errors on a connection that the server has closed since the last request
_STALE = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)


class HttpExtenderTransport:
    """Sends requests of the extender plugin. Thread-safe."""

    def __init__(self) -> None:
        self._local = threading.local()

    def post(self, url: str, payload: Mapping[str, Any], timeout: float) -> Mapping[str, Any]:
        """The decoded answer; an empty body is an empty answer.

        Raises ExtenderError if the URL is invalid, there is no answer within `timeout` seconds, the status is not 200,
        or the body is not a JSON object.
        """
        target = urlsplit(url)
        if target.scheme not in ("http", "https") or not target.hostname:
            raise ExtenderError(f"{url!r} is not an http or https URL")
        try:
            status, body = self._exchange(target, msgspec.json.encode(payload), timeout)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ExtenderError(f"{url}: {in_words(error)}") from error
        if status != _OK:
            raise ExtenderError(f"{url}: HTTP status {status}")
        if len(body) > _LONGEST_ANSWER:
            raise ExtenderError(f"{url}: the response is longer than {_LONGEST_ANSWER} bytes")
        try:
            answer: Mapping[str, Any] = msgspec.json.decode(body, type=dict[str, Any]) if body else {}
        except msgspec.DecodeError as error:
            raise ExtenderError(f"{url}: the response is not a JSON object: {error}") from None
        return answer

    def _exchange(self, target: SplitResult, body: bytes, timeout: float) -> tuple[int, bytes]:
        """Send a request and read its answer, on a new connection if the open one was closed."""
        connection, is_new = self._connection(target, timeout)
        try:
            return _request(connection, target, body)
        except _STALE:
            connection.close()
            if is_new:
                raise
            return _request(connection, target, body)
        except BaseException:
            connection.close()
            raise

    def _connection(self, target: SplitResult, timeout: float) -> tuple[http.client.HTTPConnection, bool]:
        """This thread's connection to a server, and whether it still has to be opened."""
        connections: dict[tuple[str, str], http.client.HTTPConnection]
        connections = self._local.__dict__.setdefault("connections", {})
        key = target.scheme, target.netloc
        connection = connections.get(key)
        if connection is None:
            kind = http.client.HTTPSConnection if target.scheme == "https" else http.client.HTTPConnection
            connection = connections[key] = kind(target.hostname or "", target.port)
        connection.timeout = timeout
        if connection.sock is not None:
            connection.sock.settimeout(timeout)
        return connection, connection.sock is None


def _request(connection: http.client.HTTPConnection, target: SplitResult, body: bytes) -> tuple[int, bytes]:
    path = f"{target.path or '/'}?{target.query}" if target.query else target.path or "/"
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = response.read(_LONGEST_ANSWER + 1)
    if len(answer) > _LONGEST_ANSWER:
        connection.close()
    return response.status, answer
