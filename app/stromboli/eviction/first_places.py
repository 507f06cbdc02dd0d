"""Which attempt to find victims is the cheapest, and where the first pod of a gang may go.

Where the first pod of a gang goes decides where those can go that must be near it, or away from it. Its place costs
least by itself; for those that follow there may be too few victims around it, or too many that matter. So attempts
differ in the place of the first pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from stromboli.api.resources import Mask
from stromboli.eviction.plan import Place, Plan
from stromboli.framework.session.session import Session
from stromboli.state.pods import PodRecord

#: how many first places are tried
_MOST = 8


#: places for a job, the first of them where it says; None, and nothing done, without enough of them
Attempt: TypeAlias = "Callable[[FirstPlaces], Plan | None]"


def cheapest(session: Session, attempts: Iterable[Attempt]) -> Plan | None:
    """The first of the cheapest plans that attempts, each with different first places, come to; it is in effect."""
    best = plan = None
    for attempt in attempts:
        places, more = FirstPlaces(session), best is None or bool(best.evicted)
        while more:
            if plan is not None:
                plan.set_aside()
            plan = attempt(places)
            if plan is not None and (best is None or plan.cost < best.cost):
                best = plan
            more = places.another() and (plan is None or bool(plan.evicted))
    if best is not None and best is not plan:
        if plan is not None:
            plan.set_aside()
        best.resume()
    return best


class FirstPlaces:
    """The nodes that are left for the first pod of a gang, from one attempt to the next."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._attempt = 1
        #: nodes that were tried, shape (nodes,), and those that the present attempt adds
        self._tried: Mask | None = None
        self._now: Mask | None = None

    @property
    def all(self) -> bool:
        """Whether the first pod may go anywhere."""
        return self._tried is None

    def within(self, within: Mask | None) -> Mask | None:
        """The nodes for the first pod, among those of a mask or all; None for all nodes."""
        if self._tried is None:
            return within
        return ~self._tried if within is None else within & ~self._tried

    def end(self, placed: Sequence[Place], failed: PodRecord | None) -> None:
        """An attempt ends: these places were found, and none for the pod that failed, None if all have theirs."""
        self._now = None
        if placed and (failed is not None or len(placed) > 1):
            first = placed[0].node
            self._now = self._near(first, placed[-1].pod if failed is None else failed)
            if self._now is None and failed is not None and self._session.kernel.varies(failed):
                self._now = self._session.view.nodes.rows == first

    def another(self) -> bool:
        """Begin the next attempt; False when no other place makes a difference, or enough were tried."""
        now, self._now = self._now, None
        if now is None or self._attempt == _MOST:
            return False
        self._attempt += 1
        self._tried = now if self._tried is None else self._tried | now
        return True

    def _near(self, first: int, pod: PodRecord) -> Mask | None:
        """The nodes, the first pod's among them, to which another pod is confined; None if there are no such."""
        if not self._session.kernel.varies(pod):
            return None
        near = self._session.kernel.feasible(pod)
        return near.copy() if near[first] and not near.all() else None
