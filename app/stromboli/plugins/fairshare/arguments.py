"""Arguments of fairshare in a policy."""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from stromboli.api.duration import Duration
from stromboli.framework.plugin.base import Arguments
from stromboli.plugins.fairshare.usage import Memory

Seconds = Annotated[Duration, Field(gt=0)]


class FairShareArguments(Arguments):
    """Arguments of fairshare."""

    resources: str = "nvidia.com/gpu"
    """Resources that are divided besides cpu and memory, separated by commas; of all others only limits count."""
    k_value: float = Field(default=1.0, alias="kValue")
    """Factor by which past usage counts against a queue's weight; 0 or less turns it off."""
    saturation_multiplier: float = Field(default=1.0, alias="reclaimerSaturationMultiplier")
    """Factor by which a victim's queue must stay more saturated than the reclaimer, where the reclaimer goes above its
    fair share. Less than 1 counts as 1."""
    non_preemptible_priority: int = Field(default=100, alias="nonPreemptiblePriority")
    """Jobs of this priority or more are never evicted and stay within the quota, unless `volcano.sh/preemptable` on
    the PodGroup says otherwise."""

    usage_window: Seconds | None = Field(default=None, alias="usage.window")
    """Time for which past usage counts against a queue, such as `168h`. Without window, half-life and reset nothing
    counts; with other ones it begins anew."""
    usage_half_life: Seconds | None = Field(default=None, alias="usage.halfLife")
    """After which time it counts half."""
    usage_reset: Seconds | None = Field(default=None, alias="usage.reset")
    """It is forgotten at the multiples of this time since 1970 (UTC): `24h` is each midnight."""

    usage_source: Literal["sessions", "prometheus"] = Field(default="sessions", alias="usage.source")
    """Source of past usage: the sessions themselves, or the Prometheus that `metrics` of the policy names, which knows
    only a window."""

    @model_validator(mode="after")
    def _prometheus_has_a_window(self) -> Self:
        if self.usage_source == "prometheus" and not (
            self.usage_window and self.usage_half_life is None and self.usage_reset is None
        ):
            raise ValueError("usage.source: prometheus needs usage.window, and neither usage.halfLife nor usage.reset")
        return self

    @property
    def memory(self) -> Memory | None:
        """Memory of past usage in sessions; None when they keep none."""
        given = (self.usage_half_life, self.usage_window, self.usage_reset)
        if self.usage_source == "prometheus" or not any(given):
            return None
        return Memory(*(math.inf if seconds is None else seconds for seconds in given))

    @property
    def divided(self) -> list[str]:
        """The resources that are divided."""
        named = [name for part in self.resources.split(",") if (name := part.strip())]
        return list(dict.fromkeys(["cpu", "memory", *named]))
