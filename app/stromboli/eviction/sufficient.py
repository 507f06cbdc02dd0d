"""The victims on one node that suffice for a pod there: the least important ones, and of these the fewest.

Potential victims are taken level by level, the least important first, until they suffice, and those that are not needed
are given back, the most expensive first. Where a lower bound leaves open that fewer gangs or pods do, these are
searched, within a budget of steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import groupby
from operator import attrgetter, sub, truediv

from stromboli.eviction.ordering import cheapness, unit_cost
from stromboli.eviction.units import Unit

#: of units of one level all are considered, or none
_LEVEL = attrgetter("rank", "whole")
#: upper bound on the steps of a search for fewer victims
_STEPS = 300


def sufficient(units: list[Unit], short: Sequence[float], divisors: Sequence[float]) -> Sequence[Unit]:
    """The units that a node needs to be `short` of nothing, none if all are too few.

    More important ones are not looked at while the others suffice. `divisors` are the amounts that are wanted.
    """

    def reprieve_key(unit: Unit) -> tuple[float, ...]:
        """Larger is given back first; one that releases less of the request counts as more pods."""
        part = sum(map(truediv, unit.gain, divisors))
        return unit.rank, unit.whole, len(unit.pods), -part, -unit.began, unit.order

    lacking, taken = list(short), list[Unit]()
    units.sort(key=_LEVEL)
    for _, alike in groupby(units, _LEVEL):
        for unit in alike:
            taken.append(unit)
            lacking = _without(lacking, unit)
        if max(lacking) < 0:
            break
    if max(lacking) >= 0:
        return []
    for unit in sorted(taken, key=reprieve_key, reverse=True):
        without = [lack + gain for lack, gain in zip(lacking, unit.gain, strict=True)]
        if max(without) < 0:
            taken.remove(unit)
            lacking = without
    if len(taken) > 1:
        return _fewest(units, short, taken)
    # Of all that suffice alone, and are as few and as important as the largest, the last to begin is evicted.
    least = unit_cost(taken[0])[:3]
    enough = [unit for unit in units if max(map(sub, short, unit.gain)) < 0 and unit_cost(unit)[:3] == least]
    return [min(enough, key=cheapness, default=taken[0])]


def _fewest(units: Sequence[Unit], short: Sequence[float], taken: Sequence[Unit]) -> Sequence[Unit]:
    """Fewer gangs, or as many and fewer pods, that are no more important than those taken; else these."""
    best, rank, steps = _size(taken), max(unit.rank for unit in taken), iter(range(_STEPS))
    if not best[0] and _too_few(best[1] - 1, units, short):
        return taken
    # Gangs first; then pods, those that release most first, and of those that release the same the cheapest.
    units = [unit for unit in units if unit.rank <= rank]
    units.sort(key=lambda unit: (not unit.whole, [-gain for gain in unit.gain], cheapness(unit)))

    def search(left: Sequence[Unit], lacking: Sequence[float], chosen: Sequence[Unit]) -> None:
        nonlocal best, taken
        gangs, pods = size = _size(chosen)
        if size < best and max(lacking) < 0:
            best, taken = size, chosen
        most = best[1] - 1 - pods if gangs == best[0] else len(left)
        if size >= best or _too_few(most, left, lacking) or next(steps, None) is None:
            return
        first, *rest = left
        # With a gang go the pods that it could have spared.
        gone = [unit for unit in left if unit.job is first.job] if first.whole else [first]
        take = [unit for unit in rest if unit not in gone], reduce(_without, gone, lacking), [*chosen, first]
        leave = rest if first.whole else [unit for unit in rest if unit.gain != first.gain], lacking, chosen
        for branch in (leave, take) if first.whole else (take, leave):
            search(*branch)

    search(units, short, [])
    return taken


def _size(units: Iterable[Unit]) -> tuple[int, int]:
    """Number of gangs and of pods in some units."""
    return sum(unit.whole for unit in units), len({pod.row for unit in units for pod in unit.pods})


def _too_few(count: int, units: Sequence[Unit], lacking: Sequence[float]) -> bool:
    """Whether `count` units certainly do not suffice, given the most that any of them releases."""
    most = zip(*(unit.gain for unit in units), strict=True)
    return not units or any(lack >= count * max(gains) for lack, gains in zip(lacking, most, strict=True))


def _without(lacking: Sequence[float], unit: Unit) -> list[float]:
    """Amounts still lacking once a unit is evicted."""
    return [lack - gain for lack, gain in zip(lacking, unit.gain, strict=True)]
