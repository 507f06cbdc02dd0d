"""What is kept for jobs from session to session: places for pods that move, and room that was made by evictions.

Places count as taken for all other jobs (`framework/keeper.py`); room is given to its job before any job is served
(`placement/reservations.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stromboli.api.duration import since


@dataclass(frozen=True, slots=True)
class KeptPlaces:
    """Places that are kept for the pods of a job until they come."""

    #: of the PodGroup
    uid: str
    #: the node of each, and what the pod requests by resource
    places: tuple[tuple[str, Mapping[str, float]], ...]
    #: how many pods hold a place when all have come
    complete: int
    #: seconds since the epoch
    until: float
    since: float = 0.0

    def stands(self, now: float) -> bool:
        """Whether they are still to be kept."""
        return since(self.since, now) < self.until - self.since


@dataclass(frozen=True, slots=True)
class KeptRoom:
    """The places that others were evicted for."""

    #: when they were promised, seconds since the epoch
    since: float
    #: the name of the node of each pod, by the pod's uid
    places: Mapping[str, str]
