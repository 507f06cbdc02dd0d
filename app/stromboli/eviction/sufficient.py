"""The victims on one node that suffice for a pod there: the least important ones, and of these the fewest.

Potential victims are taken level by level, the least important first, until they suffice, and those that are not needed
are given back, the most expensive first. Where a lower bound leaves open that fewer gangs or pods do, these are
searched, within a budget of steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby
from operator import attrgetter, sub, truediv

from stromboli.eviction.ordering import unit_cost
from stromboli.eviction.units import Unit

#: of units of one level all are considered, or none
_LEVEL = attrgetter("unit.rank", "unit.whole")
#: how many steps a search for fewer victims takes at most
_STEPS = 300


@dataclass(frozen=True, slots=True, eq=False)
class PotentialVictim:
    """A unit in a calculation: what a node gains by its eviction."""

    unit: Unit
    gain: list[float]
    #: its place in victim order among those of the node
    order: int

    @property
    def cheapness(self) -> tuple[float, ...]:
        """Smaller is evicted first."""
        return *unit_cost(self.unit), self.order


def sufficient(
    items: list[PotentialVictim], short: Sequence[float], divisors: Sequence[float]
) -> Sequence[PotentialVictim]:
    """The units that a node needs to be `short` of nothing, none if all are too few.

    More important ones are not looked at while the others suffice. `divisors` are the amounts that are wanted.
    """

    def reprieve_key(item: PotentialVictim) -> tuple[float, ...]:
        """Larger is given back first; one that releases less of the request counts as more pods."""
        unit, part = item.unit, sum(map(truediv, item.gain, divisors))
        return unit.rank, unit.whole, len(unit.pods), -part, -unit.began, item.order

    lacking, taken = list(short), list[PotentialVictim]()
    items.sort(key=_LEVEL)
    for _, alike in groupby(items, _LEVEL):
        for item in alike:
            taken.append(item)
            lacking = _without(lacking, item)
        if max(lacking) < 0:
            break
    if max(lacking) >= 0:
        return []
    for item in sorted(taken, key=reprieve_key, reverse=True):
        without = [lack + gain for lack, gain in zip(lacking, item.gain, strict=True)]
        if max(without) < 0:
            taken.remove(item)
            lacking = without
    if len(taken) > 1:
        return _fewest(items, short, taken)
    # Of all that suffice alone, and are as few and as important as the largest, the last to begin is evicted.
    least = unit_cost(taken[0].unit)[:3]
    enough = [item for item in items if max(map(sub, short, item.gain)) < 0 and unit_cost(item.unit)[:3] == least]
    return [min(enough, key=lambda item: item.cheapness, default=taken[0])]


def _fewest(
    items: Sequence[PotentialVictim], short: Sequence[float], taken: Sequence[PotentialVictim]
) -> Sequence[PotentialVictim]:
    """Fewer gangs, or as many and fewer pods, that are no more important than those taken; else these."""
    gangs, pods = sum(item.unit.whole for item in taken), len({pod.row for item in taken for pod in item.unit.pods})
    if not gangs and _too_few(pods - 1, items, short):
        return taken
    rank, steps = max(item.unit.rank for item in taken), iter(range(_STEPS))
    for broken, lacking, groups in _choices([item for item in items if item.unit.rank <= rank], short, gangs):
        lost = sum(len(item.unit.pods) for item in broken)
        most = pods - 1 - lost if len(broken) == gangs else len(items)
        if len(broken) > gangs or next(steps, None) is None:
            break
        alone = _cover(lacking, groups, most, steps) if most >= 0 else None
        if alone is not None:
            taken, gangs, pods = [*broken, *alone], len(broken), lost + len(alone)
    return taken


def _choices(
    items: Sequence[PotentialVictim], short: Sequence[float], most: int
) -> Iterator[tuple[Sequence[PotentialVictim], Sequence[float], list[list[PotentialVictim]]]]:
    """Sets of at most `most` gangs, the smaller first, what is lacking without them, and the pods beside them.

    The pods are grouped by what they release, those that release most first, and within a group the cheapest first.
    """
    whole, alone = [item for item in items if item.unit.whole], [item for item in items if not item.unit.whole]
    alone.sort(key=lambda item: ([-gain for gain in item.gain], item.cheapness))
    for count in range(most + 1):
        for broken in combinations(whole, count):
            # With a gang go the pods that it could have spared.
            jobs = {item.unit.job.key for item in broken}
            lacking = list(short)
            for item in (*broken, *(item for item in alone if item.unit.job.key in jobs)):
                lacking = _without(lacking, item)
            beside = (item for item in alone if item.unit.job.key not in jobs)
            yield broken, lacking, [list(alike) for _, alike in groupby(beside, attrgetter("gain"))]


def _cover(
    lacking: Sequence[float], groups: Sequence[Sequence[PotentialVictim]], most: int, steps: Iterator[int]
) -> list[PotentialVictim] | None:
    """The fewest pods, at most `most`, without which nothing is lacking; None if too few or out of steps."""
    if max(lacking) < 0:
        return []
    if _too_few(most, [group[0] for group in groups], lacking) or next(steps, None) is None:
        return None
    (first, *rest), best = groups, None
    for count in range(min(len(first), most), -1, -1):
        left = [lack - count * gain for lack, gain in zip(lacking, first[0].gain, strict=True)]
        found = _cover(left, rest, most - count, steps)
        if found is not None:
            best = [*first[:count], *found]
            most = len(best) - 1
    return best


def _too_few(count: int, items: Sequence[PotentialVictim], lacking: Sequence[float]) -> bool:
    """Whether `count` items certainly do not suffice, given the most that any of them releases."""
    most = zip(*(item.gain for item in items), strict=True)
    return not items or any(lack >= count * max(gains) for lack, gains in zip(lacking, most, strict=True))


def _without(lacking: Iterable[float], item: PotentialVictim) -> list[float]:
    """What is lacking once an item is evicted."""
    return [lack - gain for lack, gain in zip(lacking, item.gain, strict=True)]
