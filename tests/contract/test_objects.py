"""Creating, reading, changing and deleting objects."""

from __future__ import annotations

from tests.contract.client import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Client
from tests.contract.objects import config_map, pod

PODS = {"gracePeriodSeconds": 0}


async def test_create_returns_the_stored_object(api: Client, namespace: str) -> None:
    created = await api.post(f"{namespace}/configmaps", config_map("a", team="blue"))
    assert created.code == 201
    metadata = created.body["metadata"]
    assert (created.body["kind"], created.body["apiVersion"]) == ("ConfigMap", "v1")
    assert metadata["namespace"] == namespace.rpartition("/")[2]
    assert metadata["uid"]
    assert metadata["creationTimestamp"].endswith("Z")
    assert int(created.version) > 0
    read = await api.get(f"{namespace}/configmaps/a")
    assert read.body["data"] == {"port": "8080", "host": "lipari"}
    assert read.version == created.version


async def test_create_twice_is_already_exists(api: Client, namespace: str) -> None:
    await api.post(f"{namespace}/configmaps", config_map("a"))
    again = await api.post(f"{namespace}/configmaps", config_map("a"))
    assert (again.code, again.body["kind"], again.body["status"]) == (409, "Status", "Failure")
    assert again.body["reason"] == "AlreadyExists"
    assert again.body["details"]["name"] == "a"
    assert again.body["details"]["kind"] == "configmaps"


async def test_generate_name_makes_different_names(api: Client, namespace: str) -> None:
    body = {"metadata": {"generateName": "job-"}}
    names = [(await api.post(f"{namespace}/configmaps", body)).body["metadata"]["name"] for _ in range(2)]
    assert names[0] != names[1]
    assert all(len(name) == len("job-") + 5 and name.startswith("job-") for name in names)


async def test_refused_creates(api: Client, namespace: str) -> None:
    path = f"{namespace}/configmaps"
    nameless = await api.post(path, {"metadata": {}})
    assert (nameless.code, nameless.body["reason"]) == (422, "Invalid")
    misnamed = await api.post(path, {"metadata": {"name": "Not_A_Name"}})
    assert (misnamed.code, misnamed.body["reason"]) == (422, "Invalid")
    assert misnamed.body["details"]["causes"][0]["field"] == "metadata.name"
    elsewhere = await api.post(path, {"metadata": {"name": "a", "namespace": "elsewhere"}})
    assert (elsewhere.code, elsewhere.body["reason"]) == (400, "BadRequest")
    wrong_kind = await api.post(path, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}})
    assert (wrong_kind.code, wrong_kind.body["reason"]) == (400, "BadRequest")
    garbled = await api.post(path, b"{")
    assert (garbled.code, garbled.body["reason"]) == (400, "BadRequest")
    for metadata in ({"name": "a", "labels": ["x"]}, {"name": "a", "annotations": {"x": 1}}, {"name": 1}, "a"):
        shapeless = await api.post(path, {"metadata": metadata})
        assert (shapeless.code, shapeless.body["reason"]) == (400, "BadRequest"), metadata
    nowhere = await api.post("/api/v1/namespaces/no-such-place/configmaps", config_map("a"))
    assert (nowhere.code, nowhere.body["reason"]) == (404, "NotFound")


async def test_what_is_absent_is_not_found(api: Client, namespace: str) -> None:
    missing = await api.get(f"{namespace}/configmaps/none")
    assert (missing.code, missing.body["reason"]) == (404, "NotFound")
    assert missing.body["message"] == 'configmaps "none" not found'
    assert (await api.put(f"{namespace}/configmaps/none", config_map("none"))).code == 404
    assert (await api.patch(f"{namespace}/configmaps/none", MERGE_PATCH, {"data": {}})).code == 404
    assert (await api.delete(f"{namespace}/configmaps/none")).code == 404
    assert (await api.get(f"{namespace}/unheardof")).code == 404
    assert (await api.get("/apis/no.such.group/v1/things")).code == 404
    assert (await api.get("/api/v1/pods/unnamespaced")).code == 404


async def test_methods_and_media_types_that_do_not_fit(api: Client, namespace: str) -> None:
    assert (await api.request("POST", f"{namespace}/configmaps/a", {})).code == 405
    await api.post(f"{namespace}/configmaps", config_map("a"))
    patched = await api.patch(f"{namespace}/configmaps/a", "text/plain", {})
    assert (patched.code, patched.body["reason"]) == (415, "UnsupportedMediaType")
    posted = await api.request("POST", f"{namespace}/configmaps", {}, headers={"Content-Type": "application/unknown"})
    assert (posted.code, posted.body["reason"]) == (415, "UnsupportedMediaType")


async def test_put_replaces_and_checks_the_version(api: Client, namespace: str) -> None:
    created = (await api.post(f"{namespace}/configmaps", config_map("a"))).body
    changed = {**created, "data": {"port": "9090"}}
    replaced = await api.put(f"{namespace}/configmaps/a", changed)
    assert replaced.code == 200
    assert replaced.body["data"] == {"port": "9090"}
    assert int(replaced.version) > int(created["metadata"]["resourceVersion"])
    stale = await api.put(f"{namespace}/configmaps/a", changed)
    assert (stale.code, stale.body["reason"]) == (409, "Conflict")
    unconditional = await api.put(f"{namespace}/configmaps/a", config_map("a"))
    assert unconditional.code == 200
    assert unconditional.body["metadata"]["uid"] == created["metadata"]["uid"]
    assert unconditional.body["metadata"]["creationTimestamp"] == created["metadata"]["creationTimestamp"]


async def test_put_of_another_object_is_refused(api: Client, namespace: str) -> None:
    await api.post(f"{namespace}/configmaps", config_map("a"))
    renamed = await api.put(f"{namespace}/configmaps/a", config_map("b"))
    assert (renamed.code, renamed.body["reason"]) == (400, "BadRequest")
    body = {"metadata": {"name": "a", "uid": "00000000-0000-0000-0000-000000000000"}}
    other = await api.put(f"{namespace}/configmaps/a", body)
    assert (other.code, other.body["reason"]) == (409, "Conflict")


async def test_a_lease_needs_the_version_to_be_updated(api: Client, namespace: str) -> None:
    path = namespace.replace("/api/v1", "/apis/coordination.k8s.io/v1") + "/leases"
    body = {"metadata": {"name": "leader"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}}
    created = (await api.post(path, body)).body
    unconditional = await api.put(f"{path}/leader", body)
    assert (unconditional.code, unconditional.body["reason"]) == (422, "Invalid")
    renewed = await api.put(f"{path}/leader", {**created, "spec": {**created["spec"], "holderIdentity": "b"}})
    assert (renewed.code, renewed.body["spec"]["holderIdentity"]) == (200, "b")
    stale = await api.put(f"{path}/leader", {**created, "spec": {**created["spec"], "holderIdentity": "c"}})
    assert (stale.code, stale.body["reason"]) == (409, "Conflict")


async def test_a_write_without_change_keeps_the_version(api: Client, namespace: str) -> None:
    created = await api.post(f"{namespace}/configmaps", config_map("a", team="blue"))
    path = f"{namespace}/configmaps/a"
    put = await api.put(path, created.body)
    merged = await api.patch(path, MERGE_PATCH, {"metadata": {"labels": {"team": "blue"}}})
    tested = await api.patch(path, JSON_PATCH, [{"op": "test", "path": "/data/port", "value": "8080"}])
    strategic = await api.patch(path, STRATEGIC_PATCH, {"data": {"host": "lipari"}})
    for answer in (put, merged, tested, strategic):
        assert (answer.code, answer.version) == (200, created.version)


async def test_dry_run_changes_nothing(api: Client, namespace: str) -> None:
    path = f"{namespace}/configmaps"
    imagined = await api.post(path, config_map("a"), dryRun="All")
    assert (imagined.code, imagined.body["metadata"]["name"]) == (201, "a")
    assert (await api.get(f"{path}/a")).code == 404
    await api.post(path, config_map("a"))
    patched = await api.patch(f"{path}/a", MERGE_PATCH, {"data": {"port": "1"}}, dryRun="All")
    assert patched.body["data"]["port"] == "1"
    assert (await api.delete(f"{path}/a", dryRun="All")).code == 200
    assert (await api.get(f"{path}/a")).body["data"]["port"] == "8080"


async def test_delete_of_an_object_that_nothing_holds(api: Client, namespace: str) -> None:
    created = await api.post(f"{namespace}/configmaps", config_map("a"))
    deleted = await api.delete(f"{namespace}/configmaps/a")
    assert (deleted.code, deleted.body["kind"], deleted.body["status"]) == (200, "Status", "Success")
    assert deleted.body["details"]["uid"] == created.body["metadata"]["uid"]
    assert (await api.get(f"{namespace}/configmaps/a")).code == 404


async def test_delete_checks_its_preconditions(api: Client, namespace: str) -> None:
    created = (await api.post(f"{namespace}/configmaps", config_map("a"))).body
    path = f"{namespace}/configmaps/a"
    other_uid = await api.delete(path, {"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}})
    assert (other_uid.code, other_uid.body["reason"]) == (409, "Conflict")
    other_version = await api.delete(path, {"preconditions": {"resourceVersion": "1"}})
    assert (other_version.code, other_version.body["reason"]) == (409, "Conflict")
    uid = created["metadata"]["uid"]
    assert (await api.delete(path, {"preconditions": {"uid": uid}})).code == 200


async def test_a_finalizer_holds_an_object_until_it_is_removed(api: Client, namespace: str) -> None:
    body = config_map("a")
    body["metadata"]["finalizers"] = ["example.com/hold"]
    await api.post(f"{namespace}/configmaps", body)
    path = f"{namespace}/configmaps/a"
    held = await api.delete(path)
    assert held.code == 200
    assert held.body["metadata"]["deletionTimestamp"]
    assert (await api.get(path)).body["metadata"]["finalizers"] == ["example.com/hold"]
    undeleted = await api.patch(path, MERGE_PATCH, {"metadata": {"deletionTimestamp": None}})
    assert undeleted.body["metadata"]["deletionTimestamp"]
    released = await api.patch(path, MERGE_PATCH, {"metadata": {"finalizers": None}})
    assert released.code == 200
    assert (await api.get(path)).code == 404


async def test_delete_collection_takes_what_is_selected(api: Client, namespace: str) -> None:
    for name, team in (("a", "blue"), ("b", "red"), ("c", "blue")):
        await api.post(f"{namespace}/configmaps", config_map(name, team=team))
    deleted = await api.delete(f"{namespace}/configmaps", labelSelector="team=blue")
    assert deleted.code == 200
    left = await api.get(f"{namespace}/configmaps", labelSelector="team")
    assert [item["metadata"]["name"] for item in left.body["items"]] == ["b"]


async def test_a_namespace_goes_with_the_pods_in_it(api: Client, namespace: str) -> None:
    await api.post(f"{namespace}/pods", pod("a"))
    deleted = await api.delete(namespace)
    assert deleted.code == 200
    assert deleted.body["status"]["phase"] == "Terminating"
