"""Opens and closes queues, as Volcano's Command objects ask for, together with their children.

A queue that is closed with its parent gets the annotation of Volcano's controller and reopens with the parent; a queue
that was closed itself stays closed. All rules on the state of queues are in this module; that a new queue is opened and
an empty closing queue closed is written by `live/queues.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from stromboli.api.crds import CLOSED_BY_PARENT, SCHEDULING, Queue, QueueState
from stromboli.api.errors import InvalidObjectError
from stromboli.live.client import CONNECTION_ERRORS, MERGE_PATCH, ApiError, Kube, Object, is_name
from stromboli.live.events import Events, Reference
from stromboli.live.limits import Backoff
from stromboli.live.logs import Logger
from stromboli.live.mirror import Mirror
from stromboli.live.state_field import write_state
from stromboli.live.status import object_path
from stromboli.live.workers import run_workers

log = Logger(__name__)

BUS = "bus.volcano.sh/v1alpha1"
#: the target state of each action of a Command
ACTIONS = {"OpenQueue": QueueState.Open, "CloseQueue": QueueState.Closing}
_CLOSED = frozenset((QueueState.Closed, QueueState.Closing))
_ROOT = "root"


class QueueStates:
    """Carries out Commands, and keeps the states of children in line with their parents."""

    def __init__(self, kube: Kube, mirror: Mirror, events: Events) -> None:
        self._kube = kube
        self._state = mirror.state
        self._events = events
        self._work: asyncio.Queue[str] = asyncio.Queue()
        self._active = False
        #: whether queues are to be compared
        self._to_compare = False
        self._backoffs: dict[str, Backoff] = {}
        #: Commands by key
        self._commands: dict[str, Object] = {}
        mirror.listen("Queue", lambda type, queue: self._look())
        mirror.listen("Command", self._command_changed)

    async def run(self) -> None:
        """Open and close queues until cancelled."""
        self._active = True
        self._look()
        for key in self._commands:
            self._work.put_nowait(key)
        await run_workers("queue-states", 1, self._serve)

    def _look(self) -> None:
        """Have the states compared; an empty key means all queues."""
        if self._active and not self._to_compare:
            self._to_compare = True
            self._work.put_nowait("")

    def _command_changed(self, type: str, command: Object | str) -> None:
        if isinstance(command, str) or type == "DELETED":
            self._commands.pop(command if isinstance(command, str) else _key(command), None)
            return
        self._commands[_key(command)] = command
        if self._active:
            self._work.put_nowait(_key(command))

    async def _serve(self) -> None:
        while True:
            key = await self._work.get()
            try:
                if key:
                    await self._obey(key)
                else:
                    self._to_compare = False
                    await self._cascade()
            except (ApiError, *CONNECTION_ERRORS) as error:
                log.recurring("queue not opened or closed", error, command=key)
                delay = self._backoffs.setdefault(key, Backoff(0.5, 30.0)).delay()
                asyncio.get_running_loop().call_later(delay, self._work.put_nowait, key)
            else:
                self._backoffs.pop(key, None)

    # -- commands ----------------------------------------------------------------------------------------------------

    async def _obey(self, key: str) -> None:
        """Carry out a Command and delete it; repeated Commands have no further effect."""
        command = self._commands.get(key)
        if command is None:
            return
        target = command.get("target")
        if not isinstance(target, Mapping):
            return
        if (target.get("apiVersion"), target.get("kind")) != (SCHEDULING, "Queue"):
            return
        action, name = str(command.get("action")), str(target.get("name"))
        queue = await self._read(name) if action in ACTIONS and is_name(name) else None
        if queue is not None:
            why = refusal(self._state.queues, queue, ACTIONS[action])
            if why:
                about = Reference(SCHEDULING, "Queue", "", name, queue.metadata.uid)
                self._events.emit(about, "Warning", "CommandRefused", f"{action}: {why}", "Commanding")
            else:
                await self._set(queue, ACTIONS[action], by_parent=False)
        namespace, _, own = key.rpartition("/")
        try:
            await self._kube.delete(f"/apis/{BUS}/namespaces/{namespace}/commands/{own}")
        except ApiError as error:
            if error.status != 404:
                raise

    async def _read(self, name: str) -> Queue | None:
        """The current queue from the API server, since watches may be late; None if it is absent or invalid."""
        try:
            return Queue.parse(msgspec.json.decode(await self._kube.request("GET", object_path("Queue", name))))
        except InvalidObjectError:
            return None
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    # -- children ----------------------------------------------------------------------------------------------------

    async def _cascade(self) -> None:
        for queue in list(self._state.queues.values()):
            state = with_parents(self._state.queues, queue)
            if state:
                await self._set(queue, state, by_parent=state == QueueState.Closing)

    async def _set(self, queue: Queue, state: str, *, by_parent: bool) -> None:
        """Have a queue opened or closed unless it is in the wanted state already."""
        marked = queue.closed_by_parent
        if by_parent != marked:
            mark = {"metadata": {"annotations": {CLOSED_BY_PARENT: str(by_parent).lower()}}}
            await self._kube.persist("PATCH", object_path("Queue", queue.key), msgspec.json.encode(mark), MERGE_PATCH)
        if not is_as(queue, state):
            await write_state(self._kube, queue.key, state)
            log.info("queue opened" if state == QueueState.Open else "queue closed", queue=queue.key)


def is_closed(queue: Queue) -> bool:
    """Whether a queue was closed by a user, rather than with its parent."""
    return queue.status.state in _CLOSED


def is_as(queue: Queue, state: str) -> bool:
    """Whether a queue has the wanted state already."""
    return bool(queue.status.state) and is_closed(queue) == (state == QueueState.Closing)


def next_state(state: str, pod_groups: int) -> str:
    """The state that follows: a new queue is Open, and a Closing queue without PodGroups is Closed."""
    if not state:
        return QueueState.Open
    if state == QueueState.Closing and pod_groups == 0:
        return QueueState.Closed
    return state


def with_parents(queues: Mapping[str, Queue], queue: Queue) -> str:
    """The state that a queue gets from its ancestors; empty if it needs no change."""
    above = closed_above(queues, queue)
    closed = is_closed(queue)
    if above and not closed:
        return QueueState.Closing
    if not above and closed and queue.closed_by_parent:
        return QueueState.Open
    return ""


def closed_above(queues: Mapping[str, Queue], queue: Queue) -> str:
    """The name of the nearest closed ancestor, empty if there is none."""
    seen, name = {queue.key}, queue.spec.parent
    while name and name != _ROOT and name not in seen:
        seen.add(name)
        above = queues.get(name)
        if above is None:
            return ""
        if is_closed(above):
            return name
        name = above.spec.parent
    return ""


def refusal(queues: Mapping[str, Queue], queue: Queue, state: str) -> str:
    """Why a queue cannot be opened or closed; empty if it can."""
    if state == QueueState.Closing:
        return "the root queue cannot be closed" if queue.key == _ROOT else ""
    above = closed_above(queues, queue)
    return f"its ancestor, queue {above}, is closed" if above else ""


def _key(command: Object) -> str:
    metadata = command["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}"
