"""ImageLocality: nodes that have a pod's images already, the more so the more nodes have them."""

from __future__ import annotations

from collections import Counter

import numpy as np

from stromboli.api import objects
from stromboli.api.resources import Vector
from stromboli.state.nodes import NodeFacts
from stromboli.state.selectors import derived

_MB = 1024 * 1024
_LEAST = 23 * _MB
_MOST_PER_CONTAINER = 1000 * _MB


def image_nodes(facts: NodeFacts) -> dict[str, dict[int, int]]:
    """For each image name the nodes that have it, with its size there in bytes."""
    out: dict[str, dict[int, int]] = {}
    for row, record in enumerate(facts.records):
        for image in record.images:
            for name in image.names or ():
                out.setdefault(name, {})[row] = image.size_bytes or 0
    return out


def image_locality(spec: objects.PodSpec, facts: NodeFacts) -> Vector | None:
    """A score from 0 to 100 for each node, shape (nodes,); None when no node has an image of the pod."""
    nodes_with = derived(facts, image_nodes)
    if not nodes_with:
        return None
    containers = [*(spec.init_containers or ()), *(spec.containers or ())]
    wanted = Counter(normalized(container.image or "") for container in containers)
    total = np.zeros(len(facts))
    for name, times in wanted.items():
        sizes = nodes_with.get(name)
        if sizes:
            spread = len(sizes) / len(facts)
            rows = list(sizes)
            total[rows] += times * np.floor(np.array([sizes[row] for row in rows]) * spread)
    if not total.any():
        return None
    most = _MOST_PER_CONTAINER * len(containers)
    return np.floor(100.0 * (np.clip(total, _LEAST, most) - _LEAST) / (most - _LEAST))


def normalized(name: str) -> str:
    """An image name with its tag; `latest` when it has none."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"
