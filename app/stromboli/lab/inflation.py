"""Pods of a trace that arrive one after the other until they request more than the cluster has, and never end.

This is how "Beware of Fragmentation" (USENIX ATC 2023) measures how well policies pack cards. The pods of the trace
come in a random order for each seed, then pods drawn from it again, until they request `ratio` times all cards; if the
trace requests more, pods are left out. Nodes have a random order, too, which decides between equally good ones. A pod
that finds no node is not tried again, and counts as arrived.

Since nothing ends, one session decides about all pods as one session for each would: jobs have their turns in the order
of their creation.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import yaml

from stromboli.api import crds, objects
from stromboli.api.decisions import Bind
from stromboli.api.errors import StromboliError
from stromboli.api.resources import Mask, Rows, Vector
from stromboli.discovery import discover
from stromboli.engine import Engine
from stromboli.framework.registry import Registry
from stromboli.lab.cluster import open_queue
from stromboli.lab.readers.openb import CARD, TraceNode, TracePod
from stromboli.simulation.synthetic import undisturbed
from stromboli.state.cluster import ClusterState
from stromboli.state.pods import GROUP_ANNOTATION, timestamp
from stromboli.state.reads import Reads

_NAMESPACE = "default"
#: kinds of pods by the cards that they ask for
KINDS = ("no card", "part of a card", "one card", "several cards")


class InflationError(StromboliError):
    """A trace or a policy with which nothing can be measured."""


@dataclass(frozen=True, slots=True)
class Inflated:
    """The outcome for each pod, in order of arrival."""

    #: thousandths of cards that all nodes have
    capacity: int
    #: thousandths that each pod asks for
    asked: Vector
    #: whether it got a node
    placed: Mask
    #: the kind of each pod, as `KINDS` numbers them
    kind: Rows

    def placed_by_kind(self) -> dict[str, dict[str, float]]:
        """Number of pods of each kind, and the percentage of them that got a node."""
        found = {}
        for number, name in enumerate(KINDS):
            of_kind = self.kind == number
            if of_kind.any():
                found[name] = {
                    "pods": float(of_kind.sum()),
                    "placed": 100 * float(self.placed[of_kind].mean()),
                }
        return found

    def allocation(self, most: int) -> Vector:
        """The allocated part of all cards in percent, when 0, 1, ... `most` percent of them had been asked for.

        Each is a mean over what is rounded to it; NaN where nothing is near.
        """
        percent = self.capacity / 100
        arrived = np.rint(np.cumsum(self.asked) / percent).astype(np.intp)
        used = np.round(np.cumsum(self.asked * self.placed) / percent, 2)
        out = np.full(most + 1, np.nan)
        for at in range(most + 1):
            near = arrived == at
            if not near.any():
                near = np.abs(arrived - at) <= 1
            if near.any():
                out[at] = round(float(used[near].mean()), 2)
        return out


def inflate(
    nodes: Sequence[TraceNode],
    pods: Sequence[TracePod],
    policy: str,
    seed: int,
    *,
    ratio: float = 1.3,
    registry: Registry | None = None,
) -> Inflated:
    """Let pods arrive under a policy. Raises InflationError and PolicyError."""
    registry = registry or discover()
    # Its mistakes are reported before it is read as plain data.
    Engine(policy, registry=registry)
    capacity = CARD * sum(node.cards for node in nodes)
    if not capacity:
        raise InflationError("the nodes of the trace have no cards")
    draws = random.Random(seed)
    arriving = _tuned(pods, int(ratio * capacity), draws)
    ranked = list(nodes)
    draws.shuffle(ranked)
    engine = Engine(_told(policy, pods, seed), registry=registry).unbounded()
    with undisturbed():
        result = engine.decide(_cluster(ranked, arriving, engine.registry.reads).snapshot(), now=0.0)
    if result.session.failures:
        raise InflationError(f"a plugin failed: {result.session.failures[0]}")
    bound = {decision.key for decision in result.decisions if isinstance(decision, Bind)}
    return Inflated(
        capacity,
        np.array([pod.thousandths for pod in arriving], np.float64),
        np.array([f"{_NAMESPACE}/{_name(number)}" in bound for number in range(len(arriving))], np.bool_),
        np.array([_kind(pod) for pod in arriving], np.intp),
    )


def _kind(pod: TracePod) -> int:
    return 0 if not pod.cards else 3 if pod.cards > 1 else 2 if pod.part == CARD else 1


def _tuned(pods: Sequence[TracePod], target: int, draws: random.Random) -> list[TracePod]:
    """The pods in random order, as many as ask for the target, or a little more."""
    of_trace = sorted(pods, key=lambda pod: pod.name)
    if not any(pod.cards for pod in pods):
        raise InflationError("no pod of the trace asks for cards")
    arriving = of_trace.copy()
    draws.shuffle(arriving)
    total = sum(pod.thousandths for pod in arriving)
    while total > target:
        total -= arriving.pop(draws.randrange(len(arriving))).thousandths
    if len(arriving) == len(of_trace):
        # What is compared with the target is one card of each drawn pod, so that one with several may exceed it.
        while total + (drawn := draws.choice(of_trace)).part <= target:
            arriving.append(drawn)
            total += drawn.thousandths
    return arriving


def _told(policy: str, pods: Sequence[TracePod], seed: int) -> str:
    """A policy with the typical pods that the plugin fgd would have learned from the trace, and the seed."""
    document = yaml.safe_load(policy)
    tiers = document.get("tiers") if isinstance(document, dict) else None
    plugins = [plugin for tier in tiers or () for plugin in tier.get("plugins") or ()]
    named = {plugin.get("name"): plugin for plugin in plugins}
    if not named.keys() & {"fgd", "deviceshare"}:
        raise InflationError("the policy counts no cards: it should name the plugin fgd, or deviceshare")
    if "fgd" in named:
        arguments = named["fgd"]["arguments"] = dict(named["fgd"].get("arguments") or {})
        counts = Counter((pod.cpu, pod.cards, pod.part, pod.models) for pod in pods)
        keys = ("cpu", "cards", "part", "types", "weight")
        typical = [dict(zip(keys, (*what, weight), strict=True)) for what, weight in counts.items()]
        arguments.setdefault("fgd.typicalPods", typical)
        arguments.setdefault("fgd.seed", seed)
    return json.dumps(document)


def _cluster(nodes: Sequence[TraceNode], pods: Sequence[TracePod], reads: Reads) -> ClusterState:
    """The nodes in order, and each pod as a job of its own."""
    state = ClusterState(("stromboli",), reads=reads)
    state.upsert("Queue", open_queue("default"))
    for rank, node in enumerate(nodes):
        state.upsert("Node", node.manifest(f"{rank:05}-{node.name}"))
    for number, pod in enumerate(pods):
        name, created = _name(number), timestamp(float(number + 1))
        meta = crds.Metadata(name=name, namespace=_NAMESPACE, creation_timestamp=created)
        state.upsert(
            "PodGroup",
            crds.PodGroup(
                metadata=meta, spec=crds.PodGroupSpec(min_member=1), status=crds.PodGroupStatus(phase="Inqueue")
            ),
        )
        annotations = {GROUP_ANNOTATION: name, **pod.annotations()}
        of_pod = objects.Metadata(name, _NAMESPACE, uid=name, creation_timestamp=created, annotations=annotations)
        state.upsert("Pod", objects.Pod(metadata=of_pod, spec=pod.spec(), status=objects.PodStatus(phase="Pending")))
    return state


def _name(number: int) -> str:
    return f"pod-{number:06}"
