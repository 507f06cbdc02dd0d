"""The two APIs of events show the same objects."""

from __future__ import annotations

from tests.contract.client import MERGE_PATCH, Client, Json


def core_event(namespace: str, name: str) -> Json:
    place = namespace.rpartition("/")[2]
    return {
        "metadata": {"name": name},
        "involvedObject": {"kind": "Pod", "name": "web", "namespace": place, "uid": "u-1"},
        "reason": "Unschedulable",
        "message": "no node is large enough",
        "type": "Warning",
        "source": {"component": "stromboli"},
        "count": 1,
    }


def new_event(namespace: str, name: str) -> Json:
    place = namespace.rpartition("/")[2]
    return {
        "metadata": {"name": name, "namespace": place},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "regarding": {"kind": "Pod", "name": "db", "namespace": place},
        "reason": "Bound",
        "action": "Binding",
        "note": "bound to n1",
        "type": "Normal",
        "reportingController": "example.com/scheduler",
        "reportingInstance": "a",
    }


async def test_both_apis_show_every_event(api: Client, namespace: str) -> None:
    core = f"{namespace}/events"
    new = namespace.replace("/api/v1", "/apis/events.k8s.io/v1") + "/events"
    first = await api.post(core, core_event(namespace, "first"))
    second = await api.post(new, new_event(namespace, "second"))
    assert (first.code, second.code) == (201, 201)
    assert (second.body["apiVersion"], second.body["note"]) == ("events.k8s.io/v1", "bound to n1")
    seen = (await api.get(f"{core}/second")).body
    assert (seen["apiVersion"], seen["message"], seen["involvedObject"]["name"]) == ("v1", "bound to n1", "db")
    assert seen["reportingComponent"] == "example.com/scheduler"
    seen = (await api.get(f"{new}/first")).body
    assert (seen["note"], seen["deprecatedSource"]["component"]) == ("no node is large enough", "stromboli")
    for path in (core, new):
        assert [e["metadata"]["name"] for e in (await api.get(path)).body["items"]] == ["first", "second"]


async def test_events_are_selected_and_changed_through_both(api: Client, namespace: str) -> None:
    core = f"{namespace}/events"
    new = namespace.replace("/api/v1", "/apis/events.k8s.io/v1") + "/events"
    await api.post(core, core_event(namespace, "first"))
    created = await api.post(new, new_event(namespace, "second"))
    selected = await api.get(core, fieldSelector="involvedObject.name=db,involvedObject.kind=Pod")
    assert [e["metadata"]["name"] for e in selected.body["items"]] == ["second"]
    selected = await api.get(core, fieldSelector="source=stromboli")
    assert [e["metadata"]["name"] for e in selected.body["items"]] == ["first"]
    selected = await api.get(new, fieldSelector="regarding.name=web")
    assert [e["metadata"]["name"] for e in selected.body["items"]] == ["first"]
    series = {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:01:00.000000Z"}}
    async with api.watch(core, resourceVersion=created.version) as events:
        changed = await api.patch(f"{new}/second", MERGE_PATCH, series)
        event = await anext(events)
    assert changed.body["series"]["count"] == 2
    assert (event["type"], event["object"]["message"]) == ("MODIFIED", "bound to n1")
    assert event["object"]["metadata"]["resourceVersion"] == changed.version


async def test_a_note_has_1024_bytes_at_most(api: Client, namespace: str) -> None:
    new = namespace.replace("/api/v1", "/apis/events.k8s.io/v1") + "/events"
    for name, note, code in (("first", "ä" * 512, 201), ("second", "ä" * 512 + "a", 422)):
        assert (await api.post(new, {**new_event(namespace, name), "note": note})).code == code
