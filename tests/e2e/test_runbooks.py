"""What docs/runbooks.md says of parts that fail, and of state that was lost, on a real control plane."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stromboli.api.version import version
from tests import pages
from tests.cli.test_support_bundle import unpacked
from tests.controlplane.cluster import Cluster, eventually
from tests.disks import mounts, small_disk
from tests.e2e.conftest import Start
from tests.e2e.kubelets import Kubelets
from tests.e2e.service import STROMBOLI, Service
from tests.e2e.world import CORE, SCHEDULING, Object, World, define, pod

pytestmark = pytest.mark.e2e

USAGE = f"{CORE}/namespaces/default/configmaps/stromboli-usage"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
#: a policy that asks a Prometheus that is not there, and remembers what queues held
POLICY = """
actions: "enqueue, allocate"
tiers:
  - plugins: [{name: gang}, {name: predicates}, {name: usage}, {name: fairshare, arguments: {usage.halfLife: 1h}}]
metrics: {type: prometheus, address: "http://127.0.0.1:1", interval: 1s}
"""


def test_a_lease_that_is_deleted_is_made_anew_by_the_one_who_leads(world: World, start: Start) -> None:
    world.nodes(2, cpu="10")
    leader = start("--leader-elect")
    start("--leader-elect", kubeconfig=world.cluster.kubeconfig("kwok"))
    lease = f"{_LEASES}/stromboli"
    holder = world.get(lease)["spec"]["holderIdentity"]
    for number in range(3):
        world.api.delete(lease).raise_for_status()
        world.gang(f"after-{number}", 5)
        eventually(lambda: world.api.get(lease).is_success)
        assert world.get(lease)["spec"]["holderIdentity"] == holder
        eventually(lambda number=number: world.bound()[f"after-{number}"] == 5)
    assert leader.metric("stromboli_leading") == 1


@mounts
def test_a_journal_whose_disk_is_full_costs_no_session(world: World, start: Start, tmp_path: Path) -> None:
    world.nodes(2, cpu="10")
    with small_disk(tmp_path / "kept") as kept:
        service = start("--journal-dir", str(kept))
        (kept / "others").write_bytes(bytes(512 << 10))
        with pytest.raises(OSError, match="No space left"):
            (kept / "others").open("ab").write(bytes(1 << 20))
        for number in range(5):
            world.gang(f"gang-{number}", 4)
            eventually(lambda number=number: world.bound()[f"gang-{number}"] == 4)
        eventually(lambda: "journal not written" in service.text)
        assert "No space left on device" in service.text
        record = [str(STROMBOLI), "record", "--url", service.url, "-o", str(tmp_path / "recorded.journal")]
        subprocess.run(record, check=True)
        replayed = subprocess.run(
            [str(STROMBOLI), "replay", str(tmp_path / "recorded.journal")], capture_output=True, text=True, check=False
        )
        assert replayed.returncode == 0, replayed.stdout + replayed.stderr
        service.end()


def test_queues_and_past_usage_come_back_from_a_backup(world: World, start: Start, tmp_path: Path) -> None:
    policy, config = tmp_path / "policy.conf", world.cluster.kubeconfig()
    policy.write_text(POLICY)
    world.nodes(1, cpu="10")
    world.queue("research", weight=7)
    world.queue("over")
    service = start("--leader-elect", "--policy", str(policy))
    world.gang("train", 4, queue="research")
    eventually(lambda: usage(service) > 0)
    # Nor is the metrics source needed that the policy names.
    eventually(lambda: "load of nodes not read" in service.text)
    subprocess.run([str(STROMBOLI), "queue", "close", "over", "--kubeconfig", str(config)], check=True)
    eventually(lambda: states(world).get("over") == "Closed")
    assert service.end() == 0
    pods = f"{CORE}/namespaces/{world.namespace}/pods"
    world.api.delete(pods, params={"gracePeriodSeconds": "0"}).raise_for_status()
    world.delete_group("train")
    eventually(lambda: not world.items(pods))

    saves, restores = backup_commands()
    before = states(world)
    for words in saves:
        shell(words, tmp_path, config)
    world.api.delete(f"{SCHEDULING}/queues").raise_for_status()
    world.api.delete(USAGE).raise_for_status()
    eventually(lambda: not world.queues())
    for words in restores:
        shell(words, tmp_path, config)
    assert states(world) == before
    assert world.get(f"{SCHEDULING}/queues/research")["spec"]["weight"] == 7
    assert usage(start("--leader-elect", "--policy", str(policy))) > 0, "no pod holds anything now"
    world.api.delete(USAGE).raise_for_status()


def test_a_support_bundle_has_what_is_looked_at_first_by_way_of_the_api_server(
    new_cluster: Callable[..., Cluster], definitions: list[Object], tmp_path: Path
) -> None:
    cluster = new_cluster()
    with cluster.client() as api:
        define(api, definitions)
    service = Service(cluster.kubeconfig(), tmp_path / "log", "--leader-elect").wait_ready()
    kubelets, world = Kubelets(service, tmp_path), World(cluster, "default")
    cluster.start_kwok(answers=kubelets.answers)
    world.nodes(1, cpu="4")
    found = pod("leads", scheduler="none", nodeName="node-0")
    found["metadata"]["labels"] = {"app.kubernetes.io/name": "stromboli", "stromboli.io/leads": "true"}
    ports = [{"name": "http", "containerPort": 8080}]
    found["spec"]["containers"][0] |= {"args": ["run"], "ports": ports, "env": [{"name": "A", "value": "hunter2"}]}
    waits = pod("waits", cpu="8", annotations={"kubectl.kubernetes.io/last-applied-configuration": "swordfish"})
    world.pods([found, waits])
    eventually(lambda: world.get(f"{CORE}/namespaces/default/pods/leads")["status"]["phase"] == "Running")
    eventually(lambda: world.refused() != {})
    kubelets.show_log()

    command = [str(STROMBOLI), "support-bundle", "-o", "bundle.tar.gz", "--kubeconfig", str(cluster.kubeconfig())]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    files = unpacked((tmp_path / "bundle.tar.gz").read_bytes())
    assert (files["missing.txt"], done.stderr) == (b"", "")
    asked = json.loads(files["versions.json"])["service"]
    assert (asked["asked"], asked["version"]) == ("service default/leads", version())
    assert json.loads(files["leases.json"])["stromboli"]["holderIdentity"]
    assert json.loads(files["replicas.json"])["leads"]["phase"] == "Running"
    assert files["logs/leads.log"].decode() == service.text
    assert {"sessions.journal", "metrics.txt", "doctor.txt", "policy.json", "queues.txt"} <= files.keys()
    assert [name for name, content in files.items() if re.search(b"hunter2|swordfish", content)] == []
    assert service.end() == 0
    world.api.close()


def usage(service: Service) -> float:
    """What the queue research held over time, of the cluster."""
    told = service.http.get("/metrics").text
    found = re.search(r'^stromboli_queue_usage\{[^}]*"research"[^}]*\} (\S+)', told, re.MULTILINE)
    return float(found[1]) if found else 0.0


def states(world: World) -> dict[str, str]:
    return {each["metadata"]["name"]: each["status"]["state"] for each in world.items(f"{SCHEDULING}/queues")}


def backup_commands() -> tuple[list[str], list[str]]:
    """The commands of the page that save and restore, where the service runs outside of the cluster."""
    of_page = (each.words for each in pages.commands() if each.page == "docs/runbooks.md")
    words = [each for each in of_page if re.search(r"(queues|kept)\.yaml", each)]
    here = [each.replace("stromboli-system", "default").replace("configmap stromboli ", "configmap ") for each in words]
    return [each for each in here if ">" in each], [each for each in here if ">" not in each]


def shell(words: str, folder: Path, config: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "KUBECONFIG": str(config), "PATH": path}
    command = ["bash", "-ec", f"set -o pipefail; {words}"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: {done.stderr}"
