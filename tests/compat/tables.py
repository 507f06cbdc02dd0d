"""Recorded answers of kube-scheduler's filter plugins, asked of `simulate` and of the extender's `/filter`.

A case is a List of objects with one pending pod, and the nodes that one of kube-scheduler's plugins passes for it.
What passes here has to be among these nodes, and some node has to pass if one does there. Where only the outcome of the
whole scheduler was recorded, either both find a node or neither does.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
from prometheus_client import CollectorRegistry

from stromboli.discovery import discover
from stromboli.engine import Engine
from stromboli.extender import Published, Standing
from stromboli.framework.registry import Registry
from stromboli.http.server import Probes, make_app
from stromboli.policy.document import DEFAULT_POLICY
from stromboli.simulation.admission import admit
from stromboli.simulation.manifests import load
from stromboli.simulation.run import feed, run
from stromboli.state.cluster import ClusterState
from stromboli.state.pods import seconds

SCHEDULER = "stromboli"

#: when the answers were recorded: some claims were allocated minutes before
RECORDED = "2026-11-23T20:38:00Z"

#: admits pods when all others had their turn, so that `/filter` judges every node instead of naming a decided one
UNDECIDED = """
actions: "allocate, backfill, enqueue"
tiers:
- plugins:
  - name: predicates
"""


@dataclass(frozen=True, slots=True)
class Case:
    """One recorded answer; `nodes` is None where only `fits` is known."""

    path: Path
    family: str
    name: str
    nodes: frozenset[str] | None
    fits: bool

    def difference(self, passing: set[str]) -> str | None:
        """How the nodes that pass here differ from kube-scheduler's answer; None when they agree."""
        if bool(passing) == self.fits and (self.nodes is None or passing <= self.nodes):
            return None
        wanted = ("a node" if self.fits else "no node") if self.nodes is None else (sorted(self.nodes) or "no node")
        return f"kube-scheduler passes {wanted}, here {sorted(passing) or 'no node'}"


def recorded() -> Path:
    """The folder with `expected.jsonl` and `cases`; it may not be there."""
    beside = Path(__file__).parents[3] / "shared" / "kubernetes-tables"
    return Path(os.environ.get("STROMBOLI_KUBERNETES_TABLES") or beside)


def cases(folder: Path) -> Iterator[Case]:
    """The cases of a folder, in order."""
    for line in (folder / "expected.jsonl").read_text().splitlines():
        row = json.loads(line)
        nodes = None if row["nodes"] is None else frozenset(row["nodes"])
        yield Case(folder / "cases" / row["file"], row["family"], row["name"], nodes, row["fits"])


def simulated(case: Case) -> set[str]:
    """The node to which `stromboli simulate` would bind the pending pod, or none."""
    state = state_of(case.path)
    return set(run(_engine(DEFAULT_POLICY), state, now=seconds(RECORDED)).bindings.values())


async def filtered(case: Case) -> set[str]:
    """The nodes that `/filter` passes when it is asked about the pending pod and all nodes."""
    items = json.loads(case.path.read_text())["items"]
    return await passing(items, state_of(case.path), seconds(RECORDED))


async def passing(items: Sequence[Mapping[str, Any]], state: ClusterState, now: float) -> set[str]:
    """The nodes that `/filter` passes for the pending pod of some objects and their state, at a Unix time."""
    pod = next(i for i in items if i["kind"] == "Pod" and i["spec"].get("schedulerName") == SCHEDULER)
    names = [item["metadata"]["name"] for item in items if item["kind"] == "Node"]
    published = Published(run(_engine(UNDECIDED), state, now=now).session, state.pods.by_key)
    app = make_app(Standing(lambda: published), CollectorRegistry(), Probes())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://stromboli") as http:
        response = await http.post("/filter", json={"Pod": pod, "Nodes": None, "NodeNames": names})
    response.raise_for_status()
    return set(response.json()["NodeNames"] or ())


def excused() -> dict[str, str]:
    """Cases that cannot agree, by file name, each with its reason."""
    lines = (Path(__file__).parent / "disagreements.txt").read_text().splitlines()
    return {name: why for name, _, why in (line.partition(": ") for line in lines if line and line[0] != "#")}


async def differences(case: Case) -> list[str]:
    """A line for each way of asking that gets another answer than kube-scheduler gave; empty when all agree."""
    try:
        answers = {"simulate": simulated(case), "/filter": await filtered(case)}
    except Exception as error:
        return [f"failed: {error!r}"]
    return [f"{way}: {difference}" for way, nodes in answers.items() if (difference := case.difference(nodes))]


def state_of(path: Path) -> ClusterState:
    """The objects of a file, as the commands read them. Raises ValueError for what is refused."""
    loaded = load([str(path)], BytesIO(), lenient=True)
    if loaded.problems:
        raise ValueError("; ".join(loaded.problems))
    state = ClusterState([SCHEDULER], reads=_registry().reads)
    feed(state, admit(loaded, [SCHEDULER]))
    return state


@cache
def _registry() -> Registry:
    return discover()


@cache
def _engine(policy: str) -> Engine:
    return Engine(policy, registry=_registry())
