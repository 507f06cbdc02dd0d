"""The lines by which guides to Volcano search a log."""

from __future__ import annotations

import io
import logging
from contextlib import redirect_stderr

import pytest

from stromboli.api import objects
from stromboli.explain.log_lines import log_lines
from stromboli.live.process.logs import LogFormat, Logger, configure
from tests.builders import decide, gang, node, pod, pod_group, queue, state

POLICY = """
actions: "enqueue, allocate, preempt"
compatibility: volcano
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: predicates}]
"""
SHARED = POLICY.replace("[{name: predicates}]", "[{name: predicates}, {name: proportion}]")


def told() -> list[tuple[str, dict[str, object]]]:
    """Queues a, b and c of 100 cpus, of which c wants less than its part; b holds all."""
    cluster = state(
        node("n", cpu="100", memory="1000Gi", pods="1000"),
        *(queue("a", 2, capability={"cpu": "50"}), queue("b", 3), queue("c", 5), queue("old", state="Closed")),
        *(each for name, number in (("a", 80), ("b", 60), ("c", 30)) for each in jobs(name, number)),
        *(pod_group("low", 0, queue="b", phase="Running"), pod("low-0", "low", cpu="100", node="n")),
    )
    return list(log_lines(decide(cluster, SHARED).session))


def jobs(name: str, cpus: int) -> list[object]:
    return [pod_group(f"of-{name}", 1, queue=name), *gang(f"of-{name}", cpus, memory="")]


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        ("Total resource", {"amounts": "100 cpu, 1000Gi memory"}),
        ("Considering queue", {"queue": "c", "weight": 5}),
        ("Format queue", {"queue": "c"}),
        ("queue is meet", {"queue": "c"}),
        ("Remaining resource", {}),
        ("queue is not in open state", {"queue": "old", "state": "Closed"}),
    ],
)
def test_the_words_that_guides_search_are_there(event: str, fields: dict[str, object]) -> None:
    assert any(event == said and fields.items() <= of.items() for said, of in told())


def test_a_queue_that_holds_all_it_deserves_is_told_with_both() -> None:
    cluster = state(
        *(node("n", cpu="4"), queue("q"), queue("r")),
        *(pod_group("runs", 1, queue="q", phase="Running"), pod("runs-0", "runs", cpu="4", node="n")),
        *(pod_group("more", 1, queue="r"), pod("more-0", "more", cpu="4")),
    )
    lines = [of for said, of in log_lines(decide(cluster, SHARED).session) if said == "queue is overused"]
    assert [(of["queue"], of["allocated"]) for of in lines] == [("q", "4 cpu, 1Gi memory")]
    assert str(lines[0]["deserved"]).startswith("2 cpu")


def test_victims_are_told_with_their_action_and_for_whom_they_go() -> None:
    cluster = state(
        *(node("n", cpu="4"), queue("q"), objects.PriorityClass(metadata=objects.Metadata(name="high"), value=100)),
        *(pod_group("low", 0, queue="q", phase="Running"), pod("low-0", "low", cpu="4", node="n")),
        *(pod_group("urgent", 1, queue="q", priorityClassName="high"), pod("urgent-0", "urgent", cpu="4")),
    )
    victims = ("Victims", {"action": "preempt", "job": "default/urgent", "pods": "default/low-0"})
    assert victims in log_lines(decide(cluster, POLICY).session)


def test_each_round_of_the_division_is_told() -> None:
    steps = [of for said, of in told() if said == "Format queue" and of["queue"] == "c"]
    assert len(steps) > 1
    assert str(steps[-1]["deserved"]).startswith("30 cpu")


def test_lines_have_the_same_keys_in_text() -> None:
    logger = logging.getLogger()
    before, level, out = logger.handlers[:], logger.level, io.StringIO()
    try:
        logger.handlers.clear()
        with redirect_stderr(out):
            configure("debug", LogFormat.text)
        log = Logger(__name__)
        assert log.tells_all
        for event, fields in told():
            log.debug(event, **fields, session=7)
    finally:
        logger.handlers[:] = before
        logger.setLevel(level)
    assert 'Format queue queue=c deserved="30 cpu' in out.getvalue()
    assert "session=7" in out.getvalue()
