"""Pods that a gang lacks, and the ResourceQuotas of its namespace that prevent their creation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

from stromboli.api.reasons import Passage
from stromboli.api.resources import told_quantity
from stromboli.api.validation import nearest
from stromboli.api.words import by_number, counted
from stromboli.framework.cluster.job import Job
from stromboli.framework.session.session import Session
from stromboli.kube.quotas import PODS, Counted, amounts, common_name, counts, hard_of, used_by
from stromboli.state.pods import GROUP_ANNOTATION
from stromboli.workloads.amounts import formatted

_ONE_NAMESPACE = "the pods of a gang are in the namespace of their PodGroup"


def why_no_more(session: Session, job: Job) -> str:
    """Why a job gets no more pods: quotas that one more like them would exceed, pods that do not name the job, or where
    their controller says why it creates none; empty if nothing is found.
    """
    if quotas := "; ".join(_exceeded(session, job)):
        return quotas
    if astray := _astray(session, job):
        return astray
    owners = job.pod_group.metadata.owner_references if job.size < job.min_available else ()
    for owner in owners:
        version, kind, name = (str(owner.get(key, "")) for key in ("apiVersion", "kind", "name"))
        if kind not in ("", "Pod"):
            return refused_to(version, kind, name, job.namespace)
    return ""


def _astray(session: Session, job: Job) -> str:
    """The pods of a namespace that name a PodGroup which is not there and whose name is much like a job's."""
    view = session.view
    pods = [] if job.size else [record for record in view.pods.records if record is not None]
    beside = (pod.job for pod in pods if pod.job and pod.namespace == job.namespace and pod.job not in view.jobs)
    lost = Counter(key.partition("/")[2] for key in beside)
    near = nearest(job.name, lost)
    if not near or any(group.key == f"{job.namespace}/{near}" for group in view.lost):
        return ""
    verb = by_number(lost[near], "names", "name")
    return f"{counted(lost[near], 'pod')} {verb} PodGroup {near}, which does not exist (annotation {GROUP_ANNOTATION})"


def groups_elsewhere(session: Session, key: str) -> list[Passage]:
    """The PodGroups of other namespaces that have the name of one that is not there."""
    namespace, _, name = key.partition("/")
    groups = (group for group in session.view.snapshot.pod_groups if group is not None)
    others = sorted(group.metadata.namespace for group in groups if name and group.metadata.name == name)
    return [
        Passage((other,), f"{_ONE_NAMESPACE}, and PodGroup {other}/{name} is in another", _ONE_NAMESPACE)
        for other in others
        if other != namespace
    ]


def pods_elsewhere(session: Session, job: Job) -> list[Passage]:
    """The pods of other namespaces that name a PodGroup of a job's name, which is not there."""
    view = session.view
    named = (pod.namespace for pod in view.pods.records if pod is not None and pod.job.partition("/")[2] == job.name)
    counts = Counter(namespace for namespace in named if f"{namespace}/{job.name}" not in view.jobs)
    return [
        Passage(
            (namespace,),
            f"{counted(pods, 'pod')} of namespace {namespace} {by_number(pods, 'names', 'name')} PodGroup {job.name}, "
            f"and {_ONE_NAMESPACE}",
            "",
        )
        for namespace, pods in sorted(counts.items())
    ]


def refused_to(version: str, kind: str, name: str, namespace: str) -> str:
    """The place to look for why a workload has no pods, or no more of them."""
    # kubectl takes a name that two groups have for the one of Kubernetes itself.
    of_group = version.partition("/")[0] if kind == "Job" and not version.startswith("batch/") else ""
    described = f"{kind.lower()}{f'.{of_group}' if of_group else ''} {name} -n {namespace}"
    return (
        f"kubectl describe {described} says what keeps pods from being made, such as a quota, a LimitRange or a webhook"
    )


def _exceeded(session: Session, job: Job) -> Iterator[str]:
    like = session.view.members(job)[:1]
    one_more = used_by(like) | dict.fromkeys(PODS, Fraction(1))
    for key, manifest in sorted(session.view.snapshot.objects.get("ResourceQuota", {}).items()):
        namespace, _, name = key.partition("/")
        if namespace != job.namespace or not all(counts(manifest, Counted.of(pod)) for pod in like):
            continue
        used = amounts((manifest.get("status") or {}).get("used"))
        short = [
            f"{resource}: {_told(resource, used.get(resource, Fraction(0)))} of {_told(resource, most)} used, "
            f"{_told(resource, more)} more requested"
            for resource, most in amounts(hard_of(manifest)).items()
            if (more := one_more.get(common_name(resource), Fraction(0))) and used.get(resource, 0) + more > most
        ]
        if short:
            yield f"ResourceQuota {name} would be exceeded by one more ({'; '.join(short)}), so none is made"


def _told(resource: str, amount: Fraction) -> str:
    return told_quantity(resource, formatted(amount))
