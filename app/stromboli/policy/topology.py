"""The policy's settings of the topology: labels of nodes with their place in the network."""

from __future__ import annotations

import re
from collections import Counter

from pydantic import BaseModel, ConfigDict, Field, field_validator

_PART = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_LABEL_KEY = re.compile(rf"([a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_PART}")
_CONFIG = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=True, use_attribute_docstrings=True)


class TopologyLevel(BaseModel):
    """A level of the topology."""

    model_config = _CONFIG

    node_label: str = Field(alias="nodeLabel")
    """The label whose value names a node's domain at this level."""

    @field_validator("node_label")
    @classmethod
    def _is_key(cls, key: str) -> str:
        if not _LABEL_KEY.fullmatch(key):
            raise ValueError(f"{key!r} is not the key of a label, such as 'topology.kubernetes.io/zone'")
        return key


class TopologySettings(BaseModel):
    """The key `topology` of a policy."""

    model_config = _CONFIG

    levels: list[TopologyLevel] = Field(default_factory=list, max_length=16)
    """Levels, the widest first, each as `{nodeLabel: KEY}`. Nodes that agree in a label, and in those of all wider
    levels, make a HyperNode, whose tier has the label's name; HyperNodes of the cluster are not read then."""

    @field_validator("levels")
    @classmethod
    def _distinct(cls, levels: list[TopologyLevel]) -> list[TopologyLevel]:
        for key, count in Counter(level.node_label for level in levels).items():
            if count > 1:
                raise ValueError(f"{key!r} is given {count} times")
        return levels

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the levels, the widest level first."""
        return tuple(level.node_label for level in self.levels)
