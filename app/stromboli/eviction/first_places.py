"""Where the first pod of a gang goes decides where those can go that must be near it, or away from it.

The place of the first pod costs least by itself; for those that follow there may be too few victims around it, or too
many that matter. So other places for the first pod are tried, too, some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from stromboli.api.resources import Mask
from stromboli.eviction.plan import Plan
from stromboli.eviction.trial import Place
from stromboli.framework.session.session import Session
from stromboli.state.pods import PodRecord

#: how many are tried
_MOST = 8


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
        """The nodes, of some or of all, for the first pod; None for all."""
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
        """The nodes that a pod is held to since the first one has its node; None when it is not held to that node."""
        if not self._session.kernel.varies(pod):
            return None
        near = self._session.kernel.feasible(pod)
        return near.copy() if near[first] and not near.all() else None


def plans(session: Session, attempt: Callable[[FirstPlaces], Plan | None]) -> Iterator[Plan]:
    """What attempts with different first places come to, each set aside before the next is made."""
    places = FirstPlaces(session)
    while True:
        plan = attempt(places)
        if plan is not None:
            yield plan
        if not places.another():
            return
        if plan is not None:
            plan.set_aside()
