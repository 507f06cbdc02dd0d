"""The nodes where claims with equal requests can be satisfied, and why they cannot elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from stromboli.api.reasons import Passage
from stromboli.api.resources import Mask, Rows
from stromboli.framework.plugin.causes import Filters, Lacking, Occupied
from stromboli.kube.dra.allocator import Demand, SearchError, StepBudget, allocate
from stromboli.kube.dra.inventory import Inventory
from stromboli.kube.dra.objects import ResourceClaim
from stromboli.kube.dra.requests import ClaimRequest, SelectorError
from stromboli.kube.dra.stock import Balance

#: causes: the claim to blame, -1 if none alone is, and the reason
PASSED, TOO_FEW = (-1, ""), (-1, "cannot allocate all claims")
#: the number of causes that are distinguished
_MOST_CAUSES = 16


@dataclass(slots=True)
class Feasible:
    """The nodes where claims with equal requests can be satisfied."""

    claim_requests: list[ClaimRequest]
    #: index into `causes` of each node, shape (nodes,)
    of_node: npt.NDArray[np.int16]
    #: length of the log of changes that is in it
    seen: int
    #: a search took so long that there is no other
    hopeless: bool = False
    causes: list[tuple[int, str]] = field(default_factory=lambda: [PASSED, TOO_FEW])
    #: the nodes with enough devices if none were in use; None before a pod finds none of them
    ever: Mask | None = None

    def set(self, rows: Rows, cause: tuple[int, str]) -> None:
        """Say why nodes cannot satisfy them; empty when they can."""
        if cause not in self.causes:
            if len(self.causes) > _MOST_CAUSES:
                cause = self.causes[-1]
            else:
                self.causes.append(cause)
        self.of_node[rows] = self.causes.index(cause)

    def find_ever(self, demand: Demand, inventory: Inventory, in_use: Mask, tries: StepBudget) -> None:
        """Find the nodes with enough devices if none were in use, as far as any is there."""
        nodes, stock, free = inventory.nodes, demand.devices.stock, np.zeros_like(in_use)
        self.ever = ever = self.of_node == self.causes.index(PASSED)
        held = in_use[inventory.local].any(axis=1) | inventory.reaching_shared | bool(stock)
        balance = Balance(stock)
        with suppress(SelectorError, SearchError):
            for alike in demand.alike(nodes[(held & ~ever)[nodes]], inventory, free, balance):
                ever[alike] = allocate(demand, inventory.on(int(alike[0])), free, balance, tries) is not None

    def filters(self, claims: Sequence[ResourceClaim], numbers: Callable[[Mask], Passage]) -> Filters:
        """The nodes that can, by what excludes the others; `numbers` has those of devices, for nodes with too few."""
        for index in range(1, len(self.causes)):
            claim, why = self.causes[index]
            name = f'resourceclaim "{claims[claim].metadata.name}", ' if claim >= 0 else ""
            passes = self.of_node != index
            cause = f"{name}{why}"
            if self.causes[index] != TOO_FEW:
                yield cause, passes
                continue
            of_these = partial(numbers, ~passes)
            if self.ever is not None:
                yield Occupied(cause, of_these), passes | ~self.ever
                passes = passes | self.ever
            yield Lacking(cause, of_these), passes
