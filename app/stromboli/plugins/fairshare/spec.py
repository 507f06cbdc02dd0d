"""The fields of a Queue about its fair share.

`spec.deserved` is the quota, `spec.capability` the limit and `spec.weight` the weight above the quota, for all
resources. The annotation `stromboli.io/fair-share` sets them for single resources and overrides the spec:

    {"cpu": {"quota": "unlimited"}, "nvidia.com/gpu": {"quota": 2, "weight": 3, "limit": 8}}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from stromboli.api import resources
from stromboli.api.crds import PodGroup, Quantity
from stromboli.api.resources import Mask, Matrix, ResourceAmounts, Vector
from stromboli.api.validation import field_path, problem
from stromboli.eviction.eligibility import agreeing
from stromboli.framework.cluster.job import Queue
from stromboli.framework.cluster.jobs import Jobs
from stromboli.state.pods import PREEMPTABLE

ANNOTATION = "stromboli.io/fair-share"

Bound = Quantity | Literal["unlimited"]


class ResourceShare(BaseModel):
    """A queue's share of one resource; what is absent is as the spec says."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    quota: Annotated[Bound, Field(union_mode="left_to_right")] | None = None
    limit: Annotated[Bound, Field(union_mode="left_to_right")] | None = None
    weight: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None


_ANNOTATION: TypeAdapter[dict[str, ResourceShare]] = TypeAdapter(dict[str, ResourceShare])


def annotated(queue: Queue) -> Mapping[str, ResourceShare]:
    """The settings in the annotation, by resource.

    Raises ValueError that names the field when it cannot be read.
    """
    text = queue.resource.metadata.annotations.get(ANNOTATION)
    if not text:
        return {}
    try:
        return _ANNOTATION.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = field_path(first["loc"], f"annotation {ANNOTATION}")
        raise ValueError(f"{where}: {problem(first)}") from None


class Amounts:
    """Reads amounts of queues into the columns of a tree; `names` are its resources."""

    def __init__(self, queues: Sequence[Queue], names: Sequence[str]) -> None:
        self._queues = queues
        self._index = {name: column for column, name in enumerate(names)}
        #: why a queue's annotation is left out, by queue
        self.problems: dict[str, str] = {}
        self._annotated = [self._read(queue) for queue in queues]

    def quota(self) -> Matrix:
        """The deserved amounts; 0 for resources that are not named."""
        return self._matrix(lambda queue: self._vector(queue.spec.deserved, 0.0), "quota")

    def limit(self) -> Matrix:
        """The limits; infinite where unset."""
        return self._matrix(lambda queue: self._vector(queue.spec.capability, np.inf), "limit")

    def weight(self) -> Matrix:
        """The weight for amounts above the quota."""
        return self._matrix(lambda queue: np.full(len(self._index), float(queue.spec.weight)), "weight")

    def _matrix(self, of_spec: Callable[[Queue], Vector], field: str) -> Matrix:
        out = np.zeros((len(self._queues), len(self._index)))
        for row, (queue, annotated) in enumerate(zip(self._queues, self._annotated, strict=True)):
            out[row] = of_spec(queue)
            for name, share in annotated.items():
                value = getattr(share, field)
                if value is not None and name in self._index:
                    out[row, self._index[name]] = value if field == "weight" else _amount(name, value)
        return out

    def _vector(self, amounts: ResourceAmounts | None, unset: float) -> Vector:
        out = np.full(len(self._index), unset)
        for name, value in (amounts or {}).items():
            if name in self._index and resources.is_scheduled(name):
                out[self._index[name]] = resources.amount(name, value)
        return out

    def _read(self, queue: Queue) -> Mapping[str, ResourceShare]:
        try:
            return annotated(queue)
        except ValueError as error:
            self.problems[queue.name] = str(error)
            return {}


def _amount(resource: str, value: str | int | float) -> float:
    return np.inf if value == "unlimited" else float(resources.amount(resource, value))


def preemptible(jobs: Jobs, threshold: int) -> Mask:
    """Mask of preemptible jobs: as label or annotation say, else by a priority below the threshold."""
    says = jobs.holds("says whether it is preemptable", _says_whether)
    found: Mask = np.where(says, agreeing(jobs), jobs.priority < threshold)
    return found


def _says_whether(pod_group: PodGroup) -> bool:
    metadata = pod_group.metadata
    return PREEMPTABLE in metadata.annotations or PREEMPTABLE in metadata.labels
