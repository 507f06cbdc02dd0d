"""How the process ends: when it is told to, whatever hangs, and by itself when it cannot go on."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.live.cluster import SCHEDULING, Cluster
from tests.live.conftest import until

pytestmark = pytest.mark.exhaustive

ROOT = Path(__file__).parents[2]
State: TypeAlias = Callable[[Cluster], AbstractContextManager[object]]
Run: TypeAlias = Callable[..., Awaitable[Process]]
LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/stromboli"
#: seconds after which only a failure still waits
_PATIENCE = 120


@pytest.fixture
async def spawn(cluster: Cluster) -> AsyncIterator[Run]:
    """Start Python on a module or a program; what still runs is killed with the test."""
    processes: list[Process] = []

    async def spawn(*args: str) -> Process:
        process = await asyncio.create_subprocess_exec(sys.executable, *args, cwd=ROOT, stderr=PIPE)
        processes.append(process)
        return process

    yield spawn
    for process in processes:
        if process.returncode is None:
            process.kill()
            await process.wait()


def command(cluster: Cluster, *options: str) -> tuple[str, ...]:
    place = ("--kubeconfig", str(cluster.kubeconfig), "--listen", "127.0.0.1:0")
    return ("-m", "stromboli", "run", *place, *options)


async def until_said(process: Process, sign: str) -> list[str]:
    """What the process says, up to the line that holds the sign."""
    assert process.stderr is not None
    said: list[str] = []
    while not said or sign not in said[-1]:
        said.append((await asyncio.wait_for(process.stderr.readline(), _PATIENCE)).decode())
        assert said[-1], said
    return said


async def ended(process: Process) -> tuple[int | None, list[str]]:
    """The exit code, and what the process said."""
    _, errors = await asyncio.wait_for(process.communicate(), _PATIENCE)
    return process.returncode, errors.decode().splitlines()


@contextmanager
def definitions_missing(cluster: Cluster) -> Iterator[None]:
    for name in ("queues", "podgroups"):
        cluster.delete(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}.scheduling.volcano.sh")
    yield


@contextmanager
def nobody_listens(cluster: Cluster) -> Iterator[None]:
    cluster.disconnect()
    yield
    cluster.reconnect()


#: what the service finds, and what tells that it has got there: part of a log line
_LEASE = ("--leader-elect",)
STATES: dict[str, tuple[State, str, tuple[str, ...]]] = {
    "at work": (lambda cluster: nullcontext(), " synced ", ()),
    "without the lease": (lambda cluster: cluster.held("POST", "/leases", 1_000), " synced ", _LEASE),
    "while definitions are missing": (definitions_missing, "kind=PodGroup", ()),
    "while a list hangs": (lambda cluster: cluster.held("GET", "/nodes?", 1_000), " listed ", ()),
    "while everything hangs": (lambda cluster: cluster.held("GET", "/", 1_000), "the API server is not ready", ()),
    "while watches hang": (lambda cluster: cluster.held("GET", "watch=true", 1_000), " synced ", ()),
    "while nobody listens": (nobody_listens, "list failed", ()),
}  # fmt: skip


@pytest.mark.parametrize(("state", "sign", "flags"), STATES.values(), ids=STATES)
async def test_sigterm_ends_the_process(
    cluster: Cluster, spawn: Run, state: State, sign: str, flags: tuple[str, ...]
) -> None:
    with state(cluster):
        process = await spawn(*command(cluster, *flags))
        said = await until_said(process, sign)
        process.send_signal(signal.SIGTERM)
        code, more = await ended(process)
    assert code == 0, said + more
    assert not any("Traceback" in line for line in said + more)


SERVICE = """
import asyncio, sys, time
from stromboli.discovery import discover
from stromboli.engine import Engine
from stromboli.framework.plugin.base import Plugin
from stromboli.framework.registry import Registry
from stromboli.live.service import Service
from stromboli.live.settings import Settings
from stromboli.live.process.watchdog import end_within
from tests import builders

def waits():
    while True:
        time.sleep(0.01)

class Hangs(Plugin):
    name = "hangs"

    {method}

def engine(text):
    known = discover()
    registry = Registry(known.actions, known.plugins | {{"hangs": Hangs}})
    return Engine(builders.policy("hangs priority gang", "predicates", actions="enqueue, allocate"), registry=registry)

async def main():
    service = Service(Settings(kubeconfig={kubeconfig!r}, session_timeout=3.0), engine, reads=builders.READS)
    await service.start()
    while not service.stuck():
        await asyncio.sleep(0.05)
    assert service.notes() == service.stuck()
    print(service.stuck(), file=sys.stderr, flush=True)
    await service.wait()
    end_within(1.0)

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("method", "at"),
    [
        ("def node_order(self, pod, nodes):\n        waits()", "Hangs.node_order (<string>:"),
        ("predicate = staticmethod(lambda pod, nodes=None: waits())", "Hangs.<lambda> (<string>:"),
        ("def job_valid(self, job):\n        return waits()", "Hangs.job_valid (<string>:"),
    ],
)
async def test_a_plugin_that_never_returns_is_named_and_does_not_hold_the_end(
    cluster: Cluster, spawn: Run, method: str, at: str
) -> None:
    cluster.gang("train", 2)
    process = await spawn("-c", SERVICE.format(kubeconfig=str(cluster.kubeconfig), method=method))
    said = await until_said(process, f"plugin hangs: {at}")
    assert "session takes long" in said[-1]
    said = await until_said(process, "a session has been running for 3 s")
    assert f"in plugin hangs: {at}" in said[-1]
    process.send_signal(signal.SIGTERM)
    code, said = await ended(process)
    assert code == 1
    assert any("exit forced" in line and "session_0" in line for line in said)


BLOCKED = """
import asyncio
from stromboli.live.process.watchdog import watch_loop

async def main():
    watching = asyncio.create_task(watch_loop(3.0))
    await asyncio.sleep(1.5)
    while True:
        pass

asyncio.run(main())
"""


async def test_a_loop_that_stands_still_ends_the_process(cluster: Cluster, spawn: Run) -> None:
    code, said = await ended(await spawn("-c", BLOCKED))
    assert code == 1
    assert any("in main" in line for line in said)


async def test_losing_the_lease_ends_the_process_in_one_line(cluster: Cluster, spawn: Run) -> None:
    process = await spawn(*command(cluster, "--leader-elect"))
    await until(lambda: len(cluster.items(f"{SCHEDULING}/queues")) == 2)
    cluster.patch(LEASE, {"spec": {"holderIdentity": "another"}})
    code, said = await ended(process)
    assert code == 1
    assert not any("Traceback" in line for line in said)
    assert said[-1].startswith("LeadershipLostError: ")


SLOW = """
import time
from stromboli.framework import Plugin

class Slow(Plugin):
    name = "slow"

    def open(self, view):
        if len(view.jobs) > 1:
            print("slow session", file=__import__("sys").stderr, flush=True)
            time.sleep(1000)
"""


async def test_the_next_leads_at_once_whatever_hangs(cluster: Cluster, spawn: Run, tmp_path: Path) -> None:
    """What queues held cannot be written, and a session takes long: neither holds the lease, nor fails the process."""
    (tmp_path / "slow.py").write_text(SLOW)
    plugins = "{name: gang}, {name: fairshare, arguments: {usage.halfLife: 1h}}, {name: slow}"
    (tmp_path / "policy").write_text(f"actions: enqueue, allocate\ntiers: [{{plugins: [{plugins}]}}]")
    options = ("--policy", str(tmp_path / "policy"), "--plugins-dir", str(tmp_path), "--leader-elect")
    with cluster.held("POST", "/configmaps", 1_000), cluster.held("PUT", "/configmaps", 1_000):
        process = await spawn(*command(cluster, *options))
        await until(lambda: len(cluster.items(f"{SCHEDULING}/queues")) == 2)
        cluster.gang("a", 1)
        await until(lambda: cluster.all_bound(1))
        cluster.gang("b", 1)
        await until_said(process, "slow session")
        process.send_signal(signal.SIGTERM)
        await until_said(process, "usage of queues not written")
        await until(lambda: cluster.get(LEASE)["spec"]["holderIdentity"] == "")
        assert process.returncode is None
        code, said = await ended(process)
    assert code == 0
    assert any("exit forced" in line and "session_0" in line for line in said)
