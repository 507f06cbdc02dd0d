"""Pods that name a gang and another scheduler: they count for the gang only if that scheduler is served."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from msgspec.structs import replace

from stromboli.api.validation import did_you_mean
from stromboli.api.words import by_number, counted
from stromboli.explain.answers import Answer


def served_here(schedulers: Collection[str]) -> str:
    """Names of the served schedulers, in words."""
    return f"{', '.join(sorted(schedulers))} {by_number(len(schedulers), 'is', 'are')} served here"


def elsewhere(schedulers: Iterable[str], served: Collection[str]) -> str:
    """Number of a gang's pods that wait for other schedulers, given the scheduler of each pod; empty for none."""
    return "; ".join(
        f"{counted(number, 'pod')} of it {by_number(number, 'waits', 'wait')} for another scheduler: "
        f"spec.schedulerName is {name}; {served_here(served)}{did_you_mean(name, served)}"
        for name, number in sorted(Counter(schedulers).items())
    )


def with_later(said: Answer, later: str) -> Answer:
    """An answer about a waiting pod, with the pods of its workload that come before it."""
    return replace(said, detail="; ".join(filter(None, (later, said.detail)))) if said.reason else said


def with_absent(said: Answer, absent: str) -> Answer:
    """An answer about a gang that lacks pods, or a pod without a PodGroup, with why these are not there."""
    if said.reason not in ("NotEnoughPods", "NotEnoughPodsOfTask", "NoPodGroup") or not absent:
        return said
    said = replace(said, detail="; ".join(filter(None, (absent, said.detail))))
    # The service makes the PodGroup, once it can.
    return replace(said, remedies=[], tried=False) if said.reason == "NoPodGroup" else said
