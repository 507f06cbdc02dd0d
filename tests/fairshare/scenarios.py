"""Whole scheduling rounds of KAI-Scheduler, recorded, run through our core under a policy with fairshare.

Compared is what carries over: of each queue, how many of the pods that an expectation is about have which status. Which
of several equal nodes or victims is chosen does not. `disagreements.txt` names the scenarios that end otherwise.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from stromboli.api.decisions import Bind, Evict
from stromboli.api.pod_state import PodState
from stromboli.engine import Engine, SessionResult
from stromboli.framework.cluster.environment import OFFLINE
from stromboli.plugins.fairshare.spec import ANNOTATION
from stromboli.simulation.manifests import decode
from stromboli.state.cluster import ClusterState
from tests.builders import READS

#: when a scenario begins, seconds since the epoch
BEGIN = 1_700_000_000
GPU = "nvidia.com/gpu"
#: an action of ours for each of theirs that we have
_ACTIONS = ("allocate", "consolidation", "reclaim", "preempt", "stalegangeviction")
_POLICY = """
actions: "{actions}"
configurations:
- name: stalegangeviction
  arguments: {{gracePeriod: 0s}}
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: predicates
  - name: fairshare
  - name: binpack
    arguments: {{binpack.resources: nvidia.com/gpu, binpack.resources.nvidia.com/gpu: 10}}
"""

Scenario = Mapping[str, Any]


def scenarios(folder: Path) -> Iterator[Scenario]:
    """The scenarios that ask for nothing beyond whole GPUs, cpu, memory, queues and gangs."""
    for path in sorted(folder.glob("*.json")):
        yield from (scenario for scenario in json.loads(path.read_text()) if not scenario["needs"])


def differences(scenario: Scenario) -> list[str]:
    """In what our rounds end otherwise than KAI's, a line each."""
    world = World(scenario)
    if scenario["kind"] == "action":
        world.decide()
        return world.differences()
    for _ in range(scenario["roundsUntilMatch"]):
        world.decide()
        world.advance()
    out = world.differences()
    for _ in range(scenario["roundsAfterMatch"]):
        world.decide()
        world.advance()
        out += world.differences()
    return out


class World:
    """A cluster between rounds. The status and the node of each pod are kept by name."""

    def __init__(self, scenario: Scenario) -> None:
        self._session = scenario["session"]
        self._expect = scenario["expect"]
        actions = ", ".join(action for action in scenario["actions"] if action in _ACTIONS)
        self._engine = Engine(_POLICY.format(actions=actions)) if actions else None
        self._environment = OFFLINE
        self.status: dict[str, tuple[str, str]] = {
            task["name"]: (task["status"], task["node"]) for job in self._jobs() for task in job["tasks"]
        }
        self._queue = {task["name"]: job["queue"] for job in self._jobs() for task in job["tasks"]}

    def _jobs(self) -> list[Any]:
        return list(self._session["jobs"].values())

    def decide(self) -> None:
        """One round of all actions."""
        if self._engine is None:
            return
        result = self.result(self._engine)
        self._environment = result.environment
        for decision in result.decisions:
            match decision:
                case Bind(_, name, _, node):
                    self.status[name] = "Binding", node
                case Evict(_, name, _, node):
                    self.status[name] = "Releasing", node
        pods = result.session.view.pods
        # What a gang has that waits for the rest of its places is promised to it, as theirs is.
        for row in np.isin(pods.state, (PodState.Pipelined, PodState.Allocated)).nonzero()[0].tolist():
            pod = result.session.view.record(row)
            self.status[pod.name] = "Pipelined", result.session.view.nodes.name(int(pods.node[row]))
        for move in result.session.outcome.moved.values():
            self.status[move.pods[0].name] = "Pipelined", result.session.view.nodes.name(move.nodes[0])

    def result(self, engine: Engine) -> SessionResult:
        """The session of a round."""
        state = ClusterState(("stromboli",), reads=READS)
        for kind, manifest in self._manifests():
            state.upsert(kind, decode(kind, manifest, manifest["metadata"]["name"]))
        return engine.decide(state.snapshot(), now=BEGIN, environment=self._environment)

    def advance(self) -> None:
        """What happens between rounds: bound pods run, evicted ones are made anew."""
        after = {"Binding": "Running", "Pipelined": "Pending", "Releasing": "Pending"}
        self.status = {
            name: (after.get(status, status), "" if status in ("Pipelined", "Releasing") else node)
            for name, (status, node) in self.status.items()
        }

    def differences(self) -> list[str]:
        """In what the world is not as expected."""
        expected: Counter[tuple[str, str]] = Counter()
        found: Counter[tuple[str, str]] = Counter()
        for key, outcome in self._expect["jobs"].items():
            for task in self._session["jobs"][key]["tasks"]:
                expected[self._queue[task["name"]], outcome["status"]] += 1
                found[self._queue[task["name"]], self.status[task["name"]][0]] += 1
        return [
            f"{queue}: {expected[queue, status]} {status} is {found[queue, status]}"
            for queue, status in sorted(expected.keys() | found.keys())
            if expected[queue, status] != found[queue, status]
        ]

    # -- objects -----------------------------------------------------------------------------------------------------

    def _manifests(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for name, node in self._session["nodes"].items():
            yield "Node", _node(name, node)
        for priority in sorted({job["priority"] for job in self._jobs()}):
            yield "PriorityClass", {"metadata": {"name": f"priority-{priority}"}, "value": priority}
        for name, queue in self._session["queues"].items():
            yield "Queue", _queue(name, queue)
        for name, job in self._session["jobs"].items():
            yield "PodGroup", _pod_group(name, job)
            for task in job["tasks"]:
                yield "Pod", _pod(name, job, task, *self.status[task["name"]])


def _time(offset: float) -> str:
    return datetime.fromtimestamp(BEGIN + offset, UTC).isoformat()


def _amounts(of: Mapping[str, float]) -> dict[str, str]:
    return {"cpu": f"{of['cpu']:.0f}m", "memory": f"{of['memory']:.0f}", GPU: f"{of['gpu']:.0f}"}


def _node(name: str, node: Mapping[str, Any]) -> dict[str, Any]:
    allocatable = {**_amounts(node["allocatable"]), "pods": "110"}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": allocatable, "capacity": allocatable},
    }


def _queue(name: str, queue: Mapping[str, Any]) -> dict[str, Any]:
    units = {"cpu": ("cpu", "m"), "memory": ("memory", "M"), "gpu": (GPU, "")}

    def bound(amount: float, suffix: str) -> str:
        return "unlimited" if amount == -1 else f"{amount:.0f}{suffix}"

    shares = {
        units[key][0]: {
            "quota": bound(share["deserved"], units[key][1]),
            "limit": bound(share["limit"], units[key][1]),
            "weight": abs(share["overQuotaWeight"]),
        }
        for key, share in queue["quota"].items()
    }
    return {
        "metadata": {
            "name": name,
            "creationTimestamp": _time(queue["created"]),
            "annotations": {ANNOTATION: json.dumps(shares)},
        },
        "spec": {"weight": 1, "priority": queue["priority"], "parent": queue["parent"]},
        "status": {"state": "Open"},
    }


def _pod_group(name: str, job: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "creationTimestamp": _time(job["created"]),
            "annotations": {"volcano.sh/preemptable": str(job["preemptible"]).lower()},
        },
        "spec": {
            "minMember": job["podSets"]["podSets"][0]["minAvailable"],
            "queue": job["queue"],
            "priorityClassName": f"priority-{job['priority']}",
        },
        "status": {"phase": "Inqueue"},
    }


def _pod(group: str, job: Mapping[str, Any], task: Mapping[str, Any], status: str, node: str) -> dict[str, Any]:
    requests = {key: amount for key, amount in _amounts(task["request"]).items() if amount not in ("0", "0m")}
    metadata: dict[str, Any] = {
        "name": task["name"],
        "namespace": "default",
        "uid": task["name"],
        "creationTimestamp": _time(job["created"]),
        "annotations": {"scheduling.k8s.io/group-name": group},
    }
    if status == "Releasing":
        metadata["deletionTimestamp"] = _time(0)
    return {
        "metadata": metadata,
        "spec": {
            "schedulerName": "stromboli",
            "priority": job["priority"],
            "containers": [{"name": "main", "image": "example.com/app", "resources": {"requests": requests}}],
            **({"nodeName": node} if status != "Pending" else {}),
        },
        "status": {"phase": "Pending" if status == "Pending" else "Running"},
    }
