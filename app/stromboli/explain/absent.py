"""Pods that a gang lacks, and the ResourceQuotas of its namespace that keep them from being made."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from stromboli.framework.cluster.job import Job
from stromboli.framework.session.session import Session
from stromboli.kube.quotas import PODS, amounts, common_name, hard_of, used_by


def without_quota(session: Session, job: Job) -> str:
    """The quotas that one more pod like those of a job would exceed, with their amounts; empty for none."""
    return "; ".join(_exceeded(session, job))


def _exceeded(session: Session, job: Job) -> Iterator[str]:
    one_more = used_by(session.view.members(job)[:1]) | dict.fromkeys(PODS, Fraction(1))
    for key, manifest in sorted(session.view.snapshot.objects.get("ResourceQuota", {}).items()):
        namespace, _, name = key.partition("/")
        used = amounts((manifest.get("status") or {}).get("used"))
        short = [
            f"{resource}: {float(used.get(resource, 0)):g} of {float(most):g} used"
            for resource, most in amounts(hard_of(manifest)).items()
            if namespace == job.namespace
            and (more := one_more.get(common_name(resource), 0))
            and used.get(resource, 0) + more > most
        ]
        if short:
            yield f"ResourceQuota {name} would be exceeded by one more ({', '.join(short)}), so none is made"
