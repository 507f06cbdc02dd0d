"""Evictions on statements, a statement for each unit: taking them back, and giving back those that are not needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stromboli.framework.job import Job
from stromboli.framework.operation import Operation
from stromboli.framework.statement import Statement


def give_back(units: Iterable[Statement], still_fits: Callable[[], bool]) -> list[tuple[Statement, list[Operation]]]:
    """Undo, in the order given, each unit without which the preemptor still fits.

    Returns the units that were undone, which are empty now, with what to recover to have them evicted after all.
    """
    given = []
    for unit in units:
        operations = unit.save()
        unit.discard()
        if still_fits():
            given.append((unit, operations))
        else:
            unit.recover(operations)
    return given


def join(unit: Statement, gang: Job, units: Iterable[Statement]) -> None:
    """Move what a gang gave before into the unit in which the rest of it is evicted: it is given back whole or not."""
    unit.merge(*[other for other in units if other is not unit and other and other.operations[0].job is gang])


def take_back(units: Iterable[Statement]) -> None:
    """Undo everything that was tried."""
    for unit in units:
        unit.discard()
