"""resourcequota: jobs are admitted only as far as the ResourceQuotas of their namespace allow.

What jobs admitted in this session ask for counts as used until the quota's own status shows it. Scopes are not
considered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TypeAlias

from stromboli.api import quantity
from stromboli.api.errors import InvalidQuantityError
from stromboli.api.reasons import Actionable, Reason, Stage
from stromboli.api.resources import ResourceAmounts, in_bytes
from stromboli.framework.job import Job
from stromboli.framework.plugin import Plugin, Verdict, Vote
from stromboli.framework.view import View

#: exact amounts by the names that a quota uses, such as `requests.cpu`, `cpu` or `count/pods`
Amounts: TypeAlias = Mapping[str, Fraction]


@dataclass(frozen=True, slots=True)
class Quota:
    """A ResourceQuota as its status has it."""

    name: str
    hard: Amounts
    used: Amounts


class ResourceQuota(Plugin):
    name = "resourcequota"

    def open(self, view: View) -> None:
        self._quotas: defaultdict[str, list[Quota]] = defaultdict(list)
        for manifest in view.snapshot.objects.get("ResourceQuota", {}).values():
            metadata, status = manifest.get("metadata") or {}, manifest.get("status") or {}
            quota = Quota(metadata.get("name", ""), _amounts(status.get("hard")), _amounts(status.get("used")))
            self._quotas[metadata.get("namespace") or "default"].append(quota)
        #: whether a job that holds places is known to be in what is used
        self._knows_pods = view.rules.admission
        #: what the jobs admitted in this session ask for, by namespace
        self._admitted: defaultdict[str, defaultdict[str, Fraction]] = defaultdict(lambda: defaultdict(Fraction))

    def job_enqueueable(self, job: Job) -> Verdict:
        if self._knows_pods and job.allocated_count:
            return Vote.Permit
        asked = _amounts(job.pod_group.spec.min_resources)
        admitted = self._admitted[job.namespace]
        for quota in self._quotas.get(job.namespace, ()):
            exceeded = sorted(
                name
                for name in asked.keys() & quota.hard.keys()
                if quota.used.get(name, 0) + admitted[name] + asked[name] > quota.hard[name]
            )
            if exceeded:
                taken = {name: quota.used.get(name, Fraction(0)) + admitted[name] for name in exceeded}
                return _insufficient(job, quota, taken, asked)
        return Vote.Permit

    def job_enqueued(self, job: Job) -> None:
        if self._knows_pods and job.allocated_count:
            return
        for name, amount in _amounts(job.pod_group.spec.min_resources).items():
            self._admitted[job.namespace][name] += amount


def _amounts(resources: ResourceAmounts | None) -> Amounts:
    """Exact amounts of a resource list, without what is not a quantity."""
    out = {}
    for name, value in (resources or {}).items():
        try:
            out[name] = quantity.parse(value)
        except InvalidQuantityError:
            continue
    return out


def _insufficient(job: Job, quota: Quota, taken: Amounts, asked: Amounts) -> Reason:
    detail = "; ".join(
        f"{name}: {told(used)} of {told(quota.hard[name])} used, {told(asked[name])} more asked"
        for name, used, told in ((name, used, partial(_told, name)) for name, used in taken.items())
    )
    return Reason(
        Stage.Admission,
        "ResourceQuotaExceeded",
        f"ResourceQuota {quota.name} of namespace {job.namespace} has no room for the job's {', '.join(taken)}",
        Actionable.Admin,
        detail,
    )


def _told(resource: str, amount: Fraction) -> str:
    return quantity.in_words(float(amount), binary=in_bytes(resource))
