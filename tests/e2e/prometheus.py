"""A Prometheus that scrapes the service, and answers queries."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from tests.controlplane.cluster import Program, free_port


class Prometheus(Program):
    """A context manager; ready once it has scraped its target, if it has one."""

    def __init__(self, program: str, directory: Path, target: str) -> None:
        targets = [target] if target else []
        scrape: dict[str, Any] = {"job_name": "stromboli", "static_configs": [{"targets": targets}]}
        scrape |= {"scrape_interval": "250ms", "scrape_timeout": "250ms"}
        config = directory / "prometheus.json"
        config.write_text(json.dumps({"scrape_configs": [scrape]}))
        self._up = {"": 1.0} if target else {}
        address = f"127.0.0.1:{free_port()}"
        self.address = f"http://{address}"
        super().__init__(
            [
                program,
                f"--config.file={config}",
                f"--storage.tsdb.path={directory}/prometheus",
                f"--web.listen-address={address}",
            ],
            directory / "prometheus.log",
        )
        self._http = httpx.Client(base_url=self.address, trust_env=False)

    def __enter__(self) -> Self:
        self.wait_until(lambda: self._http.get("/-/ready").is_success and self.query("up") == self._up)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._http.close()

    def query(self, expression: str, by: str = "") -> dict[str, float]:
        """What an instant query gives, by the value of a label."""
        answer = self._http.get("/api/v1/query", params={"query": expression}).raise_for_status().json()
        return {series["metric"].get(by, ""): float(series["value"][1]) for series in answer["data"]["result"]}
