"""Lists: selectors, pages, versions, and the forms that clients ask for."""

from __future__ import annotations

import base64
import json

import pytest

from tests.contract.client import Client
from tests.contract.objects import config_map, pod

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"


async def names(api: Client, path: str, **query: str) -> list[str]:
    answer = await api.get(path, **query)
    assert answer.code == 200, answer.body
    return [item["metadata"]["name"] for item in answer.body["items"]]


@pytest.fixture
async def three(api: Client, namespace: str) -> str:
    """The path of a collection with the ConfigMaps a, b and c."""
    path = f"{namespace}/configmaps"
    for name, labels in (("c", {"team": "blue"}), ("a", {"team": "red", "tier": "1"}), ("b", {})):
        assert (await api.post(path, config_map(name, **labels, suite="yes"))).code == 201
    return path


async def test_a_list_is_ordered_by_name_and_has_a_version(api: Client, three: str) -> None:
    answer = await api.get(three, labelSelector="suite")
    assert (answer.body["kind"], answer.body["apiVersion"]) == ("ConfigMapList", "v1")
    assert [item["metadata"]["name"] for item in answer.body["items"]] == ["a", "b", "c"]
    assert int(answer.version) >= max(int(i["metadata"]["resourceVersion"]) for i in answer.body["items"])
    assert (await api.get(three.replace("configmaps", "endpoints"))).body["items"] == []


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("team=blue", ["c"]),
        ("team==red", ["a"]),
        ("team!=blue,suite", ["a", "b"]),
        ("suite,team", ["a", "c"]),
        ("suite,!team", ["b"]),
        ("team in (red,blue)", ["a", "c"]),
        ("suite,team notin (red)", ["b", "c"]),
        ("team=red,tier=1", ["a"]),
        ("tier=", []),
    ],
)
async def test_label_selectors(api: Client, three: str, selector: str, expected: list[str]) -> None:
    assert await names(api, three, labelSelector=selector) == expected


async def test_selectors_that_cannot_be_read(api: Client, three: str) -> None:
    assert (await api.get(three, labelSelector="a in b")).code == 400
    assert (await api.get(three, labelSelector="=x")).code == 400
    unsupported = await api.get(three, fieldSelector="data.port=8080")
    assert (unsupported.code, unsupported.body["reason"]) == (400, "BadRequest")


async def test_field_selectors_of_pods(api: Client, namespace: str) -> None:
    path = f"{namespace}/pods"
    await api.post(path, pod("placed", nodeName="some-node"))
    await api.post(path, pod("waiting", schedulerName="stromboli"))
    assert await names(api, path, fieldSelector="metadata.name=placed") == ["placed"]
    assert await names(api, path, fieldSelector="spec.nodeName=some-node") == ["placed"]
    assert await names(api, path, fieldSelector="spec.nodeName=") == ["waiting"]
    assert await names(api, path, fieldSelector="spec.nodeName!=") == ["placed"]
    assert await names(api, path, fieldSelector="spec.schedulerName=stromboli,status.phase=Pending") == ["waiting"]
    assert await names(api, path, fieldSelector="status.phase!=Succeeded,status.phase!=Failed") == [
        "placed",
        "waiting",
    ]


async def test_field_selectors_of_nodes(api: Client, node: str) -> None:
    assert node in await names(api, "/api/v1/nodes", fieldSelector="spec.unschedulable=false")
    assert node not in await names(api, "/api/v1/nodes", fieldSelector="spec.unschedulable=true")


async def test_pages_show_the_list_as_it_was(api: Client, three: str) -> None:
    first = await api.get(three, limit="1", labelSelector="suite")
    assert [item["metadata"]["name"] for item in first.body["items"]] == ["a"]
    await api.post(three, config_map("bb", suite="yes"))
    await api.delete(f"{three}/c")
    token = first.body["metadata"]["continue"]
    second = await api.get(three, limit="1", labelSelector="suite", **{"continue": token})
    assert [item["metadata"]["name"] for item in second.body["items"]] == ["b"]
    assert second.version == first.version
    token = second.body["metadata"]["continue"]
    third = await api.get(three, limit="1", labelSelector="suite", **{"continue": token})
    assert [item["metadata"]["name"] for item in third.body["items"]] == ["c"]
    assert not third.body["metadata"].get("continue")


async def test_a_page_says_how_many_items_remain(api: Client, namespace: str) -> None:
    for name in "abc":
        await api.post(f"{namespace}/secrets", {"metadata": {"name": name}})
    page = await api.get(f"{namespace}/secrets", limit="1")
    assert page.body["metadata"]["remainingItemCount"] == 2
    whole = await api.get(f"{namespace}/secrets", limit="3")
    assert not whole.body["metadata"].get("continue")
    assert "remainingItemCount" not in whole.body["metadata"]


async def test_an_old_continue_token_is_expired(api: Client, three: str) -> None:
    start = {"v": "meta.k8s.io/v1", "rv": 2, "start": "a\0"}
    token = base64.urlsafe_b64encode(json.dumps(start).encode()).decode().rstrip("=")
    expired = await api.get(three, limit="1", **{"continue": token})
    if expired.code == 200 and api.secure:
        pytest.skip("the server still has its first versions")
    assert (expired.code, expired.body["reason"]) == (410, "Expired")


async def test_a_garbled_continue_token(api: Client, three: str) -> None:
    garbled = await api.get(three, limit="1", **{"continue": "garbled"})
    assert (garbled.code, garbled.body["reason"]) == (400, "BadRequest")


async def test_list_versions(api: Client, three: str) -> None:
    current = (await api.get(three)).version
    assert len(await names(api, three, resourceVersion="0", labelSelector="suite")) == 3
    not_older = {"resourceVersion": current, "resourceVersionMatch": "NotOlderThan"}
    assert len(await names(api, three, labelSelector="suite", **not_older)) == 3
    assert (await api.get(three, resourceVersionMatch="NotOlderThan")).code == 422
    assert (await api.get(three, resourceVersion="x")).code == 400
    assert (await api.get(three, sendInitialEvents="true")).code == 422


async def test_a_table_has_columns_and_rows(api: Client, namespace: str, node: str) -> None:
    await api.post(f"{namespace}/pods", pod("a"))
    table = (await api.get(f"{namespace}/pods", accept=TABLE)).body
    assert table["kind"] == "Table"
    shown = [column["name"] for column in table["columnDefinitions"] if column["priority"] == 0]
    assert shown == ["Name", "Ready", "Status", "Restarts", "Age"]
    (row,) = table["rows"]
    assert row["cells"][:4] == ["a", "0/1", "Pending", "0"]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["metadata"]["name"] == "a"
    nodes = (await api.get("/api/v1/nodes", accept=TABLE, fieldSelector=f"metadata.name={node}")).body
    assert [column["name"] for column in nodes["columnDefinitions"]][:5] == [
        "Name",
        "Status",
        "Roles",
        "Age",
        "Version",
    ]
    assert nodes["rows"][0]["cells"][:3] == [node, "Unknown", "<none>"]


async def test_metadata_only(api: Client, three: str) -> None:
    answer = (await api.get(three, accept=METADATA, labelSelector="team=red")).body
    assert answer["kind"] == "PartialObjectMetadataList"
    assert answer["items"][0]["metadata"]["name"] == "a"
    assert "data" not in answer["items"][0]


async def test_a_form_that_no_server_has(api: Client, three: str) -> None:
    answer = await api.get(three, accept="application/pdf")
    assert (answer.code, answer.body["reason"]) == (406, "NotAcceptable")
