"""Plugins that a policy has in a tier where their answers have no effect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stromboli.framework.plugin.base import DECLARED, Plugin
from stromboli.framework.plugin.combination import Combination
from stromboli.policy.rules import Rules


def muted(tiers: Sequence[Sequence[type[Plugin]]], rules: Rules) -> Iterator[str]:
    """A line for each plugin whose permits are not heard where others reject, since those decide before it."""
    where = "in the same tier or in one before" if rules.overdue else "in a tier before"
    for number, tier in enumerate(tiers):
        before = [other for above in tiers[:number] for other in above]
        if not rules.overdue:
            before += tier
        for at, plugin in enumerate(tier):
            votes = [point for point in plugin.taking_part if DECLARED[point].combination is Combination.Vote]
            for point in sorted(votes) if plugin.insists else ():
                louder = [other.name for other in before if point in other.taking_part and not other.insists]
                if louder:
                    yield (
                        f"tiers[{number}].plugins[{at}]: what {plugin.name} permits at {point} is not heard where "
                        f"{' or '.join(louder)} rejects: {plugin.name} has to be {where}"
                    )
