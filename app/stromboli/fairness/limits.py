"""The reason why a queue may not take more, in the same words whichever plugin limits it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from stromboli.api.pod_state import PodState
from stromboli.api.reasons import Actionable, Reason, Stage
from stromboli.api.resources import PODS, TOLERANCE, Vector, told
from stromboli.fairness import lending, shares
from stromboli.framework.cluster.job import Job, Queue
from stromboli.framework.cluster.view import View
from stromboli.framework.reasons import column_name


class Limit(Enum):
    """A kind of limit: the reason's word, what the queue lacks, and how its amounts are described."""

    Deserved = "QueueShareExceeded", "no capacity left in {}", "deserves"
    Capability = "QueueCapabilityExceeded", "no capacity left in {}", "may have"
    Quota = "QueueQuotaExceeded", "no quota left in {} for jobs that are never evicted", "has a quota of"


@dataclass(frozen=True, slots=True, eq=False)
class Tried:
    """The amounts that the current attempt has given to pods of a job, shape (dimensions,)."""

    amount: Vector
    #: whether the job cannot start with that alone
    needs_more: bool


@dataclass(frozen=True, slots=True, eq=False)
class Excess:
    """A queue that would exceed its limit. Amounts have shape (dimensions,)."""

    queue: str
    held: Vector
    request: Vector
    bound: Vector
    #: dimensions where it would
    columns: list[int]
    #: claims of admitted jobs beyond what they use
    claimed: Vector | None = None
    #: elastic part of the used amounts, which does not count
    elastic: Vector | None = None
    #: part of the used amounts that the same job was given in this attempt
    tried: Tried | None = None
    #: amounts that terminating pods hold beyond that; negative where promised pods do not hold it yet
    terminating: Vector | None = None
    #: amounts reserved for pods whose queue gate was lifted
    kept: Vector | None = None
    #: whether all beyond the limit is used by other queues, or kept by their guarantees and limits on lending
    for_others: bool = False
    #: the queue and those above it, where what they borrow and the limits of all of them count
    line: Sequence[Queue] = ()
    #: the queue above whose own limit this one follows from, less what others below it keep; empty for none
    shared: str = ""
    #: the most that it may hold when it is alone; None where that is not known
    most: Vector | None = None

    def reason(self, view: View, limit: Limit, stage: Stage = Stage.QueueShare) -> Reason:
        """The reason, with the compared numbers."""
        word, lack, verb = limit.value
        total, bound = view.total[self.columns], self.bound[self.columns]
        own = _ceiling(view, self.queue, self.line)
        may_have_all = ((total > 0) & (bound > total - TOLERANCE)).all()
        in_turn = limit is Limit.Capability and stage is Stage.QueueShare and not self._above(view.total)
        # A limit grows with the cluster where it is below what specs say.
        grows = limit is not Limit.Quota and not self.shared and bool((self.bound < own)[self.columns].any())
        if may_have_all and (limit is Limit.Deserved or in_turn):
            return self._full(view, grows=grows)
        of = [column_name(view.dimensions, c) for c in self.columns]
        rest = " as other queues hold the rest or keep it" if self.for_others else ""
        detail = "; ".join(
            f"{name}: {self._held(c, name)}, {'may have' if self.bound[c] >= own[c] else verb} "
            f"{told(name, self.bound[c])}{self._by_spec(view, c, name)}{rest}, "
            f"{told(name, self.request[c])} more requested"
            for c, name in zip(self.columns, of, strict=True)
        )
        names = ", ".join(of)
        message = f"queue {self.queue} has {lack.format(names)}"
        most = self.bound if limit is Limit.Capability else self.most
        who = Actionable.Wait
        if self._above(np.minimum(own, view.total)) and limit is Limit.Capability:
            who, detail = Actionable.User, f"{detail}; it is more than the queue may have even when nothing runs"
        elif most is not None and self._above(most):
            who = Actionable.Admin
            detail += "; guarantees of other queues leave it less than that even when nothing runs"
        return Reason(stage, word, message, who, detail, scalable=grows)

    def _above(self, most: Vector) -> bool:
        """Whether a request exceeds some amounts, with the job's other pods that need places at the same time."""
        asked = self.request
        if self.tried is not None and self.tried.needs_more:
            asked = asked + self.tried.amount
        return bool((asked > most + TOLERANCE)[self.columns].any())

    def _full(self, view: View, *, grows: bool) -> Reason:
        """The reason of a queue that may have the whole cluster, also if it `grows`, and has what there is of it."""
        names = [column_name(view.dimensions, c) for c in self.columns]
        detail = "; ".join(
            f"{name}: the cluster has {told(name, view.total[c])}, queue {self.queue} {self._held(c, name)}, "
            f"{told(name, self.request[c])} more requested"
            for c, name in zip(self.columns, names, strict=True)
        )
        message = f"the cluster is full in {', '.join(names)}, of which queue {self.queue} may have all"
        return Reason(Stage.Placement, "ClusterFull", message, Actionable.Wait, detail, scalable=grows)

    def _by_spec(self, view: View, column: int, name: str) -> str:
        """Cause of a limit in a spec, in words: the borrowing limit, or the first queue above that may have no more."""
        for queue in self.line:
            if lending.ceiling(view, queue)[column] <= self.bound[column]:
                borrows = queue.spec.borrowing_limit and lending.most(view, queue)[column] <= self.bound[column]
                limit = view.vector(queue.spec.borrowing_limit)[column]
                by = f"borrows {told(name, limit)}" if borrows else "may have no more"
                if queue.name != self.queue:
                    return f" as queue {queue.name} above it {by}"
                return f", of which it {by}" if borrows else ""
        return f" as others keep the rest of what queue {self.shared} above it may" if self.shared else ""

    def _held(self, column: int, name: str) -> str:
        """`holds 4 (1 elastic), 5 more claimed by admitted jobs`."""
        taken = 0.0 if self.tried is None else float(self.tried.amount[column])
        out = f"holds {told(name, self.held[column] - taken)}"
        if taken > 0:
            out += f", {told(name, taken)} more for other pods of the job"
        if self.elastic is not None and self.elastic[column] > 0:
            out += f" ({told(name, self.elastic[column])} elastic)"
        if self.terminating is not None and self.terminating[column] > 0:
            out += f", terminating pods {told(name, self.terminating[column])} more"
        if self.kept is not None and self.kept[column] > 0:
            out += f", keeps {told(name, self.kept[column])} more for pods whose scheduling gate was lifted"
        if self.claimed is not None and self.claimed[column] > 0:
            out += f", {told(name, self.claimed[column])} more claimed by admitted jobs"
        return out


def tried(view: View, job: Job) -> Tried | None:
    """The amounts that the current attempt has given to pods of a job; None if there are none."""
    if not job.counts[PodState.Allocated]:
        return None
    rows = view.membership.rows(job.index)
    amount: Vector = view.requests(rows[view.pods.state[rows] == PodState.Allocated]).sum(axis=0)
    return Tried(amount, job.ready_count < job.min_available)


def overused(view: View, queue: str, held: Vector, deserved: Vector) -> Reason:
    """The reason of a queue that gets nothing more, with its usage of each resource."""
    some = np.flatnonzero((held > 0) | (deserved > 0)).tolist()
    columns = [c for c in some if c != PODS or view.counts_pods]
    amounts = (
        f"{name}: holds {told(name, held[c])}, deserves {told(name, deserved[c])}"
        for c, name in ((c, column_name(view.dimensions, c)) for c in columns)
    )
    detail = "; ".join(amounts) or "it deserves nothing"
    message = f"queue {queue} holds all that it deserves"
    grows = bool((deserved < _ceiling(view, queue, ()))[columns].any())
    return Reason(Stage.QueueShare, "QueueOverused", message, Actionable.Wait, detail, scalable=grows)


def _ceiling(view: View, queue: str, line: Sequence[Queue]) -> Vector:
    """The limits of a queue by its spec and those of its ancestors."""
    if not line:
        return shares.capability(view, view.queues[queue])
    most: Vector = np.min([lending.ceiling(view, each) for each in line], axis=0)
    return most
