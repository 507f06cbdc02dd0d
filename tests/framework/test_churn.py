"""What counts as a circle of evictions."""

from __future__ import annotations

from stromboli.api import objects
from stromboli.api.decisions import Evict
from stromboli.engine import Engine, Successive
from stromboli.framework.cluster.churn import Churn, History
from stromboli.framework.cluster.environment import Environment
from stromboli.framework.cluster.reservation import Reservation
from stromboli.policy.evictions import EvictionSettings
from tests import builders

TEXT = builders.policy("priority gang conformance", "predicates", actions="enqueue, allocate, preempt")


def test_evictions_that_are_refused_are_tried_again() -> None:
    """A disruption budget may keep the victims for long; when it lets them go at last, nothing is paused."""
    cluster = builders.state(
        builders.node("n", cpu="4"),
        builders.queue("default"),
        objects.PriorityClass(metadata=objects.Metadata(name="high"), value=100),
        builders.pod_group("low", 1),
        builders.gang("low", 4, node="n"),
        builders.pod_group("urgent", 2, priorityClassName="high"),
        builders.gang("urgent", 2, priority=100),
    )
    sessions = Successive(Engine(TEXT), Environment())
    for minute in range(8):
        decisions = sessions.decide(cluster.snapshot(), now=builders.NOON + 60 * minute).decisions
        assert len([each for each in decisions if isinstance(each, Evict)]) == 2, f"in minute {minute}"


def test_what_was_remembered_by_a_clock_that_was_ahead_holds_nobody_up() -> None:
    """Clocks are set back by a year when they were wrong, and by moments all the time."""
    settings = EvictionSettings()
    times = tuple(float(number) for number in range(settings.most))
    for ahead, paused in ((0, True), (30, True), (86_400 * 365, False)):
        history = History(tuple(builders.NOON + ahead + time for time in times), 0, frozenset())
        churn = Churn({("default/low", "q"): history})
        assert bool(churn.paused(settings, builders.NOON)) is paused
        assert bool(churn.after([], settings, builders.NOON).histories) is paused
        reservation = Reservation("uid", (), since=builders.NOON + ahead, until=builders.NOON + ahead + 120)
        assert reservation.stands(builders.NOON) is paused
