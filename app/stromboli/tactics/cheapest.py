"""Whom it costs least to evict so that pods of a job find places: less important ones, then fewer, then younger ones.

A `Market` is what others hold in the session; `Purchase` looks there for places for identical pods of one job. The
steps are: a bound for each node of what the next place there costs, in vectors (`Bounds`), what the nodes that look
cheapest ask exactly (`Sellers`), of these the cheapest for each place (`_buy`), victims on any node where it is the
queue that may take no more (`_free_share`), and in the end whatever of it the pods can do without is given back, the
dearest first (`_spare`). Where pods are in the way not by their amounts but by ports, affinity or spread, a node is
cleared of all that may go, and those stay after all with whom the pod fits as well (`_clear`).

A pod that its gang can do without goes alone, any other with its whole gang, wherever that is. What a gang leaves on
other nodes is room for the next pods. What nodes ask is worked out in amounts; who is evicted for it is tried on a
statement, and everybody who has a say is asked before anything is decided.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import takewhile
from typing import Any, TypeVar

import numpy as np

from stromboli.api.resources import Mask, Matrix, Rows, Vector, copies_that_fit, fits
from stromboli.framework.job import Job
from stromboli.framework.nodes import Changes
from stromboli.framework.operation import Operation
from stromboli.framework.session import Session
from stromboli.framework.statement import Statement
from stromboli.state.pods import PodRecord
from stromboli.tactics.bounds import NOBODY, Bounds, Stock
from stromboli.tactics.candidates import began, kind
from stromboli.tactics.consent import Consent, Patience
from stromboli.tactics.everywhere import Everywhere
from stromboli.tactics.holders import Holders
from stromboli.tactics.sellers import Ask, Item, Price, Sellers, Unit

T = TypeVar("T")

#: how many nodes that look alike are compared for a place
_COMPARED = 16
#: how many nodes are looked at where pods are in the way
_CLEARED = 128
#: of how many kinds of pods it is kept what they were offered
_MOST_KINDS = 8


class Market:
    """What jobs of a queue hold that others may get, for one action; see the module's docstring."""

    def __init__(self, session: Session, holders: Holders, action: str, point: str) -> None:
        self.session = session
        self.holders = holders
        self.action = action
        #: the extension point that says who may be evicted
        self.point = point
        #: what was looked for in vain: how many places were found at most
        self._in_vain: dict[Any, int] = {}
        #: what is kept of the last purchases, by what they looked for
        self._stocks: dict[Hashable, Stock] = {}
        self._bounds: dict[Hashable, Bounds] = {}
        self._sellers: dict[Hashable, Sellers] = {}

    def candidates(self, job: Job, pod: PodRecord) -> Mask:
        """The holders that may be evicted for a pod of a job at all, as far as priorities of whole jobs say."""
        holders = self.holders
        mask: Mask = (holders.queue == job.queue.index) & (holders.job != job.index) & holders.may_go_for(job.queue)
        allowed = self.session.ask.preemptable_jobs(pod, len(self.session.view.jobs), holders.least_of_jobs)
        if allowed is not None:
            mask &= allowed[holders.job]
        return mask

    def offered(self, job: Job, pod: PodRecord, candidates: Mask) -> tuple[Bounds, Sellers]:
        """What some holders offer to pods of a job, as things stand."""
        session, request, which = self.session, self.session.view.request(pod), candidates.tobytes()
        stock = _recent(self._stocks, which, lambda: Stock(session, self.holders, candidates))
        bounds = _recent(self._bounds, (which, request.tobytes()), lambda: Bounds(session, stock, request))
        of_kind = (which, self.kind(job, pod))
        sellers = _recent(self._sellers, of_kind, lambda: Sellers(session, self.holders, stock, request, self.point))
        bounds.refresh()
        return bounds, sellers

    def kind(self, job: Job, pod: PodRecord) -> Any:
        """What decides, beside the session, how many places can be found for pods."""
        return kind(self.session, job, pod, self.point)

    def is_hopeless(self, kind: Any, count: int) -> bool:
        """Whether so many places were looked for in vain."""
        return self._in_vain.get(kind, count) < count

    def in_vain(self, kind: Any, found: int) -> None:
        """Remember that no more places were found."""
        self._in_vain[kind] = min(found, self._in_vain.get(kind, found))


def _recent(kept: dict[Hashable, T], key: Hashable, make: Callable[[], T]) -> T:
    """What is kept for a key, or made for it; what was not asked for lately is dropped."""
    found = kept.pop(key, None)
    kept[key] = found = make() if found is None else found
    if len(kept) > _MOST_KINDS:
        del kept[next(iter(kept))]
    return found


def serve_cheaply(market: Market, job: Job, pods: Sequence[PodRecord]) -> None:
    """Find places for a job's pods, in order, until it starves no longer; keep them if it may then run."""
    session, left = market.session, list(pods)
    bought: list[Statement] = []
    while left and session.ask.job_starving(job):
        wanted = max(1, session.ask.job_missing(job) - job.waiting_count)
        alike = identical(session, left)
        asking, run = market.kind(job, left[0]), alike[:wanted]
        found = 0
        if not market.is_hopeless(asking, len(run)):
            purchase = Purchase(market, job, run, market.candidates(job, run[0]))
            found = purchase.run()
            if found:
                bought.append(session.statement())
                purchase.settle(bought[-1])
            if found < len(run) and len(left) == len(pods):
                market.in_vain(asking, found)
        left = left[len(run if found == len(run) else alike) :]
    if not bought:
        return
    if session.ask.job_pipelined(job):
        session.promise(job, bought)
    else:
        for statement in reversed(bought):
            statement.discard()


def price(evictions: Sequence[Operation]) -> tuple[Any, ...]:
    """What evictions cost, the less the better: the highest priority, how many there are, who has run longest."""
    priorities = {op.pods[0].row: (op.job.priority if op.job else 0, op.pods[0].spec_priority or 0) for op in evictions}
    highest = max(priorities.values(), default=(-math.inf, 0))
    oldest = min((began(op.pods[0]) for op in evictions if priorities[op.pods[0].row] == highest), default=0.0)
    return highest, len(evictions), -oldest


def identical(session: Session, pods: Sequence[PodRecord]) -> list[PodRecord]:
    """The first pods that are placed alike; one whose places depend on other pods stands alone."""
    first = pods[0]
    if session.kernel.varies(first):
        return [first]
    identity = session.kernel.identity(first)
    alike = takewhile(lambda pod: pod.role == first.role and session.kernel.identity(pod) == identity, pods[1:])
    return [first, *alike]


class Purchase:
    """Places for identical pods of a job, bought from others on a statement."""

    def __init__(
        self,
        market: Market,
        job: Job,
        pods: Sequence[PodRecord],
        candidates: Mask,
        within: Mask | None = None,
        *,
        whole: bool = True,
    ) -> None:
        """`candidates` are of the market's holders; `within` is where the places have to be.

        `whole` says whether gangs may go that then cannot run.
        """
        self._may_go_whole = whole
        self._market = market
        self._session = session = market.session
        self._job = job
        self._pods = pods
        self._pod = pods[0]
        self._request: Vector = session.view.request(pods[0])
        self._varies = session.kernel.varies(pods[0])
        self._candidates = candidates
        self._within = within
        #: nodes whose offers have victims of a job
        self._nodes_of: dict[str, set[int]] = {}
        #: jobs of which somebody went since offers were made
        self._gave: set[str] = set()
        #: nodes that did not take the pods though there was room
        self._refused: set[int] = set()
        #: everybody who may go, once somebody asked
        self._everywhere: Everywhere | None = None
        #: whether the queue may take no more, whoever goes
        self._exhausted = False
        #: units that went, each on a statement
        self._gone: list[tuple[Unit, Statement]] = []
        self._placed: list[tuple[PodRecord, int]] = []
        self._promises = session.statement()

    def run(self) -> int:
        """Buy as many places as there are pods, or as can be had; how many they are. Keep it with `settle`."""
        rows = self._rows()
        if not len(rows):
            return 0
        bounds, self._sellers = self._market.offered(self._job, self._pod, self._candidates)
        self._sellers.turn(self._pod, may_go_whole=self._may_go_whole)
        #: which nodes come into question, shape (nodes,)
        self._possible: Mask = np.zeros(len(self._session.view.nodes), np.bool_)
        self._possible[rows] = True
        self._asks: dict[int, Ask | None] = {}
        self._patience = Patience()
        self._frontier, self._place = bounds.frontier(rows, self._scores(rows), len(self._pods))
        self._changes = Changes(self._session.view.nodes)
        for pod in self._pods:
            if not self._buy(pod) and not (self._varies and self._clear(pod, rows)):
                break
        if len(self._gone) > 1 and not self._varies:
            self._spare(rows)
        return len(self._placed)

    def settle(self, statement: Statement) -> None:
        """Add what was bought to a statement."""
        for _, unit in self._gone:
            statement.merge(unit)
        if all(promise.after_eviction == bool(self._gone) for promise in self._promises.operations):
            statement.merge(self._promises)
            return
        self._promises.discard()
        for pod, node in self._placed:
            sub_job = self._session.view.sub_job_of(self._job, pod)
            statement.pipeline(sub_job, pod, node, after_eviction=bool(self._gone))

    def take_back(self) -> None:
        """Leave everything as it was."""
        self._promises.discard()
        for _, unit in reversed(self._gone):
            unit.discard()

    # -- nodes -----------------------------------------------------------------------------------------------------

    def _rows(self) -> Rows:
        rows = self._session.kernel.possible(self._pod)
        return rows if self._within is None else rows[self._within[rows]]

    def _scores(self, rows: Rows) -> Vector:
        """The place of each node among equals, smaller first: own nodes first, then the best scored."""
        score = -self._session.kernel.whole_score(self._pod, rows)
        place = np.empty(len(rows))
        shard = self._session.view.shard
        order = np.argsort(score, kind="stable")
        if shard is not None:
            order = order[np.argsort(~shard.own[rows][order], kind="stable")]
        place[order] = np.arange(len(rows))
        return place

    def _buy(self, pod: PodRecord) -> bool:
        """Buy the cheapest place for a pod; False when there is none."""
        while not self._exhausted:
            self._look_again()
            ask = self._cheapest()
            if ask is None:
                return False
            if self._take(ask, pod):
                return True
            # What looked possible in amounts is not: nobody asks that node again for these pods.
            self._asks[ask.node] = None
            self._refused.add(ask.node)
        return False

    def _look_again(self) -> None:
        """Forget what nodes asked that changed, and those with pods of jobs that have less to give."""
        changed = {node for node in self._changes.take() if self._possible[node]}
        for key in self._gave:
            changed |= self._nodes_of.pop(key, set())
        for node in changed:
            if node not in self._refused:
                self._asks.pop(node, None)
                self._frontier.push((NOBODY, False, 0.0, float(self._place[node]), node))
        self._gave.clear()

    def _cheapest(self) -> Ask | None:
        """The cheapest of what the nodes ask that look best."""
        frontier = self._frontier
        found: list[tuple[Price, float, int]] = []
        best: tuple[Price, float, int] | None = None
        looked: set[int] = set()
        while frontier and len(found) < _COMPARED:
            if best is not None and frontier.first()[:3] > best[0][:3]:
                break
            *_, place, node = frontier.pop()
            if node in looked:
                continue
            looked.add(node)
            if node not in self._asks:
                self._asks[node] = self._ask(node)
            ask = self._asks[node]
            if ask is not None:
                entry = (ask.price, place, node)
                found.append(entry)
                best = entry if best is None or entry < best else best
            elif self._patience.is_over():
                self._pass_over()
        for price, place, node in found:
            frontier.push((*price[:3], place, node))
        return None if best is None else self._asks[best[2]]

    def _pass_over(self) -> None:
        """Look no more at nodes where too few may go; what others asked before stands."""
        consent = Consent(self._session, self._market.holders, self._candidates, self._pod, self._market.point)
        possible = consent.nodes(self._request, whole=self._may_go_whole)
        possible[[node for node, ask in self._asks.items() if ask is not None]] = True
        self._patience.renew(self._frontier.keep(possible))

    def _ask(self, node: int) -> Ask | None:
        """What a node asks for the next places."""
        ask, jobs = self._sellers.ask(node, len(self._pods) - len(self._placed), self._possible)
        for key in jobs:
            self._nodes_of.setdefault(key, set()).add(node)
        return ask

    # -- pods in the way -------------------------------------------------------------------------------------------

    def _clear(self, pod: PodRecord, rows: Rows) -> bool:
        """Evict the least that is in the way of a pod on one of the best nodes; False when nobody's end helps."""
        in_question = ~self._session.kernel.feasible(pod)
        in_question &= np.isin(self._session.view.nodes.rows, self._market.holders.node[self._candidates])
        refused = rows[in_question[rows]]
        order = refused[np.argsort(self._place[refused], kind="stable")][:_CLEARED].tolist()
        best: tuple[Any, int, int, list[Unit]] | None = None
        found = 0
        for number, node in enumerate(order):
            gone = self._cleared(pod, node)
            if gone is None:
                continue
            found += 1
            entry = (
                price([op for _, statement in gone for op in statement.operations]),
                number,
                node,
                [u for u, _ in gone],
            )
            for _, statement in reversed(gone):
                statement.discard()
            best = entry if best is None or entry[:2] < best[:2] else best
            if found == _COMPARED:
                break
        if best is None:
            return False
        _, _, node, units = best
        self._gone += [(unit, self._evicted(unit)) for unit in units]
        self._join()
        self._promise_place(pod, node)
        self._placed.append((pod, node))
        self._gave |= self._sellers.gave(units)
        return True

    def _cleared(self, pod: PodRecord, node: int) -> list[tuple[Unit, Statement]] | None:
        """Evict what may go from a node, except pods with which a pod fits as well; None, and none, if it cannot."""
        units = [unit for item in self._sellers.on(node) for unit in self._sellers.units(item, ())]
        gone = [(unit, self._evicted(unit)) for unit in units]
        if not gone or not self._fits(pod, node):
            for _, statement in reversed(gone):
                statement.discard()
            return None
        for entry in sorted(gone, key=lambda entry: _dear(entry[0]), reverse=True):
            evictions = entry[1].save()
            entry[1].discard()
            if self._fits(pod, node):
                gone.remove(entry)
            else:
                entry[1].recover(evictions)
        return gone

    # -- trying ----------------------------------------------------------------------------------------------------

    def _take(self, ask: Ask, pod: PodRecord) -> bool:
        """Evict who a node asks for and promise a pod the place; False, and nothing done, when that does not work."""
        gone = [(unit, self._evicted(unit)) for unit in ask.units]
        if not self._has_share(pod):
            gone += self._free_share(pod)
        if self._fits(pod, ask.node):
            self._gone += gone
            self._join()
            self._promise_place(pod, ask.node)
            self._placed.append((pod, ask.node))
            self._gave |= self._sellers.gave([unit for unit, _ in gone])
            return True
        for _, statement in reversed(gone):
            statement.discard()
        return False

    def _free_share(self, pod: PodRecord) -> list[tuple[Unit, Statement]]:
        """Evict, wherever they are and the cheapest first, until the queue may take a pod; nobody if it never may.

        How much of its share a queue lacks nobody says, so it is asked after each.
        """
        gone = list[tuple[Unit, Statement]]()
        for item in self._everybody():
            gone += [(unit, self._evicted(unit)) for unit in self._sellers.units(item, ())]
            if self._has_share(pod):
                return gone
        for _, statement in reversed(gone):
            statement.discard()
        self._exhausted = True
        return []

    def _everybody(self) -> Iterable[Item]:
        """Who may go wherever that is, the cheapest first."""
        session, market = self._session, self._market
        if not session.ask.judges_steadily(market.point):
            return self._sellers.everything()
        if self._everywhere is None:
            consent = Consent(session, market.holders, self._candidates, self._pod, market.point)
            candidates = consent.pods(whole=self._may_go_whole)
            self._everywhere = Everywhere(session, market.holders, candidates, self._sellers)
        return self._everywhere

    def _evicted(self, unit: Unit) -> Statement:
        statement = self._session.statement()
        for pod in unit.pods:
            if self._session.view.pods.state[pod.row] in self._market.holders.states:
                statement.evict(pod, self._market.action, self._job.key)
        return statement

    def _join(self) -> None:
        """What a gang gave before it went whole is given back with it or not at all."""
        whole = {unit.job.key: (unit, statement) for unit, statement in self._gone if unit.whole}
        if not whole:
            return
        kept: list[tuple[Unit, Statement]] = []
        for unit, statement in self._gone:
            of = whole.get(unit.job.key)
            if of is None or of[0] is unit:
                kept.append((unit, statement))
            else:
                of[1].merge(statement)
        self._gone = kept

    def _fits(self, pod: PodRecord, node: int) -> bool:
        """Whether a pod has its place, as things stand on the statements."""
        session = self._session
        nodes = session.view.nodes
        if not fits(self._request, nodes.future_idle(node), nodes.always):
            return False
        if not self._has_share(pod) or session.ask.refusal(pod, node) is not None:
            return False
        return not self._varies or bool(session.kernel.feasible(pod)[node])

    def _has_share(self, pod: PodRecord) -> bool:
        """Whether the queue may take one more pod, as things stand on the statements."""
        return self._session.ask.allocatable(self._job.queue, pod)[0] > 0

    # -- giving back -----------------------------------------------------------------------------------------------

    def _spare(self, rows: Rows) -> None:
        """Give back, the dearest first, what the pods can do without, and place them anew."""
        self._promises.discard()
        before, gone = self._placed, self._gone
        most = self._most_places()[rows]
        #: what was given back, and how to undo that
        given: list[tuple[Statement, list[Operation]]] = []
        place = np.full(len(self._possible), -1)
        place[rows] = np.arange(len(rows))
        nodes = self._session.view.nodes
        room = nodes.future_idle(rows)
        copies = copies_that_fit(self._request, room, nodes.always).clip(0, most)
        for unit, statement in sorted(self._gone, key=lambda gone: _dear(gone[0]), reverse=True):
            at, less = _without(statement, place, room)
            fewer = copies_that_fit(self._request, less, nodes.always).clip(0, most[at])
            if copies.sum() - copies[at].sum() + fewer.sum() < len(self._placed):
                continue
            evictions = statement.save()
            statement.discard()
            if self._within_share():
                room[:, at], copies[at] = less, fewer
                given.append((statement, evictions))
                self._gone = [gone for gone in self._gone if gone[0] is not unit]
            else:
                statement.recover(evictions)
        if self._place_anew(rows, copies):
            return
        for statement, evictions in reversed(given):
            statement.recover(evictions)
        self._gone = gone
        self._promise(before)

    def _most_places(self) -> Vector:
        """How many of the pods each node takes at most, shape (nodes,): one that refused some, those that it took."""
        most = np.full(len(self._possible), float(len(self._placed)))
        for refused in self._refused:
            most[refused] = sum(node == refused for _, node in self._placed)
        return most

    def _within_share(self) -> bool:
        """Whether the queue may take all the pods that found places, as things stand on the statements."""
        session, left, trial = self._session, self._placed, self._session.statement()
        room = 1
        while left and room > 0:
            room, _ = session.ask.allocatable(self._job.queue, left[0][0], len(left))
            # Who limits what pods bring along, as devices, speaks for fewer than he may grant in the end.
            for pod, node in left[:room] if room < len(left) else ():
                trial.pipeline(session.view.sub_job_of(self._job, pod), pod, node)
            left = left[room:]
        trial.discard()
        return not left

    def _place_anew(self, rows: Rows, copies: Vector) -> bool:
        """Promise the pods places again: the nodes where they were first in front. False if a plugin refuses one.

        `copies` says for how many of them each of the nodes has room.
        """
        before = [node for _, node in self._placed]
        places = np.zeros(len(self._possible), np.intp)
        places[rows] = copies
        nodes = [node for node in dict.fromkeys(before) for _ in range(places[node])]
        if len(nodes) < len(before):
            places[before] = 0
            for node in rows[np.argsort(self._place[rows], kind="stable")].tolist():
                nodes += [node] * int(places[node])
                if len(nodes) >= len(before):
                    break
        pods = [pod for pod, _ in self._placed]
        return self._promise(list(zip(pods, nodes[: len(pods)], strict=True)))

    def _promise(self, places: list[tuple[PodRecord, int]]) -> bool:
        """Promise pods places; False, and none is promised, if a plugin refuses one."""
        self._placed, self._promises = places, self._session.statement()
        for pod, node in places:
            if self._session.ask.refusal(pod, node) is not None:
                self._promises.discard()
                return False
            self._promise_place(pod, node)
        return True

    def _promise_place(self, pod: PodRecord, node: int) -> None:
        sub_job = self._session.view.sub_job_of(self._job, pod)
        self._promises.pipeline(sub_job, pod, node, after_eviction=bool(self._gone))


def _dear(unit: Unit) -> tuple[Any, ...]:
    return unit.rank, len(unit.pods), -unit.began


def _without(statement: Statement, place: Rows, room: Matrix) -> tuple[Rows, Matrix]:
    """Of the nodes in `place` those where a statement evicts, and what room they have without that."""
    lost: dict[int, Vector] = {}
    for operation in statement.operations:
        node = operation.nodes[0]
        at = int(place[node]) if node >= 0 else -1
        if at >= 0:
            lost[at] = lost.get(at, 0) + operation.request
    rows = np.array(list(lost), np.intp)
    return rows, room[:, rows] - np.array(list(lost.values())).reshape(len(rows), len(room)).T
