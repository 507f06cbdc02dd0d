"""Numbers of devices for the requests of claims that cannot be satisfied, in words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from stromboli.api.reasons import Passage
from stromboli.api.resources import Mask
from stromboli.api.words import by_number, counted, first_few
from stromboli.framework.plugin.causes import Detailed
from stromboli.kube.dra.allocator import Demand
from stromboli.kube.dra.inventory import Devices, Inventory
from stromboli.kube.dra.objects import ResourceClaim
from stromboli.kube.dra.pools import Offer
from stromboli.kube.dra.requests import Choice, ClaimRequest
from stromboli.kube.dra.selection import NO
from stromboli.kube.dra.stock import Balance
from stromboli.state.nodes import NodeFacts

#: the number of requests shown, and of devices whose shared counters are looked at
_MOST_REQUESTS, _MOST_DEVICES = 4, 1_000
#: the number of characters shown of a selector, and of values that it reads
_LONGEST, _MOST_VALUES = 200, 3
#: nodes that are named
_MOST_NODES = 3
#: attributes and capacities of devices that a selector reads
_READ = re.compile(r"\b(attributes|capacity)\[['\"]([^'\"]+)['\"]\]\.(\w+)")


def on_its_nodes(claim: ResourceClaim, nodes: Mask, facts: NodeFacts) -> tuple[Detailed, Mask]:
    """The cause that keeps a pod off all but the nodes where the devices of its claim are, with these nodes."""

    def where() -> Passage:
        names = [facts.records[row].name for row in np.flatnonzero(nodes).tolist()]
        told = first_few(names, _MOST_NODES) if names else "no existing node"
        namespace, _, name = claim.key.partition("/")
        return Passage((namespace,), f"the devices of ResourceClaim {name} are on {told}", "")

    return Detailed("resourceclaim not available on the node", where), nodes


def told_of(
    demand: Demand,
    claims: Sequence[ResourceClaim],
    inventory: Inventory,
    in_use: Mask,
    balance: Balance,
    lacking: Mask,
) -> Passage:
    """Purpose of each request of some claims, the number of devices that match, and of free ones among these.

    `lacking` are the nodes that do not have enough.
    """
    choices = [(request, choice) for request in demand.claim_requests for choice in request.choices]
    said = [
        f'request {choice.name} of resourceclaim "{claims[choice.claim].metadata.name}" '
        + ", ".join(_of_choice(demand, request, choice, inventory, in_use, balance, lacking))
        for request, choice in choices[:_MOST_REQUESTS]
    ]
    if len(choices) > _MOST_REQUESTS:
        said.append(counted(len(choices) - _MOST_REQUESTS, "more request"))
    return Passage((), "; ".join(said), "")


def _offered(selector: str, devices: Devices) -> Iterator[str]:
    """The values of the attributes and capacities that a selector reads, as devices have them."""
    for kind, domain, name in dict.fromkeys(_READ.findall(selector)):
        has = {_value(offer, kind, domain, name) for offer in devices.offers[:_MOST_DEVICES]} - {""}
        if has:
            yield f"devices have {name} {first_few(sorted(has), _MOST_VALUES)}"


def _value(offer: Offer, kind: str, domain: str, name: str) -> str:
    """The value of an attribute or a capacity of a device, in words; empty if it has none."""
    if kind == "attributes":
        found = offer.attributes.get(domain, {}).get(name)
        return "" if found is None else str(found)
    held = offer.capacities.amounts
    amount = held.get(name) or held.get(f"{domain}/{name}")
    return amount.text if amount else ""


def _of_choice(
    demand: Demand,
    request: ClaimRequest,
    choice: Choice,
    inventory: Inventory,
    in_use: Mask,
    balance: Balance,
    lacking: Mask,
) -> Iterator[str]:
    devices = demand.devices
    wanted = "all devices that match" if choice.count is None else counted(choice.count, "device")
    matching = demand.codes(choice) != NO
    there = f"{int(matching.sum())} of {counted(len(devices), 'device')} match"
    yield f"wants {wanted} of class {choice.device_class}: {there if len(devices) else 'there are no devices'}"
    if not matching.any():
        selected = int((choice.selected(devices).codes != NO).sum())
        if selected:
            yield f"{selected} would but for taints or too little capacity"
        elif len(devices) and choice.own_selectors:
            own = " && ".join(choice.own_selectors)
            yield f"its selector is {own if len(own) <= _LONGEST else f'{own[:_LONGEST]}...'}"
            yield from _offered(own, devices)
        return
    free = matching & (~in_use | choice.admin) & _have_counters(demand, choice, matching & ~in_use, balance)
    most = int(inventory.totals(free.astype(np.int64))[lacking].max(initial=0))
    without = f"{counted(int(lacking.sum()), 'node')} without enough"
    where = f"at most {most} on each of {without}" if most else f"but on none of {without}"
    yield f"{int(free.sum())} {by_number(free.sum(), 'is', 'are')} free, {where}" if free.any() else "none is free"
    for each in request.constraints:
        if each.match_attribute:
            yield f"they must agree in {each.match_attribute}"
        elif each.distinct_attribute:
            yield f"they must differ in {each.distinct_attribute}"


def _have_counters(demand: Demand, choice: Choice, rows: Mask, balance: Balance) -> Mask:
    """The devices, of those looked at, with enough left of their shared counters."""
    found: Mask = np.ones_like(rows)
    if demand.draws and not choice.admin:
        for row in np.flatnonzero(rows & (demand.devices.stock.pool >= 0))[:_MOST_DEVICES].tolist():
            found[row] = balance.has(balance.draws(row, demand.consumed(choice, row)))
    return found
