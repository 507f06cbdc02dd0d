"""What kube-scheduler and an extender say to each other: the JSON of `k8s.io/kube-scheduler/extender/v1`.

The names of these types' own fields are capitalised, those of the Kubernetes objects in them are not. A scheduler whose
extender is `nodeCacheCapable` sends the names of nodes and wants names back; otherwise it sends whole nodes and wants
whole nodes back, which are copied from the request to the answer without being read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import compress

import msgspec
from msgspec import Raw, Struct

from stromboli.api.objects import Pod


class ExtenderArgs(Struct, rename="pascal", gc=False):
    """The question. Which nodes it is about is read only when the pod is one of ours."""

    pod: Pod
    nodes: Raw = Raw()
    node_names: Raw = Raw()


class _NodeList(Struct, gc=False):
    items: list[Raw]


class _Metadata(Struct, gc=False):
    name: str


class _Node(Struct, gc=False):
    metadata: _Metadata


class FilterResult(Struct, rename="pascal", omit_defaults=True, gc=False):
    """The answer to /filter. Whatever is not in it kube-scheduler takes for nothing."""

    nodes: Raw | _NodeList | None = None
    node_names: Raw | list[str] | None = None
    #: node -> why not, where evicting pods from the node may help
    failed_nodes: Mapping[str, Raw] = {}
    #: node -> why not, where it would not
    failed_and_unresolvable_nodes: Mapping[str, Raw] = {}


class _Uid(Struct, gc=False):
    uid: str = ""


class _Victim(Struct, gc=False):
    metadata: _Uid


class _MetaPod(Struct, rename={"uid": "UID"}, gc=False):
    uid: str


class Victims(Struct, rename="pascal", gc=False):
    """Pods that kube-scheduler would evict from one node, as whole pods."""

    pods: list[_Victim] | None = None
    num_pdb_violations: int = msgspec.field(default=0, name="NumPDBViolations")

    @property
    def uids(self) -> list[str]:
        """Which pods these are."""
        return [pod.metadata.uid for pod in self.pods or ()]


class MetaVictims(Struct, rename="pascal", gc=False):
    """The same by uid."""

    pods: list[_MetaPod] | None = None
    num_pdb_violations: int = msgspec.field(default=0, name="NumPDBViolations")

    @property
    def uids(self) -> list[str]:
        """Which pods these are."""
        return [pod.uid for pod in self.pods or ()]

    @classmethod
    def of(cls, victims: Victims | MetaVictims) -> MetaVictims:
        """The same pods, as an answer has them."""
        return cls([_MetaPod(uid) for uid in victims.uids], victims.num_pdb_violations)


class PreemptionArgs(Struct, rename="pascal", gc=False):
    """The question of /preempt. An extender that is `nodeCacheCapable` is told the uids of pods only."""

    pod: Pod
    node_name_to_victims: dict[str, Victims] | None = None
    node_name_to_meta_victims: dict[str, MetaVictims] | None = None

    @property
    def victims(self) -> Mapping[str, Victims | MetaVictims]:
        """Who would be evicted, by node."""
        return self.node_name_to_victims or self.node_name_to_meta_victims or {}


class PreemptionResult(Struct, rename="pascal", gc=False):
    """The answer to /preempt: the nodes that are left, with who is evicted there, in this form whatever was sent."""

    node_name_to_meta_victims: dict[str, MetaVictims]


class HostPriority(Struct, rename="pascal", gc=False):
    """A node's score, from 0 to 10."""

    host: str
    score: int


_ARGS = msgspec.json.Decoder(ExtenderArgs)
_PREEMPTION = msgspec.json.Decoder(PreemptionArgs)
_NAMES = msgspec.json.Decoder(list[str])
_LIST = msgspec.json.Decoder(_NodeList)
_NODE = msgspec.json.Decoder(_Node)
_ENCODER = msgspec.json.Encoder()


def read_args(body: bytes) -> ExtenderArgs:
    """The question in a body. Raises msgspec.DecodeError."""
    return _ARGS.decode(body)


def read_preemption(body: bytes) -> PreemptionArgs:
    """The same of /preempt."""
    return _PREEMPTION.decode(body)


def json(value: object) -> bytes:
    """A value as JSON."""
    return _ENCODER.encode(value)


@dataclass(frozen=True, slots=True)
class Offer:
    """The nodes that a question is about."""

    names: list[str]
    #: the nodes themselves; None when only names were sent
    items: list[Raw] | None

    @classmethod
    def read(cls, args: ExtenderArgs) -> Offer:
        """Raises msgspec.DecodeError."""
        if _given(args.node_names):
            return cls(_NAMES.decode(args.node_names), None)
        if not _given(args.nodes):
            raise msgspec.ValidationError("one of `Nodes` and `NodeNames` is needed")
        items = _LIST.decode(args.nodes).items
        return cls([_NODE.decode(item).metadata.name for item in items], items)

    def result(
        self, passing: Iterable[bool], failed: Mapping[str, Raw], unresolvable: Mapping[str, Raw]
    ) -> FilterResult:
        """The answer in the form of the question; `passing` says of each node whether the pod may go there."""
        if self.items is None:
            return FilterResult(None, list(compress(self.names, passing)), failed, unresolvable)
        return FilterResult(_NodeList(list(compress(self.items, passing))), None, failed, unresolvable)


def unchanged(args: ExtenderArgs) -> FilterResult:
    """The answer that leaves all nodes."""
    return FilterResult(
        nodes=args.nodes if _given(args.nodes) else None,
        node_names=args.node_names if _given(args.node_names) else None,
    )


def _given(field: Raw) -> bool:
    """Whether a field is there and not null, without a copy of it."""
    return len(memoryview(field)) > len(b"null") or bytes(field) not in (b"", b"null")
