"""Workloads: what users submit, which of its pods start together, and the PodGroups that follow from it.

`kinds.yaml` has a row for each kind; rows that need more than paths name a function of `readers`. The live service and
`simulate` read the same table. A third party adds a row by a manifest of kind WorkloadKind, or a `Kind` by an entry
point of the group `stromboli.workloads`.
"""

from stromboli.workloads.gangs import Gang, Role, Workload
from stromboli.workloads.groups import Family, family_of, is_bare, labelled_family, pod_group_for
from stromboli.workloads.labelled import label_of
from stromboli.workloads.model import RoleFields, Starts, WorkloadKind
from stromboli.workloads.table import Kind, Kinds, known_kinds

__all__ = [
    "Family",
    "Gang",
    "Kind",
    "Kinds",
    "Role",
    "RoleFields",
    "Starts",
    "Workload",
    "WorkloadKind",
    "family_of",
    "is_bare",
    "known_kinds",
    "label_of",
    "labelled_family",
    "pod_group_for",
]
