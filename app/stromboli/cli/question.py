"""Questions to a service, or to a session that is run here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a pod, a job or a queue."""

    kind: str
    namespace: str
    name: str
    #: whether changes are tried
    tries: bool = True
    #: of a pod, the nodes to tell of in any case; None without its history
    nodes: list[str] | None = None
