"""tdm: nodes that are there for a part of the day."""

from __future__ import annotations

from datetime import datetime

import pytest

from stromboli.api.errors import PolicyError
from tests.builders import node, pod, pod_group
from tests.plugins.sessions import bound, decide, policy

ZONE = "volcano.sh/revocable-zone"


def at(clock: str) -> float:
    return datetime.fromisoformat(f"2024-06-01T{clock}:00+00:00").timestamp()


def place(hours: str, clock: str, *nodes, **annotations: str) -> str | None:
    """The node of a pod at a time of day, while zone z is open during some hours."""
    written = {f"volcano.sh/{key.replace('_', '-')}": value for key, value in annotations.items()}
    arguments = {"tdm.revocable-zone.z": hours, "tdm.evict.period": "1m"}
    return bound(
        *nodes, pod_group("job"), pod("job-0", "job", annotations=written), by=policy("tdm", arguments), now=at(clock)
    ).get("job-0")


REVOCABLE = node("z1", labels={ZONE: "z"})


@pytest.mark.parametrize(
    ("hours", "clock", "is_open"),
    [
        ("09:00-18:00", "12:00", True),
        ("09:00-18:00", "09:00", True),
        ("09:00-18:00", "18:00", True),
        ("09:00-18:00", "18:01", False),
        ("00:00-00:00", "23:59", True),
        ("23:00-13:00", "23:30", True),
        # A zone starts today: the part of the night after midnight is not seen.
        ("23:00-13:00", "12:00", False),
    ],
)
def test_a_zone_is_open_by_the_clock(hours: str, clock: str, is_open: bool) -> None:
    assert place(hours, clock, REVOCABLE, revocable_zone="*") == ("z1" if is_open else None)


def test_only_pods_that_agree_go_there_and_they_go_there_first() -> None:
    nodes = [node("plain"), REVOCABLE]
    assert place("09:00-18:00", "12:00", *nodes) == "plain"
    assert place("09:00-18:00", "12:00", *nodes, preemptable="true") == "z1"
    assert place("09:00-18:00", "12:00", *nodes, preemptable="true", revocable_zone="z") == "plain"
    assert place("09:00-18:00", "20:00", *nodes, revocable_zone="*") == "plain"


def test_an_unknown_zone_is_closed() -> None:
    assert place("00:00-00:00", "12:00", node("n1", labels={ZONE: "other"}), revocable_zone="*") is None


def test_jobs_that_may_be_evicted_come_last() -> None:
    first, second = pod_group("first", created=1), pod_group("second", created=2)
    first.metadata.annotations["volcano.sh/preemptable"] = "true"
    pods = [pod("first-0", "first"), pod("second-0", "second")]
    assert list(bound(node("n1", cpu="1"), first, second, *pods, by=policy("tdm"))) == ["second-0"]


@pytest.mark.parametrize("hours", ["9 to 5", "25:00-26:00", "09:00", 9])
def test_hours_that_cannot_be_read_are_an_error(hours: object) -> None:
    with pytest.raises(PolicyError, match=r"should be HH:MM-HH:MM"):
        decide(by=policy("tdm", {"tdm.revocable-zone.z": hours}))
