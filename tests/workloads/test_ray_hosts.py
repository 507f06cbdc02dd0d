"""Replicas of Ray workers that have several hosts: each starts whole, also one that comes later."""

from __future__ import annotations

import io

import pytest
import yaml

from stromboli.api.crds import PodGroup
from stromboli.engine import Engine
from stromboli.simulation.admission import admit
from stromboli.simulation.manifests import load
from stromboli.simulation.run import feed, run
from stromboli.state.cluster import ClusterState
from stromboli.workloads import family_of
from tests import builders
from tests.workloads.test_gangs import RAY, Object, owner, pod_of, ray, replicas


def cluster(hosts: int = 4, *, scales: bool = True) -> Object:
    group = {"groupName": "tpu", "numOfHosts": hosts, **replicas(3, minReplicas=1)}
    return ray(group, enableInTreeAutoscaling=scales)


def bound(cpus: int, spec: Object) -> int:
    node = {
        "kind": "Node",
        "metadata": {"name": "n"},
        "status": {"allocatable": {"cpu": cpus, "memory": "9Gi", "pods": 99}},
    }
    made = {"apiVersion": RAY, "kind": "RayCluster", "metadata": {"name": "w"}, "spec": spec}
    loaded = load(["-"], io.BytesIO(yaml.safe_dump_all([node, made]).encode()))
    state = ClusterState(("stromboli",), reads=builders.READS)
    feed(state, admit(loaded, state.scheduler_names))
    return len(run(Engine(), state).bindings)


@pytest.mark.parametrize(("cpus", "pods"), [(5, 0), (6, 5), (9, 5), (10, 9), (14, 13)])
def test_a_replica_that_comes_later_starts_whole(cpus: int, pods: int) -> None:
    """The head asks for 1.5 CPUs with the autoscaler in it, and each of the four hosts of a replica for one."""
    assert bound(cpus, cluster()) == pods


def test_workers_of_one_host_come_as_they_fit() -> None:
    assert bound(4, cluster(1)) == 3


def test_the_sub_groups_follow_the_number_of_hosts() -> None:
    before, after, single = (owner(RAY, "RayCluster", cluster(hosts)) for hosts in (4, 2, 1))
    pod = pod_of(before, labels={"ray.io/group": "tpu", "ray.io/worker-group-replica-name": "tpu-abcde"})
    first = family_of(pod, [before])
    group = PodGroup.parse(first.manifest(pod))
    (policy,) = group.spec.sub_group_policy
    assert (policy.name, policy.sub_group_size, policy.min_sub_groups) == ("tpu", 4, 0)
    assert first.changes(group) == {}
    (changed,) = family_of(pod, [after]).changes(group)["spec"]["subGroupPolicy"]
    assert changed["subGroupSize"] == 2
    assert family_of(pod, [single]).changes(group)["spec"]["subGroupPolicy"] is None
