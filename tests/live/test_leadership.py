"""Of several replicas one writes, and only while no other may."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
import pytest
from pydantic import ValidationError

from stromboli.live.api_server.client import Credentials, Kube, NotSentError
from stromboli.live.leadership.fence import FencedKube
from stromboli.live.leadership.leader import LeaderLease, LeadershipLostError, LeaseTimes
from stromboli.live.leadership.leader_mark import LABEL
from stromboli.live.leadership.node_shard import SHARD, ShardTerms
from stromboli.live.settings import Settings
from stromboli.live.stand_in import StandInLease
from tests.live.cluster import Cluster, Fault
from tests.live.conftest import StartService, until

_QUICK = {"leader_elect": True, "lease_duration": 6.0, "renew_deadline": 3.0, "retry_period": 0.05}
_TIMES = LeaseTimes(duration=6.0, renew_deadline=4.0, retry_period=0.01)
_LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/stromboli"


async def test_one_leads_and_the_next_takes_over_at_once(cluster: Cluster, start: StartService) -> None:
    first = await start(**_QUICK)
    await until(lambda: first.leads)
    second = await start(**_QUICK)
    cluster.gang("train", 2)
    await until(lambda: cluster.all_bound(2))
    assert second.ready
    assert not second.leads
    assert second.observer.seen == []
    await first.stop()
    await until(lambda: second.leads)
    cluster.gang("next", 2)
    await until(lambda: cluster.all_bound(4))


async def test_the_pod_of_the_leader_is_labelled_and_no_other(
    cluster: Cluster, start: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("replica-0", "replica-1"):
        cluster.pod(name, schedulerName="other")

    def labelled() -> set[str]:
        pods = cluster.items("/api/v1/pods")
        return {pod["metadata"]["name"] for pod in pods if (pod["metadata"].get("labels") or {}).get(LABEL) == "true"}

    for name in ("replica-0", "replica-1"):
        monkeypatch.setenv("POD_NAME", name)
        service = await start(**_QUICK)
        await until(lambda name=name: labelled() == {name})
        await service.stop()


async def test_a_leader_that_cannot_renew_writes_nothing_until_it_can(cluster: Cluster, start: StartService) -> None:
    service = await start(**_QUICK)
    await until(lambda: service.leads)
    with cluster.held("GET", "/leases/", times=10_000):
        await until(lambda: not service.leads)
        cluster.gang("train", 2)
        await until(lambda: len(service.state.pods.by_key) == 2)
    assert not any(cluster.pods().values())
    await until(lambda: cluster.all_bound(2))


async def test_a_term_begins_though_its_first_writes_hang(cluster: Cluster, start: StartService) -> None:
    with cluster.held("POST", "/queues"):
        service = await start(**_QUICK)
        cluster.gang("train", 2)
        await until(lambda: cluster.all_bound(2))
        await until(lambda: cluster.count("PUT", "/stromboli", 200) >= 3)
        assert service.leads


async def test_a_leader_that_was_succeeded_ends_and_drops_what_it_decided(
    cluster: Cluster, start: StartService
) -> None:
    first = await start(**_QUICK, binds_per_second=0.05)
    await until(lambda: first.leads)
    cluster.gang("train", 4)
    await until(lambda: cluster.count("POST", "/binding") > 0)
    with cluster.held("GET", "/leases/", times=10_000):
        await until(lambda: not first.leads)
    lease = cluster.get(_LEASE)
    cluster.patch(_LEASE, {"spec": {**lease["spec"], "holderIdentity": "another"}})
    with pytest.raises(LeadershipLostError, match="default/stromboli"):
        await first.wait()
    assert not first.leads
    assert sum(map(bool, cluster.pods().values())) == 1


async def test_a_lease_that_was_deleted_is_not_taken_from_its_holder(cluster: Cluster, start: StartService) -> None:
    first = await start(**_QUICK)
    await until(lambda: first.leads)
    second = await start(**_QUICK)
    # The holder writes whenever it has read, the other only reads.
    await until(lambda: cluster.count("GET", "/stromboli") > cluster.count("PUT", "/stromboli") + 5)
    cluster.delete(_LEASE)
    await until(lambda: cluster.count("POST", "/leases", 201) == 2)
    assert first.leads
    assert not second.leads


@pytest.fixture
async def kube(cluster: Cluster) -> AsyncIterator[Kube]:
    kube = Kube(Credentials.load(cluster.kubeconfig))
    yield kube
    await kube.close()


def candidate(kube: Kube, now: list[float]) -> LeaderLease:
    """Another replica, on a clock that stands unless it is told otherwise."""
    return LeaderLease(kube, "default", "stromboli", "candidate", _TIMES, clock=lambda: now[0])


async def looks(cluster: Cluster, taking: asyncio.Task[None]) -> None:
    """Return when a candidate has looked at the lease twice more, or leads."""
    seen = cluster.count("GET", "/stromboli")
    await until(lambda: taking.done() or cluster.count("GET", "/stromboli") >= seen + 2)


async def test_a_foreign_lease_is_taken_when_it_stood_unchanged_for_its_duration(cluster: Cluster, kube: Kube) -> None:
    spec = {"holderIdentity": "leader", "leaseDurationSeconds": 6, "renewTime": "2020-01-01T00:00:00.000000Z"}
    cluster.create(_LEASE.rpartition("/")[0], {"metadata": {"name": "stromboli"}, "spec": spec})
    now = [0.0]
    taking = asyncio.create_task(candidate(kube, now).acquire())
    await looks(cluster, taking)
    now[0] = 5.9
    cluster.patch(_LEASE, {"spec": {"renewTime": "2020-01-01T00:00:06.000000Z"}})
    for moment in (5.9, 11.8):
        now[0] = moment
        await looks(cluster, taking)
        assert not taking.done()
    now[0] = 12.0
    await taking
    assert cluster.get(_LEASE)["spec"]["holderIdentity"] == "candidate"


#: lengths of leases, and for how long they count
LENGTHS = {"2147483647": 600, "-1": 6, "0": 6, '"x"': 6, "[]": 6, "null": 6, "1e300": 600, "60": 60}
#: specs that name nobody
NONSENSE = ["null", "5", "[1]", '"x"', "{}", '{"holderIdentity": null}', '{"holderIdentity": "", "renewTime": 7}']


async def test_a_foreign_lease_that_makes_no_sense_is_taken_in_the_end(kube: Kube, cluster: Cluster) -> None:
    """Whatever its times are: what counts is how long it stands."""
    held = [('"other"', *each) for each in LENGTHS.items()] + [("7", "6", 6), ('["a"]', "true", 6)]
    for holder, length, counts in held:
        spec = f'"holderIdentity": {holder}, "leaseDurationSeconds": {length}, "renewTime": "2999-01-01", '
        with forged(cluster, f'{{{spec} "leaseTransitions": "many"}}'):
            now = [0.0]
            lease = candidate(kube, now)
            taking = asyncio.create_task(lease.acquire())
            for now[0] in (0.0, counts - 0.1):
                await looks(cluster, taking)
            assert not taking.done(), (holder, length)
            now[0] = counts + 0.1
            await asyncio.wait_for(taking, 60)
            assert lease.leads


async def test_a_lease_that_names_nobody_is_free(kube: Kube, cluster: Cluster) -> None:
    for spec in NONSENSE:
        with forged(cluster, spec):
            lease = candidate(kube, [0.0])
            await asyncio.wait_for(lease.acquire(), 60)
            await lease.release()
            assert not lease.leads


@contextmanager
def forged(cluster: Cluster, spec: str) -> Iterator[None]:
    """A lease that says this, whatever is written to it."""
    cluster.answer("/leases/", f'{{"spec": {spec}}}'.encode(), times=1_000)
    cluster.proxy.faults.append(Fault("PUT", "/leases/", 200, content=b"{}", times=1_000))
    yield
    cluster.proxy.faults.clear()


async def test_who_stood_still_while_taking_a_lease_does_not_lead_by_it(cluster: Cluster, kube: Kube) -> None:
    now = [0.0]
    lease = candidate(kube, now)
    with cluster.held("POST", "/leases"):
        taking = asyncio.create_task(lease.acquire())
        await until(lambda: cluster.proxy.faults == [])
        now[0] = 20.0
    await taking
    assert lease.remaining() == 4.0
    assert cluster.count("PUT", "/stromboli", 200) == 1, "it led by the lease that it made twenty seconds ago"


@pytest.mark.parametrize("method", ["POST", "PATCH", "PUT", "DELETE"])
async def test_nothing_is_sent_after_a_term_though_the_process_stood_still_while_connecting(
    cluster: Cluster, method: str
) -> None:
    """What stands still between the decision to send and the sending is asked for its lease once more."""
    left = [5.0]

    class Slow(aiohttp.ThreadedResolver):
        async def resolve(self, *args: Any, **kwargs: Any) -> list[Any]:
            left[0] = 0.0
            return await super().resolve(*args, **kwargs)

    kube = FencedKube(Credentials.load(cluster.kubeconfig), remaining=lambda: left[0])
    kube.server = kube.server.replace("127.0.0.1", "localhost")
    kube._session.connector._resolver = Slow()
    with pytest.raises(NotSentError, match="another replica may hold the lease"):
        await kube.persist(method, "/api/v1/namespaces", b'{"metadata": {"name": "late"}}')
    assert "late" not in {item["metadata"]["name"] for item in cluster.items("/api/v1/namespaces")}
    assert await kube.get("/api/v1/namespaces/default")
    await kube.close()


def test_a_lease_must_outlast_its_leader() -> None:
    with pytest.raises(ValidationError, match="retry_period < renew_deadline < lease_duration"):
        Settings(lease_duration=4, renew_deadline=4)


async def test_a_term_begins_with_what_the_former_leader_did(cluster: Cluster, start: StartService) -> None:
    """The watch of who waits for the lease is behind when the leader binds for the last time."""
    meta = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "stromboli"}}
    lease = cluster.create(_LEASE.rpartition("/")[0], {**meta, "spec": {"holderIdentity": "another"}})
    service = await start(**_QUICK)
    cluster.gang("theirs", 8)
    cluster.gang("ours", 8)
    await until(lambda: len(service.state.pods.by_key) == 16)
    cluster.disconnect()
    with cluster.held("GET", "/pods?watch", times=10_000):
        cluster.reconnect()
        for number in range(8):
            target = {"target": {"kind": "Node", "name": "n1"}}
            cluster.create(f"/api/v1/namespaces/default/pods/theirs-{number}/binding", target)
        cluster.patch(_LEASE, {"spec": {**lease["spec"], "holderIdentity": ""}})
        await until(lambda: service.leads)
        await asyncio.sleep(0.3)
    await until(lambda: cluster.all_bound(16))
    assert cluster.count("POST", "/binding", 409) == 0


async def test_the_lease_says_since_when_no_leader_came_to_the_end_of_its_repairs(cluster: Cluster, kube: Kube) -> None:
    def told() -> str | None:
        annotations: dict[str, str] = cluster.get(_LEASE)["metadata"].get("annotations") or {}
        return annotations.get("stromboli.io/unsettled-since")

    now = [0.0]
    first, second = candidate(kube, now), candidate(kube, now)
    second.identity = "second"
    await first.acquire()
    since = told()
    assert since
    await first.release()
    await second.acquire()
    assert told() == since
    second.settled()
    holding = asyncio.create_task(second.hold())
    await until(lambda: told() is None)
    holding.cancel()


#: what a leader of a shard has its lease say
LEFT = ShardTerms.annotation(Settings(shard="left", scheduler_names=("batch",), shard_mode="soft"))


def stand_in(kube: Kube, now: list[float]) -> StandInLease:
    """A replica of another shard, which waits five seconds longer than others."""
    lease = StandInLease(kube, "default", "stromboli", "stand-in", _TIMES, clock=lambda: now[0])
    lease.patience = 5.0
    return lease


@pytest.mark.parametrize(("released", "free_at"), [(True, 5.0), (False, 11.0)])
async def test_the_lease_of_another_shard_is_taken_once_it_was_free_for_long_and_is_given_back(
    cluster: Cluster, kube: Kube, released: bool, free_at: float
) -> None:
    now = [0.0]
    theirs = stand_in(kube, now)
    taking = asyncio.create_task(theirs.acquire())
    await looks(cluster, taking)
    own = LeaderLease(kube, "default", "stromboli", "own", _TIMES, says=LEFT, clock=lambda: now[0])
    await own.acquire()
    if released:
        await own.release()
    for now[0] in (0.0, free_at - 0.1):
        await looks(cluster, taking)
        assert not taking.done()
    now[0] = free_at + 0.1
    await taking
    assert theirs.terms == ShardTerms("left", "soft", ("batch",))

    holding, back = asyncio.create_task(theirs.hold()), asyncio.create_task(own.acquire())
    with pytest.raises(LeadershipLostError, match="asked for by its shard"):
        await holding
    assert theirs.leads, "it ends what it does before it gives the lease back"
    await looks(cluster, back)
    assert not back.done()
    await theirs.release()
    await back
    lease = cluster.get(_LEASE)
    assert lease["spec"]["holderIdentity"] == "own"
    assert {name for name in lease["metadata"]["annotations"] if "unsettled" not in name} == set(LEFT)


async def test_nobody_stands_in_for_what_is_no_shard(cluster: Cluster, kube: Kube) -> None:
    now = [0.0]
    own = candidate(kube, now)
    taking = asyncio.create_task(stand_in(kube, now).acquire())
    await own.acquire()
    await own.release()
    for now[0] in (0.0, 100.0, 200.0):
        await looks(cluster, taking)
    for strange in ("5", "{}", '{"name": "left", "mode": "loose", "schedulerNames": []}', "left"):
        cluster.patch(_LEASE, {"metadata": {"annotations": {SHARD: strange}}})
        for now[0] in (300.0, 400.0):
            await looks(cluster, taking)
    assert not taking.done()
    taking.cancel()


def test_only_a_shard_stands_in_and_for_others() -> None:
    with pytest.raises(ValidationError, match="only a shard stands in for others"):
        Settings(stand_in=("left",))
    with pytest.raises(ValidationError, match="right is the service's own lease"):
        Settings(shard="right", lease_name="right", stand_in=("left", "right"))
