"""What queues held over time outlives the process that saw it."""

from __future__ import annotations

import numpy as np
import pytest

from stromboli.live.client import Credentials, Kube
from stromboli.live.usage_store import UsageStore
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
    assert [answer for answer in cluster.proxy.answers if "configmaps" in answer[1]] == [
        ("GET", "/api/v1/namespaces/default/configmaps/stromboli-usage", 404)
    ]


@pytest.mark.parametrize("content", ["bm8gZ3ppcA==", "no base64", ""])
async def test_what_cannot_be_read_is_told_and_usage_begins_anew(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, content: str
) -> None:
    kube, sessions = Kube(Credentials.load(cluster.kubeconfig, None)), Sessions()
    manifest = {"metadata": {"name": "stromboli-usage"}, "binaryData": {"usage.json.gz": content}}
    await kube.create("/api/v1/namespaces/default/configmaps", {"apiVersion": "v1", "kind": "ConfigMap"} | manifest)
    await UsageStore(kube, "default", "stromboli-usage", sessions).restore()
    await kube.close()
    assert sessions.history is None
    assert "begins anew" in caplog.text
