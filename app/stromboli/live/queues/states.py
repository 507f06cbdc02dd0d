"""Opens and closes queues, as Volcano's Command objects ask for, together with their children.

The operator tells of Commands and queues; the rules are functions of `state/queue_states.py`. That a new queue is
opened and an empty closing queue closed is written by `live/queues/controller.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import suppress

import msgspec

from stromboli.api import keys
from stromboli.api.crds import CLOSED_BY_PARENT, SCHEDULING, Queue, QueueState
from stromboli.api.errors import InvalidObjectError
from stromboli.live.api_server.client import CONNECTION_ERRORS, MERGE_PATCH, ApiError, Kube, Object
from stromboli.live.process.limits import Backoff
from stromboli.live.process.logs import Logger
from stromboli.live.process.workers import run_workers
from stromboli.live.reporting.events import Events, Reference
from stromboli.live.reporting.state_field import write_state
from stromboli.live.reporting.status import object_path
from stromboli.state.cluster import object_key
from stromboli.state.queue_states import BUS, commanded, is_as, refusal, with_parents

log = Logger(__name__)

VERSION = "v1alpha1"
_QUEUES = f"/apis/{SCHEDULING}/queues"
#: seconds from one comparison of all queues to the next; each lists them
_PAUSE = 1.0


class QueueStates:
    """Carries out Commands, and keeps the states of children in line with their parents.

    What it decides on is read from the API server, since watches may be late.
    """

    def __init__(self, kube: Kube, events: Events) -> None:
        self._kube = kube
        self._events = events
        self._work: asyncio.Queue[str] = asyncio.Queue()
        #: whether queues are to be compared
        self._to_compare = False
        #: when they were last, by the loop's clock
        self._compared = -_PAUSE
        self._backoffs: dict[str, Backoff] = {}
        #: Commands by key
        self._commands: dict[str, Object] = {}
        #: parts of each queue that affect its state, and of those below
        self._seen: dict[str, tuple[object, ...]] = {}

    async def run(self) -> None:
        """Open and close queues until cancelled."""
        await run_workers("queue-states", 1, self._serve)

    def queue_seen(self, queue: Object) -> None:
        """Have the states compared if a queue has another state or parent than before; an empty key means all."""
        name, metadata = object_key(queue), queue["metadata"]
        spec, status = (queue.get(part) or {} for part in ("spec", "status"))
        marked = (metadata.get("annotations") or {}).get(CLOSED_BY_PARENT)
        said = metadata.get("uid"), status.get("state"), spec.get("parent"), marked
        if self._seen.get(name) != said:
            self._seen[name] = said
            self._compare()

    def queue_gone(self, queue: Object) -> None:
        """Forget a queue that was deleted; those below it may open."""
        if self._seen.pop(object_key(queue), None) is not None:
            self._compare()

    def command_seen(self, command: Object) -> None:
        """Have a Command carried out."""
        key = object_key(command)
        self._commands[key] = command
        self._work.put_nowait(key)

    def command_gone(self, command: Object) -> None:
        """Forget a Command that was deleted."""
        self._commands.pop(object_key(command), None)

    def commands_listed(self) -> None:
        """A new list of all Commands begins."""
        self._commands.clear()

    def _compare(self) -> None:
        if not self._to_compare:
            self._to_compare = True
            loop = asyncio.get_running_loop()
            loop.call_at(max(loop.time(), self._compared + _PAUSE), self._work.put_nowait, "")

    async def _serve(self) -> None:
        while True:
            key = await self._work.get()
            try:
                if key:
                    await self._obey(key)
                else:
                    self._to_compare = False
                    self._compared = asyncio.get_running_loop().time()
                    await self._cascade()
            except (ApiError, *CONNECTION_ERRORS) as error:
                log.recurring("queue not opened or closed", error, command=key)
                delay = self._backoffs.setdefault(key, Backoff(0.5, 30.0)).delay()
                asyncio.get_running_loop().call_later(delay, self._work.put_nowait, key)
            else:
                self._backoffs.pop(key, None)

    async def _obey(self, key: str) -> None:
        """Carry out a Command and delete it; repeated Commands have no further effect."""
        command = self._commands.get(key)
        wanted = commanded(command) if command is not None else None
        if command is None or wanted is None:
            return
        name, state = wanted
        queue = await self._read(name) if state and keys.is_name(name) else None
        if queue is not None:
            why = refusal(await self._queues(), queue, state)
            if why:
                about = Reference(SCHEDULING, "Queue", "", name, queue.metadata.uid)
                self._events.emit(about, "Warning", "CommandRefused", f"{command['action']}: {why}", "Commanding")
            else:
                await self._set(queue, state, by_parent=False)
        namespace, own = keys.namespace_of(key), key.rpartition("/")[2]
        try:
            await self._kube.delete(f"/apis/{BUS}/{VERSION}/namespaces/{namespace}/commands/{own}")
        except ApiError as error:
            if error.status != 404:
                raise

    async def _read(self, name: str) -> Queue | None:
        """A queue; None if it is absent or cannot be read."""
        try:
            return next(_readable([await self._kube.request("GET", object_path("Queue", name))]), None)
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    async def _cascade(self) -> None:
        queues = await self._queues()
        for queue in queues.values():
            state = with_parents(queues, queue)
            if state:
                await self._set(queue, state, by_parent=state == QueueState.Closing)

    async def _queues(self) -> dict[str, Queue]:
        """All queues that can be read, by name."""
        pages = self._kube.pages(_QUEUES, {})
        return {queue.key: queue async for page in pages for queue in _readable(page.items or ())}

    async def _set(self, queue: Queue, state: str, *, by_parent: bool) -> None:
        """Have a queue opened or closed unless it is in the wanted state already."""
        marked = queue.closed_by_parent
        if by_parent != marked:
            mark = {"metadata": {"annotations": {CLOSED_BY_PARENT: str(by_parent).lower()}}}
            await self._kube.persist("PATCH", object_path("Queue", queue.key), msgspec.json.encode(mark), MERGE_PATCH)
        if not is_as(queue, state):
            await write_state(self._kube, queue.key, state)
            log.info("queue opened" if state == QueueState.Open else "queue closed", queue=queue.key)


def _readable(items: Iterable[bytes]) -> Iterator[Queue]:
    for item in items:
        with suppress(InvalidObjectError):
            yield Queue.parse(msgspec.json.decode(item))
