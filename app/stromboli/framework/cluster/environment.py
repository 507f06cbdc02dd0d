"""Inputs of a session besides the cluster's objects. The shell collects them; plugins only read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from stromboli.api.errors import StromboliError
from stromboli.api.resources import Mask
from stromboli.framework.cluster.churn import Churn
from stromboli.framework.cluster.reservation import Reservation


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """The average load of a node."""

    #: percent of its capacity
    cpu: float
    memory: float
    #: when it was measured, seconds since the epoch
    measured: float
    #: window of the average
    period: str = "10m"


class ExtenderError(StromboliError):
    """An extender did not give an answer that can be used."""


class ExtenderTransport(Protocol):
    """Transport between a session and an HTTP extender."""

    def post(self, url: str, payload: Mapping[str, Any], timeout: float) -> Mapping[str, Any]:
        """The decoded answer to a request; `timeout` is in seconds.

        Raises ExtenderError when there is none, when its status is not 200, or when it is no JSON object.
        """


@dataclass(frozen=True, slots=True)
class Sharding:
    """Division of the nodes among schedulers, as seen by this one."""

    #: hard never leaves the nodes of its NodeShard, soft takes them first
    mode: Literal["hard", "soft"]
    #: name of its NodeShard
    name: str = "volcano"


@dataclass(frozen=True, slots=True)
class Admission:
    """Queue and minResources that a job was admitted with. If they change, it has to be admitted again."""

    key: str
    uid: str
    queue: str
    min_resources: tuple[tuple[str, str | int | float], ...]


class Admitted:
    """Some of many admissions. `values` may become more, in place, and is the same list from session to session."""

    __slots__ = ("_mask", "_values")

    def __init__(self, values: Sequence[Admission] = (), mask: Mask | None = None) -> None:
        """`mask` says which of the values, shape (values,)."""
        self._values = values
        self._mask = np.zeros(0, np.bool_) if mask is None else mask

    def __iter__(self) -> Iterator[Admission]:
        return (self._values[number] for number in np.flatnonzero(self._mask).tolist())

    def among(self, values: Sequence[Admission]) -> Mask:
        """Mask of the values that are among these admissions, shape (values,)."""
        if values is self._values:
            mask = np.zeros(len(values), np.bool_)
            mask[: len(self._mask)] = self._mask
            return mask
        known = set(self)
        return np.array([value in known for value in values], np.bool_)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Admitted):
            return NotImplemented
        known = (self._values,) if self._values is other._values else (self._values, other._values)
        return all(np.array_equal(self.among(values), other.among(values)) for values in known)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Environment:
    """Facts from outside the cluster, fixed for one session."""

    #: load by node; nodes without a sample are not in it
    node_usage: Mapping[str, NodeUsage] = field(default_factory=dict)
    #: None without a network; extenders then count as not answering
    extender: ExtenderTransport | None = None
    #: None when all nodes are its own
    sharding: Sharding | None = None
    #: past usage of queues as a part of the cluster, by queue and resource, where Prometheus measures it
    queue_usage: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    #: HyperNode by uid of the group for which an earlier session evicted victims there
    nominated_hyper_nodes: Mapping[str, str] = field(default_factory=dict)
    #: jobs that earlier sessions admitted; None where phases are believed, as of a file that is read
    admitted: Admitted | None = None
    #: places that evictions left for jobs, or that pods were moved to, and that are not taken yet, by key of the job
    reservations: Mapping[str, Reservation] = field(default_factory=dict)
    #: evictions of jobs by preemptor; None where that is not watched under Volcano's rules
    churn: Churn | None = None
    #: state that plugins and actions left for the next session, by name
    left: Mapping[str, Any] = field(default_factory=dict)


#: nothing is known of the world outside
OFFLINE = Environment()
