"""Custom resources: a definition makes them served, defaulted, checked and shown."""

from __future__ import annotations

import asyncio

import pytest

from tests.contract.client import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Client, Json

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
def ferries(definition: Json) -> str:
    """The path of the collection."""
    return f"/apis/{definition['spec']['group']}/v1/ferries"


def ferry(group_path: str, name: str, **spec: object) -> Json:
    group = group_path.split("/")[2]
    return {"apiVersion": f"{group}/v1", "kind": "Ferry", "metadata": {"name": name}, "spec": spec}


async def test_a_definition_is_established_and_discovered(api: Client, definition: Json) -> None:
    group, name = definition["spec"]["group"], definition["metadata"]["name"]
    for _ in range(100):
        stored = (await api.get(f"{DEFINITIONS}/{name}")).body
        found = {c["type"]: c["status"] for c in stored.get("status", {}).get("conditions") or ()}
        if found.get("Established") == "True":
            break
        await asyncio.sleep(0.05)
    assert found["NamesAccepted"] == "True"
    assert stored["status"]["acceptedNames"]["singular"] == "ferry"
    assert stored["status"]["storedVersions"] == ["v1"]
    resources = (await api.get(f"/apis/{group}/v1")).body["resources"]
    by_name = {resource["name"]: resource for resource in resources}
    assert by_name["ferries"]["kind"] == "Ferry"
    assert by_name["ferries"]["namespaced"] is False
    assert by_name["ferries"]["singularName"] == "ferry"
    assert by_name["ferries"]["shortNames"] == ["fy"]
    assert {"list", "watch", "patch"} <= set(by_name["ferries"]["verbs"])
    assert by_name["ferries/status"]["kind"] == "Ferry"


async def test_discovery_of_built_in_resources(api: Client) -> None:
    core = {r["name"]: r for r in (await api.get("/api/v1")).body["resources"]}
    assert core["pods"]["shortNames"] == ["po"]
    assert core["pods/binding"]["kind"] == "Binding"
    assert core["pods/eviction"]["group"] == "policy"
    assert "v1" in (await api.get("/api")).body["versions"]
    groups = {g["name"]: g for g in (await api.get("/apis")).body["groups"]}
    assert groups["apps"]["preferredVersion"]["groupVersion"] == "apps/v1"
    assert {"batch", "coordination.k8s.io", "events.k8s.io", "policy", "resource.k8s.io"} <= groups.keys()
    answer = await api.get("/apis", accept=AGGREGATED)
    assert "as=APIGroupDiscoveryList" in answer.content_type
    listed = {item["metadata"]["name"]: item for item in answer.body["items"]}
    (scheduling,) = (v for v in listed["scheduling.k8s.io"]["versions"] if v["version"] == "v1")
    (priority_classes,) = (r for r in scheduling["resources"] if r["resource"] == "priorityclasses")
    assert priority_classes["responseKind"]["kind"] == "PriorityClass"
    assert priority_classes["scope"] == "Cluster"
    (core_item,) = (await api.get("/api", accept=AGGREGATED)).body["items"]
    pods = next(r for r in core_item["versions"][0]["resources"] if r["resource"] == "pods")
    assert {"binding", "eviction", "status"} <= {s["subresource"] for s in pods["subresources"]}


async def test_defaults_and_unknown_fields(api: Client, ferries: str) -> None:
    body = ferry(ferries, "a", route="milazzo", crew=[{"name": "rosa"}], colour="white", cargo={"lemons": 3})
    created = await api.post(ferries, {**body, "status": {"phase": "Sailing"}})
    assert created.code == 201
    assert created.body["spec"] == {
        "route": "milazzo",
        "cabins": 4,
        "flag": "IT",
        "crew": [{"name": "rosa", "shift": "day"}],
        "cargo": {"lemons": 3},
    }
    assert "status" not in created.body
    assert created.body["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({}, "spec.route"),
        ({"route": ""}, "spec.route"),
        ({"route": "UPPER"}, "spec.route"),
        ({"route": "a", "cabins": 0}, "spec.cabins"),
        ({"route": "a", "cabins": 101}, "spec.cabins"),
        ({"route": "a", "cabins": "four"}, "spec.cabins"),
        ({"route": "a", "flag": "XX"}, "spec.flag"),
        ({"route": "a", "cargo": {"lemons": "many"}}, "spec.cargo.lemons"),
        ({"route": "a", "fuel": True}, "spec.fuel"),
    ],
)
async def test_values_that_break_the_schema(api: Client, ferries: str, spec: Json, field: str) -> None:
    refused = await api.post(ferries, ferry(ferries, "a", **spec))
    assert (refused.code, refused.body["reason"]) == (422, "Invalid")
    assert field in {cause["field"] for cause in refused.body["details"]["causes"]}


async def test_generation_counts_changes_of_the_spec(api: Client, ferries: str) -> None:
    await api.post(ferries, ferry(ferries, "a", route="milazzo"))
    path = f"{ferries}/a"
    labelled = await api.patch(path, MERGE_PATCH, {"metadata": {"labels": {"x": "y"}}})
    assert labelled.body["metadata"]["generation"] == 1
    changed = await api.patch(path, MERGE_PATCH, {"spec": {"cabins": 8}})
    assert changed.body["metadata"]["generation"] == 2
    status = await api.patch(f"{path}/status", MERGE_PATCH, {"status": {"phase": "Sailing"}, "spec": {"cabins": 9}})
    assert status.body["metadata"]["generation"] == 2
    assert (status.body["status"], status.body["spec"]["cabins"]) == ({"phase": "Sailing"}, 8)
    ignored = await api.patch(path, MERGE_PATCH, {"status": {"phase": "Sunk"}})
    assert (ignored.code, ignored.version) == (200, status.version)
    default = await api.patch(path, JSON_PATCH, [{"op": "remove", "path": "/spec/cabins"}])
    assert default.body["spec"]["cabins"] == 4


async def test_a_put_needs_the_version(api: Client, ferries: str) -> None:
    created = (await api.post(ferries, ferry(ferries, "a", route="milazzo"))).body
    unconditional = await api.put(f"{ferries}/a", ferry(ferries, "a", route="napoli"))
    assert (unconditional.code, unconditional.body["reason"]) == (422, "Invalid")
    replaced = await api.put(f"{ferries}/a", {**created, "spec": {"route": "napoli"}})
    assert (replaced.code, replaced.body["spec"]["route"]) == (200, "napoli")


async def test_strategic_merge_is_not_for_custom_resources(api: Client, ferries: str) -> None:
    await api.post(ferries, ferry(ferries, "a", route="milazzo"))
    refused = await api.patch(f"{ferries}/a", STRATEGIC_PATCH, {"spec": {"cabins": 8}})
    assert (refused.code, refused.body["reason"]) == (415, "UnsupportedMediaType")


async def test_finalizers_by_json_patch(api: Client, ferries: str) -> None:
    created = await api.post(ferries, ferry(ferries, "a", route="milazzo"))
    path = f"{ferries}/a"
    add = {"op": "add", "path": "/metadata/finalizers", "value": ["example.com/hold"]}
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": created.version}
    assert (await api.patch(path, JSON_PATCH, [test, add])).code == 200
    assert (await api.patch(path, JSON_PATCH, [test, add])).code == 422
    async with api.watch(ferries, resourceVersion=created.version) as events:
        await api.delete(path)
        await api.patch(path, JSON_PATCH, [{"op": "remove", "path": "/metadata/finalizers"}])
        seen = [await anext(events) for _ in range(3)]
    assert [event["type"] for event in seen][:2] == ["MODIFIED", "MODIFIED"]
    assert seen[-1]["type"] == "DELETED"


async def test_printer_columns(api: Client, ferries: str) -> None:
    await api.post(ferries, ferry(ferries, "a", route="milazzo"))
    table = (await api.get(ferries, accept=TABLE)).body
    assert [(c["name"], c["priority"]) for c in table["columnDefinitions"]] == [
        ("Name", 0),
        ("Route", 0),
        ("Cabins", 0),
        ("Phase", 1),
    ]
    assert table["rows"][0]["cells"] == ["a", "milazzo", 4, None]


async def test_a_deleted_definition_takes_its_objects_along(api: Client, definition: Json, ferries: str) -> None:
    await api.post(ferries, ferry(ferries, "a", route="milazzo"))
    deleted = await api.delete(f"{DEFINITIONS}/{definition['metadata']['name']}")
    assert deleted.code == 200
    for _ in range(200):
        if (await api.get(ferries)).code == 404:
            break
        await asyncio.sleep(0.05)
    assert (await api.get(f"{DEFINITIONS}/{definition['metadata']['name']}")).code == 404
    assert (await api.get(ferries)).code == 404


async def test_a_definition_that_contradicts_itself(api: Client) -> None:
    body = {"metadata": {"name": "ferries.example.com"}, "spec": {"group": "example.org", "scope": "Cluster"}}
    refused = await api.post(DEFINITIONS, body)
    assert (refused.code, refused.body["reason"]) == (422, "Invalid")


async def test_reviews_answer_the_asker(api: Client) -> None:
    attributes = {"verb": "create", "resource": "pods", "namespace": "default"}
    body = {"spec": {"resourceAttributes": attributes}}
    access = await api.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    assert (access.code, access.body["status"]["allowed"]) == (201, True)
    who = await api.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert who.code == 201
    assert "system:masters" in who.body["status"]["userInfo"]["groups"]
