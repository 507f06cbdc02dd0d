"""The Service of the leader as kube-scheduler knows it, for replicas on loopback."""

from __future__ import annotations

from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import httpx

from tests.e2e.service import Service


class LeaderService:
    """What the Service of the leader is to kube-scheduler: it leads to the replica that leads, and counts requests."""

    def __init__(self, *replicas: Service) -> None:
        self._clients = [httpx.Client(base_url=replica.url, trust_env=False) for replica in replicas]
        self.asked: Counter[str] = Counter()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            # Connections stay open, as those through a Service do.
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.asked[self.path] += 1
                status, content = outer.answer(self.path, body)
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def answer(self, path: str, body: bytes) -> tuple[int, bytes]:
        for client in list(self._clients):
            try:
                if len(self._clients) == 1 or "stromboli_leading 1.0" in client.get("/metrics").text:
                    answer = client.post(path, content=body)
                    return answer.status_code, answer.content
            except httpx.HTTPError:
                # An endpoint that does not answer is soon none any more.
                self._clients = [*(each for each in self._clients if each is not client), client]
        return 503, b""

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        for client in self._clients:
            client.close()
