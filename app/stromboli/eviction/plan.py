"""Plans: what attempts to find places for a job come to, of which the cheapest is chosen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from stromboli.eviction.ordering import Cost
from stromboli.eviction.reprieve import Reprieve
from stromboli.eviction.trial import Trial
from stromboli.framework.session.session import Session
from stromboli.framework.session.statement import Statement


class Plan:
    """Evictions, and the places that pods are promised; in effect on a statement until they are set aside."""

    def __init__(self, statement: Statement, cost: Cost, of_groups: Mapping[str, int]) -> None:
        self.statement = statement
        self.cost = cost
        #: the HyperNode of each group that got places in one, by uid
        self.of_groups = of_groups
        self._operations = statement.save()

    @property
    def evicts(self) -> bool:
        """Whether there are victims."""
        return self.cost > Cost.of(())

    def set_aside(self) -> None:
        """Leave the session as it was before, so that another plan can be made."""
        self.statement.discard()

    def resume(self) -> None:
        """Have it in effect, whether it was set aside or not."""
        if not self.statement:
            self.statement.recover(self._operations)


def settle(session: Session, trial: Trial, of_groups: Mapping[str, int] = MappingProxyType({})) -> Plan:
    """The plan that a trial comes to once evictions that it can do without are given back."""
    trial.join_gangs()
    if len(trial.evicted) > 1 or any(unit.whole for unit, _ in trial.evicted):
        Reprieve(session, trial).run()
    return Plan(trial.hand_over(), Cost.of(unit for unit, _ in trial.evicted), of_groups)


def cheapest(plans: Iterable[Plan]) -> Plan | None:
    """The first of the cheapest plans, in effect; each has to be set aside before the next is made."""
    best = last = None
    for last in plans:
        if best is None or last.cost < best.cost:
            best = last
        if not last.evicts:
            break
    if last is not None and best is not None:
        if best is not last:
            last.set_aside()
        best.resume()
    return best
