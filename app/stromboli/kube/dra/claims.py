"""Resource claims in one session: which nodes can satisfy those of a pod, and what they hold once it has a node.

A claim gets its devices when the first pod that uses it gets a node. Nodes are searched once for all claims with equal
requests, and again only where devices were allocated or released. Pods that share a claim follow the first one to its
devices; under Volcano's rules a claim whose devices were picked but are not yet in its status belongs to that one pod.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain

import numpy as np

from stromboli.api.decisions import ClaimUse
from stromboli.api.objects import NodeSelector
from stromboli.api.reasons import Passage
from stromboli.api.resources import Mask, Rows, fits
from stromboli.framework.cluster.topology import has_topology
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.causes import Anywhere, Filters, Passing, Unprovided
from stromboli.framework.plugin.relations import Narrowing, Relation
from stromboli.framework.recent import Recent
from stromboli.kube.dra.allocation import allocation_of, on_node, reaching
from stromboli.kube.dra.allocator import Demand, Given, SearchError, StepBudget, Taken, allocate
from stromboli.kube.dra.extended import SpecialClaim
from stromboli.kube.dra.feasible import PASSED, TOO_FEW, Feasible
from stromboli.kube.dra.gangs import ClaimingGangs, leaving
from stromboli.kube.dra.holdings import holdings_of
from stromboli.kube.dra.inventory import devices_of, inventory
from stromboli.kube.dra.limits import CROWDED, Needs, Supply, sharing
from stromboli.kube.dra.numbers import on_its_nodes, told_of
from stromboli.kube.dra.objects import ClaimError, NoDeviceClassError, ResourceClaim
from stromboli.kube.dra.pod_claims import ClaimsOfPods
from stromboli.kube.dra.readiness import failure, is_ready, unusable, waits
from stromboli.kube.dra.requests import ClaimRequest, SelectorError, claim_requests, wanted_by
from stromboli.kube.dra.reservation import MOST_PODS
from stromboli.kube.dra.returns import Held, Returns
from stromboli.kube.dra.special_claims import ExtendedResources
from stromboli.kube.node_affinity import selected_nodes
from stromboli.state.pods import PodRecord

#: causes, see `Feasible`
_TOO_LONG = (-1, "the search for devices exceeds its limit")
_UNREADY = (-1, "all devices are asked for, and a pool is being updated or inconsistent")
_TOO_COSTLY = "the selectors of the namespace's claims exceed their cost limit"
#: devices that may be tried for claims that ask alike, on all nodes together
_TRIES = 10_000
#: What the selectors and searches of a namespace's claims may cost in a session; a step of a selector costs 1.
_MOST_COST = 1_000_000
#: of a device that is tried, beyond what claims usually take
_TRY_COST, _FREE_TRIES = 5, 1_000
#: demands whose columns are kept
_MOST_DEMANDS = 32


class DynamicResources:
    """The rule in one session. Objects are read when the first pod with claims is asked about."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._claimed = view.snapshot.claimed
        self._book: _Book | None = None

    def filters(self, pod: PodRecord, allowed: Callable[[], Mask]) -> Filters:
        """Nodes where the pod's claims are, or can be satisfied; `allowed` are those that it may go to otherwise."""
        if self.concerns(pod):
            yield from self._opened().filters(pod, allowed)

    def concerns(self, pod: PodRecord) -> bool:
        """Whether a pod has claims, or gets one for its extended resources."""
        return pod.pod_class.needs_claims(self._claimed)

    def relations(self, pods: Sequence[PodRecord]) -> Iterator[Relation]:
        """Relations between pods by their devices."""
        if any(map(self.concerns, pods)):
            yield from self._opened().relations(pods)

    def assume(self, pod: PodRecord, node: int) -> None:
        """Pick devices for the claims of a pod that got a node, by its index."""
        if self.concerns(pod):
            self._opened().assume(pod, node)

    def forget(self, pod: PodRecord, node: int) -> None:
        """Give them back."""
        if self.concerns(pod):
            self._opened().forget(pod, node)

    def leave(self, pod: PodRecord, node: int) -> None:
        """Count devices that the claims of an evicted pod give back as free."""
        if self.concerns(pod):
            self._opened().leave(pod, node)

    def stay(self, pod: PodRecord, node: int) -> None:
        """Count it as held again."""
        if self.concerns(pod):
            self._opened().stay(pod, node)

    def uses(self, pod: PodRecord) -> list[ClaimUse]:
        """The claims of a pod that got a node, and their allocations. Raises ClaimError."""
        return self._opened().uses(pod) if self.concerns(pod) else []

    def _opened(self) -> _Book:
        if self._book is None:
            self._book = _Book(self._view)
        return self._book


class _Book:
    """Devices held by claims."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._facts = view.nodes.facts
        self._shared = view.rules.shared_claims
        self._claims = ClaimsOfPods(view.snapshot.objects)
        objects = self._claims.objects
        self._devices = devices_of(view.snapshot)
        self._inventory = inventory(self._devices, self._facts, view.snapshot)
        holdings = holdings_of(view.snapshot, objects)
        self._in_use: Mask = holdings.held(self._devices).copy()
        self._balance = holdings.balance(self._devices).copy()
        self._returns = Returns(self._claims, holdings, self._devices, self._inventory)
        #: None while no pod asks for any
        self._extended = ExtendedResources(view) if view.snapshot.claimed else None
        #: by uid of the pod: the claim for its extended resources that an earlier attempt left
        self._left_over = holdings.special
        #: by row: the claim for the extended resources of each pod that got a place
        self._special: dict[int, SpecialClaim] = {}
        #: the claims of the pods that got a place, by row
        self._claims_of: dict[int, list[ResourceClaim]] = {}
        self._gangs = ClaimingGangs(view, self._claims)
        #: by key of the claim
        self._given: dict[str, Given] = {}
        #: uids of the pods that got a place with a claim, by its key
        self._users: defaultdict[str, set[str]] = defaultdict(set)
        #: nodes whose free devices changed; None stands for all nodes
        self._log: list[int | None] = []
        self._feasible: dict[bytes, Feasible] = {}
        #: those that were looked for last
        self._demands: Recent[bytes, Demand] = Recent(_MOST_DEMANDS)
        #: by namespace
        self._purses: dict[str, StepBudget] = {}
        rows = holdings.placed(view.snapshot)
        for pod, node in zip(view.records(rows), view.pods.node[rows].tolist(), strict=True):
            self._take(pod, node, self._claims.existing(pod), new=False)

    def filters(self, pod: PodRecord, allowed: Callable[[], Mask]) -> Filters:
        try:
            claims = self._claims.of(pod)
            for claim in claims:
                self._check_usable(claim, pod)
            waiting = self._waiting(claims)
            feasible = self._feasible_for(waiting, pod, allowed) if waiting else None
            special = list(self._special_feasible(self._extended, pod, waiting, allowed)) if self._extended else ()
        except ClaimError as error:
            kind = Unprovided if isinstance(error, NoDeviceClassError) else Anywhere
            yield kind(str(error)), np.zeros(len(self._facts), np.bool_)
            return
        for claim, selector in zip(claims, map(self._nodes, claims), strict=True):
            if selector is not None:
                yield on_its_nodes(claim, selected_nodes(selector, self._facts), self._facts)
        if any(each.new and each.taken is None for claim in claims if (each := self._given.get(claim.key))):
            yield Passing(TOO_FEW[1]), np.zeros(len(self._facts), np.bool_)
        if feasible is not None:
            yield from feasible.filters(waiting, partial(self._numbers, waiting))
            yield from self._with_those_who_share(pod, waiting)
        for nodes, all_claims, of_nodes in special:
            for cause, mask in of_nodes.filters(all_claims, partial(self._numbers, all_claims)):
                yield cause, mask | ~nodes

    def _special_feasible(
        self, extended: ExtendedResources, pod: PodRecord, waiting: list[ResourceClaim], allowed: Callable[[], Mask]
    ) -> Iterator[tuple[Mask, list[ResourceClaim], Feasible]]:
        """Nodes where a pod needs a claim of its own, its claims there, and where these can be satisfied.

        Raises ClaimError.
        """
        key = self._left_over.get(pod.uid)
        if key is not None and extended.asked(pod):
            raise ClaimError(f'resourceclaim "{key.partition("/")[2]}" of an earlier attempt is not deleted yet')
        for nodes, resources in extended.split(pod):
            claims = [*waiting, extended.claim(pod, resources, self._claims.plain).claim]
            yield nodes, claims, self._feasible_for(claims, pod, allowed)

    def relations(self, pods: Sequence[PodRecord]) -> Iterator[Relation]:
        needs, causes = zip(*map(self._related, pods), strict=True)
        yield from Supply(self._inventory, self._in_use, self._returns, self._balance).limits(needs)
        if not self._inventory.reaching_shared.any():
            yield from sharing(needs, len(self._facts))
        concerned = np.array([pod.pod_class.needs_claims(self._view.snapshot.claimed) for pod in pods])
        yield Narrowing("devices that are chosen with the node", concerned, causes)

    def _related(self, pod: PodRecord) -> tuple[Needs, frozenset[str]]:
        """Needs of a pod's claims, and the causes that keep it off nodes until others are gone."""
        causes = [cause for cause, _ in self.filters(pod, lambda: np.ones(len(self._facts), np.bool_))]
        waiting, naming = self._waiting(self._claims.existing(pod)), self._gangs.naming(pod)
        told = frozenset(str(cause) for cause in causes if not isinstance(cause, Anywhere))
        if not waiting or any(isinstance(cause, Anywhere) for cause in causes):
            return Needs(), told
        return Needs.of(self._demand(waiting), naming, [claim.key for claim in waiting]), told

    def assume(self, pod: PodRecord, node: int) -> None:
        if pod.row in self._claims_of:
            return
        claims = self._claims.existing(pod)
        if self._extended is not None and (resources := self._extended.on_node(pod, node)):
            special = self._special[pod.row] = self._extended.claim(pod, resources, self._claims.plain)
            claims.append(special.claim)
        self._take(pod, node, claims)

    def _take(self, pod: PodRecord, node: int, claims: list[ResourceClaim], *, new: bool = True) -> None:
        """Pick devices for those claims of a pod on a node that have none."""
        self._claims_of[pod.row] = claims
        waiting, taken = self._waiting(claims), None
        # Otherwise another scheduler placed the pod there.
        with suppress(ClaimError, SelectorError, SearchError):
            demand = self._demand(waiting)
            # The first pods of a gang leave devices to the others; a lone pod gets the first, as from kube-scheduler.
            taken = self._search(demand, node, StepBudget(_TRIES), sparing=self._gangs.of(pod) is not None)
            if taken and new:
                others = self._gangs.others(pod, self._claims_of, alike=demand.draws)
                taken = leaving(waiting, others, partial(self._joint, node)) or taken
        for number, claim in enumerate(waiting):
            of_claim = None if taken is None else [each for each in taken if each.choice.claim == number]
            self._given[claim.key] = Given(of_claim, node, new)
        for claim in claims:
            self._users[claim.key].add(pod.uid)
            if claim.key in self._given:
                self._given[claim.key].users.add(pod.row)
        self._change(taken or (), node, in_use=True)

    def forget(self, pod: PodRecord, node: int) -> None:
        self._special.pop(pod.row, None)
        self._gangs.taken_back(pod)
        for claim in self._claims_of.pop(pod.row, ()):
            self._users[claim.key].discard(pod.uid)
            given = self._given.get(claim.key)
            if given is None:
                continue
            given.users.discard(pod.row)
            if not given.users:
                del self._given[claim.key]
                self._change(given.taken or (), given.node, in_use=False)

    def leave(self, pod: PodRecord, node: int) -> None:
        self._mark(self._returns.leave(pod, node), node, in_use=False)

    def stay(self, pod: PodRecord, node: int) -> None:
        self._mark(self._returns.stay(pod), node, in_use=True)

    def uses(self, pod: PodRecord) -> list[ClaimUse]:
        special = self._special.get(pod.row)
        claims = self._claims_of.get(pod.row, ())
        return [self._use(claim, special if special and claim is special.claim else None) for claim in claims]

    def _use(self, claim: ResourceClaim, special: SpecialClaim | None) -> ClaimUse:
        given = self._given.get(claim.key)
        about = partial(ClaimUse, claim.metadata.namespace or "default", claim.metadata.name, claim.metadata.uid or "")
        if given is None:
            return about(self._claims.plain[claim.key]["status"]["allocation"], new=False)
        if given.taken is None:
            raise ClaimError(f"no devices were picked for resourceclaim {claim.key}")
        node = self._view.nodes.name(given.node)
        allocation = allocation_of(claim, given.taken, self._devices, self._claims.objects, node)
        if special is None:
            return about(allocation, new=True)
        return about(allocation, new=True, manifest=special.manifest, mappings=special.mappings)

    def _waiting(self, claims: Sequence[ResourceClaim]) -> list[ResourceClaim]:
        """The claims for which devices are still to be picked."""
        return [claim for claim in claims if claim.status.allocation is None and claim.key not in self._given]

    def _nodes(self, claim: ResourceClaim) -> NodeSelector | None:
        """The nodes that reach the devices of a claim; None for all, or when it has none."""
        given = self._given.get(claim.key)
        if given is not None:
            name = self._view.nodes.name(given.node)
            awaited = given.new and given.taken is None
            return on_node(name) if awaited else reaching(given.taken or (), self._devices, name)
        return claim.status.allocation.node_selector if claim.status.allocation is not None else None

    def _check_usable(self, claim: ResourceClaim, pod: PodRecord) -> None:
        """Raises ClaimError when a pod cannot use a claim, wherever it goes."""
        name = claim.metadata.name
        if claim.metadata.deletion_timestamp:
            raise ClaimError(f'resourceclaim "{name}" is being deleted')
        given = self._given.get(claim.key)
        followed = given is not None and self._shared and (given.new or given.taken is not None)
        if given is not None and not followed and pod.row not in given.users:
            raise ClaimError(f'resourceclaim "{name}" is in the process of being allocated')
        reserved = claim.status.reserved_for or ()
        users = self._users[claim.key].union(consumer.uid for consumer in reserved)
        if len(users) >= MOST_PODS and pod.uid not in users:
            raise ClaimError(f'resourceclaim "{name}" has the maximum number of consumers')
        problem = (failure(claim) if is_ready(claim) else unusable(claim, self._view.time())) if waits(claim) else None
        if problem is not None:
            raise ClaimError(f'resourceclaim "{name}": {problem}')

    def _with_those_who_share(self, pod: PodRecord, waiting: Sequence[ResourceClaim]) -> Filters:
        """Nodes that fit as many pods of a gang as have to follow one of them to its devices."""
        together = self._gangs.together(pod, waiting) if self._shared else None
        if together is not None:
            fit = fits(together, self._view.nodes.future_idle(), self._view.nodes.always)
            # What several nodes reach leaves the others a choice.
            yield Passing(CROWDED), fit | self._inventory.reaching_shared

    # -- where claims can be satisfied -------------------------------------------------------------------------------

    def _feasible_for(self, claims: Sequence[ResourceClaim], pod: PodRecord, allowed: Callable[[], Mask]) -> Feasible:
        key = wanted_by(claims)
        budget = self._purses.setdefault(claims[0].metadata.namespace or "default", StepBudget(_MOST_COST))
        feasible = self._feasible.get(key)
        if feasible is None:
            wanted = claim_requests(claims, self._claims.objects)
            for choice in (choice for request in wanted for choice in request.choices):
                if budget.left < 0 or not budget.spend(choice.selected(self._devices).cost):
                    raise ClaimError(_TOO_COSTLY)
            nowhere = np.full(len(self._facts), int(bool(wanted)), np.int16)
            feasible = self._feasible[key] = Feasible(wanted, nowhere, len(self._log))
            self._ask(feasible, key, self._inventory.nodes, budget)
        changed = set(self._log[feasible.seen :])
        feasible.seen = len(self._log)
        if changed:
            few = np.array(sorted(row for row in changed if row is not None), np.intp)
            self._ask(feasible, key, self._inventory.nodes if None in changed else few, budget)
        self._look_further(feasible, key, pod, allowed)
        return feasible

    def _look_further(self, feasible: Feasible, key: bytes, pod: PodRecord, allowed: Callable[[], Mask]) -> None:
        """Find where others hold what is lacking, if no node that a pod fits has it, or its job needs it near."""
        if feasible.ever is None and (lacking := feasible.of_node == feasible.causes.index(TOO_FEW)).any():
            nodes = self._view.nodes
            passing = ~lacking & allowed() & fits(self._view.request(pod), nodes.future_idle(), nodes.always)
            job = self._view.job_of(pod)
            if not passing.any() or (job is not None and has_topology(job)):
                demand = self._demand_for(lambda: feasible.claim_requests, key)
                feasible.find_ever(demand, self._inventory, self._in_use, StepBudget(_TRIES))

    def _ask(self, feasible: Feasible, key: bytes, nodes: Rows, budget: StepBudget) -> None:
        demand, tries = self._demand_for(lambda: feasible.claim_requests, key), StepBudget(_TRIES)
        apart = np.isin(nodes, [*self._returns.free_on])
        together = demand.alike(nodes[~apart], self._inventory, self._in_use, self._balance)
        for alike in chain(together, nodes[apart][:, None]):
            if feasible.hopeless or budget.left < 0:
                feasible.set(alike, _TOO_LONG)
                continue
            try:
                taken = self._search(demand, int(alike[0]), tries)
            except SelectorError as error:
                feasible.set(alike, (error.claim, str(error)))
            except SearchError:
                feasible.hopeless = True
                feasible.set(alike, _TOO_LONG)
            else:
                feasible.set(alike, TOO_FEW if taken is None else PASSED)
        if self._devices.pools.unready and demand.asks_for_all:
            feasible.set(nodes[self._inventory.unready[nodes]], _UNREADY)
        # What claims usually take costs nothing.
        budget.spend(_TRY_COST * max(0, _TRIES - tries.left - _FREE_TRIES))

    def _numbers(self, claims: Sequence[ResourceClaim], lacking: Mask) -> Passage:
        """Number of devices for claims that some nodes have too few for, in words."""
        return told_of(self._demand(claims), claims, self._inventory, self._in_use, self._balance, lacking)

    def _demand(self, claims: Sequence[ResourceClaim]) -> Demand:
        return self._demand_for(lambda: claim_requests(claims, self._claims.objects), wanted_by(claims))

    def _demand_for(self, wanted: Callable[[], list[ClaimRequest]], key: bytes) -> Demand:
        return self._demands.get(key, lambda: Demand(wanted(), self._devices))

    def _search(self, demand: Demand, node: int, tries: StepBudget, sparing: bool = False) -> list[Taken] | None:
        in_use = self._returns.in_use_on(node, self._in_use)
        return allocate(demand, self._inventory.on(node), in_use, self._balance, tries, sparing=sparing)

    def _joint(self, node: int, claims: Sequence[ResourceClaim], tries: StepBudget) -> list[Taken] | None:
        return self._search(self._demand(self._waiting(claims)), node, tries, sparing=True)

    def _change(self, taken: Sequence[Taken], node: int, *, in_use: bool) -> None:
        self._mark([(each.device, each.consumed) for each in taken if not each.choice.admin], node, in_use=in_use)

    def _mark(self, given: Sequence[Held], node: int, *, in_use: bool) -> None:
        """Count devices and shares as in use, or as free."""
        stock = self._devices.stock
        for device, consumed in given:
            if consumed is None and not self._returns.is_near(device, in_use=in_use):
                self._in_use[device] = in_use or self._returns.holds(device)
        drawing = [(device, consumed) for device, consumed in given if stock.pool[device] >= 0] if stock else []
        change = self._balance.take if in_use else self._balance.give_back
        for device, consumed in drawing:
            change(device, consumed)
        far = any(not stock.is_local(device) for device, _ in drawing)
        if far or any(self._inventory.is_shared(device) for device, _ in given):
            self._log.append(None)
        elif given:
            self._log.append(node)
