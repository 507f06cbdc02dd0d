"""Read the problem of a gang in a session: its pods by kind, and the plugins' answers about them, as numbers.

A problem is read as things stand, as they will be once terminating pods have gone (`evicting`), or as they would be if
no pod of another job held a place (`empty`). In the last case, pods of others that the gang's pods want to be near, or
that balance a spread, count where they help and nowhere else, so that what is impossible there is impossible whatever
finishes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from stromboli.api.resources import PODS, Mask, Matrix, Rows, fits
from stromboli.framework.cluster.job import NOWHERE, Job, SubJob
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.relations import Apart, Balanced, Limited, Narrowing, Near, Rationed, Relation, Unclear
from stromboli.framework.session.session import Session
from stromboli.placement.exact.problem import (
    QUEUE,
    TOPOLOGY,
    ApartRule,
    BalancedRule,
    Domains,
    Kind,
    NearRule,
    Need,
    Problem,
    QuotaRule,
    WithinRule,
    as_set,
)
from stromboli.placement.exact.search import Places
from stromboli.state.pods import PodRecord

#: something that nodes have a limited number of, as amounts count
_WHOLE = 1000.0
#: kinds of placed pods of a job that keep its waiting pods away
_MOST_OWN = 64


@dataclass(slots=True)
class Reading:
    """A problem, and the pods and nodes that its numbers stand for."""

    problem: Problem
    #: by kind, in task order
    pods: list[list[PodRecord]]
    #: by node, its row in the session
    rows: Rows
    #: minimum number of pods that get places, if the job needs fewer to start
    least: int = 0

    def granted(
        self, problem: Problem, places: Places, has_share: Callable[[PodRecord], bool]
    ) -> Iterator[tuple[PodRecord, int]]:
        """The pods that get places, in order, each with the row of its node: up to one that the queue may not take.

        The combination of pods that the queue refused is forbidden from then on.
        """
        numbers = [0] * len(problem.kinds)
        for kind, node in places:
            pod = self.pods[kind][numbers[kind]]
            numbers[kind] += 1
            if not has_share(pod):
                problem.forbidden.append(tuple(numbers))
                return
            yield pod, int(self.rows[node])


def read(
    session: Session,
    job: Job,
    kinds: list[list[PodRecord]],
    *,
    empty: bool = False,
    evicting: bool = False,
    every_node: bool = False,
    least: int = 0,
) -> Reading:
    """The problem of a job whose pods are divided into kinds.

    Nodes that take none of its pods are left out, unless `every_node` is set. At least `least` pods get
    places, even if the job needs fewer to start.
    """
    return _Reader(session, job, kinds, empty=empty, evicting=evicting, every_node=every_node).read(least)


def beside_own_pods(view: View, job: Job) -> Matrix:
    """Amounts that a job's own pods leave on nodes, if no other held a place, shape (dimensions, nodes)."""
    free: Matrix = view.nodes.allocatable.copy()
    for pod in view.holding(job):
        node = int(view.pods.node[pod.row])
        if node >= 0:
            free[:, node] -= view.request(pod)
    return free


def kinds_of(session: Session, job: Job, pods: Sequence[PodRecord]) -> list[list[PodRecord]]:
    """Pods that are alike, in task order: nothing that filters, rules or the gang read tells them apart."""
    kernel, found = session.kernel, dict[Hashable, list[PodRecord]]()
    alone = any(kernel.varies(pod) for pod in _one_of_each_class(pods))
    for pod in session.ask.in_task_order(list(pods)):
        key: tuple[Hashable, ...] = kernel.identity(pod), pod.role
        if job.divided:
            key = *key, session.view.sub_job_of(job, pod).uid
        if alone:
            key = *key, frozenset(pod.labels.items()), pod.row if pod.pod_class.claims else -1
        found.setdefault(key, []).append(pod)
    return list(found.values())


def _one_of_each_class(pods: Sequence[PodRecord]) -> Iterator[PodRecord]:
    return iter({(pod.pod_class.id, frozenset(pod.labels.items())): pod for pod in pods}.values())


class _Reader:
    def __init__(
        self,
        session: Session,
        job: Job,
        kinds: list[list[PodRecord]],
        *,
        empty: bool,
        evicting: bool,
        every_node: bool,
    ) -> None:
        self._session = session
        self._job = job
        self._kinds = kinds
        self._empty = empty
        self._evicting = evicting
        self._every_node = every_node
        self._first = [pods[0] for pods in kinds]
        #: the nodes of the problem by row in the session
        self._rows: Rows

    def read(self, least: int) -> Reading:
        session, view = self._session, self._session.view
        relations, warned = session.kernel.between(self._first)
        nodes = view.nodes
        free: Matrix = nodes.future_idle(nodes.rows) if self._evicting else nodes.available(nodes.rows)
        if self._empty:
            free = beside_own_pods(view, self._job)
        masks = [self._nodes_of(at, relations) for at in range(len(self._first))]
        requests = [view.request(pod) for pod in self._first]
        overcommitted = ~fits(np.zeros(len(free)), free, nodes.always)
        masks = [mask & ~overcommitted for mask in masks]
        own = [mask & fits(request, free) for mask, request in zip(masks, requests, strict=True)]
        rows = nodes.rows if self._every_node else np.flatnonzero(np.logical_or.reduce(own)) if own else ()
        self._rows = np.array(rows, np.intp)
        # What no pod asks for is no part of it, and no difference between nodes.
        columns = np.flatnonzero(np.any([request > 0 for request in requests], axis=0)).tolist()
        columns.sort(key=lambda column: (column == PODS, column))
        limited = [each for each in relations if isinstance(each, Limited)]
        things = [(each.whole if self._empty else each.free)[self._rows] * _WHOLE for each in limited]
        amounts = np.vstack([free[columns][:, self._rows], *things])
        told = not session.failures and not any(warned)
        problem = Problem(
            kinds=[
                Kind(
                    len(pods),
                    (*requests[at][columns].tolist(), *(float(each.takes[at]) * _WHOLE for each in limited)),
                    as_set(masks[at][self._rows]),
                )
                for at, pods in enumerate(self._kinds)
            ],
            needs=[],
            free=[tuple(node) for node in amounts.T.tolist()],
            dimensions=[*(view.dimensions[column] for column in columns), *(each.words for each in limited)],
            clear=told and not any(isinstance(each, Unclear | Narrowing) for each in relations),
            sound=told and not any(isinstance(each, Unclear) for each in relations),
        )
        self._add(problem, relations)
        if self._empty:
            problem.apart += self._apart_from_own()
        problem.within = list(self._within())
        rations = [each for each in relations if isinstance(each, Rationed)]
        problem.quotas = [*self._quotas(columns, requests), *map(self._ration, rations)]
        reading = Reading(problem, self._kinds, self._rows, least)
        groups = self._job.sub_jobs if self._job.divided else ()
        problem.needs = needs(session, reading, self._job, frozenset(groups))
        return reading

    def _nodes_of(self, at: int, relations: Sequence[Relation]) -> Mask:
        """The nodes whose filters pass one pod of a kind, rules that others of the gang may satisfy set aside."""
        kernel, pod = self._session.kernel, self._first[at]
        replaced = {each.cause for each in relations if isinstance(each, Near | Balanced) and each.pod == at}
        if self._empty:
            replaced.update(*(each.causes[at] for each in relations if isinstance(each, Narrowing)))
        return kernel.without(pod, replaced, hopeful=self._empty)

    def _apart_from_own(self) -> Iterator[ApartRule]:
        """Rules that keep kinds away from placed pods of the job, such as a host port."""
        view, first = self._session.view, self._first
        own: dict[Hashable, list[PodRecord]] = {}
        for pod in view.holding(self._job):
            own.setdefault((pod.pod_class.id, frozenset(pod.labels.items())), []).append(pod)
        if not own or len(own) > _MOST_OWN:
            return
        relations, _ = self._session.kernel.between([*first, *(pods[0] for pods in own.values())])
        for each in (each for each in relations if isinstance(each, Apart)):
            closed = [np.zeros(len(view.nodes), np.bool_) for _ in first]
            for number, pods in enumerate(own.values(), len(first)):
                nodes = view.pods.node[[pod.row for pod in pods]]
                taken = np.isin(each.domain, each.domain[nodes[nodes >= 0]]) & (each.domain >= 0)
                for at in np.flatnonzero(each.conflicts[number, : len(first)]).tolist():
                    closed[at] |= taken
            if any(mask.any() for mask in closed):
                masks = tuple(as_set(mask[self._rows]) for mask in closed)
                yield ApartRule(each.words, (0,) * len(first), self._domains(each.domain), masks)

    # -- rules -------------------------------------------------------------------------------------------------------

    def _add(self, problem: Problem, relations: Sequence[Relation]) -> None:
        near: dict[Hashable, NearRule] = {}
        for each in relations:
            if isinstance(each, Apart):
                conflicts = tuple(as_set(row) for row in each.conflicts)
                problem.apart.append(ApartRule(each.words, conflicts, self._domains(each.domain)))
            elif isinstance(each, Near):
                rule = self._near(each)
                key = rule.selected, rule.present, rule.somewhere, tuple(domains.of for domains in rule.divisions)
                known = near.get(key)
                near[key] = rule if known is None else replace(known, kinds=known.kinds | rule.kinds)
            elif isinstance(each, Balanced):
                problem.balanced.append(self._balanced(each))
        problem.near = list(near.values())

    def _domains(self, numbers: Rows) -> Domains:
        return Domains.divide(numbers[self._rows].tolist())

    def _near(self, each: Near) -> NearRule:
        divisions = tuple(self._domains(domain) for domain in each.domains)
        present = tuple(
            as_set((mask & (domain >= 0))[self._rows]) for mask, domain in zip(each.present, each.domains, strict=True)
        )
        somewhere = any(mask.any() for mask in each.present)
        selected, uncertain = as_set(each.selected), self._empty and somewhere
        return NearRule(each.words, 1 << each.pod, selected, divisions, present, somewhere, uncertain)

    def _balanced(self, each: Balanced) -> BalancedRule:
        """Domains count though nothing fits on their nodes: what they have few of keeps others from more."""
        counts: dict[int, float] = {}
        for node in np.flatnonzero(each.eligible).tolist():
            number = int(each.domain[node])
            counts[number] = counts.get(number, 0.0) + float(each.counts[node])
        uncertain = counts if self._empty else {}
        if self._empty:
            counts = dict.fromkeys(counts, 0.0)
        return BalancedRule(
            each.words,
            each.pod,
            as_set(each.selected),
            self._domains(each.domain),
            as_set(each.eligible[self._rows]),
            counts,
            each.max_skew,
            each.too_few_domains,
            uncertain,
        )

    def _within(self) -> Iterator[WithinRule]:
        """The HyperNodes that the job, and each of its groups, must not leave."""
        everything = (1 << len(self._kinds)) - 1
        choices = self._choices(self._job)
        if choices is not None:
            yield WithinRule(TOPOLOGY, everything, choices)
        for sub_job in self._job.sub_jobs.values() if self._job.divided else ():
            kinds = sum(1 << at for at, pod in enumerate(self._first) if self._group_of(pod) is sub_job)
            choices = self._choices(sub_job) if kinds else None
            if choices is not None:
                yield WithinRule(TOPOLOGY, kinds, choices)
        if not self._job.divided:
            choices = self._choices(next(iter(self._job.sub_jobs.values())))
            if choices is not None:
                yield WithinRule(TOPOLOGY, everything, choices)

    def _choices(self, of: Job | SubJob) -> tuple[int, ...] | None:
        """The largest HyperNodes in which a job or group may lie, of the nodes that may take a pod; None for anywhere.

        Empty where there is no HyperNode for it, whatever is free.
        """
        session, tree = self._session, self._session.view.topology
        if of.highest_tier is None:
            return None
        offered = session.ask.hyper_node_gradients(of, tree.top, self._evicting, len(tree))
        if offered is None:
            return None
        allowed = np.flatnonzero(tree.tiers <= of.highest_tier)
        found = np.concatenate(offered) if offered else np.zeros(0, np.intp)
        if self._empty:
            found = allowed
            if of.allocated_hyper_node != NOWHERE:
                own = tree.mask(of.allocated_hyper_node)
                found = np.array([each for each in allowed.tolist() if not (own & ~tree.mask(each)).any()], np.intp)
        if not len(found) and len(allowed):
            # There are HyperNodes, but none is offered at present.
            return (0,)
        sets = sorted(
            {as_set(tree.mask(each)[self._rows]) for each in found.tolist()}, key=lambda nodes: -nodes.bit_count()
        )
        largest: list[int] = []
        for nodes in sets:
            if not any(nodes & ~other == 0 for other in largest):
                largest.append(nodes)
        return tuple(sorted(largest))

    def _group_of(self, pod: PodRecord) -> SubJob:
        return self._session.view.sub_job_of(self._job, pod)

    def _ration(self, each: Rationed) -> QuotaRule:
        amount = each.whole if self._empty else each.free
        nodes = -1 if each.nodes.all() else as_set(each.nodes[self._rows])
        return QuotaRule(each.words, tuple(each.takes.tolist()), amount, nodes, each.told, each.grows)

    def _quotas(self, columns: Sequence[int], requests: Sequence[np.ndarray]) -> Iterator[QuotaRule]:
        """Limits on what the queue may ever hold; what its share has left is learned when places are tried."""
        view, queue = self._session.view, self._job.queue
        ceiling = self._session.ask.ceiling(view, queue)
        if ceiling is None:
            return
        own, all_queues = view.holding(self._job), view.membership.allocated_now()
        held = view.requested(own) if self._empty else view.by_queue(all_queues)[queue.name]
        left = ceiling - held
        for column in columns:
            if np.isfinite(left[column]) and (column != PODS or view.counts_pods):
                takes = tuple(float(request[column]) for request in requests)
                yield QuotaRule(QUEUE, takes, float(left[column]))


# -- needs of a gang ---------------------------------------------------------------------------------------------------


def needs(session: Session, reading: Reading, job: Job, active: frozenset[str] | None) -> list[Need]:
    """Minimum numbers of pods for a job to start, when only its active groups get places; None for all of them."""
    kinds = [(1 << at, pods[0]) for at, pods in enumerate(reading.pods)]
    everything = sum(bit for bit, _ in kinds)
    missing = max(session.ask.job_missing(job), job.min_available - job.ready_count)
    found = [Need(everything, max(missing, reading.least))]
    if job.min_by_role:
        held = job.held_by_role(best_effort=False)
        for role, least in job.min_by_role.items():
            lacking = least - held.get(role, 0)
            found.append(Need(sum(bit for bit, pod in kinds if pod.role == role), lacking))
    for uid in sorted(active or ()):
        lacking = session.ask.sub_job_missing(job.sub_jobs[uid])
        of_group = sum(bit for bit, pod in kinds if session.view.sub_job_of(job, pod).uid == uid)
        found.append(Need(of_group, lacking))
    return [need for need in found if need.least > 0]


def with_groups(session: Session, reading: Reading, job: Job, active: frozenset[str] | None) -> Problem:
    """The problem in which only pods of active groups get places."""
    kinds = list(reading.problem.kinds)
    if active is not None:
        for at, pods in enumerate(reading.pods):
            if session.view.sub_job_of(job, pods[0]).uid not in active:
                kinds[at] = replace(kinds[at], count=0)
    return replace(reading.problem, kinds=kinds, needs=needs(session, reading, job, active), forbidden=[])


def pods_needed(problem: Problem) -> int:
    """Minimum number of pods that get places."""
    return max((need.least for need in problem.needs), default=0)
