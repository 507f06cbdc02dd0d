"""The load of nodes, from a real Prometheus with a past made up for it."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import Awaitable, Iterator
from pathlib import Path

import pytest

from stromboli.framework.cluster.environment import NodeUsage
from stromboli.live.inputs import node_load
from stromboli.live.inputs.prometheus import follow as prometheus_follow
from stromboli.policy.model import Policy
from tests.e2e.prometheus import Prometheus
from tests.live.virtual_time import Clock, run

MINUTES = 20
STEP = 15


def history(now: float, busy: float, free: float) -> str:
    """20 minutes of node n1, of whose two CPUs `busy` are in use, and of whose memory the part `free` is free."""
    steps = range(0, 60 * MINUTES, STEP)
    start = now - 60 * MINUTES
    idle = [
        f'node_cpu_seconds_total{{mode="idle",cpu="{cpu}",instance="n1"}} {at * (1 - busy)} {start + at}'
        for cpu in (0, 1)
        for at in steps
    ]
    available = [f'node_memory_MemAvailable_bytes{{instance="n1"}} {free * 1e9} {start + at}' for at in steps]
    total = [f'node_memory_MemTotal_bytes{{instance="n1"}} 1e9 {start + at}' for at in steps]
    return "\n".join(
        [
            "# TYPE node_cpu_seconds counter",
            *idle,
            "# TYPE node_memory_MemAvailable_bytes gauge",
            *available,
            "# TYPE node_memory_MemTotal_bytes gauge",
            *total,
            "# EOF\n",
        ]
    )


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[str]:
    """The address of a Prometheus that knows the history."""
    program, tool = shutil.which("prometheus"), shutil.which("promtool")
    if program is None or tool is None:
        pytest.skip("no prometheus on this machine")
    past = tmp_path / "past.txt"
    past.write_text(history(time.time(), busy=0.25, free=0.4))
    blocks = ["tsdb", "create-blocks-from", "openmetrics", str(past), str(tmp_path / "prometheus")]
    subprocess.run([tool, *blocks], check=True, capture_output=True)
    with Prometheus(program, tmp_path, "") as server:
        yield server.address


def test_the_load_is_the_average_of_ten_minutes(prometheus: str) -> None:
    loads = asyncio.run(node_load.read({"type": "prometheus", "address": prometheus}))
    assert list(loads) == ["n1"]
    assert loads["n1"].cpu == pytest.approx(25, abs=1)
    assert loads["n1"].memory == pytest.approx(60, abs=1)


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ({"type": "elasticsearch", "address": "http://127.0.0.1:1"}, "metrics.type: 'elasticsearch' is not supported"),
        ({"type": "prometheus"}, "metrics.address: is required"),
    ],
)
def test_settings_that_make_no_sense_are_named(metrics: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        asyncio.run(node_load.read(metrics))


async def test_a_source_that_does_not_answer_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    told: list[dict[str, NodeUsage]] = []
    metrics = {"type": "prometheus", "address": "http://127.0.0.1:1", "interval": "10ms"}
    metrics |= {"elasticsearch.password": "secret", "event": "any"}
    policy = Policy((), (), metrics=metrics)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await node_load.follow(lambda: policy, lambda loads: told.append(dict(loads)))
    assert told == []
    assert [record.event for record in caplog.records] == ["load of nodes not read"]
    assert "secret" not in caplog.text


def test_the_source_of_a_new_policy_is_asked_within_a_second_and_then_at_its_interval() -> None:
    """As after a start, when the policy of the file takes the place of the built-in one, of which nothing is read."""
    clock, asked = Clock(), list[float]()
    policies = [Policy((), ()), Policy((), (), metrics={"type": "prometheus", "interval": "2.5s"})]

    async def answer(at: float) -> float:
        return at

    def read(policy: Policy) -> Awaitable[float] | None:
        return answer(clock.now) if policy.metrics else None

    async def follow() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(12):
                await prometheus_follow("load", lambda: policies[clock.now > 3], read, asked.append)

    run(clock, follow())
    assert asked == [4.0, 6.5, 9.0, 11.5]
