"""Evictions that the cluster refused a moment ago, such as those that a PodDisruptionBudget forbids."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a pod that was to go is still there. As long as it is known, sessions leave the pod alone."""

    #: key of the PodGroup of the pod
    job: str
    #: key of the PodGroup that was to get its place
    beneficiary: str
    #: the cluster's message
    why: str
