"""The openb traces of Alibaba's clusters: nodes with cards, and pods that share them.

| column of a list of pods | becomes |
|---|---|
| `name` | the order of pods that nothing else orders |
| `cpu_milli`, `memory_mib` | requests |
| `num_gpu`, `gpu_milli` | limits `volcano.sh/vgpu-number` and, in thousandths of each card, `volcano.sh/vgpu-memory` |
| `gpu_spec` | annotation `nvidia.com/use-gputype`: the types of card that it may have |

A node's `sn`, `cpu_milli`, `memory_mib`, `gpu` and `model` are its name, its amounts, and cards with a memory of 1000,
as HAMi's device plugin registers them. All other columns are left. Lines that are no nodes or pods are named.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from stromboli.api import objects
from stromboli.devices.cards import MOST_CARDS
from stromboli.devices.vgpu import CORES, MEMORY, NUMBER, REGISTER, USE_TYPE

T = TypeVar("T")

#: units of a card in a trace
CARD = 1000
#: upper bounds on a figure, and on lines that are named; the others are counted
_MOST, _MOST_NAMED = 10**12, 100
#: maximum number of pods on a node, and of those that share a card
_PODS = 1001


@dataclass(frozen=True, slots=True)
class TraceNode:
    """A node."""

    name: str
    cpu: int
    memory: int
    cards: int
    model: str

    def manifest(self, name: str) -> objects.Node:
        """The node by a name of its own."""
        card = f"{CARD},NVIDIA-{self.model},true,hami-core:"
        register = "".join(f"{name}-{index},{_PODS},{card}" for index in range(self.cards))
        amounts: objects.ResourceList = {
            "cpu": f"{self.cpu}m",
            "memory": f"{self.memory}Mi",
            "pods": str(_PODS),
            NUMBER: str(_PODS * self.cards),
            MEMORY: str(CARD * self.cards),
            CORES: str(100 * self.cards),
        }
        return objects.Node(
            metadata=objects.Metadata(name=name, annotations={REGISTER: register}),
            status=objects.NodeStatus(allocatable=amounts, capacity=amounts),
        )


@dataclass(frozen=True, slots=True)
class TracePod:
    """A pod."""

    name: str
    cpu: int
    memory: int
    cards: int
    #: the thousandths that it gets of each card
    part: int
    #: the models that it may have, separated by commas; empty for all
    models: str

    @property
    def thousandths(self) -> int:
        """Thousandths that it gets of all its cards together."""
        return self.cards * self.part

    def spec(self) -> objects.PodSpec:
        """Pod spec with the requests and limits of its container."""
        requests: objects.ResourceList = {"cpu": f"{self.cpu}m", "memory": f"{self.memory}Mi"}
        limits: objects.ResourceList = {NUMBER: str(self.cards), MEMORY: str(self.part)} if self.cards else {}
        resources = objects.ResourceRequirements(requests=requests, limits=limits)
        return objects.PodSpec(
            scheduler_name="stromboli", containers=[objects.Container(name="main", resources=resources)]
        )

    def annotations(self) -> Mapping[str, str]:
        """The annotations that select its cards."""
        return {USE_TYPE: self.models} if self.models else {}


def read_nodes(lines: Iterable[str], source: str) -> tuple[list[TraceNode], list[str]]:
    """The nodes of a list, and its mistakes, a line each."""
    return _read(lines, source, ("sn", "cpu_milli", "memory_mib", "gpu", "model"), _node)


def read_pods(lines: Iterable[str], source: str) -> tuple[list[TracePod], list[str]]:
    """The pods of a list, and its mistakes, a line each."""
    return _read(lines, source, ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"), _pod)


def _node(row: Mapping[str, str]) -> TraceNode:
    return TraceNode(
        row["sn"],
        _figure(row, "cpu_milli"),
        _figure(row, "memory_mib"),
        _figure(row, "gpu", MOST_CARDS),
        _word(row, "model"),
    )


def _pod(row: Mapping[str, str]) -> TracePod:
    cards, part = _figure(row, "num_gpu", MOST_CARDS), _figure(row, "gpu_milli", CARD)
    if bool(cards) != bool(part):
        raise ValueError(f"gpu_milli: {part} of each of {cards} cards")
    if cards > 1 and part != CARD:
        raise ValueError(f"gpu_milli: should be {CARD} for {cards} cards, not {part}")
    models = ",".join(model for model in _word(row, "gpu_spec").split("|") if model)
    return TracePod(row["name"], _figure(row, "cpu_milli"), _figure(row, "memory_mib"), cards, part, models)


def _read(
    lines: Iterable[str], source: str, columns: tuple[str, ...], make: Callable[[Mapping[str, str]], T]
) -> tuple[list[T], list[str]]:
    reader = csv.DictReader(lines)
    found: list[T] = []
    problems: list[str] = []
    try:
        missing = [column for column in columns if column not in (reader.fieldnames or ())]
        if missing:
            return [], [f"{source}: line 1: should have the column {missing[0]}"]
        for row in reader:
            try:
                found.append(make(row))
            except ValueError as error:
                problems.append(f"{source}: line {reader.line_num}: {error}")
    except (csv.Error, UnicodeDecodeError) as error:
        problems.append(f"{source}: line {reader.line_num + 1}: {error}")
    more = len(problems) - _MOST_NAMED
    return found, [*problems[:_MOST_NAMED], *([f"{source}: {more:,} more lines cannot be read"] if more > 0 else [])]


def _figure(row: Mapping[str, str | None], column: str, most: int = _MOST) -> int:
    written = row.get(column) or ""
    if not (written.isascii() and written.isdecimal() and len(written) < 16 and int(written) <= most):
        raise ValueError(f"{column}: should be a number from 0 to {most}, not {written[:40]!r}")
    return int(written)


def _word(row: Mapping[str, str | None], column: str) -> str:
    """A text that may stand in an annotation."""
    written = row.get(column) or ""
    if any(character in ",:;" or not character.isprintable() for character in written):
        raise ValueError(f"{column}: {written[:40]!r} has a character that separates")
    return written
