"""The policy's settings of sessions: limits on their work."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class SessionSettings(BaseModel):
    """The key `session` of a policy."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True)

    steps: int = Field(default=500_000, ge=0, le=10**15)
    """Work per action and session, in nodes that are examined, after which remaining jobs wait for the next session;
    `0` means unlimited. The default is about 0.015 s of a processor, or 30 jobs that each look for nodes that
    other jobs do not look for and finds none of 1,000."""
    search: int = Field(default=500_000, ge=0, le=10**12)
    """Work per gang that finds no places in the order of its pods, in nodes and rules that are looked at, for a search
    of all ways to place it, and a fifth of that where the places would only be a reason; `0` means none. The default is
    about a second. A search ends with the turn of its gang, too."""
