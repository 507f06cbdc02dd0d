"""Watches: where they begin, what they say of selected objects, and how they end."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.contract.client import MERGE_PATCH, Client, Json
from tests.contract.objects import config_map

BOOKMARKS = {"allowWatchBookmarks": "true"}
WATCH_LIST = {**BOOKMARKS, "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}


async def take(events: AsyncIterator[Json], count: int) -> list[Json]:
    """The next `count` events, without those of the ConfigMap that a controller puts into every namespace."""
    found: list[Json] = []
    while len(found) < count:
        event = await anext(events)
        if event["object"]["metadata"].get("name") != "kube-root-ca.crt":
            found.append(event)
    return found


def briefly(events: list[Json]) -> list[tuple[str, str]]:
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


async def test_a_watch_from_a_version_continues_there(api: Client, namespace: str) -> None:
    path = f"{namespace}/configmaps"
    await api.post(path, config_map("before"))
    version = (await api.get(path)).version
    created = await api.post(path, config_map("a"))
    async with api.watch(path, resourceVersion=version) as events:
        changed = await api.patch(f"{path}/a", MERGE_PATCH, {"data": {"port": "1"}})
        await api.delete(f"{path}/a")
        seen = await take(events, 3)
    assert briefly(seen) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert seen[0]["object"]["metadata"]["resourceVersion"] == created.version
    assert seen[1]["object"] == changed.body
    assert seen[2]["object"]["data"] == changed.body["data"]
    assert int(seen[2]["object"]["metadata"]["resourceVersion"]) > int(changed.version)


async def test_a_watch_without_a_version_begins_with_what_there_is(api: Client, namespace: str) -> None:
    path = f"{namespace}/configmaps"
    await api.post(path, config_map("a"))
    for query in ({}, {"resourceVersion": "0"}):
        async with api.watch(path, **query) as events:
            assert briefly(await take(events, 1)) == [("ADDED", "a")]


async def test_a_write_without_change_makes_no_event(api: Client, namespace: str) -> None:
    path = f"{namespace}/configmaps"
    created = await api.post(path, config_map("a"))
    async with api.watch(path, resourceVersion=created.version) as events:
        await api.patch(f"{path}/a", MERGE_PATCH, {"data": {"port": "8080"}})
        await api.patch(f"{path}/a", MERGE_PATCH, {"data": {"port": "1"}})
        (seen,) = await take(events, 1)
    assert seen["object"]["data"]["port"] == "1"


async def test_objects_enter_and_leave_a_selection(api: Client, namespace: str) -> None:
    path = f"{namespace}/configmaps"
    await api.post(path, config_map("a", team="red"))
    version = (await api.get(path)).version
    async with api.watch(path, resourceVersion=version, labelSelector="team=blue") as events:
        await api.post(path, config_map("other", team="red"))
        entered = await api.patch(f"{path}/a", MERGE_PATCH, {"metadata": {"labels": {"team": "blue"}}})
        await api.patch(f"{path}/a", MERGE_PATCH, {"data": {"port": "1"}})
        left = await api.patch(f"{path}/a", MERGE_PATCH, {"metadata": {"labels": {"team": "red"}}})
        seen = await take(events, 3)
    assert briefly(seen) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert seen[0]["object"]["metadata"]["resourceVersion"] == entered.version
    assert seen[2]["object"]["metadata"]["resourceVersion"] == left.version
    assert seen[2]["object"]["metadata"]["labels"] == {"team": "blue"}


async def test_field_selectors_select_one_object(api: Client, namespace: str) -> None:
    path = f"{namespace}/configmaps"
    version = (await api.get(path)).version
    async with api.watch(path, resourceVersion=version, fieldSelector="metadata.name=b") as events:
        await api.post(path, config_map("a"))
        await api.post(path, config_map("b"))
        assert briefly(await take(events, 1)) == [("ADDED", "b")]


async def test_bookmarks_tell_of_changes_that_are_not_selected(api: Client, namespace: str) -> None:
    path = f"{namespace}/configmaps"
    created = await api.post(path, config_map("a"))
    # The last bookmark comes two seconds before a watch ends.
    query = {"resourceVersion": created.version, "timeoutSeconds": "4", "fieldSelector": "metadata.name=b"}
    async with api.watch(path, **query, **BOOKMARKS) as events:
        changed = await api.patch(f"{path}/a", MERGE_PATCH, {"data": {"port": "1"}})
        (seen,) = await take(events, 1)
    assert seen["type"] == "BOOKMARK"
    assert seen["object"]["kind"] == "ConfigMap"
    assert int(created.version) < int(seen["object"]["metadata"]["resourceVersion"]) <= int(changed.version)


async def test_initial_events_end_with_a_marked_bookmark(api: Client, namespace: str) -> None:
    path = f"{namespace}/configmaps"
    await api.post(path, config_map("a"))
    await api.post(path, config_map("b"))
    async with api.watch(path, **WATCH_LIST) as events:
        seen = await take(events, 3)
        await api.post(path, config_map("c"))
        seen += await take(events, 1)
    assert sorted(briefly(seen[:2])) == [("ADDED", "a"), ("ADDED", "b")]
    assert seen[2]["type"] == "BOOKMARK"
    assert seen[2]["object"]["kind"] == "ConfigMap"
    assert seen[2]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert briefly(seen[3:]) == [("ADDED", "c")]


async def test_watch_parameters_that_contradict_each_other(api: Client, namespace: str) -> None:
    path = f"{namespace}/configmaps"
    without_initial = await api.get(path, watch="true", resourceVersionMatch="NotOlderThan")
    assert (without_initial.code, without_initial.body["reason"]) == (422, "Invalid")
    without_match = await api.get(path, watch="true", sendInitialEvents="true", allowWatchBookmarks="true")
    assert (without_match.code, without_match.body["reason"]) == (422, "Invalid")


async def test_a_watch_of_metadata(api: Client, namespace: str) -> None:
    accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    path = f"{namespace}/configmaps"
    await api.post(path, config_map("a"))
    async with api.watch(path, accept=accept, **WATCH_LIST) as events:
        seen = await take(events, 2)
    assert [event["type"] for event in seen] == ["ADDED", "BOOKMARK"]
    assert {event["object"]["kind"] for event in seen} == {"PartialObjectMetadata"}


async def test_a_watch_of_tables(api: Client, namespace: str) -> None:
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    version = (await api.get(f"{namespace}/secrets")).version
    async with api.watch(f"{namespace}/secrets", accept=accept, resourceVersion=version) as events:
        for name in "ab":
            await api.post(f"{namespace}/secrets", {"metadata": {"name": name}})
        first, second = await anext(events), await anext(events)
    assert first["object"]["kind"] == "Table"
    assert first["object"]["columnDefinitions"][0]["name"] == "Name"
    assert not second["object"]["columnDefinitions"]
    assert second["object"]["rows"][0]["cells"][0] == "b"


async def test_a_watch_from_a_forgotten_version_is_expired(api: Client, namespace: str) -> None:
    async with api.watch(f"{namespace}/configmaps", resourceVersion="1") as events:
        event = await anext(events, None)
    if event is None and api.secure:
        pytest.skip("the server still has its first versions")
    assert event is not None
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
