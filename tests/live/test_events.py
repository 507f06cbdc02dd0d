"""Events that the API server takes, whatever they are about and say."""

from __future__ import annotations

import asyncio

import pytest

from stromboli.live.api_server.client import Credentials, Kube
from stromboli.live.observer import Observer
from stromboli.live.reporting.events import Events, Reference, shortened
from tests.live.cluster import Cluster
from tests.live.conftest import until


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("a" * 253, "a" * 5_000),
        ("a" * 229 + "-" + "b" * 23, "ä" * 5_000),
        ("a" * 229 + "." + "b" * 23, "𝄞" * 257),
    ],
)
async def test_an_event_of_any_length_is_posted(bare_cluster: Cluster, name: str, note: str) -> None:
    kube = Kube(Credentials.load(bare_cluster.kubeconfig))
    events = Events(kube, Observer(), "stromboli", 100.0)
    events.emit(Reference("v1", "Pod", "default", name), "Normal", "Bound", note)
    posting = asyncio.create_task(events.run())
    await until(lambda: bool(bare_cluster.items("/apis/events.k8s.io/v1/events")))
    posting.cancel()
    await kube.close()
    (event,) = bare_cluster.items("/apis/events.k8s.io/v1/events")
    assert event["regarding"]["name"] == name
    assert event["note"] == shortened(note, 1_024)
    (event,) = bare_cluster.items("/api/v1/events")
    assert event["eventTime"].startswith(event["lastTimestamp"].removesuffix("Z"))
    assert (event["firstTimestamp"], event["count"]) == (event["lastTimestamp"], 1)
    assert (event["source"]["component"], event["reportingComponent"]) == ("stromboli", "stromboli")


def test_a_text_is_shortened_between_characters() -> None:
    assert shortened("abcdef", 6) == "abcdef"
    assert shortened("abcdefg", 6) == "abc…"
    assert shortened("aäää", 6) == "aä…"
