"""Classes, disruption budgets and quotas."""

from __future__ import annotations

from typing import Any

from stromboli.api import readers
from stromboli.api.objects.affinity import (
    LabelSelector,
    Toleration,
)
from stromboli.api.objects.base import Metadata, Record, ResourceList


class Overhead(Record, frozen=True):
    pod_fixed: ResourceList | None = None


class RuntimeClassScheduling(Record, frozen=True):
    node_selector: dict[str, str] | None = None
    tolerations: list[Toleration] | None = None


class RuntimeClass(Record, frozen=True):
    metadata: Metadata
    overhead: Overhead | None = None
    scheduling: RuntimeClassScheduling | None = None


class PriorityClass(Record, frozen=True):
    metadata: Metadata
    value: readers.Integer = 0
    global_default: bool | None = False
    preemption_policy: str | None = None


class BudgetSpec(Record, frozen=True):
    selector: LabelSelector | None = None


class BudgetStatus(Record, frozen=True):
    disruptions_allowed: readers.Integer | None = 0
    disrupted_pods: dict[str, Any] | None = None


class QuotaStatus(Record, frozen=True):
    hard: ResourceList | None = None
    used: ResourceList | None = None


class ResourceQuota(Record, frozen=True):
    metadata: Metadata
    status: QuotaStatus = QuotaStatus()


class DisruptionBudget(Record, frozen=True):
    metadata: Metadata
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()
