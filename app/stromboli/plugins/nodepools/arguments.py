"""The pools that a policy names, and jobs' settings for them."""

from __future__ import annotations

import re
from typing import Annotated, Final

import numpy as np
from pydantic import AfterValidator, Field, field_validator

from stromboli.api.crds import NODE_POOLS, PodGroup
from stromboli.api.resources import Mask
from stromboli.framework.plugin.base import Arguments
from stromboli.state.nodes import NodeFacts

#: the number of a label's value that no node has
NO_VALUE: Final = -2
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


def _pool_name(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"should be a name of lower-case letters, digits, '-' and '.', not {name!r}")
    return name


class NodePool(Arguments):
    """Nodes that are counted together."""

    name: Annotated[str, AfterValidator(_pool_name)]
    """The name that queues and jobs use."""
    node_selector: dict[str, str] = Field(alias="nodeSelector", min_length=1)
    """The labels that its nodes have, all of them."""


class NodePoolsArguments(Arguments):
    """Arguments of nodepools."""

    pools: list[NodePool] = Field(default_factory=list)
    """The pools, each with a `name` and the `nodeSelector` of its nodes; a node is of the first that selects it."""

    @field_validator("pools")
    @classmethod
    def _can_have_nodes(cls, pools: list[NodePool]) -> list[NodePool]:
        for number, pool in enumerate(pools):
            for before in pools[:number]:
                if pool.name == before.name:
                    raise ValueError(f"pool {pool.name} is named twice")
                if before.node_selector.items() <= pool.node_selector.items():
                    raise ValueError(
                        f"pool {pool.name} never has a node: pool {before.name}, which comes first, selects all that "
                        "it does; put it in front"
                    )
        return pools


def nodes_of(pool: NodePool, facts: NodeFacts) -> Mask:
    """Mask of nodes that a pool selects, shape (nodes,)."""
    selected = np.ones(len(facts), np.bool_)
    for key, value in pool.node_selector.items():
        selected &= facts.label(key) == facts.label_values(key).get(value, NO_VALUE)
    return selected


def named_by(group: PodGroup) -> str:
    """The pools that a PodGroup allows its pods to use."""
    return group.metadata.annotations.get(NODE_POOLS, "")


def listed(text: str) -> list[str]:
    """The names of pools in an annotation, each once, in order."""
    return list(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))
