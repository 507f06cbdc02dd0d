"""The `status.allocation` of a claim whose devices were picked, as kube-scheduler writes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias
from uuid import UUID, uuid5

import msgspec

from stromboli.api.objects import NodeSelector, NodeSelectorTerm, Requirement
from stromboli.kube.dra.allocator import Taken
from stromboli.kube.dra.inventory import Devices
from stromboli.kube.dra.objects import DeviceClaim, DeviceObjects, ResourceClaim
from stromboli.kube.dra.pools import Offer

Plain: TypeAlias = dict[str, Any]
#: namespace of the share IDs of devices with multiple allocations: equal decisions get equal IDs
_SHARES = UUID("5fb4ab1c-1d0f-4c57-9d0a-3a1ac1f3d5ee")


def allocation_of(
    claim: ResourceClaim, taken: Sequence[Taken], devices: Devices, objects: DeviceObjects, node: str
) -> Plain:
    """The allocation of a claim, given the devices picked for it on a node, in order of its requests."""
    chosen = {each.choice.name: each.choice.device_class for each in taken}
    results = [
        _result(each, devices.offers[each.device], f"{claim.metadata.uid or claim.key}/{n}")
        for n, each in enumerate(taken)
    ]
    config = [*_of_classes(chosen, objects), *_of_claim(claim.spec.devices, set(chosen))]
    out: Plain = {"devices": _without_empty({"results": results, "config": config})}
    selector = reaching(taken, devices, node)
    return out if selector is None else {**out, "nodeSelector": _selector(selector)}


def reaching(taken: Sequence[Taken], devices: Devices, node: str) -> NodeSelector | None:
    """The nodes that can access all devices that were picked together on a node; None for all nodes."""
    offers = [devices.offers[each.device] for each in taken]
    if any(offer.node or offer.binds_to_node for offer in offers):
        return on_node(node)
    # A slice or device has a single term.
    terms = [offer.selector.node_selector_terms for offer in offers if offer.selector is not None]
    first = [term[0] for term in terms if term]
    expressions = _distinct(each for term in first for each in term.match_expressions or ())
    fields = _distinct(each for term in first for each in term.match_fields or ())
    if not expressions and not fields:
        return None
    return NodeSelector([NodeSelectorTerm(match_expressions=expressions, match_fields=fields)])


def on_node(name: str) -> NodeSelector:
    """A selector that matches a single node."""
    return NodeSelector([NodeSelectorTerm(match_fields=[Requirement("metadata.name", "In", [name])])])


def _result(taken: Taken, offer: Offer, share: str) -> Plain:
    """`share` identifies this share of the device among its other shares."""
    out = {
        "request": taken.choice.name,
        "driver": offer.id.driver,
        "pool": offer.id.pool,
        "device": offer.id.device,
        "adminAccess": taken.choice.admin,
        "tolerations": msgspec.to_builtins(taken.choice.tolerations),
        "bindingConditions": list(offer.binding.conditions) if offer.binding else [],
        "bindingFailureConditions": list(offer.binding.failures) if offer.binding else [],
    }
    if taken.consumed is not None:
        out["shareID"] = str(uuid5(_SHARES, share))
        out["consumedCapacity"] = {name: each.text for name, each in taken.consumed.items()}
    return _without_empty(out)


def _of_classes(chosen: dict[str, str], objects: DeviceObjects) -> Iterator[Plain]:
    """The parameters of each class once, with all requests that it was chosen for."""
    for name in dict.fromkeys(chosen.values()):
        device_class = objects.device_class(name)
        requests = [request for request, of in chosen.items() if of == name]
        for config in (device_class.spec.config if device_class else None) or ():
            yield {**config, "source": "FromClass", "requests": requests}


def _of_claim(claim: DeviceClaim, chosen: set[str]) -> Iterator[Plain]:
    """The parameters of the claim, for the requests that were allocated."""
    for config in claim.config or ():
        named = config.get("requests")
        if not named:
            yield {**config, "source": "FromClaim"}
        for request in claim.requests or () if named else ():
            chosen_here = {name for name in chosen if name.partition("/")[0] == request.name}
            if not {request.name, *chosen_here}.isdisjoint(named or ()):
                yield {**config, "source": "FromClaim"}


def _selector(selector: NodeSelector) -> Plain:
    terms = [
        _without_empty({"matchExpressions": _plain(t.match_expressions), "matchFields": _plain(t.match_fields)})
        for t in selector.node_selector_terms or ()
    ]
    return {"nodeSelectorTerms": terms}


def _plain(requirements: Sequence[Requirement] | None) -> list[Plain]:
    return [_without_empty(msgspec.to_builtins(each)) for each in requirements or ()]


def _without_empty(fields: Plain) -> Plain:
    return {name: value for name, value in fields.items() if value}


def _distinct(requirements: Iterator[Requirement]) -> list[Requirement]:
    found: list[Requirement] = []
    for each in requirements:
        if each not in found:
            found.append(each)
    return found
