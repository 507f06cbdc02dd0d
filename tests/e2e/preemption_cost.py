"""What urgent pods cost when kube-scheduler places them: how many others go, alone and with the extender.

    python -m tests.e2e.preemption_cost --runs 50 [--only NAME] [--policy FILE]

prints a line for each scenario. It needs the programs of the control plane, which it makes when they are missing.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import yaml

from stromboli.api import crd_schema
from tests.controlplane.build import control_plane
from tests.controlplane.cluster import Cluster, eventually
from tests.e2e.service import Service
from tests.e2e.world import CORE, SCHEDULING, Object, World, define, pod

PROFILE = "default-scheduler"
QUEUE = "scheduling.volcano.sh/queue-name"
PRIORITIES = {"low": 1, "urgent": 1_000, "more-urgent": 10_000, "patient": 1_000}
REPOSITORY = Path(__file__).parents[2]
CHART = REPOSITORY / "charts" / "stromboli"
MANIFEST = REPOSITORY / "deploy" / "kube-scheduler-extender.yaml"
_HELD = "example.com/terminates-slowly"
_BACKOFF = {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 1}
#: how long pods are watched that are not expected to be placed, and those that end slowly, in seconds
_WATCHED, _SLOWLY = 4.0, 2.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """Nodes that are full, and pods that are urgent."""

    #: pods that go when kube-scheduler is alone, and with the extender
    alone: int
    victims: int
    #: CPUs and nodes, all of them full of pods with one
    nodes: int = 10
    cpu: int = 1
    #: how many pods of one PodGroup need each other, 1 for pods in no PodGroup
    gang: int = 1
    #: whether victims stay for a while
    slow: bool = False
    #: how many of the pods a budget protects
    protected: int = 0
    #: the urgent pods: their name, and what is special about them
    urgent: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"urgent": {}})
    #: those that come when the first victims terminate
    later: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    #: whether all urgent pods are one gang
    together: bool = False
    #: how many of them get a place, with the extender
    placed: int = 1


_MORE = {"priorityClassName": "more-urgent"}
SCENARIOS = {
    "one": Scenario(1, 1),
    "two at once": Scenario(2, 2, urgent={"urgent-0": {}, "urgent-1": {}}, placed=2),
    "four at once, slowly": Scenario(4, 4, slow=True, urgent={f"urgent-{i}": {} for i in range(4)}, placed=4),
    "slowly": Scenario(1, 1, slow=True),
    "another comes, slowly": Scenario(2, 2, slow=True, later={"later": {}}, placed=2),
    "a more urgent one comes, slowly": Scenario(3, 2, slow=True, later={"later": _MORE}, placed=2),
    "budgets protect nine": Scenario(1, 1, protected=9),
    "never preempts": Scenario(0, 0, urgent={"urgent": {"priorityClassName": "patient"}}, placed=0),
    "a gang of three": Scenario(3, 3, urgent={f"urgent-{i}": {} for i in range(3)}, together=True, placed=3),
    "a gang of three on three nodes, slowly": Scenario(
        3, 3, nodes=3, slow=True, urgent={f"urgent-{i}": {} for i in range(3)}, together=True, placed=3
    ),
    "a gang of three on two nodes": Scenario(
        2, 0, nodes=2, urgent={f"urgent-{i}": {} for i in range(3)}, together=True, placed=0
    ),
    "gangs of three in the way": Scenario(1, 0, nodes=9, gang=3, placed=0),
    "a gang of three on each node": Scenario(1, 3, nodes=2, cpu=3, gang=3),
    "a gang of three on the node": Scenario(3, 3, nodes=2, cpu=3, gang=3, urgent={"urgent": {"cpu": "3"}}),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one run: pods that went, urgent pods that have a node, gangs that lost some of their pods and not all."""

    victims: int
    placed: int
    broken: int


def run(world: World, scenario: Scenario, *, advised: bool) -> Outcome:
    """Play a scenario in an empty world; `advised` says whether kube-scheduler asks the extender."""
    world.nodes(scenario.nodes, cpu=str(scenario.cpu))
    low = list(_full(world, scenario))
    world.pods(low)
    eventually(lambda: len(world.placed()) == len(low))
    if scenario.protected:
        budget = {
            "metadata": {"name": "protected"},
            "spec": {"minAvailable": scenario.protected, "selector": _labelled("protected")},
        }
        path = f"/apis/policy/v1/namespaces/{world.namespace}/poddisruptionbudgets"
        world.create(path, budget)
        eventually(lambda: world.get(f"{path}/protected").get("status", {}).get("expectedPods") == scenario.protected)
    _ask(world, scenario, scenario.urgent)
    names = {*scenario.urgent, *scenario.later}
    expected = scenario.placed if advised else min(len(names), scenario.alone)
    if scenario.slow:
        eventually(lambda: bool(_terminating(world)), 30)
        _ask(world, scenario, scenario.later)
        _let_go(world, names, expected)
    elif expected:
        eventually(lambda: len(names & world.placed().keys()) >= expected, 60)
    else:
        eventually(lambda: names <= world.refused().keys())
        _watch(lambda: False)
    return _outcome(world, low, names)


def _full(world: World, scenario: Scenario) -> Iterator[Object]:
    """Pods of a low priority that leave no room, each bound to its node as it is made."""
    for number in range(scenario.nodes * scenario.cpu):
        group = f"gang-{number // scenario.gang}" if scenario.gang > 1 else ""
        if group and number % scenario.gang == 0:
            world.group(group, scenario.gang)
        made = pod(f"low-{number}", group, scheduler=PROFILE, priorityClassName="low")
        made["spec"]["nodeName"] = f"node-{number // scenario.cpu}"
        if number < scenario.protected:
            made["metadata"]["labels"] = _labelled("protected")["matchLabels"]
        if scenario.slow:
            made["metadata"]["finalizers"] = [_HELD]
        yield made


def _ask(world: World, scenario: Scenario, wanted: Mapping[str, Mapping[str, Any]]) -> None:
    """Make urgent pods."""
    if scenario.together and wanted:
        world.group("urgent", len(wanted), priorityClassName="urgent")
    for name, more in wanted.items():
        spec = {"priorityClassName": "urgent", **more}
        notes = {} if scenario.together else {QUEUE: "default"}
        group = "urgent" if scenario.together else ""
        world.pods([pod(name, group, scheduler=PROFILE, annotations=notes, **spec)])


def _let_go(world: World, names: set[str], expected: int) -> None:
    """Let pods terminate that have done so for a while, until as many urgent ones have a place as are expected."""
    deadline = time.monotonic() + 60
    while len(names & world.placed().keys()) < expected:
        assert time.monotonic() < deadline, f"{world.refused()}"
        leaving = _terminating(world)
        _watch(lambda: False, _SLOWLY)
        for name in leaving:
            patch = {"metadata": {"finalizers": None}}
            world.api.patch(
                f"{CORE}/namespaces/{world.namespace}/pods/{name}",
                json=patch,
                headers={"Content-Type": "application/merge-patch+json"},
            ).raise_for_status()


def _watch(ends: Callable[[], bool], seconds: float = _WATCHED) -> None:
    """See what happens."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not ends():
        time.sleep(0.1)


def _terminating(world: World) -> list[str]:
    pods = world.items(f"{CORE}/namespaces/{world.namespace}/pods")
    return [each["metadata"]["name"] for each in pods if "deletionTimestamp" in each["metadata"]]


def _outcome(world: World, low: Sequence[Object], names: set[str]) -> Outcome:
    left = {each["metadata"]["name"] for each in world.items(f"{CORE}/namespaces/{world.namespace}/pods")}
    stay = left.difference(_terminating(world))
    group = "scheduling.k8s.io/group-name"
    members = Counter(each["metadata"]["annotations"].get(group, "") for each in low)
    staying = Counter(
        each["metadata"]["annotations"].get(group, "") for each in low if each["metadata"]["name"] in stay
    )
    broken = sum(0 < staying[key] < size for key, size in members.items() if key)
    victims = sum(each["metadata"]["name"] not in stay for each in low)
    return Outcome(victims, len(names & world.placed().keys()), broken)


def _labelled(name: str) -> Object:
    return {"matchLabels": {"app": name}}


def clear(world: World) -> None:
    """Delete what a scenario made, also what would terminate slowly."""
    for each in world.items(f"{CORE}/namespaces/{world.namespace}/pods"):
        if each["metadata"].get("finalizers"):
            path = f"{CORE}/namespaces/{world.namespace}/pods/{each['metadata']['name']}"
            headers = {"Content-Type": "application/merge-patch+json"}
            world.api.patch(path, json={"metadata": {"finalizers": None}}, headers=headers)
    pods = f"{CORE}/namespaces/{world.namespace}/pods"
    groups = f"{SCHEDULING}/namespaces/{world.namespace}/podgroups"
    for path in (pods, groups, f"{CORE}/nodes"):
        world.api.delete(path, params={"gracePeriodSeconds": "0"}).raise_for_status()
    world.api.delete(f"{CORE}/namespaces/{world.namespace}").raise_for_status()
    eventually(lambda: not any(world.items(path) for path in (pods, f"{CORE}/nodes")), 60)
    world.api.close()


class Listening(Protocol):
    """What answers for the extender."""

    @property
    def address(self) -> str: ...


def advised_by(service: Listening, **changes: Any) -> Object:
    """The documented configuration of kube-scheduler, for a service on loopback."""
    config: Object = yaml.safe_load(MANIFEST.read_text())
    (extender,) = config["extenders"]
    extender |= {"urlPrefix": f"http://{service.address}", **changes}
    return config | _BACKOFF


def priorities(cluster: Cluster) -> None:
    """Make the priority classes."""
    with cluster.client() as api:
        for name, value in PRIORITIES.items():
            path = "/apis/scheduling.k8s.io/v1/priorityclasses"
            policy = "Never" if name == "patient" else "PreemptLowerPriority"
            made = {"metadata": {"name": name}, "value": value, "preemptionPolicy": policy}
            api.post(path, json=made).raise_for_status()


def chart_policy(folder: Path) -> Path:
    """The policy of the chart, as a file."""
    path = folder / "policy.conf"
    path.write_text(yaml.safe_load((CHART / "values.yaml").read_text())["policy"])
    return path


@contextmanager
def _cluster() -> Iterator[Cluster]:
    with Cluster(control_plane()) as cluster:
        cluster.start_controller_manager()
        cluster.start_kwok()
        with cluster.client() as api:
            define(api, [yaml.safe_load(text) for text in crd_schema.files().values()])
        priorities(cluster)
        yield cluster


def measure(cluster: Cluster, name: str, number: int, *, advised: bool) -> Outcome:
    """One run of a scenario."""
    kind = "advised" if advised else "alone"
    world = World(cluster, f"{kind}-{number}-{''.join(c if c.isalnum() else '-' for c in name)}"[:60])
    world.begin()
    try:
        return run(world, SCENARIOS[name], advised=advised)
    finally:
        clear(world)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", action="append", choices=list(SCENARIOS))
    parser.add_argument("--policy", type=Path, help="by default that of the chart")
    parser.add_argument("--advised-only", action="store_true", help="do not run kube-scheduler alone")
    arguments = parser.parse_args()
    names = arguments.only or list(SCENARIOS)
    alone: dict[str, list[Outcome]] = {}
    with _cluster() as cluster, tempfile.TemporaryDirectory() as folder:
        if not arguments.advised_only:
            cluster.start_scheduler(_BACKOFF)
            for name in names:
                alone[name] = [measure(cluster, name, number, advised=False) for number in range(arguments.runs)]
            cluster.stop_scheduler()
        policy = arguments.policy or chart_policy(Path(folder))
        service = Service(cluster.kubeconfig(), Path(folder) / "log", "--policy", str(policy)).wait_ready()
        cluster.start_scheduler(advised_by(service))
        try:
            for name in names:
                found = [measure(cluster, name, number, advised=True) for number in range(arguments.runs)]
                print(f"{name:32} alone {_told(alone.get(name, ()))}; with the extender {_told(found)}", flush=True)
        finally:
            service.end()


def _told(outcomes: Sequence[Outcome]) -> str:
    """How often how many pods went and how many were placed."""
    counts = Counter((each.victims, each.placed) for each in outcomes)
    told = ", ".join(f"{victims} for {placed} x {times}" for (victims, placed), times in sorted(counts.items()))
    return f"{told or 'not run'}, {sum(each.broken for each in outcomes)} gangs broken"


if __name__ == "__main__":
    main()
