"""A report on a finished session, computed from what the session left, without running another."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice

import numpy as np

from stromboli.api.pod_state import PodState
from stromboli.api.reasons import Reason, Stage
from stromboli.api.resources import MEMORY, PODS, UNKNOWN, Mask, Vector, is_device
from stromboli.dashboard.cards import cards
from stromboli.dashboard.filters import JobFilter
from stromboli.dashboard.job_rows import as_it_runs, job_row, lost_row
from stromboli.dashboard.nodes import columns, in_units, with_cause
from stromboli.dashboard.waiting import SORTED, SORTED_PODS, in_line
from stromboli.explain.named import job_called
from stromboli.explain.overview import (
    Amounts,
    JobPage,
    JobRow,
    Moment,
    Nodes,
    Overview,
    Pending,
    PodPage,
    PodRow,
    QueuePage,
    QueueRow,
)
from stromboli.explain.places import UNLIMITED
from stromboli.explain.queues import in_tree
from stromboli.fairness.queue_tree import QueueTree
from stromboli.framework.cluster.job import Job, Queue, lineage
from stromboli.framework.diagnosis.explain import may_wait, waiting, why
from stromboli.framework.diagnosis.ignored import ignored_of_queue
from stromboli.framework.plugin.report import QueueGauges
from stromboli.framework.session.session import Session
from stromboli.state.pods import PodRecord
from stromboli.workloads.names import workload_of

_LOST = "queue not found"


def _counted(words: Iterable[str]) -> dict[str, int]:
    """Number of occurrences of each word, the most frequent first."""
    return dict(sorted(Counter(words).items(), key=lambda each: (-each[1], each[0])))


class SessionReport:
    """The report on one session. Every part is computed on first use and cached."""

    def __init__(self, session: Session, at: float, seconds: float) -> None:
        """`at` is the time of the session in seconds since the epoch, and `seconds` its duration."""
        self.session = session
        self._view = session.view
        self._at = at
        self._seconds = seconds

    # -- the cluster -------------------------------------------------------------------------------------------------

    def overview(self) -> Overview:
        """The cluster in numbers."""
        view = self._view
        states = Counter(view.pods.state[view.pods.job >= -1].tolist())
        phases = Counter(job.phase or "Pending" for job in view.jobs.values())
        phases.update({_LOST: len(view.lost)} if view.lost else {})
        return Overview(
            at=self._at,
            seconds=self._seconds,
            nodes=len(view.nodes),
            queues=len(view.queues),
            total=self._amounts(view.total),
            used=self._amounts(view.nodes.used.sum(axis=1)),
            pods={state.name: states[state] for state in PodState if states[state]},
            jobs=dict(sorted(phases.items())),
            pending=self._pending(),
        )

    def _pending(self) -> list[Pending]:
        jobs, pods = Counter[tuple[str, str, str]](), Counter[tuple[str, str, str]]()
        for row, unplaced in self._waiting_jobs:
            kind = (row.stage, row.reason, row.who)
            jobs[kind] += 1
            pods[kind] += unplaced
        for _, reason in self._without_group:
            pods[reason.stage.name, reason.reason, str(reason.actionable)] += 1
        found = [
            Pending(stage=kind[0], reason=kind[1], who=kind[2], jobs=jobs[kind], pods=pods[kind])
            for kind in jobs.keys() | pods.keys()
        ]
        return sorted(found, key=lambda each: (-each.pods, -each.jobs, Stage[each.stage], each.reason))

    def _amounts(self, vector: Vector | None, *, all_of_it: bool = False) -> Amounts:
        """Amounts by resource: cpu, memory and all others above zero, without infinite limits."""
        if vector is None:
            return {}
        told = zip(range(len(vector)), self._view.dimensions, vector.tolist(), strict=False)
        return {
            name: in_units(column, value)
            for column, name, value in told
            if (column != PODS or self._view.counts_pods)
            and name != UNKNOWN
            and value < UNLIMITED
            and (value or column <= MEMORY or all_of_it)
        }

    # -- queues ------------------------------------------------------------------------------------------------------

    def queues(self, offset: int, limit: int) -> QueuePage:
        """The queues as a tree, each after its parent."""
        order = self._tree
        return QueuePage(
            total=len(order),
            offset=offset,
            items=[self._queue(self._view.queues[name], depth) for name, depth in order[offset : offset + limit]],
        )

    def queue(self, name: str) -> QueueRow | None:
        """One queue; None if it does not exist."""
        found = next(((each, depth) for each, depth in self._tree if each == name), None)
        return None if found is None else self._queue(self._view.queues[name], found[1])

    @cached_property
    def _tree(self) -> list[tuple[str, int]]:
        return list(in_tree({queue.name: queue.parent for queue in self._view.queues.values()}))

    @cached_property
    def _held(self) -> dict[str, Vector]:
        return self._view.by_queue(self._view.membership.allocated_now())

    @cached_property
    def _requested(self) -> dict[str, Vector]:
        return self._view.by_queue(self._view.membership.requested())

    @cached_property
    def _below(self) -> dict[str, tuple[Counter[str], int]]:
        """Jobs of each queue and its descendants by phase, and the number of waiting ones."""
        phases, waits = defaultdict[str, Counter[str]](Counter), Counter[str]()
        own = Counter(row.queue for row, _ in self._waiting_jobs)
        for queue in self._view.queues.values():
            counted = Counter(job.phase or "Pending" for job in queue.jobs)
            for each in lineage(queue, self._view.queues):
                phases[each.name].update(counted)
                waits[each.name] += own[queue.name]
        return {name: (phases[name], waits[name]) for name in self._view.queues}

    def _queue(self, queue: Queue, depth: int) -> QueueRow:
        gauges = self.session.report.gauges.get(queue.name, QueueGauges())
        phases, waits = self._below[queue.name]
        limit = self._view.vector(queue.spec.capability, np.inf) if gauges.limit is None else gauges.limit
        return QueueRow(
            name=queue.name,
            parent=queue.parent,
            depth=depth,
            state=queue.state,
            weight=queue.spec.weight,
            share=gauges.share,
            overused=gauges.gets_nothing_more,
            held=self._amounts(self._held[queue.name]),
            requested=self._amounts(self._requested[queue.name]),
            deserved=self._amounts(gauges.amounts.get("deserved"), all_of_it=True),
            guarantee={k: v for k, v in self._amounts(self._view.vector(queue.spec.guarantee.resource)).items() if v},
            limit=self._amounts(limit, all_of_it=True),
            jobs=dict(sorted(phases.items())),
            waiting=waits,
            ignored=ignored_of_queue(self.session, queue),
        )

    # -- jobs --------------------------------------------------------------------------------------------------------

    @cached_property
    def namespaces(self) -> frozenset[str]:
        """The namespaces with jobs or waiting pods."""
        groups = (group.metadata.namespace for group in self._view.snapshot.pod_groups if group is not None)
        return frozenset((*groups, *(pod.namespace for pod, _, _ in self._waiting_pods)))

    def jobs(
        self,
        offset: int,
        limit: int,
        only: JobFilter | None = None,
        within: Collection[str] | None = None,
    ) -> JobPage:
        """Jobs, waiting ones first. `within` restricts namespaces; None allows all."""
        only = only or JobFilter()
        view = self._view
        # Jobs may name a queue that does not exist.
        below = {only.queue, *self._names_below(only.queue)} if only.queue else frozenset[str]()

        def wanted(where: str, what: str, workload: str, queue: str, phase: str) -> bool:
            readable = within is None or where in within
            return readable and (not only.queue or queue in below) and only.matches(where, what, workload, phase)

        waiting = [
            row
            for row, _ in self._waiting_jobs
            if wanted(row.namespace, row.name, row.workload, row.queue, row.phase) and only.of_row(row)
        ]
        first = [row for row in waiting if only.reason in ("", row.reason)]
        then: list[Job] = []
        if not only.reason:
            known_as = workload_of if only.name else lambda _: ""
            then = [
                job
                for job in sorted(view.jobs.values(), key=lambda job: job.key)
                if job.key not in self._waiting_keys
                and wanted(job.namespace, job.name, known_as(job.pod_group), job.queue.name, job.phase)
            ]
        if only.reads_rows:
            rows = [row for row in map(self._job, then) if only.of_row(row)]
            rows.sort(key=SORTED.get(only.sort, SORTED[""]))
            first.sort(key=SORTED.get(only.sort, SORTED[""]))
            then = [view.jobs[f"{row.namespace}/{row.name}"] for row in rows]
        rest = then[max(0, offset - len(first)) : max(0, offset + limit - len(first))]
        return JobPage(
            total=len(first) + len(then),
            offset=offset,
            items=[*first[offset : offset + limit], *(as_it_runs(self.session, self._job(job), job) for job in rest)],
            reasons=_counted(row.reason for row in waiting),
            cards=[name for _, name in self._cards],
        )

    def _names_below(self, queue: str) -> Iterator[str]:
        tree = QueueTree.of({each.name: each.parent for each in self._view.queues.values()})
        return (tree.names[row] for row in tree.below(tree.names.index(queue))) if queue in tree.names else iter(())

    def job(self, key: str) -> JobRow | None:
        """One job; None if there is no PodGroup of that name."""
        key = job_called(self._view, key)
        job = self._view.jobs.get(key)
        if job is not None:
            waits = (row for row, _ in self._waiting_jobs if (row.namespace, row.name) == (job.namespace, job.name))
            return next(waits, None) or as_it_runs(self.session, self._job(job), job)
        return next((row for row, _ in self._lost if f"{row.namespace}/{row.name}" == key), None)

    @cached_property
    def _waiting_jobs(self) -> list[tuple[JobRow, int]]:
        """Waiting jobs with the number of their unplaced pods, by key."""
        rows = [
            (self._job(job), job.counts[PodState.Pending] + job.counts[PodState.Pipelined])
            for job in self._view.jobs.values()
            if may_wait(job)
        ]
        found = in_line(self.session, [(row, unplaced) for row, unplaced in rows if row.reason])
        return sorted(found + self._lost, key=lambda each: (each[0].namespace, each[0].name))

    @cached_property
    def _lost(self) -> list[tuple[JobRow, int]]:
        """PodGroups whose queue does not exist, with the number of their unplaced pods."""
        lost = ((group, self._pods_of_lost[group.key]) for group in self._view.lost)
        return [(lost_row(self._view, group, unplaced), unplaced) for group, unplaced in lost]

    @cached_property
    def _asked(self) -> np.ndarray:
        """The requests of the pods of each job, shape (jobs, dimensions)."""
        return self._view.membership.requested()

    @cached_property
    def _cards(self) -> list[tuple[int, str]]:
        """The columns of resources that are neither cpu nor memory nor storage, and their names."""
        return [(column, name) for column, name in enumerate(self._view.dimensions) if is_device(name)]

    @cached_property
    def _waiting_keys(self) -> frozenset[str]:
        return frozenset(f"{row.namespace}/{row.name}" for row, _ in self._waiting_jobs)

    @cached_property
    def _pods_of_lost(self) -> Counter[str]:
        """The number of pods whose PodGroup names a missing queue."""
        lost, groups = {group.key for group in self._view.lost}, self._view.snapshot.pod_groups
        rows = [row for row, group in enumerate(groups) if lost and group is not None and group.key in lost]
        return Counter(pod.job for pod in self._unplaced(np.isin(self._view.pods.job, rows)))

    def _job(self, job: Job) -> JobRow:
        return job_row(self.session, job, self._asked[job.index])

    def _cards_of(self, pod: PodRecord) -> Amounts:
        return cards(self._view, self._view.request(pod), lambda: [pod])

    # -- pods --------------------------------------------------------------------------------------------------------

    def pods(
        self,
        offset: int,
        limit: int,
        *,
        job: str = "",
        namespace: str = "",
        reason: str = "",
        sort: str = "",
        within: Collection[str] | None = None,
    ) -> PodPage:
        """The pods of a job or, without one, those that wait, by reason and namespace, `within` some namespaces."""
        reasons: dict[str, int] = {}
        if not job:
            readable = [
                (pod, why)
                for pod, why, _ in self._waiting_pods
                if namespace in ("", pod.namespace) and (within is None or pod.namespace in within)
            ]
            reasons = _counted(why.reason for _, why in readable)
            found = [(pod, why) for pod, why in readable if reason in ("", why.reason)]
            if sort in SORTED_PODS:
                found.sort(key=lambda each: SORTED_PODS[sort](each[0], self._cards_of(each[0])))
            total, rows = len(found), [self._pod(pod, why) for pod, why in found[offset : offset + limit]]
        else:
            records, known = self._members(job), self._view.jobs.get(job_called(self._view, job))
            blocking = self._view.reason(known) if known else None
            shown = islice(records, offset, offset + limit)
            total, rows = len(records), [self._pod(pod, self._why(pod, known, blocking)) for pod in shown]
        return PodPage(total=total, offset=offset, items=rows, reasons=reasons)

    def pods_on(self, node: str, offset: int, limit: int, within: Collection[str] | None = None) -> PodPage:
        """The pods on a node."""
        view = self._view
        at = next((at for at, each in enumerate(view.nodes.facts.records) if each.name == node), -2)
        records = view.records(np.flatnonzero((view.pods.node == at) & (view.pods.state != PodState.Pending)))
        found = sorted((pod for pod in records if within is None or pod.namespace in within), key=lambda pod: pod.key)
        items = [self._pod(pod, None) for pod in found[offset : offset + limit]]
        return PodPage(total=len(found), offset=offset, items=items)

    @cached_property
    def _waiting_pods(self) -> list[tuple[PodRecord, Reason, bool]]:
        return list(waiting(self.session))

    @cached_property
    def _without_group(self) -> list[tuple[PodRecord, Reason]]:
        """Waiting pods whose PodGroup does not exist."""
        return [(pod, why(self.session, pod, None)) for pod in self._unplaced(self._view.pods.job == -1)]

    def _unplaced(self, wanted: Mask) -> list[PodRecord]:
        pods = self._view.pods
        found = self._view.records(np.flatnonzero(wanted & (pods.state == PodState.Pending)))
        return [pod for pod in found if not pod.node_name]

    def _members(self, key: str) -> Sequence[PodRecord]:
        key = job_called(self._view, key)
        job = self._view.jobs.get(key)
        if job is not None:
            return sorted(self._view.members(job), key=lambda pod: pod.index)
        return [pod for pod in self._view.pods.records if pod is not None and pod.job == key]

    def _why(self, pod: PodRecord, job: Job | None, blocking: Reason | None) -> Reason | None:
        """Why a pod is not placed; None if it is."""
        waits = self._view.pods.state[pod.row] in (PodState.Pending, PodState.Pipelined)
        return why(self.session, pod, job, blocking) if waits else None

    def _pod(self, pod: PodRecord, reason: Reason | None) -> PodRow:
        view = self._view
        state, node = PodState(int(view.pods.state[pod.row])), int(view.pods.node[pod.row])
        return PodRow(
            namespace=pod.namespace,
            name=pod.name,
            group=pod.job.partition("/")[2],
            state="Evicted" if pod.key in self.session.evicted else state.name,
            node=pod.node_name or (view.nodes.name(node) if node >= 0 else ""),
            reason=reason.reason if reason else "",
            message=reason.numbered if reason else pod.held_up,
            priority=pod.priority,
            created=pod.created,
            cards=self._cards_of(pod),
        )

    def nodes(self, offset: int, limit: int, *, job: str = "", cause: str = "", **wanted: str) -> Nodes:
        """Nodes that are wanted, with the number of a job's pods on each if a job is given; those with a `cause`."""
        pods = [pod.row for pod in self._members(job)] if job else None
        only = with_cause(self.session, job_called(self._view, job), cause) if cause else None
        return columns(self.session, offset, limit, pods=pods, only=only, **wanted)

    def begun(self, key: str) -> Moment | None:
        """When a job was submitted; None if there is none of that name."""
        if (row := self.job(key)) is None:
            return None
        together = f"; {row.min_member} of its pods start together" if row.min_member > 1 else ""
        said = f"to queue {row.queue}{together}" if row.queue else ""
        return Moment(at=row.created, namespace=row.namespace, name=row.name, what="submitted", text=said)
