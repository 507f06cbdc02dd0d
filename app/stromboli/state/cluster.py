"""The cluster as the scheduler knows it: watch events go in, snapshots come out.

Every change goes through `upsert`, `delete` or `replace` with a decoded object, or through `assume` and `forget` for
bindings that are decided but not yet confirmed. The class is not thread-safe: the thread that feeds it takes the
snapshots.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from msgspec.structs import replace

from stromboli.api import keys, objects
from stromboli.api.crds import HyperNode, PodGroup, Queue
from stromboli.api.pod_state import PodState
from stromboli.api.resources import UNKNOWN, Dimensions
from stromboli.state.classes import ClassTable
from stromboli.state.columns import Facts, KeptColumns
from stromboli.state.jobs import JobTable
from stromboli.state.nodes import NodeRecord, NodeTable
from stromboli.state.observer import UNOBSERVED, Observer
from stromboli.state.occupancy import Occupancy
from stromboli.state.plain import ObjectTables
from stromboli.state.pod_facts import PodFacts
from stromboli.state.pods import CORE_ANNOTATIONS, MANAGED_ANNOTATIONS, PodRecord, PodTable, make_record, observed_state
from stromboli.state.reads import NOTHING_ELSE, Reads
from stromboli.state.refusals import Refusal
from stromboli.state.resource_names import ResourceNames, allocatable_of, resources_of
from stromboli.state.snapshot import NodeColumns, PodColumns, Snapshot

#: kinds whose changes observers receive as records
_TOLD_APART = frozenset(("Pod", "Node"))


class ClusterState:
    """The state of a cluster: rows of nodes, pods and jobs, and dictionaries of all less numerous kinds."""

    def __init__(
        self,
        scheduler_names: Collection[str] = ("stromboli",),
        extender_scheduler_names: Collection[str] = (),
        reads: Reads = NOTHING_ELSE,
    ) -> None:
        """Pods with one of `scheduler_names` are ours; with one of `extender_scheduler_names`, if they name a group
        or a queue. `reads` is what plugins read of pods, see `Registry.reads`.
        """
        self.scheduler_names = frozenset(scheduler_names)
        self.extender_scheduler_names = frozenset(extender_scheduler_names)
        #: the resources that nodes have or queues limit, and UNKNOWN once pods request anything else
        self.dimensions = Dimensions()
        self._named = ResourceNames()
        self.reads = reads
        self._keeper = reads.keeper(CORE_ANNOTATIONS)
        self.classes = ClassTable(self.dimensions, reads)
        self.nodes = NodeTable(self.dimensions)
        self.pods = PodTable()
        #: facts read from pods for the last snapshot
        self._pod_columns = KeptColumns()
        self.queues: dict[str, Queue] = {}
        self.priority_classes: dict[str, objects.PriorityClass] = {}
        self.hyper_nodes: dict[str, HyperNode] = {}
        #: kinds that only plugins read, as plain data: kind -> key -> object
        self.objects = ObjectTables()
        #: state that readers of the objects keep from snapshot to snapshot
        self._derived: dict[object, object] = {}
        self.jobs = JobTable()
        #: facts read from PodGroups for the last snapshot
        self._group_columns = KeptColumns()
        #: puts pods on nodes
        self.occupancy = Occupancy(self.nodes, self.pods, self.classes)
        #: is told of each change
        self.observer: Observer = UNOBSERVED
        #: node of each binding that waits for its watch event, by pod key
        self.assumed: dict[str, str] = {}
        #: pods whose eviction was refused a moment ago, by uid; the evictor adds and removes them
        self.refused: dict[str, Refusal] = {}
        self._kinds: dict[str, tuple[Callable[[Any], object], Callable[[str], object]]] = {
            "Pod": (self._upsert_pod, self._delete_pod),
            "Node": (self._upsert_node, self._delete_node),
            "PodGroup": (self._upsert_pod_group, self._delete_pod_group),
            "Queue": (self._upsert_queue, self._delete_queue),
            "HyperNode": _entries(self.hyper_nodes),
            "PriorityClass": _entries(self.priority_classes),
        }

    def fork(self) -> ClusterState:
        """An independent copy for what-if questions. Objects are shared."""
        out = ClusterState(self.scheduler_names, self.extender_scheduler_names, self.reads)
        out.dimensions, out._named = self.dimensions, self._named.copy()
        out.classes, out.nodes, out.pods = self.classes.copy(), self.nodes.copy(), self.pods.copy()
        out._pod_columns, out._derived = self._pod_columns.copy(), self._derived.copy()
        out.queues.update(self.queues)
        out.priority_classes.update(self.priority_classes)
        out.hyper_nodes.update(self.hyper_nodes)
        out.objects.update((kind, objs.copy()) for kind, objs in self.objects.items())
        out.jobs, out._group_columns = self.jobs.copy(), self._group_columns.copy()
        out.occupancy = self.occupancy.copy(out.nodes, out.pods, out.classes)
        out.assumed, out.refused = self.assumed.copy(), self.refused.copy()
        return out

    # -- events --------------------------------------------------------------------------------------------------

    def upsert(self, kind: str, obj: Any) -> None:
        """An object was added or changed."""
        before = self.pod_group(obj.key) if kind == "PodGroup" else None
        handlers = self._kinds.get(kind)
        if handlers is not None:
            handlers[0](obj)
        else:
            self.objects[kind][object_key(obj)] = obj
        if kind not in _TOLD_APART:
            self.observer.object_put(kind, before, obj)

    def delete(self, kind: str, key: str) -> None:
        """An object is gone; unknown keys are ignored. The key is `NAMESPACE/NAME`, or the name alone."""
        handlers = self._kinds.get(kind)
        if handlers is not None:
            handlers[1](key)
        else:
            self.objects[kind].pop(key, None)
        if kind != "Pod":
            self.observer.object_gone(kind, key)

    def keys(self, kind: str) -> Collection[str]:
        """The keys of all objects of a kind."""
        known: dict[str, Collection[str]] = {
            "Pod": self.pods.by_key,
            "Node": self.nodes.by_name,
            "Queue": self.queues,
            "HyperNode": self.hyper_nodes,
            "PriorityClass": self.priority_classes,
        }
        if kind == "PodGroup":
            return [pg.key for pg in self.jobs.pod_groups if pg is not None]
        return known[kind] if kind in known else self.objects[kind]

    def replace(self, kind: str, objs: Iterable[Any], key: Callable[[Any], str]) -> list[str]:
        """A whole list was read: objects not in it are gone. Returns the keys that were dropped."""
        stale = set(self.keys(kind))
        for obj in objs:
            stale.discard(key(obj))
            self.upsert(kind, obj)
        for gone in stale:
            self.delete(kind, gone)
        return sorted(stale)

    # -- assumed bindings ------------------------------------------------------------------------------------------

    def assume(self, key: str, node: str) -> None:
        """Count a pod on its node before the API server confirms the binding."""
        row = self.pods.by_key.get(key)
        if row is None or self.pods.state[row] != PodState.Pending:
            return
        self.assumed[key] = node
        self.occupancy.move(row, PodState.Binding, node)
        self.observer.pod_assumed(row, node)

    def forget(self, key: str) -> None:
        """The binding was refused or timed out: the pod is pending again."""
        row = self.pods.by_key.get(key)
        if self.assumed.pop(key, None) is not None and row is not None:
            self.occupancy.move(row, PodState.Pending, "")
            self.observer.pod_forgotten(row)

    # -- snapshot --------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """A copy of every column; records and classes are shared."""
        pods, pod_groups = PodColumns.of(self.pods, self.nodes), self.jobs.pod_groups.copy()
        classes, requests = self.classes.shown()
        snapshot = Snapshot(
            dimensions=tuple(self.dimensions.names),
            nodes=NodeColumns.of(self.nodes),
            pods=pods,
            pod_facts=PodFacts(
                pods.records, self.pods.changed[: self.pods.size].copy(), self.pods.now, self._pod_columns
            ),
            reads=self.reads,
            classes=classes,
            requests=requests,
            pod_groups=pod_groups,
            group_facts=Facts(
                pod_groups, self.jobs.changed[: len(pod_groups)].copy(), self.jobs.now, self._group_columns
            ),
            queues=dict(self.queues),
            priority_classes=dict(self.priority_classes),
            hyper_nodes=dict(self.hyper_nodes),
            objects={kind: table.frozen() for kind, table in self.objects.items()},
            refused=self.refused.copy(),
            bound_elsewhere=self.extender_scheduler_names,
            left_queues={row: group.queue for row, group in self.jobs.left.items()},
            derived=self._derived,
        )
        self.observer.snapshot_taken(snapshot)
        return snapshot

    # -- pods ------------------------------------------------------------------------------------------------------

    def _upsert_pod(self, pod: objects.Pod) -> None:
        key = object_key(pod)
        row = self.pods.by_key.get(key)
        if not pod.spec.node_name and not self.is_ours(pod):
            if not self._holds_its_nomination(pod):
                if row is not None:
                    self._delete_pod(key)
                return
            # Pods were evicted for it: kube-scheduler counts it on the node and keeps less important pods out.
            pod = replace(pod, spec=replace(pod.spec, node_name=pod.status.nominated_node_name))
        pod_class = self.classes.acquire(pod)
        if not self.dimensions.cover(pod_class.request):
            self.fit_columns()
        if row is None:
            row = self.pods.new_row(key)
        before, state, node = self.pods.records[row], observed_state(pod), pod.spec.node_name or ""
        stays = (
            before is not None
            and before.pod_class is pod_class
            and before.node_name == node
            and state == int(self.pods.state[row])
            and key not in self.assumed
        )
        if before is not None and not stays:
            self.occupancy.take_off(row)
        record = make_record(row, key, pod, pod_class, self._keeper, before)
        self.pods.put(row, record)
        self._set_job(row, record.job)
        if not stays:
            self.pods.pod_class[row] = pod_class.id
            if key in self.assumed:
                if state == PodState.Pending:
                    state, node = PodState.Binding, self.assumed[key]
                else:
                    del self.assumed[key]
            self.occupancy.put(row, state, node)
        if before is not None:
            self.classes.release(before.pod_class)
        self.observer.pod_put(before, record, state, stays=stays)

    def is_ours(self, pod: objects.Pod) -> bool:
        """Whether a pod is to be scheduled here."""
        if pod.spec.scheduler_name in self.scheduler_names:
            return True
        named = pod.spec.scheduler_name in self.extender_scheduler_names
        return named and not MANAGED_ANNOTATIONS.isdisjoint(pod.metadata.annotations or ())

    def _holds_its_nomination(self, pod: objects.Pod) -> bool:
        """Whether another scheduler's pod waits for its nominated node, and that scheduler uses us as an extender."""
        waits = pod.status.phase in (None, "Pending") and not pod.metadata.deletion_timestamp
        served = pod.spec.scheduler_name in self.extender_scheduler_names
        return served and waits and bool(pod.status.nominated_node_name)

    def _delete_pod(self, key: str) -> None:
        row = self.pods.by_key.get(key)
        if row is None:
            return
        self.occupancy.take_off(row)
        self.assumed.pop(key, None)
        self._set_job(row, "")
        record = self.pods.records[row]
        self.pods.release(key)
        if record is not None:
            self.refused.pop(record.uid, None)
            self.classes.release(record.pod_class)
        self.observer.pod_gone(row)

    # -- nodes -----------------------------------------------------------------------------------------------------

    def _upsert_node(self, node: objects.Node) -> None:
        record, known = NodeRecord.of(node), self.nodes.record(node.metadata.name)
        if record == known:
            # A heartbeat.
            return
        self.offer(allocatable_of(known), record.allocatable)
        row, new = self.nodes.upsert(record)
        if new:
            self.occupancy.node_came(record.name, row)
        self.observer.node_put(record)

    def _delete_node(self, name: str) -> None:
        offered, row = allocatable_of(self.nodes.record(name)), self.nodes.delete(name)
        if row is None:
            return
        self.occupancy.node_went(name, row)
        self.offer(offered, ())

    # -- columns ---------------------------------------------------------------------------------------------------

    def give_columns(self, resources: Iterable[str]) -> None:
        """Add permanent columns for some resources, even if no node has them."""
        self.offer((), resources)

    @contextmanager
    def expecting(self, loaded: Iterable[tuple[str, Any]]) -> Iterator[None]:
        """While this is entered, there is a column for each resource that some objects, given with their kinds, name.

        Columns that are added one by one, with the objects, cost a copy of all columns each.
        """
        named = [resource for kind, obj in loaded for resource in resources_of(kind, obj)]
        self.offer((), named)
        # What fails in between leaves a state that is not used again.
        yield
        self.offer(named, ())

    def offer(self, before: Iterable[str], after: Iterable[str]) -> None:
        """Follow a node or a queue's limit that names other resources than before."""
        if self._named.change(before, after):
            self.fit_columns()

    def fit_columns(self) -> None:
        """Have a column for each resource that is offered, and one for all others if pods ask for any."""
        known = Dimensions(self._named.names)
        covered = all(known.cover(pod_class.request) for pod_class in self.classes.classes)
        self.dimensions = known if covered else Dimensions((*self._named.names, UNKNOWN))
        self.classes.reshape(self.dimensions)
        self.nodes.reshape(self.dimensions)
        self.occupancy.recount()

    # -- jobs ------------------------------------------------------------------------------------------------------

    def _upsert_queue(self, queue: Queue) -> None:
        key = object_key(queue)
        # Resources that a queue limits are dimensions even if no node has them.
        self.offer(self._limits(key), queue.spec.capability or ())
        self.queues[key] = queue

    def _delete_queue(self, key: str) -> None:
        self.offer(self._limits(key), ())
        self.queues.pop(key, None)

    def _limits(self, queue: str) -> Iterable[str]:
        """The resources that a queue is limited in; none when it is not known."""
        known = self.queues.get(queue)
        return (known.spec.capability if known else None) or ()

    def _upsert_pod_group(self, pod_group: PodGroup) -> None:
        self.jobs.upsert(pod_group)

    def _delete_pod_group(self, key: str) -> None:
        self.jobs.delete(key)

    def _set_job(self, row: int, key: str) -> None:
        """Move a pod to a job; the empty key is no job."""
        old = int(self.pods.job[row])
        new = self.jobs.row(key) if key else -1
        if new != old:
            self.pods.job[row] = new
            self.jobs.move_pod(old, new)

    def pod_group(self, key: str) -> PodGroup | None:
        """A PodGroup, or None when it is not known."""
        return self.jobs.pod_group(key)

    def may_start(self, key: str) -> bool:
        """Whether the PodGroup of a pod has as many pods as it starts with."""
        row = self.pods.by_key.get(key)
        job = -1 if row is None else int(self.pods.job[row])
        return job >= 0 and self.jobs.may_start(job)

    def has_pods(self, job: str, states: Sequence[PodState], least: int) -> bool:
        """Whether at least `least` pods of a job are in some states; pods with an assumed binding count as waiting."""
        if not self.jobs.has_pods(job, least):
            return False
        found = self.pods.state[self.pods.job == self.jobs.by_key[job]]
        return int(np.isin(found, states).sum()) >= least

    def record(self, key: str) -> PodRecord | None:
        """The record of a pod, or None when it is not known."""
        row = self.pods.by_key.get(key)
        return None if row is None else self.pods.records[row]


def object_key(obj: Any) -> str:
    """`NAMESPACE/NAME`, or the name of a cluster-scoped object."""
    if isinstance(obj, objects.Pod):
        return keys.key(obj.metadata.namespace or "default", obj.metadata.name)
    if isinstance(obj, dict):
        meta = obj.get("metadata") or {}
        return keys.key(meta.get("namespace"), meta.get("name", ""))
    key: str = getattr(obj, "key", None) or obj.metadata.name
    return key


def _entries(table: dict[str, Any]) -> tuple[Callable[[Any], None], Callable[[str], None]]:
    """Functions that put an object into a table by its key, and take it out."""

    def upsert(obj: Any) -> None:
        table[object_key(obj)] = obj

    def delete(key: str) -> None:
        table.pop(key, None)

    return upsert, delete
