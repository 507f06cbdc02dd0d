"""Answers kube-scheduler from the last session, which must be as recent as the known state.

Answers have no side effects except bindings: kube-scheduler asks about the same pod repeatedly, also about hypothetical
situations, and does not report the outcome.

When a pod is refused, kube-scheduler preempts at once, so no refusal may rest on outdated knowledge. While a session is
about to consider a change, or kube-scheduler has seen a pod end before we have, the answer waits; while a session hangs
it is an error, after which kube-scheduler asks again. A refused node comes with a reason. `FailedNodes` has the nodes
that only lack what evictions on them may free, resources or the queue's share; all others are in
`FailedAndUnresolvableNodes`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from msgspec import Raw

from stromboli.api.decisions import Bind
from stromboli.api.objects import Pod
from stromboli.api.reasons import Actionable, Reason, Stage
from stromboli.extender.evictions import Grants, spared
from stromboli.extender.published import Published
from stromboli.extender.sources import NO_SESSION, NoAnswerError, Source
from stromboli.extender.verdicts import Judgement, Placed, Refused, Verdict, verdict
from stromboli.extender.wire import (
    BindingArgs,
    BindingResult,
    ExtenderArgs,
    FilterResult,
    HostPriority,
    MetaVictims,
    PreemptionArgs,
    PreemptionResult,
    RequestedNodes,
    Victims,
    json,
    unchanged,
)
from stromboli.state.cluster import object_key
from stromboli.state.pods import MANAGED_ANNOTATIONS, PodRecord

T = TypeVar("T")


class Extender:
    """Answers for pods that are ours, and leaves all others alone.

    Ours are the pods that name a PodGroup or a queue, and all pods with one of `scheduler_names`. Pods whose
    schedulerName is in `decided_names` are decided by our sessions and bound by kube-scheduler.
    """

    def __init__(self, source: Source, scheduler_names: Collection[str], decided_names: Collection[str] = ()) -> None:
        self._source = source
        self._scheduler_names = frozenset(scheduler_names)
        self._decided_names = self._scheduler_names | frozenset(decided_names)
        self._grants = Grants()

    async def filter(self, args: ExtenderArgs) -> FilterResult:
        """The nodes where the pod may run. Raises msgspec.DecodeError and NoAnswerError."""
        if not self._is_ours(args.pod):
            return unchanged(args)
        nodes = RequestedNodes.read(args)
        judgement = await self._settled(
            args.pod,
            nodes.names,
            lambda: self._ask(args.pod, nodes.names, lambda verdict: verdict.judge(nodes.names)),
            Judgement.refuses_all,
        )
        resolvable: dict[str, Raw] = {}
        unresolvable: dict[str, Raw] = {}
        for number, cause in enumerate(judgement.causes):
            failed = resolvable if cause.resolvable else unresolvable
            # Encoded once, since thousands of nodes have the same message.
            failed.update(dict.fromkeys(judgement.refused(nodes.names, number), Raw(json(cause.message))))
        return nodes.result(judgement.passing, resolvable, unresolvable)

    async def prioritize(self, args: ExtenderArgs) -> list[HostPriority]:
        """The score of each node. Raises msgspec.DecodeError and NoAnswerError."""
        names = RequestedNodes.read(args).names
        if not self._is_ours(args.pod):
            return [HostPriority(name, 0) for name in names]
        return list(map(HostPriority, names, await self._ask(args.pod, names, lambda verdict: verdict.scores(names))))

    async def preempt(self, args: PreemptionArgs) -> PreemptionResult:
        """The nodes on which kube-scheduler may evict its victims. Raises NoAnswerError."""
        victims = args.victims
        if not victims:
            return PreemptionResult({})
        published = await self._settled(args.pod, (), self._last, lambda _: self._is_ours(args.pod))
        allowed = await self._source.work_out(lambda: self._permitted(published, args.pod, victims))
        return PreemptionResult(
            {node: MetaVictims.of(uids, victims[node].num_pdb_violations) for node, uids in allowed.items()}
        )

    async def bind(self, args: BindingArgs) -> BindingResult:
        """Bind a pod to the node that kube-scheduler has chosen. Raises NoAnswerError."""
        self._published()
        bind = Bind(namespace=args.namespace, name=args.name, uid=args.uid, node=args.node)
        return BindingResult(await self._source.bind(bind))

    def _permitted(
        self, published: Published, pod: Pod, victims: Mapping[str, Victims | MetaVictims]
    ) -> Mapping[str, Sequence[str]]:
        """The nodes where all victims may be evicted for a pod, with the uids of the pods to evict there."""
        beneficiary: PodRecord | None = None
        if self._is_ours(pod):
            beneficiary = self._known(published, pod)
            if beneficiary is None or not published.may_evict(beneficiary):
                return {}
            if published.is_served_by(beneficiary, pod.status.nominated_node_name or ""):
                return {}
        uids = {node: offered.uids for node, offered in victims.items()}
        return spared(published, pod, beneficiary, uids, self._grants)

    async def _settled(
        self, pod: Pod, names: Sequence[str], answer: Callable[[], Awaitable[T]], refuses: Callable[[T], bool]
    ) -> T:
        """A verdict that does not refuse, or refuses with complete knowledge. Raises NoAnswerError if that is late."""
        now, patience = asyncio.get_running_loop().time, self._source.patience(pod, names)
        since, complete = now(), False
        asked, found = self._source.published(), await answer()
        while refuses(found) and not complete:
            if late := self._source.late():
                raise NoAnswerError(late)
            left = since + patience() - now()
            complete = left <= 0
            # A session that has ended meanwhile is asked at once, and may have what is waited for.
            if self._source.published() is asked:
                if complete:
                    break
                with suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await self._source.news()
            asked, found = self._source.published(), await answer()
        return found

    def _is_ours(self, pod: Pod) -> bool:
        named = not MANAGED_ANNOTATIONS.isdisjoint(pod.metadata.annotations or ())
        return named or pod.spec.scheduler_name in self._scheduler_names

    def _published(self) -> Published:
        trouble, published = self._source.trouble(), self._source.published()
        if trouble or published is None:
            raise NoAnswerError(trouble or NO_SESSION)
        return published

    def _known(self, published: Published, pod: Pod) -> PodRecord | None:
        if pod.spec.scheduler_name not in self._decided_names:
            return None
        return published.pod(object_key(pod), pod.metadata.uid or "")

    async def _last(self) -> Published:
        return self._published()

    async def _ask(self, pod: Pod, names: Sequence[str], question: Callable[[Verdict], T]) -> T:
        """Answer to a question about the verdict on a pod. Raises NoAnswerError."""
        if pod.spec.scheduler_name not in self._decided_names:
            return question(Refused(_not_decided(pod, self._decided_names)))
        published = self._published()
        record = self._known(published, pod)
        if record is None:
            return question(Refused(_not_known(pod)))
        # The state changes while a session is asked, so it is read before.
        cleared = self._cleared(published, record, pod.status.nominated_node_name or "", names)
        if not cleared and (decided := published.place(record)) is not None:
            # Nothing is asked of plugins, and kube-scheduler, which asks about one pod at a time, waits for no thread.
            return question(Placed(decided))
        return await self._source.work_out(lambda: question(_verdict(published, record, cleared)))

    def _cleared(self, published: Published, pod: PodRecord, nominated: str, names: Sequence[str]) -> str:
        """The node on which kube-scheduler preempted pods, if a pod fits there and was decided for one that it was not
        asked about; else empty."""
        decided = published.place(pod)
        elsewhere = nominated in names and decided is not None and decided not in names
        return nominated if elsewhere and self._source.fits_on(pod, nominated) else ""


def _verdict(published: Published, pod: PodRecord, cleared: str) -> Verdict:
    if cleared and published.may_be_on(pod, cleared):
        return Placed(cleared)
    return verdict(published, pod)


def _not_known(pod: Pod) -> Reason:
    return Reason(Stage.Admission, "PodNotKnown", f"no session has seen pod {object_key(pod)} yet", Actionable.Wait)


def _not_decided(pod: Pod, names: Collection[str]) -> Reason:
    return Reason(
        Stage.Admission,
        "SchedulerNotServed",
        f"the pod's schedulerName is {pod.spec.scheduler_name}; served are {', '.join(sorted(names))}",
        Actionable.Admin,
    )
