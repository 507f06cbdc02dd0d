"""The running service as a source of answers to kube-scheduler."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import TypeVar

import numpy as np

from stromboli.api.decisions import Bind
from stromboli.api.objects import Pod
from stromboli.api.resources import NATIVE, Rows, Vector, fits
from stromboli.extender import NO_SESSION, NoAnswerError, Published
from stromboli.live.process.logs import Logger
from stromboli.live.process.whereabouts import whereabouts
from stromboli.live.service import Service
from stromboli.state.cluster import object_key
from stromboli.state.pods import GROUP_ANNOTATION, PodRecord

log = Logger(__name__)

T = TypeVar("T")

#: seconds for which a refusal waits for a session that is due, and for what may never come; kube-scheduler is blocked
#: meanwhile, and may not ask again for minutes
_DUE, _HOPED = 4.0, 1.0
#: seconds of a session after which requests no longer wait for its end
_LONG = 3.0
#: wait for the PodGroup of a new pod, in seconds
_NEW = 5.0
#: seconds for what a session is asked
_WORKED = 3.0
#: seconds for which kube-scheduler is taken not to count a resource that it offers full nodes for
_UNCOUNTED = 60.0


class Lane:
    """A thread for what is asked of sessions, so that a plugin that hangs holds up nothing else.

    It is one, since the caches of a session are for one question at a time.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "extender")
        self._thread_id = 0
        #: when the question that is worked out began; None between questions
        self._began: float | None = None

    async def work_out(self, question: Callable[[], T]) -> T:
        """The answer of a question. Raises NoAnswerError if it takes too long, or one before it does."""
        if problem := self.overdue(_WORKED):
            log.recurring("question of kube-scheduler takes long", whereabouts(self._thread_id))
            raise NoAnswerError(problem)
        try:
            async with asyncio.timeout(_WORKED):
                return await asyncio.get_running_loop().run_in_executor(self._thread, self._answer, question)
        except TimeoutError:
            raise NoAnswerError(self.overdue(0.0) or "too many questions wait for an answer") from None

    def overdue(self, seconds: float) -> str:
        """Activity of the current question, if it has taken longer than some seconds; else empty."""
        age = 0.0 if (began := self._began) is None else time.monotonic() - began
        if age <= seconds:
            return ""
        return f"a question of kube-scheduler has been worked out for {age:.0f} s, in {whereabouts(self._thread_id)}"

    def _answer(self, question: Callable[[], T]) -> T:
        self._thread_id, self._began = threading.get_ident(), time.monotonic()
        try:
            return question()
        finally:
            self._began = None


class LiveSessions:
    """The sessions of a service, and changes since the last of them.

    Used in the service's event loop only, aside from what is worked out in a thread.
    """

    def __init__(self, service: Service, published: Callable[[], Published | None]) -> None:
        self._service = service
        self._state = service.state
        self.published = published
        self._lane = Lane()
        #: resources that were waited for in vain, and until when they are not waited for again, in monotonic seconds
        self._uncounted: dict[str, float] = {}

    def trouble(self) -> str:
        """Why this replica cannot answer about our pods; empty if it can."""
        if not self._service.leads:
            return "another replica leads"
        return "" if self.published() is not None else NO_SESSION

    def late(self) -> str:
        """Activity of a hanging session; empty if none hangs."""
        return self._service.overdue(self._service.settings.session_patience)

    async def work_out(self, question: Callable[[], T]) -> T:
        """Ask a session."""
        return await self._lane.work_out(question)

    def stuck(self) -> list[str]:
        """Why this process should be restarted, one line per reason."""
        problem = self._lane.overdue(self._service.settings.session_timeout)
        return [*self._service.stuck(), *([problem] if problem else ())]

    def patience(self, pod: Pod, names: Sequence[str]) -> Callable[[], float]:
        """Function for the seconds from now that a refusal of these nodes should wait for a newer session.

        It waits while the pod is unknown, its PodGroup may be about to be created, or a session is due; and while the
        pod seems to fit on none of the nodes although kube-scheduler offers them. It waits only for changes that are
        known now, not for those that arrive meanwhile, or it would never end in a busy cluster.
        """
        key, state, service = object_key(pod), self._state, self._service
        awaited, asked = service.changes, time.monotonic()

        def patience() -> float:
            nonlocal awaited
            record = state.record(key)
            if record is None or record.uid != pod.metadata.uid:
                awaited = service.changes + 1
                return _DUE
            if state.pod_group(record.job) is None:
                awaited = service.changes + 1
                # Creating a pod and its PodGroup takes a moment, and so does creating PodGroups for pods without one.
                if time.time() - record.created >= _NEW:
                    return 0.0
                return _HOPED if GROUP_ANNOTATION in (pod.metadata.annotations or ()) else _DUE
            if not state.may_start(key):
                return 0.0
            if not service.knows(awaited):
                return 0.0 if service.overdue(_LONG) else _DUE
            full = self._seem_full(record, names)
            if full and time.monotonic() - asked >= _HOPED:
                self._hoped_in_vain(record, names)
            return _HOPED if full or not service.knows(service.changes) else 0.0

        return patience

    def fits_on(self, pod: PodRecord, node: str) -> bool:
        """Whether a pod fits on a node now, if no pods that are expected elsewhere arrive."""
        row = self._state.nodes.by_name.get(node)
        if row is None:
            return False
        idle = self._idle(row)
        for key, where in self._state.assumed.items():
            record = self._state.record(key)
            if record is None or where != node:
                continue
            if record.uid == pod.uid or record.nominated_node not in ("", node):
                idle += self._state.classes.request(record.pod_class)
        return bool(fits(self._state.classes.request(pod.pod_class), idle))

    async def bind(self, bind: Bind) -> str:
        """Bind a pod; why that was not possible, empty when it has its node."""
        return await self._service.bind_as_asked(bind)

    async def news(self) -> None:
        """Return at the next change or end of a session."""
        await self._service.news()

    def _seem_full(self, pod: PodRecord, names: Sequence[str]) -> bool:
        """Whether a pod fits on no node until others end, though one of them only has pods that kube-scheduler knows
        of. Resources that kube-scheduler does not count are left out."""
        nodes, request, rows = self._state.nodes, self._counted(pod), self._rows(names)
        if not len(rows) or fits(request, nodes.allocatable[:, rows] - nodes.used[:, rows]).any():
            return False
        if not fits(request, nodes.allocatable[:, rows]).any():
            return False
        expected = set(self._state.assumed.values())
        return any(name not in expected for name in names)

    def _counted(self, pod: PodRecord) -> Vector:
        """Amounts that a pod requests of the resources that kube-scheduler counts, as far as is known."""
        request, now = self._state.classes.request(pod.pod_class), time.monotonic()
        if any(until > now for until in self._uncounted.values()):
            dimensions = self._state.dimensions.names
            counted = [self._uncounted.get(name, 0.0) <= now for name in dimensions]
            request = np.where(counted, request, 0.0)
        return request

    def _hoped_in_vain(self, pod: PodRecord, names: Sequence[str]) -> None:
        """The nodes that kube-scheduler offers stay full: it may not count a resource (`ignoredByScheduler`).

        Then it offers full nodes for each pod, and would be held up for each.
        """
        nodes, request, rows = self._state.nodes, self._counted(pod), self._rows(names)
        short = request[:, None] > nodes.allocatable[:, rows] - nodes.used[:, rows]
        lacking = [self._state.dimensions.names[column] for column in np.flatnonzero(short.any(axis=1)).tolist()]
        until = time.monotonic() + _UNCOUNTED
        self._uncounted.update((name, until) for name in lacking if name not in NATIVE)

    def _rows(self, names: Sequence[str]) -> Rows:
        """The rows of the nodes that are known."""
        rows = np.fromiter(map(self._state.nodes.by_name.get, names, repeat(-1)), np.intp, len(names))
        return rows[rows >= 0]

    def _idle(self, row: int) -> Vector:
        nodes = self._state.nodes
        idle: Vector = nodes.allocatable[:, row] - nodes.used[:, row]
        return idle
