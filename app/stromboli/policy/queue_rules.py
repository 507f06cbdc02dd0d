"""The policy's rules by which workloads get their queue, whatever they or their namespaces say."""

from __future__ import annotations

import re
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, StrictStr, field_validator

#: placeholders for known facts about the workload
PLACEHOLDER: Final = re.compile(r"\{(provided|namespace|user|label:[^{}]+)\}")
_IN_NAMES: Final = re.compile(r"[-a-z0-9.]*")


class QueueRule(BaseModel):
    """An entry of the key `queueRules` of a policy: the first that is for a workload says its queue."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, populate_by_name=True, use_attribute_docstrings=True
    )

    queue: StrictStr
    """Name of the queue. In it `{provided}` stands for the queue that workload or namespace name, `{namespace}`
    for the namespace, `{user}` for the user who made the workload, and `{label:KEY}` for a label or annotation of the
    workload, else of its namespace. A rule with an unknown part applies to no workload."""
    namespaces: list[str] = Field(default_factory=list)
    """Only workloads of these namespaces; patterns such as `team-*`, as in `users` and `groups`."""
    users: list[str] = Field(default_factory=list)
    """Only workloads that one of these users made."""
    groups: list[str] = Field(default_factory=list)
    """Only workloads that a user in one of these groups made."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Only workloads with all these labels or annotations, of their own or else of their namespace."""
    create: bool = False
    """Whether the queue is made if there is none of the name; otherwise the workload waits for it."""
    parent: str = ""
    """The queue above one that is made; root when absent."""

    @field_validator("queue")
    @classmethod
    def _placeholders(cls, queue: str) -> str:
        rest = PLACEHOLDER.sub("", queue)
        if not queue or "{" in rest or "}" in rest:
            raise ValueError("should be a name in which {provided}, {namespace}, {user} and {label:KEY} may stand")
        if not _IN_NAMES.fullmatch(rest):
            raise ValueError(f"no queue is named {queue!r}: names have lower-case letters, digits, '-' and '.' only")
        return queue
