"""Carries out bindings.

A submitted binding is assumed in the state. The pod's watch event confirms it, or the API server refuses it and the
assumption is dropped, or neither happens for a while and the pod is read. While its outcome is unknown, a pod keeps its
resources: it may be bound.

Bindings are sent in the order of their decisions, so the pods of a gang are sent together. A binding lapses if its pod
or node has changed or another replica may lead by the time it would be sent; the unsent bindings of the same job lapse
with it.

A pod that kube-scheduler binds is assumed and expected, but not sent; kube-scheduler is made to ask about it again. A
job with devices or volumes to reserve is bound after all reservations succeeded. If one fails, the whole job goes back
to the next session.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from stromboli.api import objects
from stromboli.api.decisions import Bind
from stromboli.api.keys import namespace_of
from stromboli.api.words import counted
from stromboli.kube.volume_reservation import VolumeRefusedError
from stromboli.live.api_server.client import CONNECTION_ERRORS, ApiError, Kube, NotSentError
from stromboli.live.api_server.json import Decoder
from stromboli.live.binding.gates import lift
from stromboli.live.binding.preparing import Preparing, Round
from stromboli.live.binding.recall import Recall
from stromboli.live.binding.reserving import LATE, NotReservedError, Reservations
from stromboli.live.loop import node_terms, still_valid
from stromboli.live.observer import Observer
from stromboli.live.process.fair_queue import FairQueue
from stromboli.live.process.limits import Backoff, TokenBucket
from stromboli.live.process.logs import Logger
from stromboli.live.process.workers import run_workers
from stromboli.live.reporting.events import Events, Reference, about_pod, about_pod_group
from stromboli.live.settings import Settings
from stromboli.live.watch.mirror import Mirror
from stromboli.state.snapshot import Snapshot

log = Logger(__name__)

_SWEEP = 1.0
#: seconds between two reads of a pod whose binding has an unknown outcome
_LOOK_AGAIN = 1.0
_HOLD = (0.2, 60.0)


class Binder:
    """Posts bindings over connections of its own, at a bounded rate."""

    def __init__(
        self,
        kube: Kube,
        mirror: Mirror,
        events: Events,
        recall: Recall,
        reservations: Sequence[Reservations],
        observer: Observer,
        settings: Settings,
    ) -> None:
        """`kube` has connections of its own. `reservations` are made in this order."""
        self._kube = kube
        self._mirror = mirror
        self._state = mirror.state
        self._events = events
        self._recall = recall
        self._reservations = reservations
        self._observer = observer
        self._workers = settings.bind_connections
        self._bucket = TokenBucket(settings.binds_per_second)
        self._assume_timeout = settings.assume_timeout
        self._pod_events = settings.pod_events
        self._queue: FairQueue[tuple[str, Round]] = FairQueue(lambda item: namespace_of(item[0]))
        self._preparing = Preparing(self._state, reservations, self._enqueue, self._not_reserved)
        #: bindings that were accepted but not yet watched, and when to read their pods, by pod key
        self._unconfirmed: dict[str, tuple[float, Bind]] = {}
        #: pods whose binding was refused, and until when they are held back
        self._held: dict[str, tuple[float, Backoff]] = {}
        self._pods: Decoder[objects.Pod] = Decoder(objects.Pod)
        mirror.listen("Pod", self._pod_changed)

    def submit(self, binds: Sequence[Bind], snapshot: Snapshot, session: int = 0) -> None:
        """Assume and send the bindings that are still valid since their snapshot.

        `session` is the number of the session that decided them.
        """
        valid, stale = still_valid(binds, snapshot, self._state, self._is_held)
        rounds: dict[Reference, Round] = {}
        for bind in valid:
            self._state.assume(bind.key, bind.node)
            if self._is_bound_elsewhere(bind):
                self._expect(bind)
                self._recall.decided(bind)
            else:
                of_job = self._round(bind, rounds, session)
                node = node_terms(self._state.nodes.record(bind.node))
                of_job.unsent[bind.key] = (bind, partial(self._stands, bind, node))
                for each in self._reservations:
                    each.promise(bind)
        for of_job in rounds.values():
            if not self._preparing.take(of_job):
                self._enqueue(of_job)
        for _ in stale:
            self._observer.bind_result("stale", 0.0)
        if stale:
            log.debug("bindings dropped", pods=len(stale), session=session)

    async def run(self) -> None:
        """Send bindings until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(run_workers("binder", self._workers, self._work), name="binder")
            tasks.create_task(self._preparing.run(), name="binder-prepares")
            tasks.create_task(self._sweep(), name="binder-sweep")

    @property
    def waiting(self) -> int:
        """The number of unsent bindings."""
        return self._queue.qsize()

    def _enqueue(self, of_job: Round) -> None:
        for key in of_job.unsent:
            self._queue.put_nowait((key, of_job))

    def _not_reserved(self, of_job: Round, error: NotReservedError, what: str) -> None:
        """Devices or volumes of a job, or of the round that it waited for, could not be reserved."""
        bind = error.bind
        if what and not isinstance(error.cause, VolumeRefusedError):
            # Sessions already avoid a node on which no volume was provisioned.
            self._hold(bind.key)
        self._drop(of_job, [each for each, _ in of_job.unsent.values()], error)
        of_job.unsent.clear()
        if not what:
            return
        log.recurring(f"{what} not reserved", error, pod=bind.key, node=bind.node, **of_job.origin)
        self._tell_of_failure(bind, f"its {what} could not be reserved: {error}")

    async def _work(self) -> None:
        while True:
            key, of_job = await self._queue.get()
            if key in of_job.unsent:
                await self._bucket.wait()
            if key in of_job.unsent:
                await self._send(of_job, *of_job.unsent.pop(key))

    async def _send(self, of_job: Round, bind: Bind, wanted: Callable[[], bool]) -> None:
        of_job.sending += 1
        try:
            for each in self._reservations:
                # What was reserved may be lost while the binding waits for its turn.
                each.check([(bind, wanted)])
            if await self._bind(of_job, bind, wanted):
                of_job.bound.append(bind)
        except (NotSentError, NotReservedError) as error:
            self._drop(of_job, [bind, *(unsent for unsent, _ in of_job.unsent.values())], error)
            of_job.unsent.clear()
        of_job.sending -= 1
        if not of_job.unsent and not of_job.sending:
            self._announce(of_job)

    def _stands(self, bind: Bind, node: object) -> bool:
        """Whether a pod still waits for its binding, on a node that has not changed since the binding was submitted."""
        record = self._state.record(bind.key)
        waits = record is not None and record.uid == bind.uid and self._state.assumed.get(bind.key) == bind.node
        return waits and node is not None and node_terms(self._state.nodes.record(bind.node)) == node

    def _drop(self, of_job: Round, binds: Sequence[Bind], why: NotSentError | NotReservedError) -> None:
        """Drop the unsent bindings of a job; the next session decides about it again."""
        for bind in binds:
            self._forget(bind)
        for bind in binds:
            self._release(bind)
            self._observer.bind_result("stale", 0.0)
        log.debug("bindings dropped", pods=len(binds), first=binds[0].key, why=why, **of_job.origin)
        self._mirror.changed()

    def _announce(self, of_job: Round) -> None:
        """Emit the Events of bindings that were submitted together."""
        took = time.perf_counter() - of_job.began
        log.debug("bound", pods=len(of_job.bound), seconds=f"{took:.6f}", **of_job.origin)
        self._observer.bind_batch(of_job.session, of_job.job, of_job.queue, len(of_job.bound), took)
        if len(of_job.bound) == 1 or self._pod_events:
            for bind in of_job.bound:
                note = f"Successfully assigned {bind.key} to {bind.node}"
                self._events.emit(about_pod(bind), "Normal", "Scheduled", note, "Binding")
        elif of_job.bound:
            nodes = len({bind.node for bind in of_job.bound})
            note = f"Successfully assigned {len(of_job.bound)} pods to {counted(nodes, 'node')}"
            self._events.emit(of_job.about, "Normal", "Scheduled", note, "Binding")

    async def _bind(self, of_job: Round, bind: Bind, wanted: Callable[[], bool]) -> bool:
        """Send a binding; returns whether the API server accepted it. Raises NotSentError."""
        key, started = bind.key, time.perf_counter()
        path = f"/api/v1/namespaces/{bind.namespace}/pods/{bind.name}/binding"
        try:
            record = self._state.record(key)
            if record is not None and record.pod_class.waits_for_gang:
                await lift(self._kube, bind.namespace, bind.name, bind.uid)
            await self._kube.persist("POST", path, binding(bind), wanted=wanted)
        except NotSentError:
            raise
        except ApiError as error:
            result = "refused" if error.status in (404, 409) else "failed"
            await self._take_back(of_job, bind, str(error), late=0.0 if error.status < 500 else LATE)
        except CONNECTION_ERRORS as error:
            result = "failed"
            await self._take_back(of_job, bind, repr(error), late=LATE)
        else:
            result = "bound"
            self._held.pop(key, None)
            if key in self._state.assumed:
                self._expect(bind)
        self._observer.bind_result(result, time.perf_counter() - started)
        return result == "bound"

    def _round(self, bind: Bind, rounds: dict[Reference, Round], session: int) -> Round:
        """The reference to a pod's PodGroup, which the Event is about, or to the pod itself when it has none."""
        record = self._state.record(bind.key)
        pod_group = self._state.pod_group(record.job) if record else None
        about = about_pod(bind) if pod_group is None else about_pod_group(pod_group)
        found = rounds.get(about)
        if found is None:
            job, queue = (pod_group.key, pod_group.queue) if pod_group else ("", "")
            found = rounds[about] = Round(about, session, job, queue, time.perf_counter())
        return found

    def _expect(self, bind: Bind, within: float | None = None) -> None:
        """Expect the pod's watch event; after a timeout the pod is read."""
        self._unconfirmed[bind.key] = (time.monotonic() + (within or self._assume_timeout), bind)

    def _is_bound_elsewhere(self, bind: Bind) -> bool:
        """Whether kube-scheduler binds the pod and learns of its node through the extender."""
        record = self._state.record(bind.key)
        return record is not None and record.scheduler_name in self._state.extender_scheduler_names

    async def _take_back(self, of_job: Round, bind: Bind, why: str, late: float) -> None:
        """The binding failed, or seems to have: check against the API server.

        A request without an answer can still arrive for `late` seconds.
        """
        key = bind.key
        bound = await self._look_up(bind)
        if bound is None:
            self._expect(bind, _LOOK_AGAIN)
        if bound is not False:
            return
        self._hold(key)
        self._release(bind, late)
        log.recurring("binding refused", why, pod=key, node=bind.node, **of_job.origin)
        self._tell_of_failure(bind, why)

    def _release(self, bind: Bind, after: float = 0.0) -> None:
        """Release the reservations of a pod."""
        for each in self._reservations:
            each.release(bind, after)

    def _hold(self, key: str) -> None:
        """Hold a pod back, each time for longer."""
        _, backoff = self._held.get(key) or (0.0, Backoff(*_HOLD))
        self._held[key] = (time.monotonic() + backoff.delay(), backoff)

    def _tell_of_failure(self, bind: Bind, why: str) -> None:
        message = f"failed to bind to node {bind.node}: {why}"
        self._events.emit(about_pod(bind), "Warning", "FailedBinding", message, "Binding")

    async def _look_up(self, bind: Bind) -> bool | None:
        """Whether a pod is bound to the intended node; None when the API server does not answer.

        The state is updated with the pod as read, unless a watch has delivered something newer.
        """
        key, before = bind.key, self._state.record(bind.key)
        try:
            content = await self._kube.persist("GET", f"/api/v1/namespaces/{bind.namespace}/pods/{bind.name}")
            pod = self._pods.decode(content)
        except ApiError as error:
            if error.status == 404 and self._state.record(key) is before:
                self._mirror.delete("Pod", key, key)
                return False
            log.recurring("pod not read", error, pod=key)
            if error.retriable:
                return None
            self._forget(bind)
            self._mirror.changed()
            return False
        except CONNECTION_ERRORS as error:
            log.recurring("pod not read", error, pod=key)
            return None
        bound = pod.metadata.uid == bind.uid and pod.spec.node_name == bind.node
        if self._state.record(key) is before:
            self._forget(bind)
            self._mirror.looked_up("Pod", pod)
        elif bound:
            self._expect(bind)
        else:
            self._forget(bind)
            self._mirror.changed()
        return bound

    def _forget(self, bind: Bind) -> None:
        """Drop the assumption that a pod is on its intended node."""
        if self._state.assumed.get(bind.key) == bind.node:
            self._state.forget(bind.key)

    async def _sweep(self) -> None:
        """Read the pods of bindings that were not confirmed in time."""
        while True:
            await asyncio.sleep(_SWEEP)
            now = time.monotonic()
            for key, (deadline, bind) in list(self._unconfirmed.items()):
                if key not in self._state.assumed:
                    del self._unconfirmed[key]
                elif deadline <= now:
                    del self._unconfirmed[key]
                    await self._doubt(bind)

    async def _doubt(self, bind: Bind) -> None:
        """A binding was not confirmed in time."""
        key = bind.key
        self._observer.bind_result("unconfirmed", self._assume_timeout)
        if self._is_bound_elsewhere(bind):
            # kube-scheduler has not asked about it. The next question is answered by a new decision.
            self._state.forget(key)
            self._mirror.changed()
        else:
            confirmed = await self._look_up(bind)
            if confirmed is None:
                self._expect(bind, _LOOK_AGAIN)
            elif not confirmed:
                self._release(bind, LATE)
            found = {True: "the pod is bound", False: "the pod is not bound", None: "the API server does not answer"}[
                confirmed
            ]
            log.recurring("binding not confirmed", found, pod=key, node=bind.node)

    def _is_held(self, key: str) -> bool:
        until, _ = self._held.get(key, (0.0, None))
        return until > time.monotonic() or any(each.is_leaving(key) for each in self._reservations)

    def _pod_changed(self, type: str, pod: objects.Pod | str) -> None:
        if type == "DELETED" and self._held:
            key = pod if isinstance(pod, str) else pod.metadata.key
            self._held.pop(key, None)


def binding(bind: Bind) -> bytes:
    """The Binding of a pod, as JSON."""
    metadata: dict[str, Any] = {"name": bind.name, "namespace": bind.namespace, "uid": bind.uid}
    if bind.annotations:
        metadata["annotations"] = dict(bind.annotations)
    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": bind.node},
        }
    )
