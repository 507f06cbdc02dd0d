"""The control plane of the e2e tests, and operators beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import trustme
import yaml

from tests.controlplane.cluster import Program, free_port
from tests.e2e.conftest import _numbers, audit, definitions, plane, start, world
from tests.e2e.world import World, define
from tests.operators.build import Operator

__all__ = ["_numbers", "audit", "definitions", "plane", "start", "world"]

#: starts an operator, and returns once it answers
Operate = Callable[[Operator], None]
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"


@pytest.fixture
def operate(world: World, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Operate]:
    """Run operators on the world's cluster, with their definitions and webhooks."""
    running: list[Program] = []
    configured: list[str] = []

    def serve(operator: Operator, argv: list[str], health: int | None) -> None:
        running.append(Program(argv, tmp_path / f"{operator.name}.log"))
        if health is not None:
            running[-1].wait_until(lambda: httpx.get(f"http://127.0.0.1:{health}/readyz").is_success)

    def run(operator: Operator) -> None:
        define(world.api, operator.project.resources())
        health = free_port()
        binary, kubeconfig = str(operator.binary()), world.cluster.kubeconfig()
        if operator.arguments:
            given = [each.format(health=health, kubeconfig=kubeconfig) for each in operator.arguments]
            serve(operator, [binary, *given], health if str(health) in "".join(given) else None)
            return
        authority, port = trustme.CA(), free_port()
        certificate = authority.issue_cert("127.0.0.1")
        (tmp_path / "tls.crt").write_bytes(b"".join(each.bytes() for each in certificate.cert_chain_pems))
        certificate.private_key_pem.write_to_path(str(tmp_path / "tls.key"))
        config = tmp_path / f"{operator.name}.yaml"
        config.write_text(yaml.safe_dump(_config(operator, tmp_path, port, health)))
        serve(operator, [binary, f"--kubeconfig={kubeconfig}", f"--config={config}"], health)
        for manifest in operator.webhook_configurations(port, authority.cert_pem.bytes()):
            manifest["metadata"]["name"] = f"{operator.name}-{manifest['metadata']['name']}"
            path = f"{_WEBHOOKS}/{manifest['kind'].lower()}s"
            world.create(path, manifest)
            configured.append(f"{path}/{manifest['metadata']['name']}")

    yield run
    for path in configured:
        world.api.delete(path).raise_for_status()
    for program in running:
        program.stop()
        request.node.add_report_section("teardown", program.log.name, program.log.read_text()[-8_000:])


def _config(operator: Operator, certificates: Path, port: int, health: int) -> dict[str, object]:
    return {
        "apiVersion": f"config.{operator.name}.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(certificates)},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        **dict(operator.configured),
    }
