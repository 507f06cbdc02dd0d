"""`stromboli run` as a process of its own, as operators run it."""

from __future__ import annotations

import os
import signal
import ssl
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx
import trustme
from prometheus_client.parser import text_string_to_metric_families

from tests.controlplane.cluster import Program, free_port
from tests.e2e.forked import Forked

STROMBOLI = Path(sys.executable).with_name("stromboli")

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Certificate:
    """A server's certificate for loopback, with its key, and who vouches for it; all of them files."""

    server: Path
    authority: Path

    @classmethod
    def issue(cls, folder: Path) -> Self:
        """A new one, in a folder."""
        made, authority = cls(folder / "server.pem", folder / "ca.pem"), trustme.CA()
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(made.server))
        authority.cert_pem.write_to_path(str(made.authority))
        return made

    @property
    def options(self) -> tuple[str, ...]:
        """The options of a server that serves with it."""
        return ("--tls-cert-file", str(self.server), "--tls-private-key-file", str(self.server))


class Service(Program):
    """The service on the cluster of a kubeconfig; started when this is made. With a certificate it speaks HTTPS."""

    def __init__(self, kubeconfig: Path, log: Path, *args: str, certificate: Certificate | None = None) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        command = [str(STROMBOLI), "run", "--kubeconfig", str(kubeconfig), "--listen", self.address, *args]
        super().__init__([*command, *(certificate.options if certificate else ())], log)
        trusted = ssl.create_default_context(cafile=certificate.authority) if certificate else True
        self.url = f"{'https' if certificate else 'http'}://{self.address}"
        self.http = httpx.Client(base_url=self.url, trust_env=False, verify=trusted)

    def wait_ready(self) -> Self:
        """Return when the first session has run; raises ClusterError with the end of the log."""
        self.wait_until(lambda: self.http.get("/readyz").is_success)
        return self

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Stop it and return its exit code."""
        self.stop(how, grace=20)
        self.http.close()
        code: int = self._process.wait()
        return code

    def metric(self, name: str, **labels: str) -> float:
        """The value of one series; 0 when there is none, as for a counter that was never increased."""
        for family in text_string_to_metric_families(self.http.get("/metrics").raise_for_status().text):
            for sample in family.samples:
                if sample.name == name and sample.labels == labels:
                    return sample.value
        return 0.0

    @property
    def text(self) -> str:
        """What it has logged."""
        return self.log.read_text(errors="replace")


class ForkedService(Service):
    """The service in a process that has all of its modules from the beginning: for tests that start many.

    `settings` are those that no option sets, such as `{"contact_timeout": 6.0}`, and constants of the modules of
    `stromboli.live`, such as `{"groups.owners._FORBIDDEN": 5.0}`.
    """

    def __init__(
        self,
        kubeconfig: Path,
        log: Path,
        *args: str,
        certificate: Certificate | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._settings = settings or {}
        super().__init__(kubeconfig, log, *args, certificate=certificate)

    def _start(self, environment: Mapping[str, str]) -> Forked:
        return Forked(self.argv, self.log, environment, self._settings)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, of which the children that it has waited for are no part."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


def peak_rss(pid: int) -> int:
    """The largest resident set of a process so far, in bytes."""
    return _status(pid, "VmHWM")


def rss(pid: int) -> int:
    """The resident set of a process, in bytes; 0 when it has just ended."""
    return _status(pid, "VmRSS")


def _status(pid: int, field: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
