"""Carries out evictions and nominations.

Victims are evicted through the Eviction API, which respects PodDisruptionBudgets, with their own grace period. After a
refusal sessions leave the victim alone for a while and choose others, if there are any. The API server sets the
condition DisruptionTarget, which tells the pod's controller that the failure is not the pod's own; its message is then
completed with the scheduler's reason. As Volcano does, pods can instead be deleted after the condition is written,
without asking any budget.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.json import encode

from stromboli.api import objects
from stromboli.api.crds import title_of
from stromboli.api.decisions import FOREIGN_POD_GROUP, Evict, Nominate
from stromboli.api.errors import in_words
from stromboli.api.keys import namespace_of
from stromboli.api.words import counted
from stromboli.live.api_server.client import CONNECTION_ERRORS, MERGE_PATCH, ApiError, Kube, timestamp
from stromboli.live.observer import Observer
from stromboli.live.process.fair_queue import FairQueue
from stromboli.live.process.limits import Backoff
from stromboli.live.process.logs import Logger
from stromboli.live.process.workers import run_workers
from stromboli.live.reporting.events import Events, about_pod, about_pod_group
from stromboli.live.reporting.pod_conditions import write_condition
from stromboli.live.watch.mirror import Mirror
from stromboli.state.refusals import Refusal

log = Logger(__name__)

_WORKERS = 8
#: seconds that sessions wait for an eviction to show in the watch
_PATIENCE = 5.0
#: seconds that a victim is left alone after a refused eviction: the first time, and at most
_HOLD = (1.0, 60.0)

#: evictions that no session decides
_TAKEOVER = "takeover"
#: why a pod is evicted when no preemptor gets its resources
_CAUSES = {
    _TAKEOVER: "undoing bindings that were in flight when the leader changed",
    "timeouts": "giving places back after a time-out",
}


@dataclass(slots=True)
class _Round:
    """Victims of one job that are evicted for the same PodGroup, reported by one Event on each PodGroup."""

    first: Evict
    #: key of the victims' PodGroup and name of its queue, empty without one
    job: str
    queue: str
    #: number of the session that decided the evictions, 0 if none did
    session: int
    left: int = 0
    evicted: int = 0
    #: the API server's message for one refused eviction
    refused: str = ""

    def told(self, victim: Evict) -> dict[str, Any]:
        """Log fields of a victim."""
        about = {"pod": victim.key, "action": victim.action, "beneficiary": victim.beneficiary}
        return {**about, "job": self.job, "queue": self.queue, "session": self.session}


def _beneficiary(item: tuple[Evict, _Round] | Nominate) -> str:
    """The namespace on whose behalf pods are evicted or a node is nominated."""
    return item.namespace if isinstance(item, Nominate) else namespace_of(item[0].beneficiary)


class Evictor:
    """Evicts victims and nominates nodes, a few at a time."""

    def __init__(
        self, kube: Kube, mirror: Mirror, events: Events, observer: Observer, scheduler_name: str, *, delete: bool
    ) -> None:
        """With `delete`, victims are deleted and no disruption budget is asked."""
        self._kube = kube
        self._mirror = mirror
        self._events = events
        self._observer = observer
        self._name = scheduler_name
        self._delete = delete
        self._queue: FairQueue[tuple[Evict, _Round] | Nominate] = FairQueue(_beneficiary)
        #: uid -> time of submission, of victims that do not show as terminating yet
        self._invisible: dict[str, float] = {}
        self._visible = asyncio.Event()
        self._visible.set()
        #: uid -> backoff of victims whose eviction was refused
        self._backoffs: dict[str, Backoff] = {}
        self._nominated: dict[str, str] = {}
        mirror.listen("Pod", self._pod_changed)

    def evict(self, victims: Sequence[Evict], session: int = 0) -> None:
        """Evict each victim once, however often it is decided; refused victims are tried again after a while.

        `session` is the number of the session that decided it.
        """
        rounds: dict[tuple[str, str, str], _Round] = {}
        for victim in victims:
            if victim.uid in self._invisible or victim.uid in self._mirror.state.refused:
                continue
            self._invisible[victim.uid] = time.monotonic()
            self._visible.clear()
            record = self._mirror.state.record(victim.key)
            job = record.job if record else ""
            group = self._mirror.state.pod_group(job)
            of_job = (victim.action, victim.beneficiary, job)
            together = rounds.setdefault(of_job, _Round(victim, job, group.queue if group else "", session))
            together.left += 1
            self._queue.put_nowait((victim, together))

    def nominate(self, nominations: Sequence[Nominate]) -> None:
        """Write the nominations that differ from the pod's last one."""
        for nomination in nominations:
            if self._nominated.get(nomination.uid) != nomination.node:
                self._nominated[nomination.uid] = nomination.node
                self._queue.put_nowait(nomination)

    async def caught_up(self) -> None:
        """Return when all victims show as terminating; an earlier session would choose further victims."""
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._visible.wait()
        except TimeoutError:
            log.warning("evictions not visible", pods=len(self._invisible))
            self._invisible.clear()
            self._visible.set()

    async def run(self) -> None:
        """Evict until cancelled."""
        await run_workers("evictor", _WORKERS, self._work)

    async def _work(self) -> None:
        while True:
            item = await self._queue.get()
            if isinstance(item, Nominate):
                try:
                    await self._nominate(item)
                except (ApiError, *CONNECTION_ERRORS) as error:
                    log.recurring("pod not nominated", error, pod=item.key)
                    self._nominated.pop(item.uid, None)
                continue
            victim, together = item
            try:
                await self._evict(victim)
                log.info("evicted", node=victim.node, **together.told(victim))
            except (ApiError, *CONNECTION_ERRORS) as error:
                self._refused(victim, together, error)
            else:
                together.evicted += 1
                self._observer.evicted(together.queue, victim.action)
                self._backoffs.pop(victim.uid, None)
            together.left -= 1
            if not together.left:
                self._announce(together)

    def _refused(self, victim: Evict, together: _Round, error: Exception) -> None:
        """An eviction failed: the victim counts as running, and is not tried again for a while."""
        self._done(victim.uid)
        gone = isinstance(error, ApiError) and error.status in (404, 409)
        forbidden = isinstance(error, ApiError) and error.status == 429
        self._observer.evict_result("gone" if gone else "refused" if forbidden else "failed", 0.0)
        if gone:
            return
        why = error.message if isinstance(error, ApiError) else repr(error)
        together.refused = why
        log.recurring("eviction refused", why, **together.told(victim))
        told = f"{self._told(victim, victim.namespace)}: {why}"
        self._events.emit(about_pod(victim), "Warning", "EvictionRefused", told, "Evicting")
        backoff = self._backoffs.setdefault(victim.uid, Backoff(*_HOLD))
        pause = backoff.delay(error.retry_after if isinstance(error, ApiError) else None)
        self._mirror.state.refused[victim.uid] = Refusal(together.job, victim.beneficiary, why)
        self._mirror.changed()
        asyncio.get_running_loop().call_later(pause, self._try_again, victim)

    def _try_again(self, victim: Evict) -> None:
        """Sessions do the retrying, except for evictions that no session decided."""
        if self._mirror.state.refused.pop(victim.uid, None) is None:
            return
        if victim.action == _TAKEOVER:
            self.evict([victim])
        self._mirror.changed()

    async def _evict(self, victim: Evict) -> None:
        started = time.perf_counter()
        path = f"/api/v1/namespaces/{victim.namespace}/pods/{victim.name}"
        cause = _CAUSES.get(victim.action, "preempting to accommodate a higher priority pod")
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": f"{self._name}: {cause}",
            "lastTransitionTime": timestamp(),
        }
        options = {"preconditions": {"uid": victim.uid}}
        if self._delete:
            await write_condition(self._kube, path, victim.uid, condition)
            await self._kube.persist("DELETE", path, encode(options))
        else:
            await self._ask(victim, path, options)
            await self._explain(victim, path, condition)
        self._events.emit(about_pod(victim), "Warning", "Evict", self._told(victim, victim.namespace), "Evicting")
        self._observer.evict_result("evicted", time.perf_counter() - started)

    async def _ask(self, victim: Evict, path: str, options: dict[str, dict[str, str]]) -> None:
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": victim.name, "namespace": victim.namespace},
            "deleteOptions": options,
        }
        # A disruption budget refuses for a while; sessions decide again.
        await self._kube.persist("POST", f"{path}/eviction", encode(eviction), attempts=1)

    async def _explain(self, victim: Evict, path: str, condition: dict[str, str]) -> None:
        """Add the reason to the DisruptionTarget condition of a terminating pod, which may be gone by then."""
        try:
            await write_condition(self._kube, path, victim.uid, condition)
        except (ApiError, *CONNECTION_ERRORS) as error:
            log.debug("condition of victim not written", pod=victim.key, error=in_words(error))

    def _announce(self, together: _Round) -> None:
        """Emit Events on the victims' PodGroup and on the beneficiary; across namespaces neither names the other."""
        first, state = together.first, self._mirror.state
        victims, beneficiary = state.pod_group(together.job), state.pod_group(first.beneficiary)
        count, reader = counted(together.evicted, "pod"), namespace_of(first.beneficiary)
        known = not together.job or first.namespace == reader
        whose = title_of(victims, together.job) if known else FOREIGN_POD_GROUP
        if together.evicted and victims is not None:
            note = f"{count} evicted: {self._told(first, first.namespace)}"
            self._events.emit(about_pod_group(victims), "Warning", "Evict", note, "Evicting")
        if together.evicted and beneficiary is not None:
            note = f"{count} of {whose} evicted: {self._told(first, reader)}"
            self._events.emit(about_pod_group(beneficiary), "Normal", "Preempting", note, "Evicting")
        if together.refused and beneficiary is not None:
            # The API server's message names disruption budgets of the victims' namespace.
            why = f": {together.refused}" if first.namespace == reader else ""
            note = f"pods of {whose} were not evicted{why}"
            self._events.emit(about_pod_group(beneficiary), "Warning", "EvictionRefused", note, "Evicting")

    def _told(self, victim: Evict, reader: str) -> str:
        return victim.told(reader, title_of(self._mirror.state.pod_group(victim.beneficiary), victim.beneficiary))

    async def _nominate(self, nomination: Nominate) -> None:
        path = f"/api/v1/namespaces/{nomination.namespace}/pods/{nomination.name}/status"
        patch = {"metadata": {"uid": nomination.uid}, "status": {"nominatedNodeName": nomination.node}}
        await self._kube.persist("PATCH", path, encode(patch), MERGE_PATCH)

    def _pod_changed(self, type: str, pod: objects.Pod | str) -> None:
        if isinstance(pod, str):
            # A deletion inferred from a list comes without the uid; the wait for it ends by its timeout.
            return
        uid = pod.metadata.uid or ""
        if type == "DELETED":
            self._nominated.pop(uid, None)
            self._backoffs.pop(uid, None)
        if uid in self._invisible and (type == "DELETED" or pod.metadata.deletion_timestamp):
            self._done(uid)

    def _done(self, uid: str) -> None:
        self._invisible.pop(uid, None)
        if not self._invisible:
            self._visible.set()
