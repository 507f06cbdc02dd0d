"""Pods that succeeded and are gone while others of their workload run: they are not replaced, so none is waited for.

Owners such as a Job count them. For others the PodGroup records how many there are, and of which attempt of the
workload: with another attempt all pods are created anew.
"""

from __future__ import annotations

from collections.abc import Mapping

from stromboli.api import objects, readers
from stromboli.workloads.paths import Object, at, text

#: an annotation of a PodGroup: the attempt of its workload, and how many of its pods succeeded and are gone
GONE = "stromboli.io/succeeded-and-gone"
#: the label of a JobSet's pods with their attempt
_RESTART = "jobset.sigs.k8s.io/restart-attempt"


def attempt_of(owner: Object | None) -> str:
    """The attempt of a workload that runs, for kinds that do not say how many of their pods succeeded; else empty."""
    if owner is not None and owner.get("kind") == "JobSet":
        return _counted(owner, "status.restarts")
    if owner is not None and owner.get("kind") == "AppWrapper" and text(owner, "status.phase") == "Running":
        return _counted(owner, "status.resettingCount")
    return ""


def is_of(owner: Object, pod: objects.Pod) -> bool:
    """Whether a pod is of the attempt that runs."""
    attempt = attempt_of(owner)
    said = (pod.metadata.labels or {}).get(_RESTART, attempt) if owner.get("kind") == "JobSet" else attempt
    return bool(attempt) and said == attempt


def gone(owner: Object | None, noted: Mapping[str, str]) -> int:
    """Number of pods that succeeded and are gone, by annotations of their PodGroup."""
    attempt, _, number = noted.get(GONE, "").partition(" ")
    return (readers.count(number) or 0) if attempt and attempt == attempt_of(owner) else 0


def note(owner: Object, noted: Mapping[str, str], more: int) -> dict[str, str]:
    """The annotation of a PodGroup once more pods succeeded and are gone; empty for none."""
    return {GONE: f"{attempt_of(owner)} {gone(owner, noted) + more}"} if more and attempt_of(owner) else {}


def _counted(owner: Object, path: str) -> str:
    return str(readers.count(str(at(owner, path) or 0)) or 0)
