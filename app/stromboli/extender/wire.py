"""The JSON of kube-scheduler's extender protocol, `k8s.io/kube-scheduler/extender/v1`.

Field names of these types are capitalised, those of the Kubernetes objects in them are not. If the extender is
`nodeCacheCapable`, kube-scheduler sends names of nodes and expects names; otherwise it sends complete nodes and expects
complete nodes, which are copied from request to response undecoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import compress

import msgspec
from msgspec import Raw, Struct

from stromboli.api.objects import Pod


class ExtenderArgs(Struct, rename="pascal", gc=False):
    """The request of /filter and /prioritize. Its nodes are decoded only if the pod is ours."""

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
    """The response to /filter. kube-scheduler treats missing fields as empty."""

    nodes: Raw | _NodeList | None = None
    node_names: Raw | list[str] | None = None
    #: node -> reason, where evictions may help
    failed_nodes: Mapping[str, Raw] = {}
    #: node -> reason, where evictions would not help
    failed_and_unresolvable_nodes: Mapping[str, Raw] = {}


class _Uid(Struct, gc=False):
    uid: str = ""


class _Victim(Struct, gc=False):
    metadata: _Uid


class _MetaPod(Struct, rename={"uid": "UID"}, gc=False):
    uid: str


class Victims(Struct, rename="pascal", gc=False):
    """The victims on one node, as complete pods."""

    pods: list[_Victim] | None = None
    num_pdb_violations: int = msgspec.field(default=0, name="NumPDBViolations")

    @property
    def uids(self) -> list[str]:
        """The uids of the victims."""
        return [pod.metadata.uid for pod in self.pods or ()]


class MetaVictims(Struct, rename="pascal", gc=False):
    """The victims on one node, by uid."""

    pods: list[_MetaPod] | None = None
    num_pdb_violations: int = msgspec.field(default=0, name="NumPDBViolations")

    @property
    def uids(self) -> list[str]:
        """The uids of the victims."""
        return [pod.uid for pod in self.pods or ()]

    @classmethod
    def of(cls, uids: Iterable[str], pdb_violations: int) -> MetaVictims:
        """The victims with these uids."""
        return cls([_MetaPod(uid) for uid in uids], pdb_violations)


class PreemptionArgs(Struct, rename="pascal", gc=False):
    """The request of /preempt. A `nodeCacheCapable` extender gets the uids of pods only."""

    pod: Pod
    node_name_to_victims: dict[str, Victims] | None = None
    node_name_to_meta_victims: dict[str, MetaVictims] | None = None

    @property
    def victims(self) -> Mapping[str, Victims | MetaVictims]:
        """The victims by node."""
        return self.node_name_to_victims or self.node_name_to_meta_victims or {}


class PreemptionResult(Struct, rename="pascal", gc=False):
    """The response to /preempt: the remaining nodes with their victims, by uid whatever the form of the request."""

    node_name_to_meta_victims: dict[str, MetaVictims]


class BindingArgs(Struct, rename={"uid": "PodUID", "name": "PodName", "namespace": "PodNamespace", "node": "Node"}):
    """The request of /bind."""

    name: str
    namespace: str
    uid: str
    node: str


class BindingResult(Struct, rename="pascal", gc=False):
    """The response to /bind: why the pod was not bound, empty when it was."""

    error: str = ""


class HostPriority(Struct, rename="pascal", gc=False):
    """A node's score, from 0 to 10."""

    host: str
    score: int


_ARGS = msgspec.json.Decoder(ExtenderArgs)
_PREEMPTION = msgspec.json.Decoder(PreemptionArgs)
_BINDING = msgspec.json.Decoder(BindingArgs)
_NAMES = msgspec.json.Decoder(list[str])
_LIST = msgspec.json.Decoder(_NodeList)
_NODE = msgspec.json.Decoder(_Node)
_ENCODER = msgspec.json.Encoder()


def read_args(body: bytes) -> ExtenderArgs:
    """Decode a request. Raises msgspec.DecodeError."""
    return _ARGS.decode(body)


def read_preemption(body: bytes) -> PreemptionArgs:
    """Decode a request of /preempt. Raises msgspec.DecodeError."""
    return _PREEMPTION.decode(body)


def read_binding(body: bytes) -> BindingArgs:
    """Decode a request of /bind. Raises msgspec.DecodeError."""
    return _BINDING.decode(body)


def json(value: object) -> bytes:
    """A value as JSON."""
    return _ENCODER.encode(value)


@dataclass(frozen=True, slots=True)
class RequestedNodes:
    """The nodes of a request."""

    names: list[str]
    #: the undecoded nodes; None if only names were sent
    items: list[Raw] | None

    @classmethod
    def read(cls, args: ExtenderArgs) -> RequestedNodes:
        """Raises msgspec.DecodeError."""
        if _given(args.node_names):
            return cls(_NAMES.decode(args.node_names), None)
        if not _given(args.nodes):
            raise msgspec.ValidationError("`Nodes` or `NodeNames` is required")
        items = _LIST.decode(args.nodes).items
        return cls([_NODE.decode(item).metadata.name for item in items], items)

    def result(
        self, passing: Iterable[bool], failed: Mapping[str, Raw], unresolvable: Mapping[str, Raw]
    ) -> FilterResult:
        """The response in the form of the request; `passing` says whether each node passes."""
        if self.items is None:
            return FilterResult(None, list(compress(self.names, passing)), failed, unresolvable)
        return FilterResult(_NodeList(list(compress(self.items, passing))), None, failed, unresolvable)


def unchanged(args: ExtenderArgs) -> FilterResult:
    """The response that lets all nodes pass."""
    return FilterResult(
        nodes=args.nodes if _given(args.nodes) else None,
        node_names=args.node_names if _given(args.node_names) else None,
    )


def _given(field: Raw) -> bool:
    """Whether a field is present and not null, without decoding it."""
    return len(memoryview(field)) > len(b"null") or bytes(field) not in (b"", b"null")
