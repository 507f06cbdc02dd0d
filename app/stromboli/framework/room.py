"""Room that was made by evictions, kept from session to session for whom it was made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeptRoom:
    """The places that others were evicted for."""

    #: when they were promised, seconds since the epoch
    since: float
    #: the name of the node of each pod, by the pod's uid
    places: Mapping[str, str]
