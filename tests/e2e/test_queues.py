"""Queues on a real cluster get what they deserve, and no more than they may have."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stromboli.cli import make_app
from tests.controlplane.cluster import eventually
from tests.e2e.conftest import Kubectl, Start
from tests.e2e.prometheus import Prometheus
from tests.e2e.service import STROMBOLI
from tests.e2e.world import SCHEDULING, Object, World

pytestmark = pytest.mark.e2e

DASHBOARD = Path(__file__).parents[2] / "charts/stromboli/files/dashboard.json"

#: CPUs that each queue of the example requests, and those that it gets
REQUESTED = {"a": 80, "b": 60, "c": 30}
DESERVED = {"a": 28, "b": 42, "c": 30}


@pytest.fixture
def contended(world: World) -> World:
    """100 CPUs, and three queues that ask for 170 of them, in jobs of ten pods that start with two."""
    world.nodes(10, cpu="10")
    world.queue("a", weight=2, guarantee={"resource": {"cpu": "10"}}, capability={"cpu": "50"})
    world.queue("b", weight=3)
    world.queue("c", weight=5, guarantee={"resource": {"cpu": "20"}})
    for queue, requested in REQUESTED.items():
        for job in range(requested // 10):
            world.gang(f"{queue}-{job}", 10, min_member=2, queue=queue)
    return world


def test_three_queues_share_100_cpus(contended: World, start: Start) -> None:
    service = start()
    eventually(lambda: held(contended) == DESERVED)

    eventually(
        lambda: all(
            service.metric("volcano_queue_allocated_milli_cpu", queue_name=q) == 1000 * n for q, n in DESERVED.items()
        )
    )
    for queue, cpus in DESERVED.items():
        assert service.metric("volcano_queue_deserved_milli_cpu", queue_name=queue) == 1000 * cpus
        assert service.metric("volcano_queue_share", queue_name=queue) == 1
    assert held(contended) == DESERVED


def test_simulate_says_what_will_be(contended: World, start: Start, kubectl: Kubectl, tmp_path: Path) -> None:
    before = simulate(kubectl, tmp_path / "before.yaml")
    start()
    eventually(lambda: held(contended) == DESERVED)
    after = simulate(kubectl, tmp_path / "after.yaml")

    assert by_queue(before) == DESERVED
    assert after == {}


def test_prometheus_answers_what_queues_hold(contended: World, start: Start, tmp_path: Path) -> None:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("there is no prometheus on this machine")
    service = start()
    ours = {queue: 1000.0 * cpus for queue, cpus in DESERVED.items()}
    asked = dict(dashboard())

    with Prometheus(program, tmp_path, service.address) as prometheus:

        def of_queues(amount: str) -> dict[str, float]:
            return prometheus.query(f'volcano_queue_{amount}_milli_cpu{{queue_name=~"[abc]"}}', by="queue_name")

        eventually(lambda: of_queues("allocated") == ours)
        assert of_queues("deserved") == ours
        assert prometheus.query('sum(volcano_queue_request_milli_cpu{queue_name=~"[abc]"})') == {"": 170_000}
        bound = "sum(stromboli_bindings_total) by (result)"
        eventually(lambda: prometheus.query(bound, by="result") == {"bound": 100})

        # What the dashboard asks, of all that there is. Rates need a second scrape.
        for variable, value in {"namespace": ".*", "job": ".*", "queue": ".*", "__rate_interval": "1m"}.items():
            asked = {who: expression.replace(f"${variable}", value) for who, expression in asked.items()}
        eventually(lambda: {who for who, expression in asked.items() if not prometheus.query(expression)} == UNEVENTFUL)


#: panels that are empty while nobody is evicted and no watch breaks, on nodes without cards
UNEVENTFUL = {"Pods evicted", "Lists after the start", "Fragmentation of free cards"}


def dashboard() -> Iterator[tuple[str, str]]:
    """What the chart's dashboard asks, by the title of the panel; of several the last."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        yield from ((panel["title"], target["expr"]) for target in panel.get("targets", ()))


def test_a_queue_at_its_capability_takes_nothing_more_and_says_so(world: World, start: Start) -> None:
    world.nodes(2, cpu="10")
    world.queue("small", weight=1, capability={"cpu": "5"})
    start()
    world.gang("first", 4, queue="small")
    eventually(lambda: world.bound() == {"first": 4})
    world.gang("second", 2, queue="small")
    world.gang("elsewhere", 2)

    eventually(lambda: "queue small" in world.condition("second", "Unschedulable").get("message", ""))
    assert "cpu" in world.condition("second", "Unschedulable")["message"]
    eventually(lambda: world.bound() == {"first": 4, "elsewhere": 2})
    world.gang("single", 1, queue="small")
    eventually(lambda: world.bound() == {"first": 4, "elsewhere": 2, "single": 1})


def test_volcanos_queue_controller_and_ours_take_turns(world: World, start: Start) -> None:
    """The way back: what Volcano's controller applies, without force, is never a conflict, after either has written."""
    for name in ("new", "theirs", "merged", "closed"):
        world.queue(name)
    assert applied_by_volcano(world, "theirs", "Open")
    # As versions did that merged the state into the status.
    for name, state in (("merged", "Open"), ("closed", "Closed")):
        merge(world, name, {"state": state, "pending": 0, "allocated": {"cpu": "0"}})
        assert not applied_by_volcano(world, name, "Closing" if state == "Open" else "Open")

    service = start()
    eventually(lambda: (state_of(world, "new"), state_of(world, "theirs")) == ("Open", "Open"))
    for name in ("new", "theirs", "merged"):
        eventually(lambda name=name: applied_by_volcano(world, name, "Closing"))
        eventually(lambda name=name: state_of(world, name) == "Closed")
    world.gang("train", 1, queue="closed")
    eventually(lambda: applied_by_volcano(world, "closed", "Open"))
    for name in ("new", "theirs", "merged", "closed"):
        command(world, "queue", "open", name)
        assert state_of(world, name) == "Open"
        command(world, "queue", "close", name)
        eventually(lambda name=name: state_of(world, name) in ("Closed", "Closing"))
    service.end()

    for name in ("new", "theirs", "merged", "closed", "default", "root"):
        for state in ("Closing", "Open"):
            assert applied_by_volcano(world, name, state), name


def applied_by_volcano(world: World, queue: str, state: str) -> bool:
    """Whether the API server takes a state as Volcano's queue controller applies it; if not, that is a conflict."""
    answer = world.api.patch(
        f"{SCHEDULING}/queues/{queue}/status",
        params={"fieldManager": "queue-controller"},
        headers={"Content-Type": "application/apply-patch+yaml"},
        json={
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": queue},
            "status": {"state": state},
        },
    )
    assert answer.status_code in (200, 409), answer.text
    return answer.is_success


def merge(world: World, queue: str, status: Object) -> None:
    headers = {"Content-Type": "application/merge-patch+json", "User-Agent": "stromboli"}
    path = f"{SCHEDULING}/queues/{queue}/status"
    world.api.patch(path, headers=headers, json={"status": status}).raise_for_status()


def state_of(world: World, queue: str) -> str:
    state: str = world.get(f"{SCHEDULING}/queues/{queue}").get("status", {}).get("state", "")
    return state


def command(world: World, *args: str) -> None:
    done = CliRunner().invoke(make_app(), [*args, "--kubeconfig", str(world.cluster.kubeconfig())])
    assert done.exit_code == 0, done.output


def held(world: World) -> Counter[str]:
    """Pods with a node, each of one CPU, by queue."""
    counts: Counter[str] = Counter()
    for group, pods in world.bound().items():
        counts[group.partition("-")[0]] += pods
    return counts


def simulate(kubectl: Kubectl, file: Path) -> dict[str, str]:
    """The bindings that `stromboli simulate` foretells for what kubectl lists."""
    kinds = "pods,podgroups.scheduling.volcano.sh,queues.scheduling.volcano.sh,nodes"
    file.write_text(kubectl("get", kinds, "-o", "yaml"))
    command = [str(STROMBOLI), "simulate", str(file), "--format", "outcome"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    bindings: dict[str, str] = json.loads(done.stdout)["outcome"]["bindings"]
    return bindings


def by_queue(bindings: dict[str, str]) -> Counter[str]:
    return Counter(pod.rpartition("/")[2].partition("-")[0] for pod in bindings)
