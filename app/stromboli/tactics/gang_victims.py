"""Evicting some pods so that a whole gang gets its places: one mechanism for gangpreempt and gangreclaim.

A `_Search` acts for one job, in one HyperNode after the other that the job may be placed in. The steps are: the
bundles that other gangs could give there, with the plugins' consent (`offers`), evictions, bundle by bundle, until
all pending pods of the job find their places (`_make_room`, `_try`), and what turns out not to be needed given back
from the highest (`_spare`).

Under strict rules nobody goes when the job fits without that, pods of safe bundles go one by one, and of several
HyperNodes the one whose victims weigh least is taken. Volcano takes bundles as they are and the first HyperNode.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from stromboli.api.resources import Mask, Vector, fits
from stromboli.framework import shard
from stromboli.framework.job import NOWHERE, Job, SubJob
from stromboli.framework.operation import Kind, Operation
from stromboli.framework.plugin import Arguments
from stromboli.framework.session import Session
from stromboli.framework.statement import Statement
from stromboli.framework.turns import Turns
from stromboli.state.pods import PodRecord
from stromboli.tactics import domains
from stromboli.tactics.bundles import Bundle
from stromboli.tactics.candidates import kind, search_steps, weight
from stromboli.tactics.cheapest import Market, Purchase, identical, price
from stromboli.tactics.holders import Holders
from stromboli.tactics.offers import Offers, Order
from stromboli.tactics.room import Room
from stromboli.tactics.victims import join, take_back
from stromboli.tactics.worksheets import Worksheet, in_turn, worksheet

_MAX_DOMAINS = 8


class GangEvictionArguments(Arguments):
    """Arguments of the actions that evict for gangs."""

    max_domains: int = Field(default=_MAX_DOMAINS, alias="maxDomains")
    """How many HyperNodes are tried for a job; 0 and less count as the default."""
    allow_whole_bundle: bool = Field(default=True, alias="allowWholeBundle")
    """Whether gangs may be evicted that then cannot run, or only what they have above their minimum."""


@dataclass(frozen=True, slots=True)
class GangWay:
    """How an action looks for victims."""

    #: its name, for the decisions
    action: str
    #: whether what other queues hold is taken, or what other jobs of the queue do
    reclaiming: bool
    #: the pods among which candidates are
    holders: Holders
    #: in which order bundles go, given what is needed
    order: Callable[[Vector], Order]
    #: where the cheapest set of victims is looked for, under strict rules
    market: Market | None = None
    #: the kinds of jobs for which nothing was found since places were kept
    in_vain: set[Hashable] = field(default_factory=set)

    @property
    def point(self) -> str:
        """Where plugins are asked about victims."""
        return "reclaimable" if self.reclaiming else "preemptable"


@dataclass(frozen=True, slots=True)
class _Placed:
    """The places of a job's pods, and the HyperNode of each of its groups that got places, by uid."""

    placements: list[Operation]
    of_groups: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Plan:
    """Who has to go, and where the job's pods then go."""

    evictions: list[Operation]
    placed: _Placed


def serve_gang(session: Session, way: GangWay, turns: Turns, job: Job, candidates: Mask) -> None:
    """Evict for a job and promise its pods their places, if there is a way; `candidates` are of the way's holders."""

    def turn() -> None:
        while _Search(session, way, job, candidates).run():
            pass

    session.serve(turns, job, turn, search_steps(session))


class _Search:
    """Looks for victims for one job; see the module's docstring."""

    def __init__(self, session: Session, way: GangWay, job: Job, candidates: Mask) -> None:
        self._session = session
        self._way = way
        self._job = job
        self._candidates = candidates
        arguments = session.policy.action_arguments.get(way.action, GangEvictionArguments())
        assert isinstance(arguments, GangEvictionArguments)
        self._max_domains = arguments.max_domains if arguments.max_domains > 0 else _MAX_DOMAINS
        self._allow_whole = arguments.allow_whole_bundle
        self._strict = session.rules.evict_only_what_helps
        self._bound = domains.is_bound(job)
        lacking = session.ask.job_missing(job) - (job.waiting_count if self._strict else 0)
        #: whether the job runs or is to, and looks for places for more pods
        self._ready = lacking <= 0
        #: the pods that are to be placed, in order
        self._pods: list[PodRecord] = in_turn(session, job, first_group=self._ready)
        #: whether pods beyond the job's minimum take what its queue deserves, one after the other
        self._may_grow = way.reclaiming and session.ask.takes_back_by_share
        if self._may_grow and self._ready:
            self._pods = self._pods[:1]
        elif self._strict and not (self._ready or job.divided or job.pod_group.spec.min_task_member):
            # Nobody is evicted for more than the job starts with, nor does it wait for that.
            self._pods = self._pods[:lacking]
        self._need: Vector = session.view.requested(self._pods)
        self._rooms: dict[int, Room] = {}

    def run(self) -> bool:
        """Evict for the job and promise its pods their places, if there is a way; True when there may be more."""
        plan, alike = None, self._kind()
        if (alike is None or alike not in self._way.in_vain) and self._may_evict():
            plan = min(self._comparable(), key=self._price, default=None)
        if plan is None:
            if alike is not None:
                self._way.in_vain.add(alike)
            return False
        self._way.in_vain.clear()
        session = self._session
        statement = session.statement()
        statement.recover(plan.evictions)
        statement.recover(plan.placed.placements)
        session.promise(self._job, [statement])
        # Without victims the pods have no nominated nodes either.
        for uid, hyper_node in plan.placed.of_groups.items() if plan.evictions else ():
            self._job.sub_jobs[uid].nominated_hyper_node = hyper_node
        return self._may_grow

    def _kind(self) -> Hashable | None:
        """What decides, beside the session, whether there is a way for the job; None when that is the job itself."""
        session, job = self._session, self._job
        alone = self._bound or job.divided or job.min_by_role or any(map(session.kernel.varies, self._pods))
        if alone or not self._strict:
            return None
        pods = tuple(kind(session, job, pod, self._way.point) for pod in self._pods)
        return pods, job.min_available, job.ready_count, job.waiting_count

    def _may_evict(self) -> bool:
        """Whether the job has pods to place, and its queue and the pods themselves allow to evict for them."""
        session = self._session
        if not self._pods:
            return False
        if session.rules.veto and any(pod.pod_class.spec.preemption_policy == "Never" for pod in self._pods):
            return False
        return not self._way.reclaiming or session.ask.preemptive(self._job.queue, self._pods) is None

    def _comparable(self) -> Iterator[_Plan]:
        """The plans to choose from; none is better than one without victims."""
        for domain in self._domains():
            plan = self._plan(domain)
            if plan is not None:
                yield plan
                if not self._strict or not plan.evictions:
                    return

    def _domains(self) -> list[int]:
        """The HyperNodes to try, in order."""
        top = self._session.view.topology.top
        gradients = domains.gradients(self._session, self._job, top, evicting=True)
        found = [hyper_node for gradient in gradients for hyper_node in gradient.tolist()]
        if not found and not self._bound:
            found = [top]
        return found[: self._max_domains]

    # -- victims in a HyperNode --------------------------------------------------------------------------------------

    def _price(self, plan: _Plan) -> tuple[Any, ...]:
        return price(plan.evictions) if self._way.market else weight(plan.evictions)

    def _plan(self, domain: int) -> _Plan | None:
        """Who has to go for the job to fit in a HyperNode; None when nothing helps. Leaves the session as it was."""
        if self._way.market is not None and not self._job.divided:
            return self._buy(self._way.market, domain)
        units: list[Statement] = []
        placed = self._make_room(domain, units)
        if placed is not None and self._strict:
            units, placed = self._spare(domain, units, placed)
        evictions = [placement for unit in units for placement in unit.save()]
        take_back(units)
        return None if placed is None else _Plan(evictions, placed)

    def _buy(self, market: Market, domain: int) -> _Plan | None:
        """The cheapest way to make room for all pods in a HyperNode."""
        session, left = self._session, list(self._pods)
        statement, within = session.statement(), session.view.topology.masks[domain]
        while left:
            run = identical(session, left)
            purchase = Purchase(market, self._job, run, self._candidates, within, whole=self._allow_whole)
            if purchase.run() < len(run):
                purchase.take_back()
                statement.discard()
                return None
            purchase.settle(statement)
            left = left[len(run) :]
        operations = statement.save()
        kept = session.ask.job_pipelined(self._job)
        statement.discard()
        if not kept:
            return None
        evictions = [each for each in operations if each.kind is Kind.Evict]
        placements = [each for each in operations if each.kind is not Kind.Evict]
        uid = session.view.sub_job_of(self._job, self._pods[0]).uid
        return _Plan(evictions, _Placed(placements, {uid: domain}))

    def _make_room(self, domain: int, units: list[Statement]) -> _Placed | None:
        """Evict until the job fits; `units` gets a statement for each eviction that can be taken back alone."""
        if self._strict:
            placed = self._try(domain, evicting=False)
            if placed is not None:
                return placed
        session, way = self._session, self._way
        within = session.view.topology.masks[domain]
        offers = Offers(session, way.holders, self._candidates, within, way.order(self._need), way.point)
        for block in offers.blocks(self._job, self._pods[0]):
            placed = self._take(domain, [each for each in block if self._allow_whole or not each.whole], units)
            if placed is not None:
                return placed
            take_back(units)
            units.clear()
        return None

    def _take(self, domain: int, offers: Sequence[Bundle], units: list[Statement]) -> _Placed | None:
        """Evict some bundles, one after the other, until the job fits."""
        if self._strict and not self._may_have_room(domain, offers):
            return None
        for bundle in offers:
            parts = [[pod] for pod in bundle.pods] if self._strict and not bundle.whole else [bundle.pods]
            for pods in parts:
                units.append(self._evicted(pods, units, whole=bundle.whole))
                placed = self._try(domain, evicting=True)
                if placed is not None:
                    return placed
        return None

    def _evicted(self, pods: Sequence[PodRecord], units: list[Statement], *, whole: bool) -> Statement:
        """Evict pods that are still there. What a whole gang gave before is given back with it or not at all."""
        session = self._session
        unit = session.statement()
        for pod in pods:
            if session.view.pods.state[pod.row] in self._way.holders.states:
                unit.evict(pod, self._way.action, self._job.key)
        if whole and session.rules.whole_gang_eviction:
            join(unit, units)
        return unit

    def _spare(self, domain: int, units: list[Statement], placed: _Placed) -> tuple[list[Statement], _Placed]:
        """Give back, from the highest, what the job can do without."""
        needed = units[-1:]
        for unit in reversed(units[:-1]):
            if not self._has_room(domain, without=unit.operations):
                needed.append(unit)
                continue
            evictions = unit.save()
            unit.discard()
            without = self._try(domain, evicting=True)
            if without is None:
                unit.recover(evictions)
                needed.append(unit)
            else:
                placed = without
        return needed[::-1], placed

    # -- places ------------------------------------------------------------------------------------------------------

    def _try(self, domain: int, *, evicting: bool) -> _Placed | None:
        """The places that the job would get in a HyperNode as things stand. Leaves the session as it was."""
        if not self._has_room(domain):
            return None
        session, job = self._session, self._job
        statement, of_groups = session.statement(), dict[str, int]()
        sheet = worksheet(session, job, self._pods)
        placed = None
        while sheet:
            group = sheet.pop()
            hyper_node = self._home(statement, group, domain, evicting=evicting)
            if hyper_node == NOWHERE:
                break
            of_groups[group.sub_job.uid] = hyper_node
            if session.ask.job_pipelined(job):
                placed = _Placed(statement.save(), of_groups)
            if placed or self._ready:
                break
        statement.discard()
        return placed

    def _home(self, statement: Statement, group: Worksheet, domain: int, *, evicting: bool) -> int:
        """The first HyperNode that takes all pods of a group, on a statement; NOWHERE when there is none."""
        for hyper_node in self._hyper_nodes(group.sub_job, domain):
            if self._place_group(statement, group, hyper_node, evicting=evicting):
                return hyper_node
        return NOWHERE

    def _may_have_room(self, domain: int, offers: Iterable[Bundle] = ()) -> bool:
        """Whether the pods could fit in a HyperNode by sums, once some bundles are gone."""
        free = self._room(domain).total()
        for bundle in offers:
            free = free + self._session.view.requested(bundle.pods)
        return bool(fits(self._need, free, self._session.view.nodes.always))

    def _has_room(self, domain: int, *, without: Sequence[Operation] = ()) -> bool:
        """Whether the pods could fit in a HyperNode, by sums and by what each node has room for, if some stayed.

        A try is dear. Under Volcano's rules only sums spare it, as those that fail leave nominations behind.
        """
        if not without and not self._may_have_room(domain):
            return False
        return not self._strict or self._job.divided or self._room(domain).places(without) >= len(self._pods)

    def _room(self, domain: int) -> Room:
        """What room there is in a HyperNode."""
        room = self._rooms.get(domain)
        if room is None:
            room = self._rooms[domain] = Room(self._session, self._pods, self._session.view.topology.masks[domain])
        return room

    def _hyper_nodes(self, sub_job: SubJob, domain: int) -> Iterator[int]:
        """The HyperNodes to try for a group when its job is placed in one."""
        if not self._bound:
            yield domain
            return
        for gradient in domains.gradients(self._session, sub_job, domain, evicting=True):
            yield from gradient.tolist()

    def _place_group(self, statement: Statement, group: Worksheet, hyper_node: int, *, evicting: bool) -> bool:
        """Promise all pods of a group places in a HyperNode, on a statement; False, and nothing done, if one fails."""
        session, sub_job = self._session, group.sub_job
        within = session.view.topology.masks[hyper_node]
        trial = session.statement()
        # Within the HyperNode nearness does not count: where victims are, there are places.
        sub_job.anchor = NOWHERE
        for pod in group.left():
            node = self._node_for(pod, within)
            if node is None:
                trial.discard()
                return False
            trial.pipeline(sub_job, pod, node, after_eviction=evicting)
        if session.ask.sub_job_missing(sub_job) > 0 and not session.ask.sub_job_pipelined(sub_job):
            trial.discard()
            return False
        statement.merge(trial)
        return True

    def _node_for(self, pod: PodRecord, within: Mask) -> int | None:
        """The best node that has room for a pod now, else the best that will have it."""
        session = self._session
        room, _ = session.ask.allocatable(self._job.queue, pod)
        if room <= 0:
            return None
        limits = shard.by_preference(session.view.shard, within)
        places = [session.kernel.best(pod, limit, hopeful=not self._strict) for limit in limits]
        node, _ = max((place for place in places if place is not None), key=lambda place: place[1], default=(None, 0))
        if node is None or session.ask.refusal(pod, node) is not None:
            return None
        return node
