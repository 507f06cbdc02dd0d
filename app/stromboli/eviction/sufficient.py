"""The victims on one node that suffice for a pod there: the least important ones, and of these the fewest.

Potential victims are taken level by level, the least important first, until they suffice, and those that are not needed
are given back, the most expensive first. Where a lower bound leaves open that fewer gangs or pods do, these are
searched, within a budget of steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, groupby
from operator import attrgetter, sub, truediv

from stromboli.eviction.ordering import cheapness, unit_cost
from stromboli.eviction.units import Unit

#: of units of one level all are considered, or none
_LEVEL = attrgetter("rank", "whole")
#: how many steps a search for fewer victims takes at most
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
    gangs, pods = sum(unit.whole for unit in taken), len({pod.row for unit in taken for pod in unit.pods})
    if not gangs and _too_few(pods - 1, units, short):
        return taken
    rank, steps = max(unit.rank for unit in taken), iter(range(_STEPS))
    for broken, lacking, groups in _choices([unit for unit in units if unit.rank <= rank], short, gangs):
        lost = sum(len(unit.pods) for unit in broken)
        most = pods - 1 - lost if len(broken) == gangs else len(units)
        if len(broken) > gangs or next(steps, None) is None:
            break
        alone = _cover(lacking, groups, most, steps) if most >= 0 else None
        if alone is not None:
            taken, gangs, pods = [*broken, *alone], len(broken), lost + len(alone)
    return taken


def _choices(
    units: Sequence[Unit], short: Sequence[float], most: int
) -> Iterator[tuple[Sequence[Unit], Sequence[float], list[list[Unit]]]]:
    """Sets of at most `most` gangs, the smaller first, what is lacking without them, and the pods beside them.

    The pods are grouped by what they release, those that release most first, and within a group the cheapest first.
    """
    whole, alone = [unit for unit in units if unit.whole], [unit for unit in units if not unit.whole]
    alone.sort(key=lambda unit: ([-gain for gain in unit.gain], cheapness(unit)))
    for count in range(most + 1):
        for broken in combinations(whole, count):
            # With a gang go the pods that it could have spared.
            jobs = {unit.job.key for unit in broken}
            lacking = list(short)
            for unit in (*broken, *(unit for unit in alone if unit.job.key in jobs)):
                lacking = _without(lacking, unit)
            beside = (unit for unit in alone if unit.job.key not in jobs)
            yield broken, lacking, [list(alike) for _, alike in groupby(beside, attrgetter("gain"))]


def _cover(
    lacking: Sequence[float], groups: Sequence[Sequence[Unit]], most: int, steps: Iterator[int]
) -> list[Unit] | None:
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


def _too_few(count: int, units: Sequence[Unit], lacking: Sequence[float]) -> bool:
    """Whether `count` units certainly do not suffice, given the most that any of them releases."""
    most = zip(*(unit.gain for unit in units), strict=True)
    return not units or any(lack >= count * max(gains) for lack, gains in zip(lacking, most, strict=True))


def _without(lacking: Iterable[float], unit: Unit) -> list[float]:
    """What is lacking once an unit is evicted."""
    return [lack - gain for lack, gain in zip(lacking, unit.gain, strict=True)]
