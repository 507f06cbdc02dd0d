"""Figures: what is drawn where, and how amounts are written."""

from __future__ import annotations

import pytest

from stromboli.explain.overview import Moment, Nodes, QueueRow, SessionRow, Shares
from stromboli.explain.words import amount
from stromboli.ui import figures, words


def row(name: str, parent: str, held: float, **amounts: float) -> QueueRow:
    told = {
        key: {"cpu": amounts[key]} if key in amounts else {} for key in ("requested", "deserved", "guarantee", "limit")
    }
    facts = {"depth": 0, "state": "Open", "weight": 1, "share": None, "overused": False, "jobs": {}, "waiting": 0}
    return QueueRow(name=name, parent=parent, held={"cpu": held}, **told, **facts)  # type: ignore[arg-type]


def test_siblings_have_one_scale_that_ends_with_the_largest_of_them() -> None:
    rows = [
        row("lab", "root", 900),
        row("a", "lab", 20, deserved=50, limit=5_000),
        row("b", "lab", 25, requested=9_000),
    ]
    lab, a, b = figures.bars(rows, "cpu", {"cpu": 1_000})
    assert (lab.held, a.held, b.held) == pytest.approx((99, 2, 2.5), rel=0.02)
    assert (a.deserved, a.limit, b.deserved) == (pytest.approx(4.95, rel=0.01), None, None)
    assert b.requested == 100
    assert a.words == "queue a holds 20, deserves 50, may have 5,000"


@pytest.mark.parametrize(("limit", "held", "drawn"), [(8, 40, 79), (80, 79, None), (1_000, 79, None)])
def test_a_limit_far_beyond_all_other_amounts_leaves_the_scale_to_these(
    limit: float, held: float, drawn: float | None
) -> None:
    (queue,) = figures.bars([row("a", "root", 4, requested=5, limit=limit)], "cpu", {"cpu": 1_000})
    assert queue.held == pytest.approx(held if drawn is None else 100 * 4 / 8.08, rel=0.02)
    assert queue.limit == (None if drawn is None else pytest.approx(99, rel=0.02))
    (idle,) = figures.bars([row("a", "root", 0, limit=limit)], "cpu", {"cpu": 1_000})
    assert idle.limit == pytest.approx(99, rel=0.02)


def test_a_map_shows_each_node_once_and_how_full_it_is() -> None:
    nodes = Nodes(
        total=4,
        offset=0,
        resource="cpu",
        resources=["cpu"],
        names=["empty", "some", "full", "none"],
        allocatable=[8, 8, 8, 0],
        used=[0, 1, 8, 0],
        pods=[0, 1, 2, 0],
        of_job=[0, 1, 0, 0],
        cordoned=[2],
    )
    squares = figures.node_map(nodes).squares
    assert [square.step for square in squares] == [0, 1, 4, 0]
    assert squares[1].title == "some: 1 of 8 cpu, 1 pod, 1 of this job"
    assert squares[2].title.endswith("cordoned")
    assert len({(square.x, square.y) for square in squares}) == 4


def test_lines_are_steps_and_have_gaps_where_nothing_was_known() -> None:
    shares = Shares(
        resource="cpu",
        resources=["cpu"],
        since=60,
        until=360,
        at=[0, 100, 200, 350],
        held={"a": [1, 2, None, 4]},
        deserved={"a": [None] * 4},
        requested={"a": [4] * 4},
        parent="root",
        queues=1,
        inner=[],
    )
    chart = figures.chart(shares)
    (line,) = chart.lines
    assert line.held.count("M") == 2
    assert (line.deserved, line.requested, line.now) == ("", "", (4, None, 4))
    assert [mark.text for mark in chart.marks] == ["0", "1", "2", "3", "4"]
    # What was so before is so from the edge on, and what is so last is so until the end.
    assert line.held.startswith(f"M{chart.left}.0 ")
    assert line.held.endswith(f"H{chart.width - 12}.0")
    assert (chart.unit, [time.text for time in chart.times]) == (
        "cores",
        ["00:01", "00:02", "00:03", "00:04", "00:05", "00:06"],
    )


@pytest.mark.parametrize(
    ("span", "times"),
    [
        (1_800, ["12:00", "12:05", "12:10", "12:15", "12:20", "12:25", "12:30"]),
        (21_600, ["12:00", "13:00", "14:00", "15:00", "16:00", "17:00", "18:00"]),
        (864_000, ["01-03", "01-05", "01-07", "01-09", "01-11"]),
        (86_400, ["12:00", "16:00", "20:00", "00:00", "04:00", "08:00", "12:00"]),
    ],
)
def test_an_axis_has_round_times(span: int, times: list[str]) -> None:
    noon = 43_200.0
    told = {"held": {"a": [1.0]}, "deserved": {"a": [1.0]}, "requested": {"a": [1.0]}}
    frame = {"resource": "memory", "resources": [], "parent": "root", "queues": 1, "inner": []}
    chart = figures.chart(Shares(since=noon, until=noon + span, at=[noon], **told, **frame))  # type: ignore[arg-type]
    assert ([time.text for time in chart.times], chart.unit) == (times, "bytes")


def moments(*said: tuple[float, str]) -> list[Moment]:
    return [Moment(at=at, namespace="default", name="job", what=what) for at, what in said]


@pytest.mark.parametrize(
    ("story", "does"),
    [
        ([(0, "submitted")], [("waits to be admitted", 100)]),
        ([(0, "submitted"), (10, "waits"), (20, "goes on")], [("waits to be admitted", 100)]),
        (
            [(0, "submitted"), (10, "admitted"), (20, "waits"), (60, "bound"), (70, "runs")],
            [("waits to be admitted", 10), ("waits for places", 50), ("starts", 10), ("runs", 30)],
        ),
        ([(0, "submitted"), (50, "stopped"), (50, "waits")], [("lacks pods", 0), ("waits for places", 50)]),
        ([(0, "submitted"), (50, "runs"), (75, "completed")], [("waits to be admitted", 50), ("runs", 25)]),
    ],
)
def test_a_story_is_what_a_job_did_for_how_long(story: list[tuple[float, str]], does: list[tuple[str, float]]) -> None:
    assert [(each.name, each.seconds) for each in figures.story(moments(*story), 100)] == does


@pytest.mark.parametrize(
    ("sort", "order"), [("", "bac"), ("name", "abc"), ("held", "cab"), ("free", "bac"), ("pods", "abc")]
)
def test_nodes_are_sorted(sort: str, order: str) -> None:
    told = {"resource": "cpu", "resources": ["cpu"], "total": 3, "offset": 0}
    nodes = Nodes(names=["b", "a", "c"], allocatable=[8, 8, 8], used=[0, 2, 8], pods=[0, 2, 0], **told)  # type: ignore[arg-type]
    assert "".join(nodes.names[at] for at in figures.in_order(nodes, sort)) == order


def test_parts_of_a_session_add_up_to_it() -> None:
    rows = [SessionRow(at=0, seconds=0.8, snapshot=0.2, actions={"allocate": 0.5}), SessionRow(at=1, seconds=0.5)]
    parts, slices = figures.slices(rows)
    assert parts == ["snapshot", "allocate", "plugins and the rest"]
    assert [each.width for each in slices[0]] == pytest.approx([20, 50, 30])
    assert sum(each.width for each in slices[1]) == pytest.approx(50)


@pytest.mark.parametrize(
    ("value", "resource", "text"),
    [
        (0, "cpu", "0"),
        (0.25, "cpu", "0.25"),
        (26.4, "cpu", "26.4"),
        (40 / 3, "cpu", "13.333"),
        (1_000, "cpu", "1,000"),
        (320_000, "cpu", "320,000"),
        (None, "cpu", "–"),
        (64 * 2**30, "memory", "64Gi"),
        (1023 * 2**20, "memory", "1023Mi"),
        (0, "memory", "0"),
        (1.5 * 2**50, "ephemeral-storage", "1.5Pi"),
        (8, "nvidia.com/gpu", "8"),
    ],
)
def test_amounts_are_written_for_people(value: float | None, resource: str, text: str) -> None:
    assert amount(value, resource) == text


def test_times_are_written_in_the_unit_that_suits_them() -> None:
    assert [words.seconds(value) for value in (9_000, 130, 2.5, 0.0123, 0.00001, 0)] == [
        "2.5 h",
        "2.17 min",
        "2.5 s",
        "12.3 ms",
        "10 µs",
        "0 s",
    ]
    assert [words.age(100, 100 + passed) for passed in (5, 90, 7_200, 200_000)] == ["5 s", "2 min", "2 h", "2 d"]
    assert words.age(0, 100) == "–"
    assert [words.when(60, now) for now in (70, 86_500)] == ["00:01:00", "1970-01-01 00:01:00"]
