"""When gangs of some sizes would start: each is submitted alone to a copy of the cluster, which is run forward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from stromboli.api import crds, objects
from stromboli.api.errors import StromboliError
from stromboli.api.quantity import parse
from stromboli.api.resources import is_device
from stromboli.api.validation import did_you_mean
from stromboli.explain.answers import SizedStart, Start, Starts
from stromboli.explain.past_runs import PastRuns
from stromboli.explain.rehearsal import Rehearsal
from stromboli.lab.forecast import Forecast
from stromboli.state.cluster import ClusterState
from stromboli.state.pods import GROUP_ANNOTATION, timestamp
from stromboli.workloads.amounts import total

#: sizes that are asked about at once, and pods of the largest
_MOST_SIZES, _LARGEST = 16, 20_000
_NAME = "stromboli-asks-{}"


class SizesError(StromboliError):
    """A question about sizes that cannot be answered."""


@dataclass(frozen=True, slots=True)
class Gangs:
    """Gangs that would be submitted."""

    #: number of pods of each that start together
    sizes: Sequence[int]
    queue: str = "default"
    namespace: str = "default"
    #: request of a pod; one of the cards of the cluster, or else a processor, by default
    request: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises SizesError."""
        if not 0 < len(self.sizes) <= _MOST_SIZES:
            raise SizesError(f"sizes: 1 to {_MOST_SIZES} can be asked about at once, not {len(self.sizes)}")
        for size in self.sizes:
            if not 0 < size <= _LARGEST:
                raise SizesError(f"sizes: {size} is not a number of pods from 1 to {_LARGEST:,}")
        for name, amount in self.request.items():
            try:
                parse(amount)
            except ValueError as error:
                raise SizesError(f"request: {name}: {error}") from None


def sized(text: str) -> list[int]:
    """The sizes in `8,16,32`. Raises SizesError."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise SizesError(f"sizes: {text!r} is not a list of numbers such as 8,16,32") from None


def requested(parts: Sequence[str]) -> dict[str, str]:
    """The amounts in `cpu=4,memory=8Gi`, or in several such texts. Raises SizesError."""
    found = {}
    for part in [each for text in parts for each in text.split(",") if each.strip()]:
        name, equals, amount = part.strip().partition("=")
        if not (name and equals and amount):
            raise SizesError(f"request: {part!r} is not an amount such as cpu=4")
        found[name] = amount
    return found


def starts_of(gangs: Gangs, rehearsal: Rehearsal, past: PastRuns) -> Starts:
    """Starts of gangs, each without the others. Raises SizesError and AbandonedError."""
    queues = rehearsal.state.queues
    if gangs.queue not in queues:
        raise SizesError(f"there is no queue {gangs.queue}{did_you_mean(gangs.queue, queues)}")
    if (shown := queues[gangs.queue].status.state) in ("Closed", "Closing"):
        raise SizesError(f"queue {gangs.queue} takes no new work: its state is {shown}")
    request = dict(gangs.request) or {_card_of(rehearsal.state) or "cpu": "1"}
    found = [
        SizedStart(size=size, start=_start(gangs, size, request, rehearsal, past))
        for size in dict.fromkeys(gangs.sizes)
    ]
    return Starts(namespace=gangs.namespace, queue=gangs.queue, request=request, sizes=found)


def _start(gangs: Gangs, size: int, request: Mapping[str, str], rehearsal: Rehearsal, past: PastRuns) -> Start:
    submit = partial(_submit, gangs=gangs, size=size, request=request, now=rehearsal.now)
    return Forecast(rehearsal.after(submit), past).start([f"{gangs.namespace}/{_NAME.format(size)}"])[0]


def _submit(state: ClusterState, *, gangs: Gangs, size: int, request: Mapping[str, str], now: float) -> None:
    name, created = _NAME.format(size), timestamp(now)
    container = objects.Container(name="main", resources=objects.ResourceRequirements(requests=dict(request)))
    spec = objects.PodSpec(containers=[container], scheduler_name=min(state.scheduler_names))
    state.upsert(
        "PodGroup",
        crds.PodGroup(
            metadata=crds.Metadata(name=name, namespace=gangs.namespace, uid=name, creation_timestamp=created),
            spec=crds.PodGroupSpec(min_member=size, queue=gangs.queue, min_resources=total([(spec, size)])),
            status=crds.PodGroupStatus(phase="Pending"),
        ),
    )
    for number in range(size):
        metadata = objects.Metadata(
            name=f"{name}-{number}",
            namespace=gangs.namespace,
            uid=f"{name}-{number}",
            creation_timestamp=created,
            annotations={GROUP_ANNOTATION: name},
        )
        state.upsert("Pod", objects.Pod(metadata=metadata, spec=spec, status=objects.PodStatus(phase="Pending")))


def _card_of(state: ClusterState) -> str:
    """The most common kind of cards, empty if nodes have none."""
    amounts = state.nodes.allocatable.sum(axis=1).tolist()
    there = {name: amount for name, amount in zip(state.dimensions.names, amounts, strict=True) if is_device(name)}
    return max(sorted(there), key=lambda name: there[name], default="") if any(there.values()) else ""
