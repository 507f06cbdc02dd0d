"""Where claims that ask alike can be satisfied, and why they cannot elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from stromboli.api.resources import Mask, Rows
from stromboli.framework.plugin import Filters, Passing
from stromboli.kube.dra.objects import ResourceClaim
from stromboli.kube.dra.requests import ClaimRequest

#: causes: which claim is to blame, -1 for none of them alone, and why
PASSED, TOO_FEW = (-1, ""), (-1, "cannot allocate all claims")
#: causes that are told apart
_MOST_CAUSES = 16


@dataclass(slots=True)
class Answers:
    """Where claims that ask alike can be satisfied."""

    claim_requests: list[ClaimRequest]
    #: index into `causes` of each node, shape (nodes,)
    of_node: npt.NDArray[np.int16]
    #: how much of the log of changes is in it
    seen: int
    #: a search took so long that there is no other
    hopeless: bool = False
    causes: list[tuple[int, str]] = field(default_factory=lambda: [PASSED, TOO_FEW])
    #: the nodes with enough devices if none were in use; None while no node has too few
    ever: Mask | None = None

    def set(self, rows: Rows, cause: tuple[int, str]) -> None:
        """Say why nodes cannot satisfy them; empty when they can."""
        if cause not in self.causes:
            if len(self.causes) > _MOST_CAUSES:
                cause = self.causes[-1]
            else:
                self.causes.append(cause)
        self.of_node[rows] = self.causes.index(cause)

    def filters(self, claims: Sequence[ResourceClaim]) -> Filters:
        """The nodes that can, by what excludes the others."""
        for index in range(1, len(self.causes)):
            claim, why = self.causes[index]
            name = f'resourceclaim "{claims[claim].metadata.name}", ' if claim >= 0 else ""
            passes = self.of_node != index
            if self.causes[index] == TOO_FEW and self.ever is not None:
                yield Passing(f"{name}{why}"), passes | ~self.ever
                passes = passes | self.ever
            yield f"{name}{why}", passes
