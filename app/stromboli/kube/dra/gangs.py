"""Gangs whose pods have claims: the number that share one, and the devices that the first leave to others."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import TypeAlias

import numpy as np

from stromboli.api.resources import Vector
from stromboli.framework.cluster.job import Job
from stromboli.framework.cluster.view import View
from stromboli.kube.dra.allocator import SearchError, StepBudget, Taken
from stromboli.kube.dra.holdings import claim_keys
from stromboli.kube.dra.objects import ClaimError, ResourceClaim
from stromboli.kube.dra.pod_claims import ClaimsOfPods
from stromboli.kube.dra.requests import SelectorError, wanted_by
from stromboli.state.pods import PodRecord

#: finds devices for claims within a budget, as `allocate` does
Search: TypeAlias = Callable[[Sequence[ResourceClaim], StepBudget], list[Taken] | None]

#: limits on waiting pods that are left devices, on devices tried for one set of them, and for all sets
_AHEAD, _TRIES, _ALL_TRIES = 8, 1_000, 2_000


class ClaimingGangs:
    """The gangs of one session, read when one of their pods is asked about."""

    def __init__(self, view: View, claims: ClaimsOfPods) -> None:
        self._view = view
        self._claims = claims
        #: jobs with pods that had devices and lost their places again
        self._tried: set[str] = set()
        #: by job: which of its pods that wait name each claim, by its key
        self._naming: dict[str, defaultdict[str, list[PodRecord]]] = {}
        #: by job: the claims without devices of its pods, by row, the first of each kind first, and the number of kinds
        self._waiting: dict[str, tuple[dict[int, list[ResourceClaim]], int]] = {}

    def of(self, pod: PodRecord) -> Job | None:
        """The job of a pod, if it starts with several."""
        job = self._view.job_of(pod)
        return job if job is not None and job.min_available > 1 else None

    def together(self, pod: PodRecord, waiting: Sequence[ResourceClaim]) -> Vector | None:
        """Least total request of the pods of a gang that must share one of some claims for it to start, the given one
        included; None if that is one alone."""
        job = self.of(pod)
        if job is None:
            return None
        naming, lacking = self._named_by(job), job.min_available - len(self._view.rows_holding(job))
        sharing = max((naming[claim.key] for claim in waiting), key=len)
        count = min(len(sharing), lacking)
        if count <= 1:
            return None
        request, others = self._view.request(pod), [each for each in sharing if each.row != pod.row]
        smallest = np.sort([self._view.request(each) for each in others], axis=0)[: count - 1]
        out: Vector = request + smallest.sum(axis=0)
        return out

    def naming(self, pod: PodRecord) -> Mapping[str, int]:
        """Number of waiting pods of a job that name each claim, by key."""
        job = self._view.job_of(pod)
        return Counter() if job is None else Counter({key: len(pods) for key, pods in self._named_by(job).items()})

    def _named_by(self, job: Job) -> defaultdict[str, list[PodRecord]]:
        if job.key not in self._naming:
            self._naming[job.key] = naming = defaultdict[str, list[PodRecord]](list)
            for each in self._view.pending(job):
                for key in claim_keys(each):
                    naming[key].append(each)
        return self._naming[job.key]

    def taken_back(self, pod: PodRecord) -> None:
        """Note that an attempt for the job of a pod failed: in the next ones its pods leave devices to the others."""
        self._tried.add(pod.job)

    def others(self, pod: PodRecord, seated: Container[int], *, alike: bool) -> list[list[ResourceClaim]]:
        """The claims of some pods of a gang that wait along with one, unless they are in `seated`.

        Without `alike` there are none where all ask for the same.
        """
        job = self.of(pod)
        if job is None or job.key not in self._tried:
            return []
        if job.key not in self._waiting:
            self._waiting[job.key] = self._by_kind(self._view.members(job))
        waiting, kinds = self._waiting[job.key]
        if kinds < 2 and not alike:
            return []
        return list(islice((waiting[row] for row in waiting if row != pod.row and row not in seated), _AHEAD))

    def _by_kind(self, pods: Iterable[PodRecord]) -> tuple[dict[int, list[ResourceClaim]], int]:
        kinds: Counter[bytes] = Counter()
        order: list[tuple[int, int, list[ResourceClaim]]] = []
        for pod in pods:
            claims = [each for each in self._claims.existing(pod) if each.status.allocation is None]
            if claims:
                kind = wanted_by(claims)
                order.append((kinds[kind], pod.row, claims))
                kinds[kind] += 1
        return {row: claims for _, row, claims in sorted(order, key=lambda each: each[0])}, len(kinds)


def leaving(own: Sequence[ResourceClaim], others: Sequence[Sequence[ResourceClaim]], search: Search) -> list[Taken]:
    """Devices for claims that leave devices to as many others as can have some; none if there is no such choice."""
    together, found, left = list(own), list[Taken](), _ALL_TRIES
    for more in (chain.from_iterable(others), *others):
        joint = list({claim.key: claim for claim in (*together, *more)}.values())
        tries = StepBudget(min(_TRIES, left))
        with suppress(ClaimError, SelectorError, SearchError):
            if len(joint) > len(together) and (taken := search(joint, tries)) is not None:
                together, found = joint, taken
        left -= min(_TRIES, left) - max(0, tries.left)
    return [each for each in found if each.choice.claim < len(own)]
