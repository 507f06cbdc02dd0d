"""The policy's settings of evictions: limits on repeated evictions, and how long freed resources are reserved."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from stromboli.api import duration

#: seconds
_LONGEST = 30 * 86_400.0


class EvictionSettings(BaseModel):
    """The key `evictions` of a policy."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, populate_by_name=True, use_attribute_docstrings=True
    )

    most: int = Field(default=5, ge=1, le=1_000, alias="maxRepeats")
    """Number of times that a job placed again may be evicted for the same queue within `window`."""
    window: float = Field(default=600.0, gt=0, le=_LONGEST)
    """The period over which evictions are counted, a duration such as `10m`."""
    keep: float = Field(default=300.0, ge=0, le=_LONGEST, alias="keepRoom")
    """Time for which freed resources are reserved for the preemptor, a duration; `0s` disables the reservation."""

    @field_validator("window", "keep", mode="before")
    @classmethod
    def _seconds(cls, value: Any) -> Any:
        return duration.parse(value) if isinstance(value, str) else value
