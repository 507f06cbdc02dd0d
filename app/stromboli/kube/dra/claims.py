"""Resource claims in one session: which nodes can satisfy those of a pod, and what they hold once it has a node.

A claim gets its devices when the first pod that uses it gets a node; where that can be is the same question for all
claims that ask alike, so it is answered once for all nodes and later looked at again only on nodes where devices were
taken or given back. A claim whose devices were picked but are not yet in its status belongs to that one pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from stromboli.api.objects import PodResourceClaim
from stromboli.api.pod_state import ON_NODE_STATES
from stromboli.api.resources import Rows
from stromboli.framework.plugin import Filters
from stromboli.framework.view import View
from stromboli.kube.dra.allocator import SelectorError, Taken, Wish, allocate, wishes
from stromboli.kube.dra.inventory import DeviceId, Inventory
from stromboli.kube.dra.objects import ClaimError, DeviceObjects, ResourceClaim
from stromboli.kube.node_affinity import selected_nodes
from stromboli.state.pods import PodRecord

#: pods that can share a claim, by the API's validation
_MOST_PODS = 256
#: causes: which claim is to blame, -1 for none of them alone, and why
_PASSED, _TOO_FEW = (-1, ""), (-1, "cannot allocate all claims")


class ClaimsOfPods:
    """Finds the claims that pods name."""

    def __init__(self, plain: Mapping[str, Mapping[str, Any]]) -> None:
        self.objects = DeviceObjects(plain)

    def of(self, pod: PodRecord) -> list[ResourceClaim]:
        """The claims of a pod, each once. Raises ClaimError when one is missing."""
        found: dict[str, ResourceClaim] = {}
        for named in pod.pod_class.spec.resource_claims or ():
            claim = self._find(pod, named)
            if claim is None:
                raise ClaimError(_missing(named))
            found[claim.key] = claim
        return list(found.values())

    def existing(self, pod: PodRecord) -> list[ResourceClaim]:
        """The same without those that are missing."""
        found = (self._find(pod, named) for named in pod.pod_class.spec.resource_claims or ())
        return list({claim.key: claim for claim in found if claim is not None}.values())

    def _find(self, pod: PodRecord, named: PodResourceClaim) -> ResourceClaim | None:
        if named.resource_claim_name:
            return self.objects.claim(pod.namespace, named.resource_claim_name)
        return self.objects.generated_claim(pod.uid, named.name)


@dataclass(slots=True)
class _Answers:
    """Where claims that ask alike can be satisfied."""

    wishes: list[Wish]
    #: index into `causes` of each node, shape (nodes,)
    of_node: Rows
    #: how much of the log of changes is in it
    seen: int
    causes: list[tuple[int, str]] = field(default_factory=lambda: [_PASSED, _TOO_FEW])

    def set(self, rows: Sequence[int], cause: tuple[int, str]) -> None:
        """Say why nodes cannot satisfy them; empty when they can."""
        if cause not in self.causes:
            self.causes.append(cause)
        self.of_node[rows] = self.causes.index(cause)

    def filters(self, claims: Sequence[ResourceClaim]) -> Filters:
        """The nodes that can, by what excludes the others."""
        for index in range(1, len(self.causes)):
            claim, why = self.causes[index]
            name = f'resourceclaim "{claims[claim].metadata.name}", ' if claim >= 0 else ""
            yield f"{name}{why}", self.of_node != index


class DynamicResources:
    """The rule in one session. Objects are read when the first pod with claims is asked about."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._book: _Book | None = None

    def filters(self, pod: PodRecord) -> Filters:
        """Nodes where the pod's claims are, or can be satisfied."""
        if pod.pod_class.spec.resource_claims:
            yield from self._opened().filters(pod)

    def concerns(self, pod: PodRecord) -> bool:
        """Whether a pod has claims."""
        return bool(pod.pod_class.spec.resource_claims)

    def assume(self, pod: PodRecord, node: int) -> None:
        """Pick devices for the claims of a pod that got a node, by its index."""
        if pod.pod_class.spec.resource_claims:
            self._opened().assume(pod, node)

    def forget(self, pod: PodRecord, node: int) -> None:
        """Give them back."""
        if pod.pod_class.spec.resource_claims:
            self._opened().forget(pod, node)

    def _opened(self) -> _Book:
        if self._book is None:
            self._book = _Book(self._view)
        return self._book


class _Book:
    """Who holds which devices."""

    def __init__(self, view: View) -> None:
        self._facts = view.nodes.facts
        self._unallocating = view.environment.unallocating
        self._claims = ClaimsOfPods(view.snapshot.objects)
        self._inventory = Inventory(self._claims.objects, self._facts)
        self._with_devices: list[int] = np.flatnonzero(self._inventory.nodes).tolist()
        self._in_use: set[DeviceId] = set()
        #: devices picked for pods, by the pods' rows
        self._picked: dict[int, list[Taken]] = {}
        #: the row of the pod for which each claim is being allocated
        self._in_flight: dict[str, int] = {}
        #: nodes whose free devices changed; None stands for all nodes
        self._log: list[int | None] = []
        self._answers: dict[bytes, _Answers] = {}
        for allocation in self._claims.objects.allocations():
            for device in allocation.devices.results or ():
                if not device.admin_access:
                    self._in_use.add(DeviceId(device.driver, device.pool, device.device))
        for pod, node in self._placed(view):
            self.assume(pod, node)

    def filters(self, pod: PodRecord) -> Filters:
        try:
            claims = self._claims.of(pod)
            for claim in claims:
                self._check_usable(claim, pod)
            waiting = [claim for claim in claims if claim.status.allocation is None]
            if waiting and pod.scheduler_name in self._unallocating:
                # Once bound, the pod would wait for its devices on the node for good.
                raise ClaimError(f"resourceclaim {waiting[0].key} is not allocated")
            answers = self._answers_for(waiting) if waiting else None
        except ClaimError as error:
            yield str(error), np.zeros(len(self._facts), np.bool_)
            return
        for claim in claims:
            allocation = claim.status.allocation
            if allocation is not None and allocation.node_selector is not None:
                yield "resourceclaim not available on the node", selected_nodes(allocation.node_selector, self._facts)
        if answers is not None:
            yield from answers.filters(waiting)

    def assume(self, pod: PodRecord, node: int) -> None:
        if pod.row in self._picked:
            return
        waiting = [claim for claim in self._claims.existing(pod) if claim.status.allocation is None]
        try:
            taken = self._allocate(wishes(waiting, self._claims.objects), node) or []
        except (ClaimError, SelectorError):
            # The pod was put there by somebody who knows better.
            taken = []
        self._picked[pod.row] = taken
        for claim in waiting:
            self._in_flight.setdefault(claim.key, pod.row)
        self._change(taken, node)
        self._in_use.update(each.offer.id for each in taken if not each.choice.admin)

    def forget(self, pod: PodRecord, node: int) -> None:
        taken = self._picked.pop(pod.row, [])
        for key in [key for key, row in self._in_flight.items() if row == pod.row]:
            del self._in_flight[key]
        self._change(taken, node)
        self._in_use.difference_update(each.offer.id for each in taken if not each.choice.admin)

    def _placed(self, view: View) -> Iterator[tuple[PodRecord, int]]:
        """Pods with claims that were on nodes before the session."""
        with_claims = [c.id for c in view.snapshot.classes if c.spec.resource_claims]
        pods = view.pods
        on_node = np.isin(pods.state, ON_NODE_STATES) & (pods.node >= 0) & np.isin(pods.pod_class, with_claims)
        rows = np.flatnonzero(on_node)
        return zip(view.records(rows), pods.node[rows].tolist(), strict=True)

    def _check_usable(self, claim: ResourceClaim, pod: PodRecord) -> None:
        """Raises ClaimError when a pod cannot use a claim, wherever it goes."""
        name = claim.metadata.name
        if claim.metadata.deletion_timestamp:
            raise ClaimError(f'resourceclaim "{name}" is being deleted')
        if claim.status.allocation is None:
            if self._in_flight.get(claim.key, pod.row) != pod.row:
                raise ClaimError(f'resourceclaim "{name}" is in the process of being allocated')
            return
        users = [consumer.uid for consumer in claim.status.reserved_for or ()]
        if len(users) >= _MOST_PODS and pod.uid not in users:
            raise ClaimError(f'resourceclaim "{name}" is in use by as many pods as can share it')

    # -- where claims can be satisfied -------------------------------------------------------------------------------

    def _answers_for(self, claims: Sequence[ResourceClaim]) -> _Answers:
        key = msgspec.msgpack.encode([claim.spec for claim in claims])
        answers = self._answers.get(key)
        if answers is None:
            wanted = wishes(claims, self._claims.objects)
            nowhere = np.full(len(self._facts), int(bool(wanted)), np.intp)
            answers = self._answers[key] = _Answers(wanted, nowhere, len(self._log))
            self._ask(answers, self._with_devices)
        changed = set(self._log[answers.seen :])
        answers.seen = len(self._log)
        everywhere = None in changed
        self._ask(answers, self._with_devices if everywhere else sorted(row for row in changed if row is not None))
        return answers

    def _ask(self, answers: _Answers, rows: Sequence[int]) -> None:
        for alike in self._inventory.alike(rows):
            try:
                taken = self._allocate(answers.wishes, alike[0])
            except SelectorError as error:
                answers.set(alike, (error.claim, str(error)))
            else:
                answers.set(alike, _TOO_FEW if taken is None else _PASSED)

    def _allocate(self, wanted: Sequence[Wish], node: int) -> list[Taken] | None:
        return allocate(wanted, list(self._inventory.on(node)), self._in_use)

    def _change(self, taken: Sequence[Taken], node: int) -> None:
        if any(self._inventory.is_shared(each.offer.id) for each in taken):
            self._log.append(None)
        elif taken:
            self._log.append(node)


def _missing(named: PodResourceClaim) -> str:
    if named.resource_claim_name:
        return f'resourceclaim "{named.resource_claim_name}" not found'
    return f'the resourceclaim for "{named.name}" is not made from its template yet'
