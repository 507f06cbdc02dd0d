"""Queues are opened and closed: by Commands, from the command line, and with their parents."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stromboli.cli import make_app
from stromboli.live.api_server.client import Credentials, Kube
from stromboli.live.reporting.status import StatusWriter
from stromboli.live.watch.mirror import Mirror
from stromboli.state.cluster import ClusterState
from tests.live.cluster import SCHEDULING, Cluster, Object
from tests.live.conftest import Recorder, StartService, until

BUS = "/apis/bus.volcano.sh/v1alpha1/namespaces/default/commands"
COMMANDS: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "commands.bus.volcano.sh"},
    "spec": {
        "group": "bus.volcano.sh",
        "names": {"kind": "Command", "plural": "commands", "singular": "command", "listKind": "CommandList"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}

#: what a definition of queues may be that says nothing of them
LOOSE = [
    {
        "name": "v1beta1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
]


def queue(cluster: Cluster, name: str, parent: str = "") -> None:
    manifest: Object = {"metadata": {"name": name}, "spec": {"weight": 1, **({"parent": parent} if parent else {})}}
    cluster.create(f"{SCHEDULING}/queues", {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", **manifest})


def states(cluster: Cluster) -> dict[str, str]:
    found = cluster.items(f"{SCHEDULING}/queues")
    return {each["metadata"]["name"]: each.get("status", {}).get("state", "") for each in found}


def command(cluster: Cluster, action: str, target: str, kind: str = "Queue") -> None:
    aim = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": kind, "name": target, "uid": "1"}
    named = {"apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command", "metadata": {"generateName": "command-"}}
    cluster.create(BUS, {**named, "action": action, "target": aim})


@pytest.fixture
async def tree(cluster: Cluster, start: StartService) -> Cluster:
    """A service, and queues dept > team > squad beside other."""
    cluster.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", COMMANDS)
    for name, parent in (("dept", ""), ("team", "dept"), ("squad", "team"), ("other", "")):
        queue(cluster, name, parent)
    await start()
    await until(lambda: all(state == "Open" for state in states(cluster).values()))
    return cluster


async def becomes(cluster: Cluster, **wanted: str) -> None:
    await until(lambda: wanted.items() <= states(cluster).items(), f"{wanted}: {states(cluster)}")


async def test_commands_close_and_open_a_queue_with_all_below_it(tree: Cluster) -> None:
    command(tree, "CloseQueue", "squad")
    await becomes(tree, squad="Closed", team="Open")
    command(tree, "CloseQueue", "dept")
    await becomes(tree, dept="Closed", team="Closed", squad="Closed", other="Open")
    command(tree, "OpenQueue", "dept")
    await becomes(tree, dept="Open", team="Open")
    assert states(tree)["squad"] == "Closed", "it was closed for itself"
    await until(lambda: tree.items(BUS) == [])


async def test_what_is_below_is_closed_whatever_else_is_asked_for(tree: Cluster) -> None:
    command(tree, "CloseQueue", "dept")
    for _ in range(20):
        command(tree, "CloseQueue", "root")
    await becomes(tree, dept="Closed", team="Closed", squad="Closed", root="Open")


@pytest.mark.parametrize(("action", "target"), [("CloseQueue", "root"), ("OpenQueue", "team")])
async def test_a_command_that_cannot_be_obeyed_is_refused_and_gone(tree: Cluster, action: str, target: str) -> None:
    tree.patch(f"{SCHEDULING}/queues/dept/status", {"status": {"state": "Closing"}})
    await becomes(tree, dept="Closed", team="Closed")
    command(tree, action, target)
    await until(lambda: "CommandRefused" in tree.reasons() and tree.items(BUS) == [])
    assert (states(tree)["root"], states(tree)["team"]) == ("Open", "Closed")


@pytest.mark.parametrize("target", ["../../../../api/v1/nodes/n0", "other?x=y", "other/status", "", "absent", "odd"])
@pytest.mark.one_in(3)
async def test_a_command_for_what_is_no_queue_is_gone_and_leaves_no_trace(tree: Cluster, target: str) -> None:
    """A queue of another version's definition may be malformed."""
    tree.patch(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/queues.scheduling.volcano.sh",
        {"spec": {"versions": LOOSE}},
    )
    spec = {"capability": "a lot"}
    odd: Object = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "odd"}}
    tree.create(f"{SCHEDULING}/queues", {**odd, "spec": spec})
    before = tree.count("GET", "n0")
    command(tree, "CloseQueue", target)
    command(tree, "CloseQueue", "squad")
    await becomes(tree, squad="Closed", other="Open")
    await until(lambda: tree.items(BUS) == [])
    assert tree.count("GET", "n0") == before


async def test_what_nobody_here_obeys_is_left_to_others(tree: Cluster) -> None:
    command(tree, "AbortJob", "squad", kind="Job")
    command(tree, "CloseQueue", "squad")
    await becomes(tree, squad="Closed")
    assert [each["action"] for each in tree.items(BUS)] == ["AbortJob"]


async def test_a_new_queue_below_a_closed_one_is_closed(tree: Cluster) -> None:
    tree.patch(f"{SCHEDULING}/queues/dept/status", {"status": {"state": "Closing"}})
    await becomes(tree, dept="Closed")
    queue(tree, "late", "dept")
    await becomes(tree, late="Closed")


async def test_queues_that_are_closed_as_soon_as_they_are_made_stay_closed(tree: Cluster) -> None:
    """A queue can be closed before it was opened, and before the service knows of it."""
    names = [f"new-{number}" for number in range(40)]
    for name in names:
        queue(tree, name)
        command(tree, "CloseQueue", name)
    await becomes(tree, **dict.fromkeys(names, "Closed"))
    await until(lambda: tree.items(BUS) == [])
    assert not [name for name in names if states(tree)[name] != "Closed"]


async def test_a_state_that_follows_from_what_a_queue_was_is_not_written_over_what_it_is(cluster: Cluster) -> None:
    cluster.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", COMMANDS)
    queue(cluster, "new")
    (made,) = cluster.items(f"{SCHEDULING}/queues")
    cluster.patch(f"{SCHEDULING}/queues/new/status", {"status": {"state": "Closing"}})
    seen, kube = Recorder(), Kube(Credentials.load(cluster.kubeconfig))
    writer = StatusWriter(kube, Mirror(ClusterState(["stromboli"]), lambda urgent: None, seen), seen, 100.0)
    work = asyncio.create_task(writer.run())
    writer.put("Queue", "new", {"state": "Open"}, version=made["metadata"]["resourceVersion"])
    await until(lambda: ("Queue", "outdated") in seen.statuses)
    assert states(cluster)["new"] == "Closing"
    (closing,) = cluster.items(f"{SCHEDULING}/queues")
    writer.put("Queue", "new", {"state": "Closed"}, version=closing["metadata"]["resourceVersion"])
    await becomes(cluster, new="Closed")
    work.cancel()
    await kube.close()


async def test_a_queue_that_is_opened_while_it_closes_stays_open(tree: Cluster) -> None:
    for _ in range(20):
        command(tree, "CloseQueue", "other")
        command(tree, "OpenQueue", "other")
        await until(lambda: tree.items(BUS) == [])
        await becomes(tree, other="Open")


def stromboli(kubeconfig: Path, *arguments: str) -> tuple[int, str]:
    result: Any = CliRunner().invoke(make_app(), ["queue", *arguments, "--kubeconfig", str(kubeconfig)])
    return result.exit_code, result.output.strip()


def test_the_command_line(cluster: Cluster) -> None:
    """Without a service the state is written, and the service carries it on when it comes."""
    for name, parent in (("dept", ""), ("team", "dept")):
        queue(cluster, name, parent)
    at = cluster.kubeconfig
    assert stromboli(at, "open", "dept") == (0, "queue dept is open now")
    assert stromboli(at, "close", "dept") == (0, "queue dept is closed now")
    assert states(cluster)["dept"] == "Closing"
    assert stromboli(at, "close", "dept") == (0, "queue dept is already closed")
    assert stromboli(at, "open", "team") == (2, "queue team: its ancestor, queue dept, is closed")
    assert stromboli(at, "close", "gone") == (1, "there is no queue gone")
