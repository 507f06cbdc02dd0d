"""What fits starts, and no pod goes that need not, where many rules meet.

Pods terminate, hold devices and ports, keep apart and have disruption budgets; a gang needs a rack, or has a limit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.api.decisions import Bind, Evict, Nominate
from stromboli.api.pod_state import PodState
from stromboli.state.cluster import ClusterState
from tests.builders import NOON, hyper_node, node, pod, pod_group, queue, state
from tests.expectations.test_no_needless_victim import ACTIONS, ALLOCATE, EVICTING
from tests.expectations.world import CLASSES, VALUES
from tests.fuzz import tried
from tests.kube import test_dra as dra

#: how many sets of victims are tried for a gang that evicts no pod
_MOST_SETS = 60
#: what a pod asks for beside amounts
_RULES = ("", "", "", "port", "apart")


@dataclass(frozen=True)
class Running:
    """A job that runs."""

    least: int
    cpu: int
    rule: str
    priority: str
    budget: int | None
    #: the node of each pod, whether it would have a device of it, and whether it terminates
    pods: list[tuple[int, bool, bool]]


@dataclass(frozen=True)
class Gang:
    """A job that waits."""

    #: the CPUs of each pod, whether it wants a device, and what else
    pods: list[tuple[int, bool, str]]
    spare: int
    tight: bool
    #: the CPUs that its queue may hold
    limit: int | None

    @property
    def least(self) -> int:
        return max(1, len(self.pods) - self.spare)


running = st.builds(
    Running,
    st.integers(1, 4),
    st.integers(1, 3),
    st.sampled_from(_RULES),
    st.sampled_from(["low", "low", "middle", "high"]),
    st.sampled_from([None, None, None, 0, 1]),
    st.lists(
        st.tuples(st.integers(0, 3), st.booleans(), st.sampled_from([False] * 6 + [True])), min_size=1, max_size=4
    ),
)
waiting = st.builds(
    Gang,
    st.lists(
        st.tuples(st.integers(1, 4), st.sampled_from([False, False, True]), st.sampled_from(_RULES)),
        min_size=1,
        max_size=4,
    ),
    st.integers(0, 2),
    st.sampled_from([False] * 5 + [True]),
    st.sampled_from([None, None, None, 4, 8]),
)
#: the CPUs and devices of nodes
sizes = st.lists(st.tuples(st.integers(2, 6), st.integers(0, 2)), min_size=4, max_size=4)


class Scene:
    """A cluster in which a gang waits, with as many pods of the jobs as find places."""

    def __init__(self, action: str, nodes: Sequence[tuple[int, int]], jobs: Sequence[Running], gang: Gang) -> None:
        self.theirs = "theirs" if "reclaim" in action else "mine"
        self.action, self.nodes, self.jobs, self.gang = action, nodes, jobs, gang
        #: by job its pods by name, with their nodes and devices
        self.placed: list[dict[str, tuple[int, str]]] = []
        self.ending: set[str] = set()
        free = [cpu for cpu, _ in nodes]
        devices = [[f"gpu-{number}" for number in range(count)] for _, count in nodes]
        ports = set[int]()
        for number, job in enumerate(jobs):
            of_job: dict[str, tuple[int, str]] = {}
            for each, (at, device, ends) in enumerate(job.pods):
                apart = job.rule != "" and any(at == taken for taken, _ in of_job.values())
                if free[at] < job.cpu or apart or (job.rule == "port" and at in ports):
                    continue
                free[at] -= job.cpu
                of_job[f"j{number}-{each}"] = at, devices[at].pop() if device and devices[at] else ""
                self.ending |= {f"j{number}-{each}"} if ends else set()
            ports |= {at for at, _ in of_job.values()} if job.rule == "port" else set()
            self.placed.append(of_job)

    def state(self, gone: Collection[str] = (), bound: Mapping[str, Bind] | None = None) -> ClusterState:
        """The cluster once some pods are gone and some of the gang's have their places."""
        limit = {"capability": {"cpu": str(self.gang.limit)}} if self.gang.limit else {}
        made = state(*CLASSES, queue("mine", deserved={"cpu": "99", "memory": "99Gi"}, **limit), dra.device_class())
        made.upsert("Queue", queue("theirs", deserved={"cpu": "0", "memory": "0"}))
        for at, (cpu, count) in enumerate(self.nodes):
            made.upsert("Node", node(f"n{at}", cpu=str(cpu)))
            devices = [dra.device(f"gpu-{number}") for number in range(count)]
            made.upsert("ResourceSlice", dra.resource_slice(f"n{at}", *devices))
        for rack in range(2):
            made.upsert("HyperNode", hyper_node(f"r{rack}", 1, "Node", [f"n{2 * rack}", f"n{2 * rack + 1}"]))
        for number, (job, of_job) in enumerate(zip(self.jobs, self.placed, strict=True)):
            self._run(made, f"j{number}", job, {name: at for name, at in of_job.items() if name not in gone})
        tight = {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}} if self.gang.tight else {}
        made.upsert("PodGroup", pod_group("g", self.gang.least, "mine", created=99, priorityClassName="high", **tight))
        for number, (cpu, device, rule) in enumerate(self.gang.pods):
            place = (bound or {}).get(name := f"g-{number}")
            on = {"node": place.node} if place else {}
            of_claim = dict(place.claims[0].allocation) if place and device else None
            self._pod(made, name, "g", cpu, rule, name if device else "", of_claim, priority=100, **on)
        return made

    def _run(self, made: ClusterState, name: str, job: Running, pods: Mapping[str, tuple[int, str]]) -> None:
        important = job.priority if self.theirs == "mine" else "low"
        made.upsert("PodGroup", pod_group(name, job.least, self.theirs, "Running", priorityClassName=important))
        for each, (at, device) in pods.items():
            held = dra.allocation(f"n{at}", device)["allocation"] if device else None
            more = {"node": f"n{at}", "priority": VALUES[important], "deleted": each in self.ending}
            self._pod(made, each, name, job.cpu, job.rule, each if device else "", held, **more)
        if job.budget is not None:
            spec = {"selector": {"matchLabels": {"job": name}}, "maxUnavailable": job.budget}
            budget = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
            made.upsert("PodDisruptionBudget", budget | {"status": {"disruptionsAllowed": job.budget}})

    def _pod(
        self, made: ClusterState, name: str, job: str, cpu: int, rule: str, claim: str, held: Any, **more: Any
    ) -> None:
        if rule == "port":
            more["ports"] = [{"containerPort": 80, "hostPort": 80}]
        if rule == "apart":
            term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"job": job}}}
            more["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        if claim:
            more["resourceClaims"] = [{"name": "device", "resourceClaimName": claim}]
            users = [{"resource": "pods", "name": name, "uid": f"uid-{name}"}]
            status = {"status": {"allocation": held, "reservedFor": users}} if held else {}
            made.upsert("ResourceClaim", dra.claim(claim, **status))
        made.upsert("Pod", pod(name, job, cpu=str(cpu), labels={"job": job}, **more))

    def started(self, gone: Collection[str], bound: Mapping[str, Bind] | None = None) -> int:
        """How many pods of the gang have places once some pods, and all that terminate, are gone."""
        decisions = ALLOCATE.decide(self.state({*gone, *self.ending}, bound).snapshot(), now=NOON).decisions
        return sum(isinstance(each, Bind) for each in decisions) + len(bound or ())

    def sets_of_victims(self) -> Iterator[set[str]]:
        """The largest sets of pods that may go."""
        of_jobs = list[list[tuple[str, ...]]]()
        for job, of_job in zip(self.jobs, self.placed, strict=True):
            there = [name for name in of_job if name not in self.ending]
            if self.theirs == "mine" and job.priority == "high":
                continue
            counts = [
                count
                for count in range(len(there) + 1)
                if (job.budget is None or count <= job.budget) and len(there) - count not in range(1, job.least)
            ]
            of_jobs.append([*combinations(there, max(counts, default=0))])
        return ({name for some in sets for name in some} for sets in islice(product(*of_jobs), _MOST_SETS))


def check(scene: Scene) -> None:
    result = EVICTING[scene.action].decide(scene.state().snapshot(), now=NOON)
    gone = {each.name for each in result.decisions if isinstance(each, Evict)}
    bound = {each.name: each for each in result.decisions if isinstance(each, Bind)}
    job = result.session.view.jobs["default/g"]
    places = job.size - job.counts[PodState.Pending]
    if not places:
        assert not gone, "they went in vain"
        # A gang that waits for pods that terminate alone needs no victims.
        if scene.started(()) < job.min_available:
            fits = (each for each in scene.sets_of_victims() if scene.started(each) >= job.min_available)
            assert next(fits, None) is None, "what fits does not start"
        return
    assert any(isinstance(each, Nominate) for each in result.decisions) == bool(gone)
    for running_job, of_job in zip(scene.jobs, scene.placed, strict=True):
        lost, there = sorted(gone & of_job.keys()), len(of_job.keys() - scene.ending)
        assert len(lost) <= (running_job.budget if running_job.budget is not None else there), "more than the budget"
        back = max(1, running_job.least - (there - len(lost))) if there >= running_job.least else len(lost)
        for stay in combinations(lost, back) if lost else ():
            assert scene.started(gone - {*stay}, bound) < places, f"{stay} of {gone} could have stayed"


@pytest.mark.one_in(2)
@pytest.mark.parametrize("action", ACTIONS)
@tried(8)
@given(nodes=sizes, jobs=st.lists(running, min_size=1, max_size=4), gang=waiting)
def test_what_fits_starts_and_each_victim_is_needed(
    action: str, nodes: list[tuple[int, int]], jobs: list[Running], gang: Gang
) -> None:
    check(Scene(action, nodes, jobs, gang))


@pytest.mark.exhaustive
@pytest.mark.parametrize("action", ACTIONS)
@tried(100)
@given(nodes=sizes, jobs=st.lists(running, min_size=1, max_size=4), gang=waiting)
def test_what_fits_starts_in_many_scenes(
    action: str, nodes: list[tuple[int, int]], jobs: list[Running], gang: Gang
) -> None:
    check(Scene(action, nodes, jobs, gang))
