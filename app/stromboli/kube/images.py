"""ImageLocality: prefers nodes that already have the images of a pod, the more so the more nodes have them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from stromboli.api import objects
from stromboli.api.resources import Vector
from stromboli.state.nodes import NodeFacts, NodeRecord

_MB = 1024 * 1024
_LEAST = 23 * _MB
_MOST_PER_CONTAINER = 1000 * _MB


#: names of images, with their sizes in bytes
Images: TypeAlias = tuple[tuple[str, int], ...]


class ImageSets:
    """The distinct image lists of nodes, indexed by image name."""

    def __init__(self) -> None:
        self._size = 0
        #: by image name: the lists that contain it, with its size in bytes; empty if nodes report no images
        self._sizes: dict[str, dict[int, int]] = {}

    def extend(self, values: Sequence[Images]) -> None:
        for at, images in enumerate(values, self._size):
            for name, size in images:
                self._sizes.setdefault(name, {})[at] = size
        self._size += len(values)

    def __bool__(self) -> bool:
        return bool(self._sizes)

    def sizes(self, name: str) -> Vector | None:
        """The size of an image in each list, shape (lists,), -1 where it is absent; None if no list has it."""
        known = self._sizes.get(name)
        if known is None:
            return None
        out = np.full(self._size, -1.0)
        out[list(known)] = list(known.values())
        return out


def image_locality(spec: objects.PodSpec, facts: NodeFacts) -> Vector | None:
    """A score from 0 to 100 for each node, shape (nodes,); None when no node has an image of the pod."""
    column = facts.column("images", _images)
    sets = column.index(ImageSets)
    if not sets:
        return None
    containers = [*(spec.init_containers or ()), *(spec.containers or ())]
    wanted = Counter(map(normalized, (*(container.image or "" for container in containers), *spec.image_volumes)))
    found = [(times, of_lists) for name, times in wanted.items() if (of_lists := sets.sizes(name)) is not None]
    if not found:
        return None
    total = np.zeros(len(facts))
    for times, of_lists in found:
        sizes = of_lists[column.numbers]
        there = sizes >= 0
        total[there] += times * np.floor(sizes[there] * (np.count_nonzero(there) / len(facts)))
    if not total.any():
        return None
    most = _MOST_PER_CONTAINER * len(containers)
    return np.floor(100.0 * (np.clip(total, _LEAST, most) - _LEAST) / (most - _LEAST))


def _images(node: NodeRecord) -> Images:
    return tuple((name, image.size_bytes or 0) for image in node.images for name in image.names or ())


def normalized(name: str) -> str:
    """An image name with its tag, `latest` by default."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"
