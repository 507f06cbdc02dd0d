"""What kubelets answer for every pod, which run none: the log of a service, and its port."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.e2e.service import Service


class Kubelets:
    """Files in a folder, of which `answers` is for kwok."""

    def __init__(self, service: Service, folder: Path) -> None:
        self._service = service
        self._log = folder / "container.log"
        self.answers = folder / "kubelets.yaml"
        address, _, port = service.address.rpartition(":")
        specs = {
            "ClusterLogs": {"logs": [{"logsFile": str(self._log)}]},
            "ClusterPortForward": {"forwards": [{"target": {"address": address, "port": int(port)}}]},
        }
        about = {"apiVersion": "kwok.x-k8s.io/v1alpha1", "metadata": {"name": "service"}}
        self.answers.write_text(yaml.safe_dump_all([{**about, "kind": kind, "spec": specs[kind]} for kind in specs]))
        self.show_log()

    def show_log(self) -> None:
        """Show what the service has logged by now, which is kept in the form of a container runtime's files."""
        lines = self._service.text.splitlines()
        self._log.write_text("".join(f"2026-01-05T10:00:00Z stderr F {line}\n" for line in lines))
