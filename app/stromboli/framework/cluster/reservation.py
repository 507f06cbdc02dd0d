"""Reservations: places that are kept for pods of a job from session to session.

Pods were evicted for these places, or moved to them. They count as taken for all other jobs
(`framework/session/keeper.py`) and are given to their pods before the first action of a session
(`placement/reservations.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stromboli.api.duration import since

#: the name of the step that sessions with reservations run before the first action
PLACE_RESERVED = "reservations"


@dataclass(frozen=True, slots=True)
class Place:
    """A place on a node."""

    #: the name of the node
    node: str
    #: request of the pod, by resource
    request: Mapping[str, float]
    #: uid of the pod; empty if the place is for any replacement of a moved pod
    pod: str = ""


@dataclass(frozen=True, slots=True)
class Reservation:
    """The places of a job."""

    #: of the PodGroup
    uid: str
    places: tuple[Place, ...]
    #: seconds since the epoch
    since: float
    until: float
    #: number of the job's pods that hold a place once all moved ones are replaced
    complete: int = 0
    #: keys of more important jobs that waited already when pods were evicted: they do not take it over
    passed: tuple[str, ...] = ()

    def stands(self, now: float) -> bool:
        """Whether it is still to be kept."""
        return since(self.since, now) < self.until - self.since
