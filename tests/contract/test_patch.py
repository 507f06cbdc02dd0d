"""The patch formats: what they change and how they fail."""

from __future__ import annotations

from tests.contract.client import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Client, Json
from tests.contract.objects import config_map, pod


async def test_json_patch_operations(api: Client, namespace: str) -> None:
    body = config_map("a")
    body["metadata"]["annotations"] = {"example.com/x": "1"}
    await api.post(f"{namespace}/configmaps", body)
    patch = [
        {"op": "test", "path": "/data/port", "value": "8080"},
        {"op": "replace", "path": "/data/port", "value": "9090"},
        {"op": "replace", "path": "/data/not-there-yet", "value": "set"},
        {"op": "add", "path": "/metadata/annotations/example.com~1y", "value": "2"},
        {"op": "remove", "path": "/metadata/annotations/example.com~1x"},
        {"op": "copy", "from": "/data/host", "path": "/data/name"},
        {"op": "move", "from": "/data/host", "path": "/data/island"},
    ]
    patched = await api.patch(f"{namespace}/configmaps/a", JSON_PATCH, patch)
    assert patched.code == 200
    assert patched.body["data"] == {
        "port": "9090",
        "not-there-yet": "set",
        "name": "lipari",
        "island": "lipari",
    }
    assert patched.body["metadata"]["annotations"] == {"example.com/y": "2"}


async def test_json_patch_on_lists(api: Client, namespace: str) -> None:
    body = config_map("a")
    body["metadata"]["finalizers"] = ["example.com/a", "example.com/c"]
    await api.post(f"{namespace}/configmaps", body)
    patch = [
        {"op": "add", "path": "/metadata/finalizers/1", "value": "example.com/b"},
        {"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/d"},
        {"op": "remove", "path": "/metadata/finalizers/0"},
    ]
    patched = await api.patch(f"{namespace}/configmaps/a", JSON_PATCH, patch)
    assert patched.body["metadata"]["finalizers"] == ["example.com/b", "example.com/c", "example.com/d"]
    await api.patch(f"{namespace}/configmaps/a", MERGE_PATCH, {"metadata": {"finalizers": None}})


async def test_a_json_patch_that_does_not_apply_is_unprocessable(api: Client, namespace: str) -> None:
    created = await api.post(f"{namespace}/configmaps", config_map("a"))
    path = f"{namespace}/configmaps/a"
    failing: list[list[Json]] = [
        [{"op": "test", "path": "/metadata/resourceVersion", "value": "1"}],
        [{"op": "test", "path": "/data/none", "value": "x"}],
        [{"op": "remove", "path": "/data/none"}],
        [{"op": "remove", "path": "/metadata/finalizers"}],
        [{"op": "add", "path": "/spec/none/deep", "value": "x"}],
        [
            {"op": "replace", "path": "/data/port", "value": "1"},
            {"op": "test", "path": "/data/port", "value": "2"},
        ],
    ]
    for patch in failing:
        answer = await api.patch(path, JSON_PATCH, patch)
        assert (answer.code, answer.body["reason"]) == (422, "Invalid"), patch
    assert (await api.get(path)).version == created.version
    assert (await api.patch(path, JSON_PATCH, {"op": "test"})).code == 400


async def test_merge_patch_removes_with_null_and_replaces_lists(api: Client, namespace: str) -> None:
    await api.post(f"{namespace}/pods", pod("a", tolerations=[{"key": "old", "operator": "Exists"}]))
    patch = {"metadata": {"labels": {"team": "blue"}, "annotations": {"note": "x"}}}
    await api.patch(f"{namespace}/pods/a", MERGE_PATCH, patch)
    patched = await api.patch(f"{namespace}/pods/a", MERGE_PATCH, {"metadata": {"annotations": {"note": None}}})
    assert patched.code == 200
    assert patched.body["metadata"]["labels"] == {"team": "blue"}
    assert "annotations" not in patched.body["metadata"]


async def test_a_patch_with_a_stale_version_conflicts(api: Client, namespace: str) -> None:
    created = await api.post(f"{namespace}/configmaps", config_map("a"))
    path = f"{namespace}/configmaps/a"
    patch = {"metadata": {"resourceVersion": created.version}, "data": {"port": "1"}}
    assert (await api.patch(path, MERGE_PATCH, patch)).code == 200
    patch["data"] = {"port": "2"}
    stale = await api.patch(path, MERGE_PATCH, patch)
    assert (stale.code, stale.body["reason"]) == (409, "Conflict")


async def test_strategic_merge_merges_lists_by_key(api: Client, namespace: str) -> None:
    await api.post(f"{namespace}/pods", pod("a"))
    conditions = [
        {"type": "example.com/one", "status": "False"},
        {"type": "example.com/two", "status": "True"},
    ]
    path = f"{namespace}/pods/a/status"
    assert (await api.patch(path, STRATEGIC_PATCH, {"status": {"conditions": conditions}})).code == 200
    change = {"status": {"conditions": [{"type": "example.com/one", "status": "True"}]}}
    patched = await api.patch(path, STRATEGIC_PATCH, change)
    found = {c["type"]: c["status"] for c in patched.body["status"]["conditions"]}
    assert found == {"example.com/one": "True", "example.com/two": "True"}
    removal = {"status": {"conditions": [{"$patch": "delete", "type": "example.com/two"}]}}
    patched = await api.patch(path, STRATEGIC_PATCH, removal)
    assert [c["type"] for c in patched.body["status"]["conditions"]] == ["example.com/one"]
    image = {"spec": {"containers": [{"name": "main", "image": "example.com/main:2"}]}}
    patched = await api.patch(f"{namespace}/pods/a", STRATEGIC_PATCH, image)
    (container,) = patched.body["spec"]["containers"]
    assert container["image"] == "example.com/main:2"
    assert container["resources"] == {"requests": {"cpu": "1"}}


async def test_strategic_merge_of_finalizers(api: Client, namespace: str) -> None:
    body = config_map("a")
    body["metadata"]["finalizers"] = ["example.com/a", "example.com/c"]
    await api.post(f"{namespace}/configmaps", body)
    path = f"{namespace}/configmaps/a"
    added = await api.patch(path, STRATEGIC_PATCH, {"metadata": {"finalizers": ["example.com/b", "example.com/c"]}})
    assert added.body["metadata"]["finalizers"] == ["example.com/b", "example.com/a", "example.com/c"]
    finalizers = added.body["metadata"]["finalizers"]
    removal = {"metadata": {"$deleteFromPrimitiveList/finalizers": finalizers}}
    removed = await api.patch(path, STRATEGIC_PATCH, removal)
    assert "finalizers" not in removed.body["metadata"]


async def test_a_replacing_directive(api: Client, namespace: str) -> None:
    await api.post(f"{namespace}/configmaps", config_map("a"))
    patch = {"data": {"$patch": "replace", "only": "this"}}
    patched = await api.patch(f"{namespace}/configmaps/a", STRATEGIC_PATCH, patch)
    assert patched.body["data"] == {"only": "this"}


async def test_apply_creates_and_then_changes(api: Client, namespace: str) -> None:
    path = f"{namespace}/configmaps/a"
    body = {"apiVersion": "v1", "kind": "ConfigMap", **config_map("a")}
    created = await api.patch(path, "application/apply-patch+yaml", body, fieldManager="contract")
    assert created.code == 201
    body["data"] = {"port": "9090", "host": "lipari"}
    applied = await api.patch(path, "application/apply-patch+yaml", body, fieldManager="contract")
    assert (applied.code, applied.body["data"]) == (200, {"port": "9090", "host": "lipari"})
