"""kube-scheduler places pods of its own, and asks the service which may go where."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest
import trustme
import yaml

from tests.controlplane.build import Binaries
from tests.controlplane.cluster import Cluster, eventually
from tests.e2e import preemption_cost as cost
from tests.e2e.conftest import Start
from tests.e2e.leader_service import LeaderService
from tests.e2e.service import Certificate, Service
from tests.e2e.world import Object, World, define, pod

pytestmark = pytest.mark.e2e

PROFILE = cost.PROFILE
#: how often each scenario is played; `python -m tests.e2e.preemption_cost --runs 50` plays them more often
CARD = "nvidia.com/gpu"
RUNS = int(os.environ.get("STROMBOLI_PREEMPTION_RUNS", "1"))


@pytest.fixture(scope="module")
def advised(
    binaries: Binaries, definitions: list[Object], helm_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """kube-scheduler with the documented configuration, beside the service with the chart's arguments and policy."""
    folder = tmp_path_factory.mktemp("advised")
    with Cluster(binaries) as cluster:
        cluster.start_controller_manager()
        cluster.start_kwok()
        with cluster.client() as api:
            define(api, definitions)
        cost.priorities(cluster)
        names = [each for each in arguments(helm_binary) if "scheduler-name" in each]
        policy = cost.chart_policy(folder)
        service = Service(cluster.kubeconfig(), folder / "log", "--policy", str(policy), *names).wait_ready()
        cluster.start_scheduler(cost.advised_by(service))
        yield cluster
        service.end()


@pytest.fixture
def scheduled(world: World) -> Iterator[World]:
    """An empty cluster in which the test starts kube-scheduler."""
    yield world
    world.cluster.stop_scheduler()


def arguments(helm: Path) -> list[str]:
    """What the chart tells the service, without values of one's own."""
    command = [str(helm), "template", "stromboli", str(cost.CHART), "-s", "templates/deployment.yaml"]
    made = yaml.safe_load(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    found: list[str] = made["spec"]["template"]["spec"]["containers"][0]["args"]
    return found


@pytest.mark.parametrize("name", list(cost.SCENARIOS))
def test_urgent_pods_cost_no_more_than_without_the_extender(advised: Cluster, name: str) -> None:
    scenario = cost.SCENARIOS[name]
    expected = cost.Outcome(scenario.victims, scenario.placed, broken=0)
    assert [cost.measure(advised, name, number, advised=True) for number in range(RUNS)] == [expected] * RUNS


@pytest.fixture
def empty(advised: Cluster, request: pytest.FixtureRequest) -> Iterator[World]:
    """An empty namespace and no nodes."""
    world = World(advised, request.node.name.replace("_", "-")[5:60])
    world.begin()
    yield world
    cost.clear(world)


def test_pods_that_keep_the_default_scheduler_are_placed_by_queue_and_gang(empty: World) -> None:
    world = empty
    world.nodes(3, cpu="2")
    world.queue("small", capability={"cpu": "1"})
    eventually(lambda: world.get("/apis/scheduling.volcano.sh/v1beta1/queues/small").get("status", {}) != {})
    notes = {cost.QUEUE: "small"}
    world.pods([pod("plain", scheduler=PROFILE)])
    world.pods([pod(f"small-{number}", scheduler=PROFILE, annotations=notes) for number in range(2)])
    world.group("gang", 3)
    world.pods([pod(f"gang-{number}", "gang", scheduler=PROFILE) for number in range(3)])
    eventually(lambda: {"plain", "gang-0", "gang-1", "gang-2"} <= world.placed().keys())
    eventually(lambda: len({"small-0", "small-1"} & world.placed().keys()) == 1)
    world.group("large", 4)
    world.pods([pod(f"large-{number}", "large", scheduler=PROFILE) for number in range(4)])
    eventually(lambda: {"large-0", "large-1", "large-2", "large-3"} <= world.refused().keys())
    assert not any(name.startswith("large") for name in world.placed())
    assert len({"small-0", "small-1"} & world.placed().keys()) == 1


def test_an_urgent_pod_of_a_queue_at_its_share_costs_one_of_that_queue(empty: World) -> None:
    """Five nodes are full and one is empty, yet only a pod of its own queue makes way for it."""
    world = empty
    world.nodes(6, cpu="1")
    world.queue("capped", capability={"cpu": "1"})
    eventually(lambda: world.get("/apis/scheduling.volcano.sh/v1beta1/queues/capped").get("status", {}) != {})
    for number in range(5):
        notes = {cost.QUEUE: "capped" if number == 3 else "default"}
        low = pod(f"low-{number}", scheduler=PROFILE, annotations=notes, priorityClassName="low")
        world.pods([low | {"spec": low["spec"] | {"nodeName": f"node-{number}"}}])
    notes = {cost.QUEUE: "capped"}
    world.pods([pod("urgent", scheduler=PROFILE, annotations=notes, priorityClassName="urgent")])
    eventually(lambda: "urgent" in world.placed())
    assert {"low-0", "low-1", "low-2", "low-4"} == world.placed().keys() - {"urgent"}


def test_a_replica_that_waits_does_not_answer(world: World, start: Start) -> None:
    world.nodes(2, cpu="2")
    leader = start("--leader-elect")
    waiting = start("--leader-elect", kubeconfig=world.cluster.kubeconfig("kwok"))
    world.group("train", 1)
    world.pods([pod("train", "train", scheduler=PROFILE)])
    path = f"/api/v1/namespaces/{world.namespace}/pods/train"
    question = {"Pod": world.get(path), "NodeNames": ["node-0", "node-1"], "Nodes": None}

    def ask(service: Service) -> httpx.Response:
        return service.http.post("/filter", json=question)

    assert ask(waiting).status_code == 503
    assert "another replica leads" in ask(waiting).text
    assert len(ask(leader).raise_for_status().json()["NodeNames"]) == 1
    assert waiting.http.post("/preempt", json=question | {"NodeNameToMetaVictims": {"node-0": {}}}).status_code == 503
    # Pods that are none of ours are kube-scheduler's own, whoever leads.
    foreign = question | {"Pod": {"metadata": {"name": "dns"}, "spec": {"schedulerName": PROFILE}}}
    assert waiting.http.post("/filter", json=foreign).json() == {"NodeNames": ["node-0", "node-1"]}
    leader.end()
    eventually(lambda: ask(waiting).status_code == 200)
    assert len(ask(waiting).json()["NodeNames"]) == 1


@pytest.mark.parametrize("form", [{}, {"bindVerb": "bind", "nodeCacheCapable": False}])
def test_kube_scheduler_keeps_gangs_whole(scheduled: World, start: Start, form: Object) -> None:
    world, cluster = scheduled, scheduled.cluster
    world.nodes(5, cpu="2")
    service = start(kubeconfig=cluster.kubeconfig())
    # In a test no pod is placed by kube-scheduler alone.
    cluster.start_scheduler(cost.advised_by(service, ignorable=False, **form))

    world.pods([pod("foreign", scheduler=PROFILE)])
    eventually(lambda: world.bound() == {"": 1})
    world.group("whole", 6)
    world.pods([pod(f"whole-{number}", "whole", scheduler=PROFILE) for number in range(5)])
    eventually(lambda: len(world.refused()) == 5)
    # Nothing else happens here, so kube-scheduler asks again only because it is called back.
    world.pods([pod("whole-5", "whole", scheduler=PROFILE)])
    eventually(lambda: world.bound() == {"whole": 6, "": 1})

    world.group("large", 5)
    world.pods([pod(f"large-{number}", "large", scheduler=PROFILE) for number in range(5)])
    eventually(lambda: world.condition("large", "Unschedulable") != {})
    world.nodes(2, cpu="1", prefix="another")
    eventually(lambda: world.bound() == {"whole": 6, "large": 5, "": 1})
    assert service.metric("stromboli_bindings_total", result="bound") == 0


def test_kube_scheduler_asks_by_the_configuration_of_the_chart_with_certificates(
    scheduled: World, start: Start, helm_binary: Path, tmp_path: Path
) -> None:
    """The address is no name of the certificate's, which is that of the Service of the leader."""
    world, authority = scheduled, trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    for name, host in (("server", "stromboli-leader.stromboli-system.svc"), ("client", "kube-scheduler")):
        made = authority.issue_cert(host, *(["127.0.0.1"] if name == "server" else []))
        made.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / f"{name}.pem"))
    world.nodes(2, cpu="2")
    certificate = Certificate(tmp_path / "server.pem", tmp_path / "ca.crt")
    service = start(
        *("--client-ca-file", str(tmp_path / "ca.crt")), kubeconfig=world.cluster.kubeconfig(), certificate=certificate
    )
    host, _, port = service.address.partition(":")
    files = {"ca": "ca.crt", "cert": "client.pem", "key": "client.pem"}
    sets = {
        "kubeScheduler.enabled": "true",
        "kubeScheduler.ignorable": "false",
        "kubeScheduler.kubeconfig": str(world.cluster.kubeconfig("scheduler")),
        "kubeScheduler.clusterIP": host,
        "service.port": port,
        "tls.secretName": "certificate",
        "tls.clientCertificates": "true",
        **{f"kubeScheduler.tls.{name}File": str(tmp_path / file) for name, file in files.items()},
    }
    world.cluster.start_scheduler(chart_config(helm_binary, sets))
    world.group("whole", 4)
    world.pods([pod(f"whole-{number}", "whole", scheduler="default-scheduler") for number in range(3)])
    eventually(lambda: len(world.refused()) == 3)
    world.pods([pod("whole-3", "whole", scheduler="default-scheduler")])
    eventually(lambda: world.bound() == {"whole": 4})
    assert service.metric("stromboli_bindings_total", result="bound") == 0


def chart_config(helm: Path, sets: Mapping[str, str]) -> Object:
    """What the chart has kube-scheduler configured by."""
    command = [str(helm), "template", "stromboli", str(cost.CHART), "--namespace", "stromboli-system"]
    command += ["-s", "templates/kubescheduler.yaml", *(f"--set={name}={value}" for name, value in sets.items())]
    made = yaml.safe_load(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    config: Object = yaml.safe_load(made["data"]["kube-scheduler.yaml"])
    return config


def gated(name: str, group: str) -> Object:
    return pod(name, group, scheduler=PROFILE, schedulingGates=[{"name": "stromboli.io/gang"}])


def test_a_gated_gang_is_seen_by_kube_scheduler_once_it_is_decided(scheduled: World, start: Start) -> None:
    world, cluster = scheduled, scheduled.cluster
    world.nodes(2, cpu="2")
    leader = LeaderService(start(kubeconfig=cluster.kubeconfig()))
    cluster.start_scheduler(cost.advised_by(leader, ignorable=False))

    world.group("large", 5)
    world.pods([gated(f"large-{number}", "large") for number in range(5)])
    world.group("fits", 3)
    world.pods([gated(f"fits-{number}", "fits") for number in range(3)])
    eventually(lambda: world.bound() == {"fits": 3})
    # Each member was asked about once or twice, and went where its session had decided; held ones cost nothing.
    assert leader.asked["/filter"] <= 6
    eventually(lambda: world.condition("large", "Unschedulable") != {})
    before = leader.asked.total()
    world.nodes(2, cpu="2", prefix="another")
    eventually(lambda: world.bound() == {"fits": 3, "large": 5})
    assert leader.asked.total() - before <= 20
    leader.close()


def test_kube_scheduler_asks_about_managed_resources_only(scheduled: World, start: Start) -> None:
    """Others it places alone, also of a gang; a gate holds all of them, also where the extender is ignored."""
    world, cluster = scheduled, scheduled.cluster
    world.nodes(2, cpu="4", **{CARD: "1"})
    service = start(kubeconfig=cluster.kubeconfig())
    leader = LeaderService(service)
    form = {"managedResources": [{"name": CARD}], "ignorable": True, "bindVerb": "bind"}
    cluster.start_scheduler(cost.advised_by(leader, **form))

    world.group("plain", 2)
    world.pods([pod("plain-0", "plain", scheduler=PROFILE)])
    eventually(lambda: world.bound() == {"plain": 1})
    assert not leader.asked.total()

    world.group("mixed", 3)
    world.pods([gated("mixed-0", "mixed"), *(with_card(gated(f"mixed-{at}", "mixed")) for at in (1, 2))])
    eventually(lambda: world.bound() == {"plain": 1, "mixed": 3})
    assert leader.asked["/bind"] == 2

    service.end()
    world.group("late", 2)
    world.pods([gated(f"late-{at}", "late") for at in range(2)])
    world.pods([pod("foreign", scheduler=PROFILE)])
    eventually(lambda: world.bound() == {"plain": 1, "mixed": 3, "": 1})
    leader.close()


def with_card(manifest: Object) -> Object:
    """A pod that asks for a card."""
    resources = manifest["spec"]["containers"][0]["resources"]
    for amounts in (resources["requests"], resources.setdefault("limits", {})):
        amounts[CARD] = "1"
    return manifest


def test_pods_that_are_held_without_a_gate_cost_few_requests(scheduled: World, start: Start) -> None:
    """kube-scheduler tries them again when something happens, less than twice in the longest backoff each."""
    world, cluster, longest = scheduled, scheduled.cluster, 2
    world.nodes(2, cpu="2")
    leader = LeaderService(start(kubeconfig=cluster.kubeconfig()))
    backoff = {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": longest}
    cluster.start_scheduler(
        cost.advised_by(leader, ignorable=False) | backoff, "--feature-gates=SchedulerPopFromBackoffQ=false"
    )
    world.group("large", 5)
    world.pods([pod(f"large-{number}", "large", scheduler=PROFILE) for number in range(5)])
    eventually(lambda: len(world.refused()) == 5)
    leader.asked.clear()
    began = time.monotonic()
    for number in range(10):
        world.pods([pod(f"other-{number}", scheduler=PROFILE, cpu="100m")])
        eventually(lambda name=f"other-{number}": name in world.placed())  # type: ignore[misc]
        time.sleep(longest / 4)
    turns = (time.monotonic() - began) / longest
    assert (leader.asked["/filter"] - 10) / 5 / turns < 2
    assert not any(name.startswith("large") for name in world.placed())
    quiet = leader.asked.total()
    time.sleep(1.2 * longest)
    assert leader.asked.total() - quiet <= 10
    leader.close()


def test_another_replica_goes_on_with_kube_scheduler(scheduled: World, start: Start) -> None:
    """While no replica leads kube-scheduler is answered with errors, and tries again: no gang is placed in part."""
    world, cluster = scheduled, scheduled.cluster
    world.nodes(4, cpu="4")
    first = start("--leader-elect", kubeconfig=cluster.kubeconfig())
    second = start("--leader-elect", kubeconfig=cluster.kubeconfig("kwok"))
    leader = LeaderService(first, second)
    cluster.start_scheduler(cost.advised_by(leader, ignorable=False))
    world.group("before", 3)
    world.pods([gated(f"before-{number}", "before") for number in range(3)])
    eventually(lambda: world.bound() == {"before": 3})

    first.end(signal.SIGKILL)
    for name, make in (("gated", gated), ("plain", lambda name, group: pod(name, group, scheduler=PROFILE))):
        world.group(name, 4)
        world.pods([make(f"{name}-{number}", name) for number in range(4)])
    assert world.bound() == {"before": 3}
    world.group("large", 14)
    world.pods([gated(f"large-{number}", "large") for number in range(14)])
    eventually(lambda: world.bound() == {"before": 3, "gated": 4, "plain": 4}, 90)
    assert second.metric("stromboli_leading") == 1
    leader.close()


@pytest.fixture
def ranked(scheduled: World) -> Iterator[World]:
    """An empty cluster with two priority classes."""
    with scheduled.priority_classes(yields=1, insists=1_000):
        yield scheduled


def test_evictions_that_no_replica_answered_are_asked_for_again(ranked: World, start: Start) -> None:
    """By kube-scheduler, after a time that it is given; no event of ours has it ask sooner."""
    world, cluster = ranked, ranked.cluster
    world.nodes(1, cpu="4")
    first = start("--leader-elect", kubeconfig=cluster.kubeconfig())
    second = start("--leader-elect", kubeconfig=cluster.kubeconfig("kwok"))
    leader = LeaderService(first, second)
    cluster.start_scheduler(cost.advised_by(leader, ignorable=False), "--pod-max-in-unschedulable-pods-duration=1s")
    world.group("elastic", 3, priorityClassName="yields")
    world.pods([pod(f"elastic-{at}", "elastic", scheduler=PROFILE, priorityClassName="yields") for at in range(4)])
    eventually(lambda: world.bound() == {"elastic": 4})
    first.end(signal.SIGKILL)
    world.group("urgent", 1, priorityClassName="insists")
    world.pods([pod("urgent", "urgent", scheduler=PROFILE, priorityClassName="insists")])
    eventually(lambda: leader.asked["/preempt"] > 0)
    assert world.bound() == {"elastic": 4}
    eventually(lambda: world.bound() == {"elastic": 3, "urgent": 1}, 90)
    leader.close()


@pytest.mark.parametrize("ignorable", [False, True])
def test_no_managed_pod_slips_by_while_no_replica_leads(scheduled: World, start: Start, ignorable: bool) -> None:
    """Of a gang behind the gate none starts before the next leader decides; without one, none where we are not ignored.

    kube-scheduler goes on meanwhile with pods that ask for no card.
    """
    world, cluster = scheduled, scheduled.cluster
    world.nodes(4, cpu="8", **{CARD: "1"})
    first = start("--leader-elect", kubeconfig=cluster.kubeconfig())
    second = start("--leader-elect", kubeconfig=cluster.kubeconfig("kwok"))
    leader = LeaderService(first, second)
    form = {"managedResources": [{"name": CARD}], "ignorable": ignorable, "bindVerb": "bind"}
    cluster.start_scheduler(cost.advised_by(leader, **form))
    world.group("before", 2)
    world.pods([with_card(gated("before-0", "before")), gated("before-1", "before")])
    eventually(lambda: world.bound() == {"before": 2})

    first.end(signal.SIGKILL)
    world.group("mixed", 3)
    world.pods([gated("mixed-0", "mixed"), *(with_card(gated(f"mixed-{at}", "mixed")) for at in (1, 2))])
    # More cards than there are.
    world.group("large", 5)
    world.pods([with_card(gated(f"large-{at}", "large")) for at in range(5)])
    if not ignorable:
        world.group("bare", 5)
        world.pods([with_card(pod(f"bare-{at}", "bare", scheduler=PROFILE)) for at in range(5)])
    world.pods([pod("foreign", scheduler=PROFILE)])
    while True:
        bound = world.bound()
        if second.metric("stromboli_leading") == 1:
            break
        assert bound.keys() <= {"before", ""}
    eventually(lambda: world.bound() == {"before": 2, "mixed": 3, "": 1}, 90)
    world.pods([pod("later", scheduler=PROFILE)])
    eventually(lambda: "later" in world.placed())
    assert world.bound() == {"before": 2, "mixed": 3, "": 2}
    leader.close()


def lifted_in_part(world: World, name: str, size: int, lifted: Mapping[str, str], bound: Mapping[str, str]) -> None:
    """A gang as a leader leaves it that dies between its first write and its last.

    `lifted` pods have a nominated node and no gate, `bound` ones got theirs, and all others wait behind the gate.
    """
    world.group(name, size)
    pods = f"/api/v1/namespaces/{world.namespace}/pods"
    for at in range(size):
        member = f"{name}-{at}"
        manifest = gated(member, name)
        if member in lifted or member in bound:
            del manifest["spec"]["schedulingGates"]
        world.pods([manifest])
        if member in bound:
            target = {"metadata": {"name": member}, "target": {"kind": "Node", "name": bound[member]}}
            world.create(f"{pods}/{member}/binding", target)
        elif member in lifted:
            patch = {"status": {"nominatedNodeName": lifted[member]}}
            merge = {"Content-Type": "application/merge-patch+json"}
            world.api.patch(f"{pods}/{member}/status", json=patch, headers=merge).raise_for_status()


def test_a_gang_whose_gates_were_lifted_in_part_is_completed_by_the_next_leader(scheduled: World, start: Start) -> None:
    """Also where a nominated node is full by then; a part that cannot be completed gives its place back."""
    world, cluster = scheduled, scheduled.cluster
    world.nodes(4, cpu="2")
    world.pods([pod("foreign", scheduler="none", cpu="2", nodeName="node-1")])
    lifted_in_part(world, "half", 4, {"half-0": "node-0", "half-1": "node-1"}, {"half-2": "node-2"})
    lifted_in_part(world, "torn", 6, {"torn-0": "node-3"}, {"torn-1": "node-3"})

    leader = LeaderService(start("--leader-elect", kubeconfig=cluster.kubeconfig()))
    cluster.start_scheduler(cost.advised_by(leader, ignorable=False))
    eventually(lambda: world.bound()["half"] == 4, 90, world.placed)
    eventually(lambda: world.bound()["torn"] == 0, 90, world.placed)
    assert world.placed()["half-2"] == "node-2"
    leader.close()
