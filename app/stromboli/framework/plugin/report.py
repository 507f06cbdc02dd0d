"""Reports of plugins when a session closes: gauges and conditions of queues, and conditions of PodGroups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from stromboli.api.crds import Condition, PodGroupCondition
from stromboli.api.reasons import Reason
from stromboli.api.resources import PODS, TOLERANCE, Mask, Vector
from stromboli.framework.cluster.job import Job, Queue


@dataclass(slots=True)
class QueueGauges:
    """The gauges exported for a queue; those that no plugin set are left out."""

    share: float | None = None
    weight: int | None = None
    overused: bool | None = None
    #: deserved, allocated, request, capacity, real_capacity, inqueue: vectors of shape (dimensions,)
    amounts: dict[str, Vector] = field(default_factory=dict)
    #: the plugin that divides, and what the queue may hold at most whatever it deserves; explained, not exported
    plugin: str = ""
    limit: Vector | None = None
    #: the most that it may hold now, where guarantees and limits on lending leave it less; explained, not exported
    bound: Callable[[], Vector] | None = None
    #: the part of its guarantee that is kept for it; explained, not exported
    kept: Vector | None = None
    #: derivation of the share: its amount after each step
    steps: Callable[[], list[tuple[str, Vector]]] | None = None

    @property
    def gets_nothing_more(self) -> bool:
        """Whether it is overused, also where no action had to ask."""
        if self.overused is not None:
            return self.overused
        held, deserved = self.amounts.get("allocated"), self.amounts.get("deserved")
        if held is None or deserved is None or not held.any():
            return False
        return bool((deserved < held + TOLERANCE).all())

    @property
    def names_extended(self) -> bool:
        """Whether any amount has more than cpu and memory."""
        return any(vector[PODS:].any() for vector in self.amounts.values())

    def export_last(self, amount: str) -> None:
        """Move an amount to the end: it was set once more."""
        self.amounts[amount] = self.amounts.pop(amount)


@dataclass(frozen=True, slots=True, eq=False)
class PoolGauges:
    """Holdings and limits of a queue with its descendants in a node pool, shape (dimensions,); explained only."""

    #: the nodes of the pool, shape (nodes,)
    nodes: Mask
    held: Vector
    #: held besides until pods that terminate are gone
    terminating: Vector
    #: claimed by admitted jobs that may use no other pool
    claimed: Vector
    deserved: Vector
    guarantee: Vector
    #: the most that it may hold now; infinite without a limit
    limit: Vector


class Report:
    """Reports of plugins, and the facts about the session that they are made from."""

    __slots__ = ("diagnose", "gauges", "pools", "queue_conditions", "tells")

    def __init__(self) -> None:
        #: whether conditions are read; if not, only those that later sessions depend on have to be reported
        self.tells = True
        #: why a job does not run, as shown everywhere else; None if no session is being explained
        self.diagnose: Callable[[Job], Reason | None] | None = None
        #: by name of the queue
        self.gauges: dict[str, QueueGauges] = {}
        #: the standing of a queue in each node pool, by name; None if no queue mentions pools
        self.pools: Callable[[Queue], dict[str, PoolGauges]] | None = None
        #: by name of the queue and type of the condition; a condition that no plugin reports is over
        self.queue_conditions: dict[str, dict[str, Condition]] = {}

    def queue(self, name: str) -> QueueGauges:
        """The gauges of a queue, to be set."""
        found = self.gauges.get(name)
        if found is None:
            found = self.gauges[name] = QueueGauges()
        return found

    def queue_condition(self, name: str, condition: Condition) -> None:
        """A condition that a queue has from now on, until a session does not report it; of each type the last counts.

        The message holds no number that changes on its own: every change of it is written.
        """
        self.queue_conditions.setdefault(name, {})[condition.type] = condition

    def condition(self, job: Job, condition: PodGroupCondition) -> None:
        """Set a condition on a PodGroup; one that says the same as the current one of its type changes nothing."""
        job.conditions = with_condition(job.conditions, condition)

    def why(self, job: Job) -> Reason | None:
        """The reason of the first stage that blocks a job, which its condition should tell."""
        return None if self.diagnose is None else self.diagnose(job)

    def unschedulable(self, job: Job, condition: PodGroupCondition) -> None:
        """A job cannot run now; the condition says why."""
        job.unschedulable = True
        self.condition(job, condition)


def with_condition(conditions: list[PodGroupCondition], condition: PodGroupCondition) -> list[PodGroupCondition]:
    """Conditions with the one of the same type replaced; the same list if nothing changes."""
    for index, old in enumerate(conditions):
        if old.type == condition.type:
            if old is condition or old.shown == condition.shown:
                return conditions
            return [*conditions[:index], condition, *conditions[index + 1 :]]
    return [*conditions, condition]
