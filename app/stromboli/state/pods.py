"""Pods as rows: one immutable record and four numbers a pod, in arrays that a snapshot copies."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from datetime import UTC, datetime
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from stromboli.api import keys, objects, readers
from stromboli.api.pod_state import PodState
from stromboli.api.resources import Rows
from stromboli.state.classes import PodClass
from stromboli.state.containers import held_up
from stromboli.state.reads import AnnotationKeeper, Annotations, UndeclaredReadError
from stromboli.state.rows import RowNumbers

GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
QUEUE_ANNOTATION = "scheduling.volcano.sh/queue-name"
#: mark of a pod as ours when its scheduler name does not say so
MANAGED_ANNOTATIONS = frozenset((GROUP_ANNOTATION, QUEUE_ANNOTATION))
ROLE_ANNOTATION = "volcano.sh/task-spec"
_PRIORITY = "volcano.sh/task-priority"
#: whether a pod agrees to be evicted, as an annotation or a label
PREEMPTABLE = "volcano.sh/preemptable"
#: on a PodGroup: whether its pods are only evicted all together
EVICTED_TOGETHER = "stromboli.io/evicted-together"
#: on objects that users create and their PodGroups: the user who made them, and the user's groups, one a line
USER_ANNOTATION = "stromboli.io/user"
USER_GROUPS_ANNOTATION = "stromboli.io/groups"
#: a scheduling gate, and the annotation that asks for it: the pod waits until its queue may allocate it
QUEUE_GATE = "scheduling.volcano.sh/queue-allocation-gate"
#: annotations that are kept with a pod whatever plugins read
CORE_ANNOTATIONS = (*sorted(MANAGED_ANNOTATIONS), ROLE_ANNOTATION, _PRIORITY, PREEMPTABLE, QUEUE_GATE)
_NO_STRINGS: Mapping[str, str] = {}

IntColumn = npt.NDArray[np.int32]
StateColumn = npt.NDArray[np.int8]


class PodRecord(Struct, frozen=True, gc=False, eq=False):
    """Constant data of a waiting pod: its identity and how it is ordered. A changed pod gets a new record."""

    row: int
    #: `NAMESPACE/NAME`
    key: str
    namespace: str
    name: str
    uid: str
    pod_class: PodClass
    #: `NAMESPACE/NAME` of its PodGroup, empty when it is in none
    job: str
    #: creation, seconds since the epoch (0 when unknown)
    created: float
    #: number at the end of the name (`JOB-TASK-3`), -1 without
    index: int
    #: annotation, spec.priority, or 1
    priority: int
    role: str
    labels: Mapping[str, str]
    #: those that the core or a plugin reads
    annotations: Annotations
    scheduler_name: str
    #: spec.nodeName as the API server has it
    node_name: str
    nominated_node: str
    #: status.startTime, seconds since the epoch, 0 when unset
    started: float
    conditions: tuple[objects.PodCondition, ...]
    #: spec.priority as it is, None when unset
    spec_priority: int | None
    #: the ResourceClaim that was made from a template for each claim of the pod, by the name that the pod gives it;
    #: empty where none is needed
    claim_names: Mapping[str, str]
    #: cause that keeps its containers from running once it has a node, or of its failure, as its kubelet reports
    held_up: str = ""
    #: spec.activeDeadlineSeconds, 0 when unset
    deadline: float = 0.0

    @property
    def host_network(self) -> bool:
        """Whether it uses its node's network, where a plugin declares that it reads this."""
        return bool(self._declared("host_network"))

    @property
    def terminating(self) -> bool:
        """Whether it has an active deadline, where a plugin declares that it reads this."""
        return bool(self._declared("terminating"))

    @property
    def priority_class_name(self) -> str:
        """The name of its PriorityClass, where a plugin declares that it reads this."""
        return str(self._declared("priority_class_name"))

    def _declared(self, name: str) -> Hashable:
        fields = self.pod_class.reads.fields
        if name not in fields:
            raise UndeclaredReadError("field", name)
        return fields[name]


def seconds(timestamp: str | None) -> float:
    """An RFC 3339 time as seconds since the epoch, 0 when there is none that can be read."""
    return (readers.seconds(timestamp) or 0.0) if timestamp else 0.0


# Pods that are made, bound or written together have the same times.
@lru_cache(1_024)
def timestamp(seconds: float) -> str | None:
    """Seconds since the epoch as an RFC 3339 time, none for 0."""
    return datetime.fromtimestamp(seconds, UTC).isoformat() if seconds else None


def observed_state(pod: objects.Pod) -> PodState:
    """The state that the API server's object shows."""
    phase = pod.status.phase or "Pending"
    if phase in ("Running", "Pending") and pod.metadata.deletion_timestamp:
        return PodState.Releasing
    if phase == "Pending":
        return PodState.Bound if pod.spec.node_name else PodState.Pending
    return PodState[phase] if phase in ("Running", "Succeeded", "Failed") else PodState.Unknown


def group_of(meta: objects.Metadata) -> str:
    """The key of the PodGroup that a pod names, empty for none."""
    group = (meta.annotations or _NO_STRINGS).get(GROUP_ANNOTATION)
    return keys.key(meta.namespace or "default", group) if group else ""


def make_record(
    row: int, key: str, pod: objects.Pod, pod_class: PodClass, keeper: AnnotationKeeper, before: PodRecord | None
) -> PodRecord:
    """The record of a pod as the API server has it; unchanged parts are shared with its record from `before`."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    annotations = meta.annotations or _NO_STRINGS
    labels = meta.labels or _NO_STRINGS
    namespace = meta.namespace or "default"
    group = annotations.get(GROUP_ANNOTATION)
    # In order, without names: one is made with each event.
    return PodRecord(
        row,
        key if before is None else before.key,
        namespace,
        meta.name,
        meta.uid or f"{namespace}-{meta.name}",
        pod_class,
        keys.key(namespace, group) if group else "",
        seconds(meta.creation_timestamp),
        _index(meta.name) if before is None else before.index,
        _priority(spec.priority, annotations.get(_PRIORITY)),
        annotations.get(ROLE_ANNOTATION) or labels.get(ROLE_ANNOTATION) or "",
        labels,
        keeper.keep(meta.annotations),
        spec.scheduler_name or "",
        spec.node_name or "",
        status.nominated_node_name or "",
        seconds(status.start_time),
        tuple(status.conditions or ()),
        spec.priority,
        _claim_names(status) if status.resource_claim_statuses else _NO_STRINGS,
        held_up(pod),
        float(max(spec.active_deadline_seconds or 0, 0)),
    )


def _claim_names(status: objects.PodStatus) -> Mapping[str, str]:
    return {each.name: each.resource_claim_name or "" for each in status.resource_claim_statuses or ()}


def claim_statuses(names: Mapping[str, str]) -> list[objects.PodResourceClaimStatus]:
    """The `claim_names` of a record as a pod's status has them."""
    return [objects.PodResourceClaimStatus(name, made or None) for name, made in names.items()]


def _index(name: str) -> int:
    parts = name.rsplit("-", 2)
    index = readers.count(parts[2]) if len(parts) == 3 else None
    return -1 if index is None else index


def _priority(priority: int | None, annotation: str | None) -> int:
    wanted = None if annotation is None else readers.integer(annotation, -readers.INT32, readers.INT32)
    if wanted is not None:
        return wanted
    return 1 if priority is None else priority


class PodTable:
    """The rows. `state`, `node`, `job` and `pod_class` hold numbers of equal length; free rows have job -2.

    `changed` has the time at which each row got another record, counted in changes; `now` is the last of them.
    """

    __slots__ = ("_numbers", "by_key", "changed", "job", "node", "now", "pod_class", "records", "state")

    FREE = -2

    def __init__(self) -> None:
        self.records: list[PodRecord | None] = []
        self.by_key: dict[str, int] = {}
        self.state: StateColumn = np.zeros(64, np.int8)
        self.node: IntColumn = np.full(64, -1, np.int32)
        self.job: IntColumn = np.full(64, self.FREE, np.int32)
        self.pod_class: IntColumn = np.zeros(64, np.int32)
        self.changed: Rows = np.zeros(64, np.int64)
        self.now = 0
        self._numbers = RowNumbers()

    def copy(self) -> PodTable:
        """An independent copy."""
        out = PodTable()
        out.records, out.by_key = self.records.copy(), self.by_key.copy()
        for column in ("state", "node", "job", "pod_class", "changed"):
            setattr(out, column, getattr(self, column).copy())
        out.now, out._numbers = self.now, self._numbers.copy()
        return out

    @property
    def size(self) -> int:
        """The number of rows, free ones included."""
        return self._numbers.size

    def new_row(self, key: str) -> int:
        """A row for a new pod."""
        row = self._numbers.take()
        if row == len(self.records):
            self.records.append(None)
            if row == len(self.state):
                self._grow()
        self.by_key[key] = row
        return row

    def put(self, row: int, record: PodRecord | None) -> None:
        """Change the record of a row."""
        self.now += 1
        self.records[row], self.changed[row] = record, self.now

    def release(self, key: str) -> int:
        """Free the row of a pod that is gone."""
        row = self.by_key.pop(key)
        self.put(row, None)
        self.state[row], self.node[row], self.job[row], self.pod_class[row] = PodState.Pending, -1, self.FREE, 0
        self._numbers.give_back(row)
        del self.records[self.size :]
        return row

    def _grow(self) -> None:
        more = len(self.state)
        self.state = np.concatenate([self.state, np.zeros(more, np.int8)])
        self.node = np.concatenate([self.node, np.full(more, -1, np.int32)])
        self.job = np.concatenate([self.job, np.full(more, self.FREE, np.int32)])
        self.changed = np.concatenate([self.changed, np.zeros(more, np.int64)])
        self.pod_class = np.concatenate([self.pod_class, np.zeros(more, np.int32)])
