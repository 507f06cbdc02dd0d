"""What holds in any history where pods are resized in place, and nodes are cordoned and not ready at times.

`STROMBOLI_HISTORIES` and the rest as for the other histories.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test
from msgspec.structs import replace as with_fields

from stromboli.api import objects
from stromboli.api.decisions import Bind
from stromboli.engine import SessionResult
from tests.expectations.test_histories import HISTORIES, PHASES, Histories
from tests.expectations.world import Job, World

#: how a resize stands: the node granted it, cannot yet or ever, or is about to
STANDS = ("done", "Deferred", "Infeasible", "InProgress")


@dataclass
class ChangingWorld(World):
    """Pods are resized, and nodes take no pods for a while."""

    #: what the spec of a resized pod requests, what its node has allocated, and how the resize stands
    sizes: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    #: nodes that are cordoned, or not ready
    closed: dict[str, str] = field(default_factory=dict)

    def resize(self, job: Job, pod: str, cpu: int, stands: str) -> None:
        """A tenant asks for another size of a pod that runs, and its node does something about it."""
        allocated = cpu if stands == "done" else self.sizes[pod][1] if pod in self.sizes else job.cpu
        self.sizes[pod] = cpu, allocated, stands
        job.resized[pod] = allocated if stands == "Infeasible" else max(cpu, allocated)
        node = job.pods[pod]
        on = [each.asked(name) for each in self.jobs for name, at in each.pods.items() if at == node]
        on += [each.asked(name) for name, (each, at, _) in self.leaving.items() if at == node]
        self.overcommitted[node, "cpu"] = sum(asks.get("cpu", 0) for asks in on)

    def session(self) -> tuple[Counter[str], SessionResult]:
        changes, result = super().session()
        for each in result.decisions:
            assert not isinstance(each, Bind) or each.node not in self.closed, f"{each.node} takes no pods"
        return changes, result

    def objects(self) -> list[Any]:
        # Pods of a job that has ended may have had the names of others.
        resized = {name for job in self.jobs for name in job.resized}
        self.sizes = {name: size for name, size in self.sizes.items() if name in resized}
        return [self._told(each) for each in super().objects()]

    def _told(self, each: Any) -> Any:
        match each:
            case objects.Node() if why := self.closed.get(each.metadata.name):
                taint = objects.Taint(key=f"node.kubernetes.io/{why}", effect="NoSchedule")
                spec = with_fields(each.spec, unschedulable=why == "unschedulable", taints=[taint])
                return with_fields(each, spec=spec)
            case objects.Pod() if size := self.sizes.get(each.metadata.name):
                return _resized(each, *size)
        return each


def _resized(pod: objects.Pod, cpu: int, allocated: int, stands: str) -> objects.Pod:
    main = pod.spec.containers[0]
    requests = main.resources.requests or {}
    has = requests | {"cpu": str(allocated)}
    wants = with_fields(main.resources, requests=requests | {"cpu": str(cpu)})
    shown = objects.ContainerStatus(
        name=main.name, allocated_resources=has, resources=objects.ResourceRequirements(requests=has)
    )
    said = objects.PodCondition("PodResizePending", "True", stands)
    conditions = [said] if stands in ("Deferred", "Infeasible") else []
    return with_fields(
        pod,
        spec=with_fields(pod.spec, containers=[with_fields(main, resources=wants)]),
        status=with_fields(pod.status, container_statuses=[shown], conditions=conditions),
    )


class ChangingHistories(Histories):
    """A cluster whose pods and nodes change in place."""

    make_world = ChangingWorld
    world: ChangingWorld

    @precondition(lambda self: self.pods_with_cpus())
    @rule(data=st.data(), cpu=st.integers(1, 5), stands=st.sampled_from(STANDS))
    def a_pod_is_resized(self, data: st.DataObject, cpu: int, stands: str) -> None:
        job, pod = data.draw(st.sampled_from(self.pods_with_cpus()))
        self.world.resize(job, pod, cpu, stands)
        self._session()

    def pods_with_cpus(self) -> list[tuple[Job, str]]:
        """The pods that run and request something, with their jobs."""
        jobs = self.world.jobs
        return [(job, name) for job in jobs for name, node in job.pods.items() if node and job.asked(name)]

    @precondition(lambda self: set(self.world.nodes) - set(self.world.closed))
    @rule(data=st.data(), why=st.sampled_from(["unschedulable", "not-ready"]))
    def a_node_is_closed(self, data: st.DataObject, why: str) -> None:
        self.world.closed[data.draw(st.sampled_from(sorted(set(self.world.nodes) - set(self.world.closed))))] = why
        self._session()

    @precondition(lambda self: set(self.world.nodes) & set(self.world.closed))
    @rule(data=st.data())
    def a_node_is_open_again(self, data: st.DataObject) -> None:
        del self.world.closed[data.draw(st.sampled_from(sorted(set(self.world.nodes) & set(self.world.closed))))]
        self._session()

    def lose(self, gone: str, ends: bool) -> None:
        self.world.closed.pop(gone, None)
        super().lose(gone, ends)


@pytest.mark.exhaustive
def test_histories_of_changes() -> None:
    run_state_machine_as_test(
        ChangingHistories,
        settings=settings(max_examples=HISTORIES, stateful_step_count=8, phases=PHASES, deadline=None),
    )
