"""cdp: a pod that asks for it is no victim for a while after it was scheduled."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from stromboli.api import objects
from stromboli.plugins.cdp import Cdp
from tests import builders
from tests.plugins import sessions


def protected(*, after: float, phase: str = "Running", status: str = "True", **metadata: dict[str, str]) -> bool:
    """Whether a pod that was scheduled `after` seconds ago is spared."""
    scheduled = datetime.fromtimestamp(builders.NOON - after, UTC).isoformat()
    condition = objects.PodCondition("PodScheduled", status, last_transition_time=scheduled)
    victim = builders.pod("victim", "job", node="n", phase=phase, **metadata)
    victim = objects.Pod(victim.metadata, victim.spec, objects.PodStatus(phase=phase, conditions=[condition]))
    result = sessions.decide(builders.pod_group("job"), builders.node("n"), victim, by=sessions.policy("cdp"))
    (plugin,) = [p for p in result.session.plugins if isinstance(p, Cdp)]
    record = result.session.view.members(result.session.view.jobs["default/job"])[0]
    assert plugin.preemptable(record, [record]) == plugin.reclaimable(record, [record])
    return plugin.preemptable(record, [record]) == []


@pytest.mark.parametrize(("after", "expected"), [(0, True), (599, True), (601, False)])
def test_protection_ends(after: float, expected: bool) -> None:
    assert protected(after=after, annotations={"volcano.sh/cooldown-time": "10m"}) is expected
    assert protected(after=after, labels={"volcano.sh/cooldown-time": "600s"}) is expected


def test_the_label_outweighs_the_annotation() -> None:
    both = {"labels": {"volcano.sh/cooldown-time": "1s"}, "annotations": {"volcano.sh/cooldown-time": "1h"}}
    assert not protected(after=60, **both)


@pytest.mark.parametrize("text", ["", "30", "soon"])
def test_what_cannot_be_read_protects_nobody(text: str) -> None:
    assert not protected(after=0, annotations={"volcano.sh/cooldown-time": text})


def test_only_running_pods_that_were_scheduled_cool_down() -> None:
    wish = {"volcano.sh/cooldown-time": "10m"}
    assert not protected(after=0, phase="Pending", annotations=wish)
    assert not protected(after=0, status="False", annotations=wish)
