"""Reserves the devices and volumes of a job before any of its pods is bound.

A reservation can take minutes, so no job waits for another. Of one gang, pods may be decided while others still wait
for their reservations: pods above the minimum, or one that was created again. Unless the gang has started, they are
bound after those, or not at all: otherwise the gang would run in part when a reservation fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from stromboli.api.decisions import Bind
from stromboli.api.pod_state import PodState
from stromboli.live.binding.reserving import NotReservedError, Reservations, check_wanted
from stromboli.live.reporting.events import Reference
from stromboli.state.cluster import ClusterState

#: states of pods that have started according to the API server
_BOUND = (PodState.Bound, PodState.Running, PodState.Succeeded)


@dataclass(slots=True)
class Round:
    """Bindings of one job that were submitted together, reported by one Event."""

    about: Reference
    #: number of the session that decided them, `NAMESPACE/NAME` of the PodGroup, and its queue
    session: int
    job: str
    queue: str
    #: when they were submitted
    began: float
    #: bindings not sent yet, by pod key, each with whether it is still wanted
    unsent: dict[str, tuple[Bind, Callable[[], bool]]] = field(default_factory=dict)
    sending: int = 0
    bound: list[Bind] = field(default_factory=list)

    @property
    def origin(self) -> dict[str, Any]:
        """Fields that identify the job in the log."""
        return {"job": self.job, "queue": self.queue, "session": self.session}


#: None once the reservations of a round are made, else why they failed
_Outcome = asyncio.Future[NotReservedError | None]


class Preparing:
    """The rounds that wait for reservations: their own, or those of their gang."""

    def __init__(
        self,
        state: ClusterState,
        reservations: Sequence[Reservations],
        ready: Callable[[Round], None],
        failed: Callable[[Round, NotReservedError, str], None],
    ) -> None:
        """`reservations` are made in this order.

        `failed` is also told which objects were not reserved; they are empty for a round that waited for another one.
        """
        self._state = state
        self._reservations = reservations
        self._ready = ready
        self._failed = failed
        self._rounds: asyncio.Queue[tuple[Round, _Outcome | None, _Outcome]] = asyncio.Queue()
        #: the outcome of the last round of each gang, until it is known
        self._last: dict[str, _Outcome] = {}

    def take(self, of_job: Round) -> bool:
        """Prepare a round, unless it has nothing to wait for: then it is left to the caller."""
        earlier = self._last.get(of_job.job)
        if earlier is not None and self._starts_alone(of_job):
            earlier = None
        if earlier is None and not any(bind.claims or bind.volumes for bind, _ in of_job.unsent.values()):
            return False
        outcome = asyncio.get_running_loop().create_future()
        if of_job.job:
            self._last[of_job.job] = outcome
        self._rounds.put_nowait((of_job, earlier, outcome))
        return True

    async def run(self) -> None:
        """Prepare until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                tasks.create_task(self._prepare(*await self._rounds.get()), name="binder-reserves")

    async def _prepare(self, of_job: Round, earlier: _Outcome | None, outcome: _Outcome) -> None:
        error, what = (await earlier if earlier is not None else None), ""
        if error is None:
            error, what = await self._reserve(of_job)
        if error is None:
            self._ready(of_job)
        else:
            self._failed(of_job, error, what)
        outcome.set_result(error)
        if self._last.get(of_job.job) is outcome:
            del self._last[of_job.job]

    async def _reserve(self, of_job: Round) -> tuple[NotReservedError | None, str]:
        """Make the reservations of a round; returns errors, and their objects."""
        binds, what = list(of_job.unsent.values()), ""
        try:
            for each in self._reservations:
                what = each.what
                await each.reserve(binds)
            check_wanted(binds)
            for each in self._reservations:
                what = each.what
                each.check(binds)
        except NotReservedError as error:
            return error, what
        return None, ""

    def _starts_alone(self, of_job: Round) -> bool:
        """Whether the pods of a round may start without others: the gang has started, or needs no more than one."""
        pod_group = self._state.pod_group(of_job.job)
        least = pod_group.spec.min_member if pod_group is not None else 1
        return least <= 1 or self._state.has_pods(of_job.job, _BOUND, least)
