"""Amounts of pods that are probably not intended: a missing or wrong unit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stromboli.api.objects import Container, PodSpec
from stromboli.api.resources import ResourceAmounts, amount, amounts, told
from stromboli.api.words import by_number
from stromboli.framework.session.session import Session
from stromboli.state.pods import PodRecord

#: cpu, in thousandths, from which on a number without m is hardly meant as it is
THOUSANDTHS = 50_000
GIVE_UNIT = "give it a unit, such as Mi or Gi"
_BYTES = ("memory", "ephemeral-storage")


def too_few_bytes(listed: ResourceAmounts | None) -> Iterator[str]:
    """Amounts that are so small that a unit was forgotten, or m was written for M, in words."""
    for name, value in amounts(listed).items():
        if name in _BYTES and 0 < value < amount(name, 2**20):
            given = told(name, value)
            yield f"{given}{by_number(value, ' byte', ' bytes') if given[-1].isdecimal() else ''} of {name}"


def doubtful(spec: PodSpec, largest: int) -> Iterator[tuple[str, str]]:
    """Requests and limits of a pod that are probably mistakes, with advice; `largest` is the cpu of the largest
    node.
    """
    yield from _of_bytes(spec)
    for container in _containers(spec):
        requests, limits = (amounts(each) for each in _asked(container))
        cpu = requests.get("cpu", 0)
        if cpu > largest >= cpu / 1000 and cpu >= THOUSANDTHS:
            problem = f"container {container.name} requests {told('cpu', cpu)} cpu, the largest node has"
            yield f"{problem} {told('cpu', largest)}", f"write {cpu // 1000}m if thousandths are meant"
        for name, value in requests.items():
            if ("/" in name or name.startswith("hugepages-")) and limits.get(name) != value:
                has = "another limit" if name in limits else "no limit"
                problem = f"container {container.name} requests {name} and has {has} of it"
                yield problem, "set the limit to what is requested: the API server refuses other pods"


def _of_bytes(spec: PodSpec) -> Iterator[tuple[str, str]]:
    for container in _containers(spec):
        for given in _asked(container):
            yield from ((f"container {container.name} is given {few}", GIVE_UNIT) for few in too_few_bytes(given))


def _containers(spec: PodSpec) -> tuple[Container, ...]:
    return (*(spec.init_containers or ()), *(spec.containers or ()))


def _asked(container: Container) -> tuple[ResourceAmounts | None, ResourceAmounts | None]:
    """The requests and limits of a container."""
    resources = container.resources
    return (resources.requests, resources.limits) if resources is not None else (None, None)


def largest_cpu(session: Session) -> int:
    """The cpu of the largest node, in thousandths."""
    records = session.view.nodes.facts.records
    return max((amounts(record.allocatable).get("cpu", 0) for record in records), default=0)


def too_small(pods: Iterable[PodRecord]) -> str:
    """Resources that some pods get too little of to run, in one text; equal cases are mentioned once."""
    specs = {pod.pod_class.id: pod.pod_class.spec for pod in pods}
    found = dict.fromkeys(each for spec in specs.values() for each in _of_bytes(spec))
    return "; ".join(f"{problem}: {advice}" for problem, advice in found)
