"""`stromboli queue open` and `stromboli queue close`: what Volcano's Commands do, without a Command."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from stromboli.api.crds import SCHEDULING, Queue, QueueState
from stromboli.api.errors import StromboliError
from stromboli.api.validation import did_you_mean
from stromboli.cli.clusters import connected
from stromboli.cli.options import Context, Kubeconfig
from stromboli.cli.problems import NotFoundError

if TYPE_CHECKING:
    from stromboli.live.api_server.client import Kube

Name = Annotated[str, typer.Argument(help="Name of the queue.")]


def open_(name: Name, kubeconfig: Kubeconfig = None, context: Context = None) -> None:
    """Open a queue for new work, and with it the queues below that were closed with it.

    Example: stromboli queue open research
    """
    print(asyncio.run(_change(name, QueueState.Open, kubeconfig, context)))


def close(name: Name, kubeconfig: Kubeconfig = None, context: Context = None) -> None:
    """Close a queue, and all below it, for new work; running jobs keep running.

    Example: stromboli queue close research --context production
    """
    print(asyncio.run(_change(name, QueueState.Closing, kubeconfig, context)))


async def _change(name: str, state: str, kubeconfig: Kubeconfig, context: Context) -> str:
    """Write the state of a queue unless it has it already. Raises StromboliError."""
    from stromboli.live.api_server.client import ApiError

    try:
        async with connected(kubeconfig, context) as kube:
            return await _write(kube, name, state)
    except ApiError as error:
        raise StromboliError(f"queue {name}: {error}") from error


async def _write(kube: Kube, name: str, state: str) -> str:
    from stromboli.live.reporting.state_field import write_state
    from stromboli.state.queue_states import is_as, refusal

    queues: dict[str, Queue] = {}
    async for page in kube.pages(f"/apis/{SCHEDULING}/queues", {}):
        queues |= {queue.key: queue for queue in map(Queue.parse, map(_decoded, page.items or []))}
    queue = queues.get(name)
    if queue is None:
        raise NotFoundError(f"there is no queue {name}{did_you_mean(name, queues)}")
    why = refusal(queues, queue, state)
    if why:
        raise StromboliError(f"queue {name}: {why}")
    word = "closed" if state == QueueState.Closing else "open"
    if is_as(queue, state):
        return f"queue {name} is already {word}"
    await write_state(kube, name, state)
    return f"queue {name} is {word} now"


def _decoded(item: bytes) -> dict[str, object]:
    found: dict[str, object] = msgspec.json.decode(item)
    return found
