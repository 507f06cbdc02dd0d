"""Conflicts of a gang: the smallest sets of constraints whose removal would allow it to be placed."""

from __future__ import annotations

from functools import reduce
from itertools import combinations
from math import isfinite
from operator import or_

from stromboli.api.resources import TOLERANCE, told
from stromboli.api.words import by_number, counted
from stromboli.placement.exact.problem import Problem, bits
from stromboli.placement.exact.search import search

#: constraints that are left out together at most, and sets of them that are named
_MOST_TOGETHER, _MOST_SETS = 2, 3


def conflicts(problem: Problem, budget: int) -> tuple[list[tuple[str, ...]], int]:
    """The smallest sets of constraints whose removal makes places possible, and the steps that finding them took.

    Empty if the budget does not suffice, or if more constraints would have to be removed at once.
    """
    names, steps, found = problem.names(), 0, list[tuple[str, ...]]()
    share = max(1, budget // max(1, len(names)))
    for size in range(1, _MOST_TOGETHER + 1):
        for left_out in combinations(names, size):
            if steps >= budget or len(found) == _MOST_SETS:
                return found, steps
            without = search(problem.relaxed(frozenset(left_out)), min(share, budget - steps))
            steps += without.steps
            if without.places is not None:
                found.append(left_out)
        if found:
            break
    return found, steps


def numbered(problem: Problem, name: str) -> str:
    """The numbers that clash in a constraint, where two numbers say it: `host port 80/TCP: 4 pods, 3 nodes`."""
    opened = problem.opened()
    for rule in problem.apart:
        if rule.words == name and any(rule.conflicts):
            kinds = [at for at, excluded in enumerate(rule.conflicts) if excluded]
            pods = sum(problem.kinds[at].count for at in kinds)
            usable = sum(1 for members in rule.domains.members.values() if any(opened[at] & members for at in kinds))
            where = counted(usable, "node" if rule.domains.whole else "domain")
            return f"{name}: {counted(pods, 'pod')}, {where} that could take one each"
    for within in problem.within:
        if within.words == name:
            pods = sum(problem.kinds[at].count for at in bits(within.kinds))
            return f"{name}: {counted(pods, 'pod')} in one HyperNode"
    for quota in problem.quotas:
        if quota.words == name and quota.told:
            pods = sum(kind.count for kind, takes in zip(problem.kinds, quota.takes, strict=True) if takes > 0)
            return f"{name}: {counted(pods, 'pod')}, {quota.told}"
    columns = [at for at, each in enumerate(problem.dimensions) if each == name]
    if columns:
        return _amount(problem, max(columns, key=lambda at: sum(kind.request[at] > 0 for kind in problem.kinds)))
    return ""


def _amount(problem: Problem, at: int) -> str:
    """`cpu: 4 pods request 3 each, and nodes that take one have room for 3`; how many they are where they are
    unlike, or some node has no limit."""
    name, asking = problem.dimensions[at], [kind for kind in problem.kinds if kind.request[at] > 0]
    pods, requests = sum(kind.count for kind in asking), {kind.request[at] for kind in asking}
    free = [problem.free[node][at] for node in bits(reduce(or_, (kind.nodes for kind in asking), 0))]
    asked = f"{counted(pods, 'pod')} {by_number(pods, 'requests', 'request')}"
    if len(requests) > 1 or not all(map(isfinite, free)):
        return f"{name}: {asked} it"
    (each,) = requests
    room = sum(int((amount + TOLERANCE) // each) for amount in free)
    by_each = " each" if pods > 1 else ""
    return f"{name}: {asked} {told(name, each)}{by_each}, and nodes that take one have room for {room}"
