"""Pods that name a gang and another scheduler: they count for the gang only where their scheduler is served."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from msgspec.structs import replace

from stromboli.api.validation import did_you_mean
from stromboli.api.words import counted
from stromboli.explain.answers import Answer


def elsewhere(schedulers: Iterable[str], served: Collection[str]) -> str:
    """How many pods of a gang wait for which schedulers, one name for each pod; empty for none."""
    names = ", ".join(sorted(served))
    return "; ".join(
        f"{counted(number, 'pod')} of it {'wait' if number > 1 else 'waits'} for another scheduler: "
        f"spec.schedulerName is {name}; {names} is served here{did_you_mean(name, served)}"
        for name, number in sorted(Counter(schedulers).items())
    )


def with_foreign(said: Answer, foreign: str) -> Answer:
    """An answer about a gang that lacks pods, with those that wait for other schedulers."""
    if said.reason != "NotEnoughPods" or not foreign:
        return said
    return replace(said, detail="; ".join(filter(None, (said.detail, foreign))))
