"""What queues held over time outlives the process that saw it."""

from __future__ import annotations

import base64
import gzip
import json
import time
from typing import Any

import numpy as np
import pytest

from stromboli.explain.past_runs import Kind, PastRuns, Run
from stromboli.live.api_server.client import Credentials, Kube
from stromboli.live.inputs.usage_store import UsageStore
from stromboli.plugins.fairshare.usage import Memory, UsageHistory
from tests.live.cluster import Cluster

DAY = Memory(window=86_400.0)


class Sessions:
    """Where sessions would keep it."""

    def __init__(self, history: UsageHistory | None = None) -> None:
        self.history = history

    def recall(self) -> UsageHistory | None:
        return self.history

    def remember(self, history: UsageHistory) -> None:
        self.history = history


def history() -> UsageHistory:
    """An hour in which a queue held a quarter of a cluster."""
    begun = UsageHistory.begin(DAY, ["a", "b"], ["cpu"], 0.0)
    held = begun.holds(np.array([[1.0], [0.0]]), np.array([4.0]))
    return held.advanced(DAY, 3_600.0)


async def test_usage_is_there_after_a_restart(cluster: Cluster) -> None:
    kube = Kube(Credentials.load(cluster.kubeconfig, None))
    before, after = Sessions(history()), Sessions()
    for _ in range(2):  # created, then replaced
        await UsageStore(kube, "default", "stromboli-usage", before).save()
    await UsageStore(kube, "default", "stromboli-usage", after).restore()
    await kube.close()
    assert after.history is not None
    assert after.history.queues == ("a", "b")
    assert after.history.usage(DAY).tolist() == [[0.25], [0.0]]


async def test_nothing_is_written_while_usage_does_not_count(cluster: Cluster) -> None:
    kube = Kube(Credentials.load(cluster.kubeconfig, None))
    sessions = Sessions()
    store = UsageStore(kube, "default", "stromboli-usage", sessions)
    await store.save()
    await store.restore()
    await kube.close()
    assert sessions.history is None
    assert {answer for answer in cluster.proxy.answers if "configmaps" in answer[1]} == {
        ("GET", "/api/v1/namespaces/default/configmaps/stromboli-usage", 404)
    }


async def test_run_times_of_past_jobs_are_there_for_the_next_leader(cluster: Cluster) -> None:
    kube = Kube(Credentials.load(cluster.kubeconfig, None))
    first, second, kind = PastRuns(), PastRuns(), Kind("Job", "default", 4)
    for seconds in (10.0, 20.0, 30.0):
        first.add(kind, Run(seconds, 0.0, 1_000.0 + seconds))
    # The next leader has seen the last of them, and another one since.
    second.add(kind, Run(30.0, 0.0, 1_030.0))
    second.add(kind, Run(40.0, 0.0, 1_040.0))
    await UsageStore(kube, "default", "stromboli-usage", Sessions(), first).save()
    sessions = Sessions()
    store = UsageStore(kube, "default", "stromboli-usage", sessions, second)
    await store.restore()
    assert second.lengths(kind) == [10, 20, 30, 40]
    assert second.lengths(Kind("Job", "another", 1)) == [10, 20, 30, 40]
    assert second.lengths(Kind("RayJob", "default", 4)) == ()
    assert sessions.history is None
    await kube.close()


async def test_run_times_that_cannot_be_read_leave_the_usage_of_queues_alone(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    kube = Kube(Credentials.load(cluster.kubeconfig, None))
    for rows in ([["Job", "default", 4, [[-1.0, 0, 0]]]], [["Job", "default"]], [["Job", "q", 1, "x"]], 7):
        data = {"usage.json.gz": packed(history().as_data()), "runs.json.gz": packed({"kinds": rows})}
        cluster.answer("/configmaps/", json.dumps({"binaryData": data}).encode())
        sessions, past = Sessions(), PastRuns()
        await UsageStore(kube, "default", "stromboli-usage", sessions, past).restore()
        assert "run times of past jobs is invalid" in caplog.text
        assert sessions.history is not None
        assert past.added == 0
        caplog.clear()
    await kube.close()


def packed(written: object) -> str:
    content = written if isinstance(written, bytes) else json.dumps(written).encode()
    return base64.b64encode(gzip.compress(content)).decode()


def but(**changes: Any) -> str:
    """What is written, with some of it changed."""
    return packed({**history().as_data(), **changes})


BUCKET = {"number": 0, "held": [[1.0], [0.0]], "there": [4.0]}


def nonsense() -> dict[str, Any]:
    """What may be found instead of what was written."""
    return {
        "no gzip": "bm8gZ3ppcA==",
        "no base64": "no base64",
        "nothing": "",
        "no text": 7,
        "null": packed(None),
        "a list": packed([]),
        "nested deeply": packed(b"[" * 100_000),
        "cut off": packed({**history().as_data()})[:80],
        "a bomb": packed(b" " * (65 << 20)),
        "from the future": but(until=time.time() + 3_600),
        "from before the epoch": but(until=-1.0),
        "a time that is none": but(until="nan"),
        "endless": but(until=10**400),
        "buckets of no length": but(length=0.0),
        "buckets of another type": but(buckets=7),
        "a bucket of the future": but(buckets=[BUCKET | {"number": 10**9}]),
        "a bucket before all time": but(buckets=[BUCKET | {"number": -(10**400)}]),
        "a bucket twice": but(buckets=[BUCKET, BUCKET]),
        "amounts that are none": but(holding=[["nan"], [0.0]]),
        "amounts that are negative": but(holding=[[-1.0], [0.0]]),
        "amounts without end": but(buckets=[BUCKET | {"there": ["inf"]}]),
        "too few amounts": but(holding=[[1.0]]),
        "a queue twice": but(queues=["a", "a"]),
        "queues that are none": but(queues=[1, 2]),
        "one queue": but(queues="ab"),
    }


NO_DATA: list[Any] = [("no data", None), ("a list of data", []), ("a text of data", "x")]


async def test_what_cannot_be_read_is_told_and_usage_begins_anew(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    kube = Kube(Credentials.load(cluster.kubeconfig, None))
    for what, data in [(what, {"usage.json.gz": content}) for what, content in nonsense().items()] + NO_DATA:
        cluster.answer("/configmaps/", json.dumps({"binaryData": data}).encode())
        sessions = Sessions()
        await UsageStore(kube, "default", "stromboli-usage", sessions).restore()
        assert sessions.history is None, what
        assert "starting from zero" in caplog.text, what
        caplog.clear()
    await kube.close()
