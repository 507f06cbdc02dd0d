"""resourcequota: admits jobs only within the ResourceQuotas of their namespace.

The requests of jobs admitted in this session count as used until the quota's status shows them. Existing pods are part
of the quota's usage, so their jobs request only what they still need to start. Volcano considers neither this nor
scopes, and does not treat `requests.cpu` as `cpu`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import compress
from typing import Any

from stromboli.api import quantity
from stromboli.api.pod_state import PodState
from stromboli.api.reasons import Actionable, Reason, Stage
from stromboli.api.resources import in_bytes
from stromboli.framework.cluster.job import Job
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Plugin, Verdict, Vote
from stromboli.kube import quotas
from stromboli.kube.quotas import Amounts, Counted
from stromboli.state.pods import PodRecord
from stromboli.state.reads import Reads

_ENDED = (PodState.Succeeded, PodState.Failed)
_NOTHING = Fraction(0)


@dataclass(frozen=True, slots=True)
class Quota:
    """A ResourceQuota as in its status."""

    name: str
    hard: Amounts
    used: Amounts
    manifest: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Claim:
    """The request of a job to a quota of its namespace, by its resource names."""

    #: its minimum
    asked: Amounts
    #: usage of its existing pods
    held: Amounts


class ResourceQuota(Plugin):
    name = "resourcequota"
    reads = Reads(fields=("terminating", "priority_class_name"))

    def open(self, view: View) -> None:
        self._view = view
        self._common = quotas.common_name if view.rules.quotas else str
        self._quotas: defaultdict[str, list[Quota]] = defaultdict(list)
        for manifest in view.snapshot.objects.get("ResourceQuota", {}).values():
            metadata, status = manifest.get("metadata") or {}, manifest.get("status") or {}
            hard = quotas.hard_of(manifest) if view.rules.quotas else status.get("hard")
            quota = Quota(metadata.get("name", ""), quotas.amounts(hard), quotas.amounts(status.get("used")), manifest)
            self._quotas[metadata.get("namespace") or "default"].append(quota)
        classes = view.snapshot.priority_classes
        #: the class that pods get which name none
        self._default_class = next((name for name, each in classes.items() if each.global_default), "")
        #: whether the placed pods of a job are known to be part of the usage
        self._knows_pods = view.rules.admission
        #: by quota, the requests of jobs admitted in this session beyond the usage
        self._admitted: defaultdict[int, defaultdict[str, Fraction]] = defaultdict(lambda: defaultdict(Fraction))

    def job_enqueueable(self, job: Job) -> Verdict:
        for quota, more in self._asked(job):
            admitted = self._admitted[id(quota)]
            exceeded = sorted(
                name
                for name, amount in more.items()
                if quota.used.get(name, 0) + admitted[name] + amount > quota.hard[name]
            )
            if exceeded:
                taken = {name: quota.used.get(name, _NOTHING) + admitted[name] for name in exceeded}
                return _insufficient(job, quota, taken, more)
        return Vote.Permit

    def job_enqueued(self, job: Job) -> None:
        for quota, more in self._asked(job):
            for name, amount in more.items():
                self._admitted[id(quota)][name] += amount

    def _asked(self, job: Job) -> Iterator[tuple[Quota, Amounts]]:
        """The quotas that cover a job, and its request to each beyond the usage, by the quota's names."""
        known = self._quotas.get(job.namespace)
        if not known or job.pod_group.spec.min_resources is None or (self._knows_pods and job.allocated_count):
            return
        pods = self._pods(job) if self._view.rules.quotas else []
        for quota in known:
            claim = self._claim(job, quota, pods)
            if claim is not None:
                yield quota, dict(self._beyond(quota, claim))

    def _beyond(self, quota: Quota, claim: Claim) -> Iterator[tuple[str, Fraction]]:
        for name in quota.hard:
            common = self._common(name)
            if common in claim.asked:
                held = claim.held.get(common, _NOTHING)
                # A quota with less usage has not counted the pods yet.
                known = held if quota.used.get(name, _NOTHING) >= held else _NOTHING
                yield name, max(claim.asked[common] - known, _NOTHING)

    def _claim(self, job: Job, quota: Quota, pods: list[PodRecord]) -> Claim | None:
        """Claim of a job on a quota, which covers the pods of its scopes; None if it covers none."""
        given = job.pod_group.spec
        if not self._view.rules.quotas:
            return Claim(quotas.amounts(given.min_resources), {})
        marks = [quotas.counts(quota.manifest, Counted.of(pod)) for pod in pods]
        covered = list(compress(pods, marks))
        first = list(compress(pods[: job.min_available], marks))
        least = quotas.used_by(first)
        if len(covered) < len(pods):
            # Its minResources do not say which part of them is for the pods that are covered.
            asked = least | dict.fromkeys(quotas.PODS, Fraction(len(first)))
            return Claim(asked, quotas.used_by(covered)) if covered else None
        asked = least | dict.fromkeys(quotas.PODS, Fraction(job.min_available))
        asked |= quotas.asked_for(given.min_resources)
        class_name = given.priority_class_name or self._default_class
        if not pods and not quotas.counts(quota.manifest, Counted.expected(asked, class_name)):
            return None
        return Claim(asked, quotas.used_by(pods))

    def _pods(self, job: Job) -> list[PodRecord]:
        """The pods of a job that have not ended, by name."""
        pods = (pod for pod in self._view.members(job) if self._view.pods.state[pod.row] not in _ENDED)
        return sorted(pods, key=lambda pod: pod.name)


def _insufficient(job: Job, quota: Quota, taken: Amounts, asked: Amounts) -> Reason:
    detail = "; ".join(
        f"{name}: {told(used)} of {told(quota.hard[name])} used, {told(asked[name])} more requested"
        for name, used, told in ((name, used, partial(_told, name)) for name, used in taken.items())
    )
    return Reason(
        Stage.Admission,
        "ResourceQuotaExceeded",
        f"ResourceQuota {quota.name} of namespace {job.namespace} would be exceeded by the job's {', '.join(taken)}",
        Actionable.Admin,
        detail,
    )


def _told(resource: str, amount: Fraction) -> str:
    return quantity.in_words(float(amount), binary=in_bytes(resource))
