"""overcommit: admits jobs up to a multiple of the cluster, so that some are waiting with their pods created."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, Field

from stromboli.api.reasons import Actionable, Reason, Stage
from stromboli.api.resources import Vector, told
from stromboli.fairness import shares
from stromboli.framework.cluster.job import Job
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Arguments, Plugin, Verdict, Vote
from stromboli.framework.reasons import column_name

_DEFAULT_FACTOR = 1.2


class OvercommitArguments(Arguments):
    """Arguments of overcommit."""

    factor: float = Field(default=_DEFAULT_FACTOR, alias="overcommit-factor")
    """Multiple of the cluster up to which jobs are admitted. Below 1 the default is used."""


class Overcommit(Plugin):
    name = "overcommit"
    Arguments: ClassVar[type[BaseModel]] = OvercommitArguments

    def open(self, view: View) -> None:
        self._view = view
        factor = self.arguments.factor if self.arguments.factor >= 1 else _DEFAULT_FACTOR
        self._used = view.nodes.used.sum(axis=1)
        self._limit = view.total * factor
        self._idle = self._limit - self._used
        self._inqueue: Vector = shares.claims(view, beyond_allocated=False).sum(axis=0)
        #: why jobs are refused, by what they request; until another one is admitted
        self._refused: dict[bytes, Reason] = {}

    def job_enqueueable(self, job: Job) -> Verdict:
        if job.min_resources is None:
            return Vote.Permit
        request = shares.admission_request(self._view, job)
        known = self._refused.get(request.tobytes())
        if known is not None:
            return known
        columns = shares.exceeded(self._inqueue + request, self._idle, request)
        if not columns:
            return Vote.Permit
        refusal = self._refused[request.tobytes()] = self._refusal(request, columns)
        return refusal

    def _refusal(self, asked: Vector, columns: list[int]) -> Reason:
        view, stage, word = self._view, Stage.Admission, "ClusterOvercommitted"
        detail = "; ".join(
            f"{name}: {told(name, self._limit[c])} may be claimed of {told(name, view.total[c])}, "
            f"pods hold {told(name, self._used[c])}, admitted jobs claim {told(name, self._inqueue[c])}, "
            f"{told(name, asked[c])} more requested"
            for c, name in ((c, column_name(view.dimensions, c)) for c in columns)
        )
        alone = [c for c in columns if asked[c] > self._limit[c]]
        if alone:
            message = f"the job requests more {_names(view, alone)} than the cluster has"
            return Reason(stage, word, message, Actionable.User, detail, scalable=True)
        message = f"running pods and admitted jobs claim all of the cluster's {_names(view, columns)}"
        return Reason(stage, word, message, Actionable.Wait, detail, scalable=True)

    def job_enqueued(self, job: Job) -> None:
        if job.min_resources is not None:
            self._refused.clear()
            self._inqueue += shares.reserved(self._view, job, beyond_allocated=False)


def _names(view: View, columns: list[int]) -> str:
    return ", ".join(column_name(view.dimensions, c) for c in columns)
