"""What kopf watches goes on, whatever becomes of its watches: queues, Commands and workloads of every kind."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from stromboli.live.service import Service
from tests.live.cluster import SCHEDULING, Cluster, Object
from tests.live.conftest import StartService, until
from tests.live.test_queue_states import COMMANDS, command, queue, states
from tests.live.test_watches import DEFINITIONS, event, status
from tests.live.test_workloads import JOBS, TEMPLATE, define, engine, group_of, job, make, pods_of

#: the watches of the operator set no time limit, unlike those of reflectors
_REFLECTOR = "timeoutSeconds"
RESOURCES = ("queues", "commands", "jobs", "jobsets")


@pytest.fixture
def watched(cluster: Cluster) -> Cluster:
    """A cluster with all that the operator follows in these tests."""
    cluster.create(DEFINITIONS, COMMANDS)
    define(cluster, "jobset.x-k8s.io", "v1alpha2", "JobSet")
    return cluster


def is_watched(cluster: Cluster, resource: str, after: int = 0) -> bool:
    """Whether the operator watches a kind, by requests since one."""
    paths = [path for path, _ in cluster.proxy.requests[after:]]
    return any(f"/{resource}?watch=true" in path and _REFLECTOR not in path for path in paths)


async def all_watched(cluster: Cluster, after: int = 0) -> None:
    await until(lambda: all(is_watched(cluster, each, after) for each in RESOURCES), "all are watched")


def job_set(pods: int) -> Object:
    template = {"spec": {"parallelism": pods, "completions": pods, "template": TEMPLATE}}
    return {"replicatedJobs": [{"name": "main", "replicas": 1, "template": template}]}


async def goes_on(cluster: Cluster, service: Service, name: str) -> None:
    """Of each kind a change that is made now is heeded."""
    queue(cluster, name)
    await until(lambda: states(cluster).get(name) == "Open")
    command(cluster, "CloseQueue", name)
    await until(lambda: states(cluster)[name] == "Closed")
    made = (
        job(cluster, f"{name}-job", 2),
        make(cluster, "jobset.x-k8s.io/v1alpha2", "JobSet", f"{name}-set", job_set(2)),
    )
    for each in made:
        pods_of(cluster, each, 2)
        await until(lambda each=each: group_of(cluster, each)["spec"].get("minMember") == 2)  # type: ignore[misc]
    cluster.patch(f"{JOBS}/{name}-job", {"spec": {"parallelism": 3, "completions": 3}})
    cluster.patch(f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets/{name}-set", {"spec": job_set(3)})
    for each in made:
        await until(lambda each=each: group_of(cluster, each)["spec"]["minMember"] == 3)  # type: ignore[misc]


def cut(cluster: Cluster) -> None:
    cluster.disconnect()
    cluster.reconnect()


def expire(cluster: Cluster) -> None:
    for resource in RESOURCES:
        cluster.answer(f"/{resource}?watch", event("ERROR", object=status(410)), unless=_REFLECTOR)
    cut(cluster)


def fail(cluster: Cluster) -> None:
    for resource in RESOURCES:
        cluster.answer(f"/{resource}?watch", event("ERROR", object=status(500)), unless=_REFLECTOR)
    cut(cluster)


def break_off(cluster: Cluster) -> None:
    for resource in RESOURCES:
        cluster.answer(f"/{resource}?watch", b'{"type":"ADD', unless=_REFLECTOR)
    cut(cluster)


def refuse(cluster: Cluster) -> None:
    for code in (503, 429, 401):
        for resource in RESOURCES:
            cluster.fail("GET", f"/{resource}", code)
    cut(cluster)


def say_nothing_of_kinds(cluster: Cluster) -> None:
    cluster.answer("/apis", json.dumps({"kind": "Status", "code": 503}).encode(), 503, times=3)
    fail(cluster)


@pytest.mark.parametrize("disturb", [cut, expire, fail, break_off, refuse, say_nothing_of_kinds])
@pytest.mark.one_in(6)
async def test_every_kind_is_watched_again(
    watched: Cluster, start: StartService, disturb: Callable[[Cluster], None]
) -> None:
    service = await start(engine)
    await all_watched(watched)
    await goes_on(watched, service, "before")
    requests = len(watched.proxy.requests)
    disturb(watched)
    await all_watched(watched, requests)
    await goes_on(watched, service, "after")


async def test_kinds_are_kept_while_the_api_server_does_not_say_which_it_has(
    watched: Cluster, start: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stromboli.live.groups.operator._LOOK", 0.2)
    service = await start(engine)
    await all_watched(watched)
    requests = len(watched.proxy.requests)
    watched.fail("GET", "/jobs?limit=1", 503, times=3)
    watched.fail("GET", "/apis", 500, times=2)
    await until(lambda: not watched.proxy.faults)
    assert not any(is_watched(watched, each, requests) for each in RESOURCES), "no watch is begun anew"
    await goes_on(watched, service, "after")


async def test_kinds_that_come_later_are_watched(
    cluster: Cluster, start: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stromboli.live.groups.operator._LOOK", 0.2)
    service = await start(engine)
    await until(lambda: is_watched(cluster, "jobs"))
    cluster.create(DEFINITIONS, COMMANDS)
    define(cluster, "jobset.x-k8s.io", "v1alpha2", "JobSet")
    await all_watched(cluster)
    await goes_on(cluster, service, "late")


async def test_what_was_deleted_while_no_watch_told_of_it_is_forgotten(watched: Cluster, start: StartService) -> None:
    service = await start(engine)
    spec = {"parallelism": 1, "suspend": True, "template": TEMPLATE}
    for name in ("gone", "there"):
        make(watched, "batch/v1", "Job", name, spec)
    await until(lambda: all(service.absent("job", f"default/{name}") for name in ("gone", "there")))
    watched.disconnect()
    watched.delete(f"{JOBS}/gone")
    watched.answer("/jobs?watch", event("ERROR", object=status(410)), unless=_REFLECTOR)
    watched.reconnect()
    await until(lambda: not service.absent("job", "default/gone"))
    await until(lambda: "is suspended" in service.absent("job", "default/there"))


async def test_a_default_queue_that_was_deleted_is_made_at_once(watched: Cluster, start: StartService) -> None:
    await start(engine)
    await all_watched(watched)
    watched.delete(f"{SCHEDULING}/queues/default")
    await until(lambda: states(watched).get("default") == "Open")


async def test_pods_are_bound_while_the_operator_cannot_run(watched: Cluster, start: StartService) -> None:
    for resource in RESOURCES:
        watched.answer(f"/{resource}?watch", event("ERROR", object=status(500)), times=10_000, unless=_REFLECTOR)
    await start(engine)
    made = job(watched, "train", 2)
    pods_of(watched, made, 2)
    queue(watched, "new")
    await until(lambda: watched.all_bound(2) and states(watched).get("new") == "Open")


async def test_no_workload_is_written_to(watched: Cluster, start: StartService) -> None:
    service = await start(engine)
    await all_watched(watched)
    await goes_on(watched, service, "some")
    written = [path for method, path, _ in watched.proxy.answers if method != "GET"]
    assert not [path for path in written if "/jobs" in path or "/jobsets" in path]
