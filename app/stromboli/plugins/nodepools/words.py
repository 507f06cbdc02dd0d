"""The wording for queues that may not hold more in node pools."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from stromboli.api.pod_state import PodState
from stromboli.api.reasons import Actionable, Reason, Stage
from stromboli.api.resources import Matrix, Vector, told
from stromboli.fairness.limits import tried
from stromboli.framework.cluster.job import Job, Queue
from stromboli.framework.cluster.view import View
from stromboli.framework.reasons import column_name
from stromboli.plugins.nodepools.accounts import Accounts, Shortage
from stromboli.plugins.nodepools.ceilings import told as told_pools


class Words:
    """Puts shortages of a session into words."""

    def __init__(self, view: View, accounts: Accounts) -> None:
        self._view = view
        self._accounts = accounts

    def reached(
        self, queue: Queue, request: Vector, short: Sequence[Shortage], stage: Stage, placing: Job | None = None
    ) -> Reason:
        """The reason why a queue may hold no more of a request in any of the usable pools.

        What the attempt has given to other pods of the job being placed is told apart, and counts for a job that cannot
        start with that alone.
        """
        given = None if placing is None else self._given(placing)
        got = None if placing is None else tried(self._view, placing)
        never = self._never(request if got is None or not got.needs_more else request + got.amount, request, short)
        detail = self.numbers(request, short, "may have", given)
        if never:
            detail += "; it is more than the queue may have even when nothing runs"
        pools = [pool for each in short for pool in each.pools]
        return Reason(
            stage,
            "NodePoolLimitReached",
            f"queue {queue.name} may not hold more in {self.told(pools)}",
            Actionable.User if never else Actionable.Wait,
            detail,
            scalable=any(each.for_others for each in short),
        )

    def told(self, pools: Sequence[int]) -> str:
        """The names of alternative pools, in words."""
        return told_pools([self._accounts.names[pool] for pool in pools])

    def numbers(self, request: Vector, short: Iterable[Shortage], verb: str, given: Matrix | None = None) -> str:
        """`a: cpu: queue q holds 4, may have 4, 2 more requested`, for each pool, or for several together.

        `given` is what other pods of the job were given for now, shape (pools, dimensions).
        """
        names = [column_name(self._view.dimensions, at) for at in range(len(self._view.dimensions))]
        rest = " as other queues hold the rest or are guaranteed it"
        said = []
        for each in short:
            of = " and ".join(self._accounts.names[pool] for pool in each.pools)
            for at in each.columns:
                claimed = 0.0 if each.claimed is None else float(each.claimed[at])
                taken = 0.0 if given is None else float(given[list(each.pools), at].sum())
                said.append(
                    f"{of}{' together' if each.pools[1:] else ''}: {names[at]}: queue {each.account.queue.name} holds "
                    f"{told(names[at], each.held[at] - taken)}, "
                    f"{f'{told(names[at], taken)} more for other pods of the job, ' if taken else ''}"
                    f"{f'{told(names[at], claimed)} more claimed by admitted jobs, ' if claimed else ''}"
                    f"{verb} {told(names[at], each.bound[at])}"
                    f"{rest if each.for_others else ''}, {told(names[at], request[at])} more requested"
                )
        return "; ".join(said)

    def _given(self, job: Job) -> Matrix:
        """The amounts that the current attempt has given to pods of a job, shape (pools, dimensions)."""
        view, given = self._view, np.zeros((len(self._accounts.names), len(self._view.dimensions)))
        if job.counts[PodState.Allocated]:
            rows = view.membership.rows(job.index)
            rows = rows[view.pods.state[rows] == PodState.Allocated]
            pools = self._accounts.of_node[view.pods.node[rows]]
            np.add.at(given, pools[pools >= 0], view.requests(rows[pools >= 0]))
        return given

    def _never(self, least: Vector, request: Vector, short: Sequence[Shortage]) -> bool:
        """Whether pools may never take a request, or all together not `least`, at the same time."""
        if not short or any(each.for_others for each in short):
            return False
        together = sorted(set.intersection(*(set(each.columns) for each in short)))
        if (least > sum(each.bound for each in short))[together].any():
            return True
        return all((request > each.bound)[each.columns].any() for each in short)
