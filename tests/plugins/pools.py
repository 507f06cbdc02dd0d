"""Node pools in tests: policies that name them, their nodes, shares of queues in them, and jobs that may use them."""

from __future__ import annotations

from typing import Any

import yaml

from stromboli.api.crds import NODE_POOLS
from stromboli.api.objects import Metadata, PriorityClass
from tests.builders import gang, node, pod, pod_group, queue

CLASSES = [PriorityClass(metadata=Metadata(name=name), value=value) for name, value in (("low", 1), ("high", 10))]


def policy(*pools: str, actions: str = "allocate", **switches: bool) -> str:
    """A policy in which pools are named by the label `pool`, in front of capacity."""
    named = [{"name": name, "nodeSelector": {"pool": name}} for name in pools or ("a", "b")]
    above = [{"name": name} for name in ("priority", "gang", "conformance")]
    below = [{"name": "predicates"}, {"name": "capacity", **switches}]
    by_pool = {"name": "nodepools", "arguments": {"pools": named}, **switches}
    tiers = [{"plugins": plugins} for plugins in (above, [by_pool], below)]
    return yaml.safe_dump({"actions": actions, "tiers": tiers})


def in_pool(name: str, cpu: str = "4"):
    """A node that is named like its pool, up to the first digit."""
    return node(name, cpu=cpu, labels={"pool": name.rstrip("0123456789")})


def shares(name: str, *, parent: str = "", **pools: dict[str, Any]):
    """A queue with amounts of cpu by pool; a guarantee is written like the others."""
    listed = []
    for pool, said in pools.items():
        of = {word: {"cpu": amount} for word, amount in said.items()}
        if "guarantee" in of:
            of["guarantee"] = {"resource": of["guarantee"]}
        listed.append({"name": pool, **of})
    return queue(name, pools=listed, **({"parent": parent} if parent else {}))


def job(name: str, count: int, pools: str = "", *, least: int | None = None, owner: str = "team", **spec: Any):
    """A job with pods of one cpu, which may use some pools."""
    group = pod_group(name, count if least is None else least, queue=owner, **spec)
    if pools:
        group.metadata.annotations[NODE_POOLS] = pools
    return [group, *gang(name, count)]


def running(name: str, *nodes: str, owner: str = "team", least: int = 1, **spec: Any):
    """A job whose pods run."""
    group = pod_group(name, least, queue=owner, phase="Running", **spec)
    return [group, *(pod(f"{name}-{at}", name, node=where) for at, where in enumerate(nodes))]
