"""What the chart grants is enough for the service as the chart runs it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.cluster import eventually
from tests.e2e.audit import Audit
from tests.e2e.conftest import Start
from tests.e2e.world import SCHEDULING, Object, World, pod

pytestmark = pytest.mark.e2e

NAMESPACE = "stromboli-system"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/stromboli"


@pytest.fixture
def release(world: World, helm_binary: Path, repository: Path, tmp_path: Path) -> Iterator[World]:
    """The chart on the world's cluster, for two replicas; there is no kubelet to run them."""

    def helm(*args: str) -> None:
        command = [str(helm_binary), *args, "--namespace", NAMESPACE, "--kubeconfig", str(world.cluster.kubeconfig())]
        done = subprocess.run(
            command,
            cwd=repository,
            env={"HOME": str(tmp_path), "PATH": ""},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    helm("install", "stromboli", "charts/stromboli", "--create-namespace", "--set", "replicas=2")
    yield world
    helm("uninstall", "stromboli", "--wait")
    world.api.delete(f"/api/v1/namespaces/{NAMESPACE}").raise_for_status()


def test_the_charts_account_may_do_all_that_the_service_does(
    release: World, start: Start, audit: Audit, tmp_path: Path
) -> None:
    world = release
    world.nodes(2, cpu="4")
    arguments = deployed(world, tmp_path)
    service = start(*arguments, kubeconfig=world.cluster.service_account_kubeconfig(NAMESPACE, "stromboli"))
    world.gang("train", 4)
    world.gang("large", 9)
    world.pods([pod("bare")])

    eventually(lambda: len(world.placed()) == 5)
    eventually(lambda: world.group_status("train").get("phase") == "Running")
    eventually(lambda: world.condition("large", "Unschedulable") != {})
    eventually(lambda: world.refused() == {f"large-{number}": "Unschedulable" for number in range(9)})
    eventually(lambda: any(event["reason"] == "Scheduled" for event in world.events()))
    eventually(lambda: world.get(f"{SCHEDULING}/queues/default")["status"].get("running") == 2)
    assert world.get(LEASE)["spec"]["holderIdentity"]
    assert service.end() == 0
    assert not world.get(LEASE)["spec"].get("holderIdentity"), "the lease was kept"
    assert audit.denied() == []


def deployed(world: World, directory: Path) -> list[str]:
    """The arguments that the Deployment gives to `run`, with its policy as a file; tests listen elsewhere."""
    deployment = world.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/stromboli")
    container: Object = deployment["spec"]["template"]["spec"]["containers"][0]
    command, *arguments = container["args"]
    assert command == "run"
    config = world.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/stromboli")["data"]
    at = arguments.index("--policy") + 1
    policy = directory / Path(arguments[at]).name
    policy.write_text(config[policy.name])
    arguments[at] = str(policy)
    at = arguments.index("--listen")
    return [*arguments[:at], *arguments[at + 2 :], "--lease-namespace", NAMESPACE]
