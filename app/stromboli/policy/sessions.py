"""The policy's settings of sessions: how much work one may do."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class SessionSettings(BaseModel):
    """The key `session` of a policy."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True)

    steps: int = Field(default=0, ge=0, le=10**15)
    """How much work each action may do in a session, in nodes looked at, before the jobs that it has not reached wait
    for the next session; `0` sets no bound. 4,000,000 is about half a second on 1,000 nodes."""
