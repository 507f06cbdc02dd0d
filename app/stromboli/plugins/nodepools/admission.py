"""The claims of admitted jobs on node pools: a job restricted to pools competes for what the claims leave."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np

from stromboli.api.resources import Matrix, Rows, Vector
from stromboli.fairness import shares
from stromboli.framework.cluster.job import Job
from stromboli.framework.cluster.view import View
from stromboli.plugins.nodepools.accounts import Account, Accounts, Shortage

#: the pools that a job may use, whatever their order; None where it may leave them
Usable: TypeAlias = frozenset[int] | None


class Claims:
    """The amounts that jobs claim, and hold beyond their minimum, by queue and usable pools.

    In which of its pools a job will run is unknown before it is placed. So its request must fit in all its pools
    together, in addition to the claims of jobs that may use these pools only.
    """

    def __init__(self, view: View, accounts: Accounts, usable: Sequence[Usable], said: Rows) -> None:
        """`said` is the number of each job's pools among those in `usable`."""
        self._view, self._accounts = view, accounts
        elastic = np.maximum(view.job_allocated - view.jobs.min_resources, 0)
        self._claimed = self._of_queues(usable, said, shares.claims(view, beyond_allocated=True))
        self._elastic = self._of_queues(usable, said, elastic)

    def _of_queues(self, usable: Sequence[Usable], said: Rows, amounts: Matrix) -> dict[str, dict[Usable, Vector]]:
        """Amounts of jobs, shape (jobs, dimensions), by queue and pools; descendants of a queue are included."""
        some = np.flatnonzero(amounts.any(axis=1))
        keys, at = np.unique(self._view.jobs.queue[some] * len(usable) + said[some], return_inverse=True)
        sums = np.zeros((len(keys), amounts.shape[1]))
        np.add.at(sums, at, amounts[some])
        by_index = {account.queue.index: account for account in self._accounts.every.values()}
        found: dict[str, dict[Usable, Vector]] = {name: {} for name in self._accounts.every}
        for key, amount in zip(keys.tolist(), sums, strict=True):
            index, of = divmod(key, len(usable))
            for each in by_index[index].path:
                found[each.queue.name][usable[of]] = found[each.queue.name].get(usable[of], 0) + amount
        return found

    def claim(self, account: Account, usable: Usable, amount: Vector) -> None:
        """Add the claims of an admitted job."""
        for each in account.path:
            claimed = self._claimed[each.queue.name]
            claimed[usable] = claimed.get(usable, 0) + amount

    def claimed(self, account: Account, pools: frozenset[int]) -> Vector:
        """The claims on some pools by jobs that may use no others."""
        of = self._claimed[account.queue.name].items()
        return self._sum(amount for usable, amount in of if usable is not None and usable <= pools)

    def shortage(self, account: Account, pools: frozenset[int], job: Job) -> Shortage | None:
        """Why a queue may not hold what a job starts with in all its pools together, once others have what they claim.

        What jobs hold beyond their minimum does not count: it may be taken for others.
        """
        request, rows = shares.admission_request(self._view, job), sorted(pools)
        for each in account.path:
            most: Vector = each.most[rows].sum(axis=0)
            if np.isinf(most).all():
                continue
            held: Vector = each.held[rows].sum(axis=0)
            claimed = self.claimed(each, pools)
            of = self._elastic[each.queue.name].items()
            elastic = self._sum(amount for usable, amount in of if usable is None or usable & pools)
            wanted = np.maximum(held - elastic, 0) + claimed + request
            columns = shares.exceeded(wanted, most, request, self._accounts.pods)
            if columns:
                for_others = bool((most < each.capability[rows].sum(axis=0))[columns].any())
                return Shortage(each, tuple(rows), held, most, columns, for_others, claimed)
        return None

    def _sum(self, amounts: Iterable[Vector]) -> Vector:
        return sum(amounts, self._view.vector(None))
