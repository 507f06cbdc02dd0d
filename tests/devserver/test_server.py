"""What only the embedded server has: its options, its process, its fake kubelet."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import yaml

from stromboli.api.crd_schema import DEFINITIONS, custom_resource_definition
from stromboli.devserver import RUN_SECONDS, DevServer, Options, protobuf, write_kubeconfig
from tests.contract.client import STRATEGIC_PATCH, Client, Endpoint, Json, read_kubeconfig
from tests.contract.objects import config_map, ferry_definition, pod
from tests.controlplane.build import Binaries
from tests.devserver import protobuf_fields

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
NODE = {"metadata": {"name": "n1"}, "status": {"capacity": {"cpu": "8"}}}


@asynccontextmanager
async def serving(**options: float | bool) -> AsyncIterator[tuple[DevServer, Client]]:
    async with DevServer(Options(**options)) as server, aiohttp.ClientSession() as session:
        yield server, Client(Endpoint(server.url), session)


async def phase_of(api: Client, name: str, wanted: str) -> Json:
    """The pod, as soon as it is in the phase; "" stands for being gone."""
    async with api.watch(PODS, fieldSelector=f"metadata.name={name}", timeoutSeconds="20") as events:
        async for event in events:
            phase = "" if event["type"] == "DELETED" else event["object"]["status"]["phase"]
            if phase == wanted:
                body: Json = event["object"]
                return body
    raise AssertionError(f"pod {name} did not become {wanted or 'deleted'}")


async def bind(api: Client, name: str, node: str = "n1") -> None:
    answer = await api.post(f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": {"name": node}})
    assert answer.code == 201, answer.body


async def test_the_kubelet_runs_bound_pods_and_ends_deleted_ones() -> None:
    async with serving() as (_, api):
        await api.post("/api/v1/nodes", NODE)
        await api.post(PODS, pod("a"))
        await bind(api, "a")
        running = await phase_of(api, "a", "Running")
        assert {c["type"]: c["status"] for c in running["status"]["conditions"]}["Ready"] == "True"
        held = await api.delete(f"{PODS}/a")
        assert held.body["metadata"]["deletionGracePeriodSeconds"] == 30
        while (await api.get(f"{PODS}/a")).code != 404:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        conditions = (await api.get("/api/v1/nodes/n1")).body["status"]["conditions"]
        assert [(c["type"], c["status"]) for c in conditions] == [("Ready", "True")]


async def test_a_pod_with_a_duration_succeeds() -> None:
    async with serving() as (_, api):
        await api.post("/api/v1/nodes", NODE)
        body = pod("a")
        body["metadata"]["annotations"] = {RUN_SECONDS: "0.01"}
        await api.post(PODS, body)
        await bind(api, "a")
        finished = await phase_of(api, "a", "Succeeded")
        assert finished["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0


async def test_a_pod_waits_for_its_node() -> None:
    async with serving(start_delay=0.0) as (_, api):
        await api.post(PODS, pod("a"))
        await bind(api, "a")
        await asyncio.sleep(0.05)
        assert (await api.get(f"{PODS}/a")).body["status"]["phase"] == "Pending"
        await api.post("/api/v1/nodes", NODE)
        await phase_of(api, "a", "Running")


async def test_a_node_that_reports_itself_is_left_alone() -> None:
    async with serving() as (_, api):
        status = {**NODE["status"], "conditions": [{"type": "Ready", "status": "False"}]}
        created = await api.post("/api/v1/nodes", {**NODE, "status": status})
        await asyncio.sleep(0.05)
        assert (await api.get("/api/v1/nodes/n1")).version == created.version


async def test_a_short_log_forgets_versions() -> None:
    async with serving(kubelet=False, log_limit=2) as (_, api):
        version = (await api.get(MAPS)).version
        for name in "abcdef":
            await api.post(MAPS, config_map(name))
        async with api.watch(MAPS, resourceVersion=version) as events:
            event = await anext(events)
        assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
        recent = str(int((await api.get(MAPS)).version) - 1)
        async with api.watch(MAPS, resourceVersion=recent) as events:
            assert (await anext(events))["object"]["metadata"]["name"] == "f"


async def test_a_slow_watcher_is_told_that_it_missed_events() -> None:
    async with serving(kubelet=False, log_limit=1) as (server, api):
        maps = server.api.resource(("", "configmaps"))
        async with api.watch(MAPS, resourceVersion=str(server.api.store.version)) as events:
            for name in "abcdef":
                server.api.create(maps, "default", config_map(name))
            event = await anext(events)
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


async def test_a_continue_token_expires() -> None:
    async with serving(kubelet=False, continue_seconds=0.0) as (_, api):
        for name in "ab":
            await api.post(MAPS, config_map(name))
        token = (await api.get(MAPS, limit="1")).body["metadata"]["continue"]
        answer = await api.get(MAPS, limit="1", **{"continue": token})
        assert (answer.code, answer.body["reason"]) == (410, "Expired")


async def test_a_version_of_the_future_is_refused() -> None:
    async with serving(kubelet=False) as (_, api):
        for watch in ("true", "false"):
            answer = await api.get(MAPS, resourceVersion="999999", watch=watch)
            assert (answer.code, answer.body["reason"]) == (504, "Timeout")
            assert answer.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


async def test_bookmarks_of_an_idle_watch() -> None:
    async with serving(kubelet=False, bookmark_seconds=0.01) as (_, api):
        version = (await api.get(MAPS)).version
        async with api.watch(MAPS, resourceVersion=version, allowWatchBookmarks="true") as events:
            seen = [await anext(events) for _ in range(2)]
        assert [event["type"] for event in seen] == ["BOOKMARK", "BOOKMARK"]


#: `v1 ConfigMap` in the envelope of protobuf, before what it holds
ENVELOPE = b"k8s\x00\x0a\x0f\x0a\x02v1\x12\x09ConfigMap"


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"k8s", b"k8s\x00", b"{}", b"k8s\x00\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        *(ENVELOPE + b"\x12\xff", ENVELOPE + b"\x12\x02\x0a\x05", ENVELOPE + b"\x12\x02\x08\x01"),
        ENVELOPE + b"\x12\x04\x0a\x02\x0f\x00",
    ],
)
async def test_protobuf_that_cannot_be_read_is_refused(body: bytes) -> None:
    async with serving(kubelet=False) as (_, api):
        answer = await api.request("POST", MAPS, body, headers={"Content-Type": protobuf.MEDIA_TYPE})
        assert (answer.code, answer.body["reason"]) == (400, "BadRequest")


async def test_protobuf_of_what_has_none_is_refused() -> None:
    async with serving(kubelet=False) as (_, api):
        body = ENVELOPE.replace(b"ConfigMap", b"Configmap")
        answer = await api.request("POST", MAPS, body, headers={"Content-Type": protobuf.MEDIA_TYPE})
        assert (answer.code, answer.body["reason"]) == (415, "UnsupportedMediaType")


@pytest.mark.e2e
def test_the_fields_of_protobuf_are_those_of_kubernetes(binaries: Binaries) -> None:
    """`binaries` were built of the modules that the fields are read from."""
    assert protobuf.FIELDS.read_text() == protobuf_fields.written()


async def test_a_namespace_goes_when_its_last_object_has_gone() -> None:
    async with serving(kubelet=False) as (_, api):
        await api.post("/api/v1/namespaces", {"metadata": {"name": "team"}})
        body = config_map("held")
        body["metadata"]["finalizers"] = ["example.com/hold"]
        path = "/api/v1/namespaces/team/configmaps"
        await api.post(path, body)
        await api.post(path, config_map("free"))
        await api.delete("/api/v1/namespaces/team")
        assert (await api.get("/api/v1/namespaces/team")).body["status"]["phase"] == "Terminating"
        assert [i["metadata"]["name"] for i in (await api.get(path)).body["items"]] == ["held"]
        refused = await api.post(path, config_map("late"))
        assert (refused.code, refused.body["reason"]) == (403, "Forbidden")
        await api.patch(f"{path}/held", STRATEGIC_PATCH, {"metadata": {"finalizers": None}})
        assert (await api.get("/api/v1/namespaces/team")).code == 404


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        ({"minAvailable": 2}, 1),
        ({"minAvailable": "60%"}, 1),
        ({"maxUnavailable": 1}, 1),
        ({"maxUnavailable": "100%"}, 3),
    ],
)
async def test_evictions_until_the_budget_is_used(spec: Json, allowed: int) -> None:
    async with serving(kubelet=False) as (_, api):
        await api.post("/api/v1/nodes", NODE)
        budget = {"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec}}
        await api.post("/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget)
        codes = []
        for name in "abc":
            body = pod(name)
            body["metadata"]["labels"] = {"app": "web"}
            await api.post(PODS, body)
            await bind(api, name)
            status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            await api.patch(f"{PODS}/{name}/status", STRATEGIC_PATCH, {"status": status})
        for name in "abc":
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
            codes.append((await api.post(f"{PODS}/{name}/eviction", eviction)).code)
        assert codes == [201] * allowed + [429] * (3 - allowed)


async def test_the_definitions_of_the_scheduler_are_served() -> None:
    async with serving(kubelet=False) as (server, api):
        server.api.load(custom_resource_definition(definition) for definition in DEFINITIONS)
        queues = "/apis/scheduling.volcano.sh/v1beta1/queues"
        created = await api.post(queues, {"metadata": {"name": "gold"}, "spec": {"weight": 3}})
        assert (created.code, created.body["spec"]["weight"]) == (201, 3)
        groups = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
        created = await api.post(
            groups,
            {"metadata": {"name": "gang"}, "spec": {"minMember": 2}, "status": {"phase": "Pending"}},
        )
        assert created.code == 201
        assert created.body["spec"]["queue"] == "default"


def test_a_server_in_its_own_process_serves_manifests(tmp_path: Path) -> None:
    manifests, kubeconfig = tmp_path / "manifests.yaml", tmp_path / "kubeconfig"
    ferry = {
        "apiVersion": "sea.example.com/v1",
        "kind": "Ferry",
        "metadata": {"name": "laurana"},
        "spec": {"route": "milazzo"},
    }
    manifests.write_text(yaml.safe_dump_all([ferry_definition("sea.example.com"), ferry]))

    async def ask(url: str) -> Json:
        async with aiohttp.ClientSession() as session:
            body: Json = (await Client(Endpoint(url), session).get("/apis/sea.example.com/v1/ferries")).body
            return body

    with DevServer.spawn(Options(kubelet=False), kubeconfig=kubeconfig, manifests=(manifests,)) as url:
        assert read_kubeconfig(kubeconfig).url == url
        (item,) = asyncio.run(ask(url))["items"]
        assert item["spec"]["cabins"] == 4
    with pytest.raises(aiohttp.ClientConnectionError):
        asyncio.run(ask(url))


def test_a_server_that_cannot_start_says_so(tmp_path: Path) -> None:
    manifests = tmp_path / "manifests.yaml"
    manifests.write_text("apiVersion: v1\nkind: Unheardof\nmetadata: {name: a}\n")
    command = [sys.executable, "-m", "stromboli.devserver", f"--manifest={manifests}"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode != 0
    assert "no resource of kind Unheardof in v1 is served" in ended.stderr


async def test_many_writers_and_watchers_agree() -> None:
    """500 pods created and bound over 8 connections; two watchers see each version once and in order."""
    async with serving(kubelet=False) as (server, api):
        start = str(server.api.store.version)

        async def follow() -> list[int]:
            versions: list[int] = []
            async with api.watch(PODS, resourceVersion=start, timeoutSeconds="60") as events:
                while len(versions) < 1000:
                    versions.append(int((await anext(events))["object"]["metadata"]["resourceVersion"]))
            return versions

        watchers = [asyncio.create_task(follow()) for _ in range(2)]
        numbers = iter(range(500))

        async def write() -> None:
            for number in numbers:
                assert (await api.post(PODS, pod(f"p{number}"))).code == 201
                await bind(api, f"p{number}")

        await asyncio.gather(*(write() for _ in range(8)))
        first, second = await asyncio.gather(*watchers)
        assert first == second == sorted(set(first))


def test_a_kubeconfig_names_the_server(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    write_kubeconfig(path, "http://127.0.0.1:1234")
    assert read_kubeconfig(path) == Endpoint("http://127.0.0.1:1234")
