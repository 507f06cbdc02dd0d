"""Commands in containers of simulated pods."""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path

import aiohttp
import pytest

from tests.controlplane.build import control_plane
from tests.controlplane.cluster import Cluster, eventually
from tests.e2e.world import CORE, World, pod
from tests.suites import commands
from tests.suites.kubelet import stages

_PROTOCOL = "v4.channel.k8s.io"
#: channels of that protocol, by the first byte of a message
_OUT, _RESULT = 1, 3


async def execute(cluster: Cluster, path: str, *command: str) -> tuple[str, str]:
    """What a command in a pod prints, and its result."""
    asked = [("stdout", "1"), ("stderr", "1"), *(("command", word) for word in command)]
    trusted = ssl.create_default_context(cafile=str(cluster.ca_file))
    said = {_OUT: b"", _RESULT: b"{}"}
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {cluster.token()}"}) as session,
        session.ws_connect(f"{cluster.url}{path}/exec", params=asked, ssl=trusted, protocols=(_PROTOCOL,)) as answers,
    ):
        async for message in answers:
            said[message.data[0]] = message.data[1:]
    return said[_OUT].decode(), json.loads(said[_RESULT])["status"]


@pytest.mark.e2e
def test_commands_run_in_pods_and_on_their_node_and_leave_the_machine_as_it_is(tmp_path: Path) -> None:
    binaries, answers = commands.that_run(control_plane(), tmp_path)
    with Cluster(binaries) as cluster:
        cluster.start_kwok(stages(binaries, tmp_path), answers)
        world = World(cluster, "commands")
        world.begin()
        world.nodes(1, "4")
        pods = f"{CORE}/namespaces/commands/pods"
        world.create(pods, pod("p", nodeName="node-0"))
        eventually(lambda: world.items(pods)[0]["status"]["phase"] == "Running", 60)
        folder = tmp_path / "volume"
        on_node = ("nsenter", "--mount=/rootfs/proc/1/ns/mnt", "--", "sh", "-c")
        in_pod = ("/bin/sh", "-c")
        told = [
            asyncio.run(execute(cluster, f"{pods}/p", *command))
            for command in (
                (*on_node, f'mkdir -p "{folder}" && ls -d {folder}'),
                (*in_pod, "mkdir -p /mnt/commands; echo hello > /mnt/commands/file"),
                (*in_pod, "cat /mnt/commands/file"),
                (*in_pod, "exit 3"),
            )
        ]
    assert told == [(f"{folder}\n", "Success"), ("", "Success"), ("hello\n", "Success"), ("", "Failure")]
    assert not Path("/mnt/commands").exists()
