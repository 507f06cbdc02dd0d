"""The reason why a queue has no room, in the same words whichever plugin limits it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from stromboli.api.reasons import Actionable, Reason, Stage
from stromboli.api.resources import Vector
from stromboli.framework.reasons import describe
from stromboli.framework.view import View


class Limit(Enum):
    """What limits a queue: the word of the reason, what the queue lacks, and how its amounts are told."""

    Deserved = "QueueShareExceeded", "no room in {}", "deserves"
    Capability = "QueueCapabilityExceeded", "no room in {}", "may have"
    Quota = "QueueQuotaExceeded", "no quota left in {} for jobs that are never evicted", "has a quota of"


@dataclass(frozen=True, slots=True, eq=False)
class Excess:
    """A queue that would hold more than it may. Amounts have shape (dimensions,)."""

    queue: str
    held: Vector
    request: Vector
    bound: Vector
    #: where it would
    columns: list[int]

    def reason(self, view: View, limit: Limit, stage: Stage = Stage.QueueShare) -> Reason:
        """The reason, with the numbers that were compared."""
        word, lack, verb = limit.value
        detail = "; ".join(
            f"{view.dimensions[c]}: holds {describe(c, self.held[c])}, {verb} {describe(c, self.bound[c])}, "
            f"{describe(c, self.request[c])} more asked"
            for c in self.columns
        )
        names = ", ".join(view.dimensions[c] for c in self.columns)
        return Reason(stage, word, f"queue {self.queue} has {lack.format(names)}", Actionable.Wait, detail)
