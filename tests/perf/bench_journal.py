"""What it costs to record sessions: a cluster under load, with recording on and off in turns.

    python -m tests.perf.bench_journal [--turns N] [--load NAME]

CPU is measured by thread: of what hands sessions over to the journal, of the events with it and without, and of what
writes it down, with a part of the state that each of its segments begins with. What that does to the caches of others
is not seen: sessions differ by more from turn to turn. A table goes to standard output.
"""

from __future__ import annotations

import argparse
import gc
import platform
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from stromboli.api import objects
from stromboli.api.crds import PodGroup, dumped
from stromboli.api.decisions import Bind, SetPodGroupStatus, SetPodUnscheduled
from stromboli.discovery import discover
from stromboli.engine import Engine
from stromboli.framework.cluster.environment import Environment
from stromboli.journal import Journal, RecordedSessions, Tape
from stromboli.journal.writer import largest_segment
from stromboli.simulation import synthetic
from stromboli.state.cluster import ClusterState

#: sessions from one whose statuses are written to the next, for the service waits a second with most of them
_PATIENCE = 10
#: sessions of a turn, and those before it that do not count: those that begin to record, or that follow them
_STEPS, _PAUSE = 10, 2
#: bytes of the newest sessions that are kept, as by default
_KEPT = 32 << 20
_CREATED = "2026-01-01T00:00:00Z"
_STARTED = "2026-01-01T00:00:05Z"
_CONDITIONS = ("PodScheduled", "PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")


@dataclass(frozen=True, slots=True)
class Load:
    """What there is, in gangs of so many pods, and what happens before each session."""

    name: str
    what: str
    nodes: int
    running: int
    #: pods that fit on no node
    stuck: int
    gang: int
    #: gangs that come, and others that go
    arrivals: int = 0
    #: running and stuck pods of which a label changes
    changes: int = 0


LOADS = (
    Load("gangs", "gangs of 10 come, run and go", 1_000, 5_000, 500, 10, arrivals=1),
    Load("pods", "pods without a gang come, run and go", 1_000, 5_000, 500, 1, arrivals=10),
    Load("changes", "pods change that are there", 1_000, 18_000, 2_000, 100, changes=15),
)


# -- objects ---------------------------------------------------------------------------------------------------------


def _conditions(count: int) -> list[objects.PodCondition]:
    return [objects.PodCondition(each, "True", last_transition_time=_STARTED) for each in _CONDITIONS[:count]]


def _pod(gang: str, index: int, *, cpu: str = "1") -> objects.Pod:
    """A pod that waits."""
    name = f"{gang}-{index}"
    of_job = {"batch.kubernetes.io/job-name": gang, "batch.kubernetes.io/job-completion-index": f"{index}"}
    requests: objects.ResourceList = {"cpu": cpu, "memory": "1Gi"}
    tolerations = [
        objects.Toleration(key=f"node.kubernetes.io/{key}", operator="Exists", effect="NoExecute")
        for key in ("not-ready", "unreachable")
    ]
    return objects.Pod(
        metadata=objects.Metadata(
            name=name,
            namespace="research",
            uid=f"{abs(hash(name)):032x}",
            labels={"app": "train", **of_job},
            annotations={"scheduling.k8s.io/group-name": gang},
            creation_timestamp=_CREATED,
        ),
        spec=objects.PodSpec(
            scheduler_name="stromboli",
            containers=[
                objects.Container(
                    name="main",
                    image="registry.example.com/team/train:1.2.3",
                    resources=objects.ResourceRequirements(requests=requests),
                )
            ],
            tolerations=tolerations,
        ),
        status=objects.PodStatus(phase="Pending"),
    )


def _placed(pod: objects.Pod, node: str, conditions: int, phase: str = "Running") -> objects.Pod:
    """A pod with a node."""
    started = _STARTED if phase == "Running" else None
    status = objects.PodStatus(phase=phase, start_time=started, conditions=_conditions(conditions))
    return replace(pod, spec=replace(pod.spec, node_name=node), status=status)


def _unscheduled(pod: objects.Pod, why: SetPodUnscheduled) -> objects.Pod:
    condition = objects.PodCondition("PodScheduled", "False", why.reason, why.message, _STARTED)
    return replace(pod, status=replace(pod.status, conditions=[condition]))


def _group(name: str, pods: int) -> PodGroup:
    metadata = {"name": name, "namespace": "research", "uid": f"uid-{name}", "creationTimestamp": _CREATED}
    spec = {"minMember": pods, "queue": "default", "minResources": {"cpu": str(pods), "memory": f"{pods}Gi"}}
    return PodGroup.parse({"metadata": metadata, "spec": spec})


# -- a cluster -------------------------------------------------------------------------------------------------------


class _Timed(RecordedSessions):
    """Sessions that say how long they were handed over."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        #: CPU seconds of each session
        self.handing: list[float] = []

    def _record(self, *arguments: Any) -> None:
        began = time.thread_time()
        super()._record(*arguments)
        self.handing.append(time.thread_time() - began)


class Cluster:
    """A cluster under a load, and its journal."""

    def __init__(self, load: Load, engine: Engine) -> None:
        self._load = load
        self.state = ClusterState(("stromboli",), reads=engine.registry.reads)
        self.tape = Tape(self.state)
        self.journal = Journal(self.tape, _KEPT)
        self._sessions = _Timed(self.journal, self.tape, engine, Environment())
        #: CPU seconds of the events of each step with its snapshot, and of its session
        self.applied: list[float] = []
        self.decided: list[float] = []
        self._nodes = [f"node-{number:05}" for number in range(load.nodes)]
        self._pods: dict[str, objects.Pod] = {}
        self._groups: dict[str, PodGroup] = {}
        self._running: deque[str] = deque()
        self._made = self._steps = self._changed = 0
        #: what the next step begins with
        self._coming: list[tuple[str, object]] = []
        self._fill()

    def _fill(self) -> None:
        load, state = self._load, self.state
        state.upsert("Queue", synthetic.queue("default"))
        for number, name in enumerate(self._nodes):
            state.upsert("Node", synthetic.node(name, {"pool": str(number % 8)}))
        place = 0
        for kind, count in (("run", load.running), ("stuck", load.stuck)):
            for number in range(count // load.gang):
                gang = f"{kind}-{number:05}"
                self._put(_group(gang, load.gang))
                for index in range(load.gang):
                    pod = _pod(gang, index, cpu="1" if kind == "run" else "64")
                    if kind == "run":
                        pod = _placed(pod, self._nodes[place % load.nodes], len(_CONDITIONS))
                        place += 1
                    self._put(pod)
                if kind == "run":
                    self._running.append(gang)
        self._apply()
        for _ in range(2 * _PATIENCE + 2):
            self.step()
        self.applied, self.decided = [], []

    @property
    def handing(self) -> list[float]:
        """CPU seconds that it took to hand each session over."""
        return self._sessions.handing

    def step(self) -> None:
        """Events, a session, and what the cluster makes of its decisions."""
        load = self._load
        for _ in range(load.arrivals):
            self._made += 1
            gang = f"new-{self._made:06}"
            self._put(_group(gang, load.gang))
            for index in range(load.gang):
                self._put(_pod(gang, index))
            self._running.append(gang)
        keys = list(self._pods) if load.changes else []
        for _ in range(load.changes):
            # A prime, so that all come in turn.
            self._changed = (self._changed + 7919) % len(keys)
            pod = self._pods[keys[self._changed]]
            labels = {**(pod.metadata.labels or {}), "step": str(self._steps)}
            self._put(replace(pod, metadata=replace(pod.metadata, labels=labels)))
        for _ in range(load.arrivals):
            self._leave(self._running.popleft())
        self._apply()
        began = time.thread_time()
        snapshot = self.state.snapshot()
        self.applied[-1] += time.thread_time() - began
        began = time.thread_time()
        result = self._sessions.decide(snapshot, now=1.8e9 + self._steps)
        self.decided.append(time.thread_time() - began)
        binds = [each for each in result.decisions if isinstance(each, Bind)]
        began = time.thread_time()
        for bind in binds:
            self.state.assume(bind.key, bind.node)
        self.applied[-1] += time.thread_time() - began
        for kubelet in (("Pending", 1), ("Pending", 3), ("Running", 5)):
            for bind in binds:
                self._put(_placed(self._pods[bind.key], bind.node, kubelet[1], kubelet[0]))
        self._steps += 1
        if self._steps % _PATIENCE == 0:
            for decision in result.decisions:
                match decision:
                    case SetPodGroupStatus(key=key, status=status) if key in self._groups:
                        manifest = self._groups[key].manifest() | {"status": dumped(status)}
                        self._put(PodGroup.parse(manifest))
                    case SetPodUnscheduled(key=key) if key in self._pods and not self._pods[key].spec.node_name:
                        self._put(_unscheduled(self._pods[key], decision))

    def _put(self, obj: objects.Pod | PodGroup) -> None:
        if isinstance(obj, objects.Pod):
            self._pods[f"{obj.metadata.namespace}/{obj.metadata.name}"] = obj
            self._coming.append(("Pod", obj))
        else:
            self._groups[obj.key] = obj
            self._coming.append(("PodGroup", obj))

    def _leave(self, gang: str) -> None:
        for index in range(self._load.gang):
            key = f"research/{gang}-{index}"
            del self._pods[key]
            self._coming.append(("Pod", key))
        del self._groups[f"research/{gang}"]
        self._coming.append(("PodGroup", f"research/{gang}"))

    def _apply(self) -> None:
        state, coming = self.state, self._coming
        self._coming = []
        began = time.thread_time()
        for kind, obj in coming:
            if isinstance(obj, str):
                state.delete(kind, obj)
            else:
                state.upsert(kind, obj)
        self.applied.append(time.thread_time() - began)


# -- measuring -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU microseconds of a session, and what recording adds for each."""

    session: float
    #: in the thread that runs sessions, and in the one that applies events
    in_sessions: float
    in_events: float
    #: of the journal's thread: what happens, and a part of what a segment begins with
    writing: float
    beginning: float
    #: bytes that the journal grows by
    size: float

    @property
    def part(self) -> float:
        """All that recording adds, in percent of the session."""
        return 100 * (self.in_sessions + self.in_events + self.writing + self.beginning) / self.session


@dataclass(frozen=True, slots=True)
class Turn:
    """CPU seconds of a step, and bytes that the journal grew by, while recording was on or off."""

    decided: float
    handed: float
    applied: float
    written: float
    size: float


def cost(load: Load, engine: Engine, turns: int) -> Cost:
    """Measure a load, recording so many times, and as often not."""
    cluster = Cluster(load, engine)
    gc.collect()
    gc.freeze()
    off, on, begun = [], [], []
    for _ in range(turns):
        cluster.tape.rest()
        _turn(cluster, _PAUSE)
        off.append(_turn(cluster, _STEPS))
        cluster.tape.wants_whole = True
        begun.append(_turn(cluster, 1))
        _turn(cluster, _PAUSE - 1)
        on.append(_turn(cluster, _STEPS))

    def least(turns: Sequence[Turn], of: Callable[[Turn], float]) -> float:
        # Whatever else the machine does only adds.
        return min(map(of, turns))

    written, size = (least(on, of) for of in (lambda each: each.written, lambda each: each.size))
    first, basis = (least(begun, of) for of in (lambda each: each.written, lambda each: each.size))
    return Cost(
        1e6 * least(off, lambda each: each.decided),
        1e6 * least(on, lambda each: each.handed),
        1e6 * (least(on, lambda each: each.applied) - least(off, lambda each: each.applied)),
        1e6 * written,
        1e6 * (first - written) * size / largest_segment(round(basis), _KEPT),
        size,
    )


def _turn(cluster: Cluster, steps: int) -> Turn:
    journal = cluster.journal
    for figures in (cluster.applied, cluster.decided, cluster.handing):
        figures.clear()
    size, used = len(journal.content()), journal.cpu
    for _ in range(steps):
        cluster.step()
    grown = len(journal.content()) - size
    return Turn(
        statistics.median(cluster.decided),
        statistics.median(cluster.handing),
        statistics.median(cluster.applied),
        (journal.cpu - used) / steps,
        grown / steps,
    )


def _row(load: Load, cost: Cost) -> str:
    cells = (
        load.what,
        f"{cost.session / 1e3:.1f} ms",
        f"{cost.in_sessions:.0f} µs",
        f"{cost.in_events:.0f} µs",
        f"{cost.writing:.0f} µs",
        f"{cost.beginning:.0f} µs",
        f"{cost.size:.0f}",
        f"{cost.part:.1f} %",
    )
    return f"| {' | '.join(cells)} |"


def main() -> int:
    """Run it; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=20, help="how often recording is turned on")
    parser.add_argument("--load", choices=[load.name for load in LOADS], action="append")
    options = parser.parse_args()
    engine = Engine(registry=discover())
    print(f"Python {platform.python_version()}, {options.turns} turns of {_STEPS} sessions")
    print("| load | session | handing it over | its events | writing | beginning segments | bytes | in all |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for load in LOADS:
        if not options.load or load.name in options.load:
            print(_row(load, cost(load, engine, options.turns)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
