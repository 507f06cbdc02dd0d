"""The HyperNode: nodes that are close together in the network."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import (
    ConfigDict,
    Field,
    model_validator,
)

from stromboli.api.crds.base import (
    TOPOLOGY,
    Condition,
    DNSName,
    Int32,
    Int64,
    KubeModel,
    KubeObject,
    LabelSelector,
    Name,
    crd,
)


class ExactMatch(KubeModel):
    """Selects one member by its name."""

    name: Annotated[DNSName, crd(minLength=1)]
    """The member's name."""


class RegexMatch(KubeModel):
    """Selects members whose names match an expression."""

    pattern: Annotated[str, crd(minLength=1, maxLength=253)]
    """The expression (RE2)."""


class MemberSelector(KubeModel):
    """Selects members in exactly one of three ways."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    exact_match: ExactMatch | None = None
    """By name."""
    regex_match: RegexMatch | None = None
    """By an expression that matches anywhere in the name (RE2 syntax)."""
    label_match: LabelSelector | None = None
    """By labels; an empty selector selects nothing."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        ways = (self.exact_match, self.regex_match, self.label_match)
        if len(ways) - ways.count(None) != 1:
            raise ValueError("exactly one of exactMatch, regexMatch and labelMatch must be set")
        return self


class Member(KubeModel):
    """Nodes or HyperNodes that belong to a HyperNode."""

    type: Literal["Node", "HyperNode"]
    """Kind of the members."""
    selector: MemberSelector
    """Selects the members."""


class HyperNodeSpec(KubeModel):
    """A set of nodes that are close together in the network."""

    tier: Annotated[Int32, crd(minimum=0)]
    """The higher the tier, the farther apart the nodes are."""
    tier_name: Name = ""
    """Name of the tier."""
    members: Annotated[list[Member], crd(minItems=1, maxItems=20_000)] = Field(default_factory=list)
    """Nodes and HyperNodes that belong to the HyperNode."""


class HyperNodeStatus(KubeModel):
    """The observed state of a HyperNode."""

    conditions: list[Condition] = Field(default_factory=list)
    """Problems that keep the HyperNode from being used."""
    node_count: Annotated[Int64, crd(minimum=0)] = 0
    """Number of distinct members."""


class HyperNode(KubeObject):
    """A network domain: nodes, or smaller domains, that are close together."""

    plural: ClassVar[str] = "hypernodes"

    api_version: Literal["topology.volcano.sh/v1alpha1"] = TOPOLOGY
    kind: Literal["HyperNode"] = "HyperNode"
    spec: HyperNodeSpec
    status: HyperNodeStatus = Field(default_factory=HyperNodeStatus)
