"""The tenant whose gangs are timed, one after the other."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import httpx
import msgspec

from tests.e2e.follower import Follower
from tests.e2e.provisioner import MERGE_PATCH
from tests.e2e.service import Service, cpu_seconds, peak_rss
from tests.e2e.watch import PodWatch
from tests.e2e.world import CORE, SCHEDULING, Object, World, pod

_PODS = 4
#: between two gangs, in seconds: together with what a gang takes they meet sessions at any moment
_PAUSES = (0.31, 0.53, 0.17, 0.71)


@dataclass(frozen=True, slots=True)
class Figures:
    """What was seen while gangs came: seconds from the creation of a gang's last pod until all of it was bound."""

    latencies: Sequence[float]
    #: seconds from a write that the scheduler has no part in until it is seen
    trips: Sequence[float]
    #: of the service: sessions, its CPU for each of them in seconds, and a second, and the peak of its memory in bytes
    sessions: int
    cpu_of_session: float
    cpu: float
    memory: int

    def quantile(self, part: float) -> float:
        """The latency that a part of the gangs did not exceed."""
        return quantile(self.latencies, part)

    @property
    def trip(self) -> float:
        """The 99th percentile of what the API server alone takes for a write and the event of it."""
        return quantile(self.trips, 0.99)


def quantile(values: Sequence[float], part: float) -> float:
    """The value that a part of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, ceil(part * len(ordered)) - 1)]


class _Seen(Follower):
    """When each version of a ConfigMap was seen, by what it holds."""

    def __init__(self, world: World) -> None:
        super().__init__(world.cluster, f"{CORE}/namespaces/{world.namespace}/configmaps")
        self._changed = threading.Condition()
        self._seen: dict[str, float] = {}

    def see(self, api: httpx.Client, found: msgspec.Raw) -> None:
        with self._changed:
            self._seen.setdefault(msgspec.json.decode(found).get("data", {}).get("trip", ""), time.monotonic())
            self._changed.notify_all()

    def when(self, trip: str, timeout: float) -> float:
        """When a version was seen, at the latest when the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: trip in self._seen, timeout)
            return self._seen.get(trip, time.monotonic())


class Bystander:
    """Submits gangs of its own queue; each is deleted when it was bound.

    Beside each it writes an object of which the scheduler knows nothing, and waits for its event.
    """

    def __init__(self, world: World, service: Service, watch: PodWatch) -> None:
        self._world = world
        self._service = service
        # Figures may come late from a busy service.
        service.http.timeout = httpx.Timeout(60)
        self._watch = watch
        self._made = 0
        self._map = f"{CORE}/namespaces/{world.namespace}/configmaps"
        world.create(self._map, {"metadata": {"name": "trips"}})

    def measure(self, gangs: int, timeout: float) -> Figures:
        """Time some gangs; one that is not bound in time, in seconds, counts as that."""
        began, cpu, sessions = time.monotonic(), self._cpu(), self._sessions()
        latencies, trips = list[float](), list[float]()
        with _Seen(self._world) as seen:
            for number in range(gangs):
                time.sleep(_PAUSES[number % len(_PAUSES)])
                trips.append(self._trip(seen, timeout))
                latencies.append(self._gang(timeout))
        passed, spent, ran = time.monotonic() - began, self._cpu() - cpu, self._sessions() - sessions
        return Figures(latencies, trips, int(ran), spent / max(1.0, ran), spent / passed, peak_rss(self._service.pid))

    def _trip(self, seen: _Seen, timeout: float) -> float:
        trip = f"{self._made}"
        began = time.monotonic()
        self._world.api.patch(f"{self._map}/trips", json={"data": {"trip": trip}}, headers=MERGE_PATCH)
        return max(0.0, seen.when(trip, timeout) - began)

    def _gang(self, timeout: float) -> float:
        name = f"gang-{self._made}"
        self._made += 1
        pods = [f"{name}-{number}" for number in range(_PODS)]
        self._world.gang(name, _PODS, queue="quiet")
        created = time.monotonic()
        try:
            self._watch.wait(lambda: all(each in self._watch.bound for each in pods), timeout)
            latency = max(self._watch.bound[each] for each in pods) - created
        except AssertionError:
            latency = timeout
        now = {"gracePeriodSeconds": "0"}
        for each in pods:
            self._world.api.delete(f"{CORE}/namespaces/{self._world.namespace}/pods/{each}", params=now)
        self._world.api.delete(f"{SCHEDULING}/namespaces/{self._world.namespace}/podgroups/{name}")
        return max(latency, 0.0)

    def _cpu(self) -> float:
        return cpu_seconds(self._service.pid)

    def _sessions(self) -> float:
        return self._service.metric("stromboli_session_seconds_count")


def filler(number: int) -> Object:
    """A pod that is on a node already and takes 2 CPUs of it."""
    return pod(f"filler-{number}", cpu="2", nodeName=f"node-{number}")
