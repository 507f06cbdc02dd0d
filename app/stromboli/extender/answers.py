"""The two questions of kube-scheduler, answered from what the last session left.

An answer changes nothing: kube-scheduler asks about the same pod again and again, also about situations that it only
imagines, and does not tell what becomes of the answer.

A node that is refused is named with its reason. kube-scheduler may evict pods to make room on a node in `FailedNodes`,
so only nodes that lack nothing but room are there. For a pod that waits for its gang, its queue or the node that was
decided for it, evicting anybody is in vain: those nodes are in `FailedAndUnresolvableNodes`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from msgspec import Raw

from stromboli.api.objects import Pod
from stromboli.api.reasons import Actionable, Reason, Stage
from stromboli.extender.published import Published
from stromboli.extender.verdicts import Refused, Verdict, verdict
from stromboli.extender.wire import ExtenderArgs, FilterResult, HostPriority, Offer, json, unchanged
from stromboli.state.cluster import object_key
from stromboli.state.pods import GROUP_ANNOTATION

QUEUE_ANNOTATION = "scheduling.volcano.sh/queue-name"

_NO_SESSION = Reason(Stage.Admission, "NoSession", "no session has ended yet", Actionable.Wait)


class Extender:
    """Answers for the pods that are ours, and leaves all others alone.

    Ours are the pods that name a PodGroup or a queue, and every pod with one of `scheduler_names`. Those whose
    schedulerName is in `decided_names` besides are decided by our sessions and bound by kube-scheduler.
    """

    def __init__(
        self,
        published: Callable[[], Published | None],
        scheduler_names: Collection[str],
        decided_names: Collection[str] = (),
    ) -> None:
        self._published = published
        self._scheduler_names = frozenset(scheduler_names)
        self._decided_names = self._scheduler_names | frozenset(decided_names)

    def filter(self, args: ExtenderArgs) -> FilterResult:
        """Which of the nodes the pod may go to. Raises msgspec.DecodeError."""
        if not self._is_ours(args.pod):
            return unchanged(args)
        offer = Offer.read(args)
        judgement = self._verdict(args.pod).judge(offer.names)
        resolvable: dict[str, Raw] = {}
        unresolvable: dict[str, Raw] = {}
        for number, cause in enumerate(judgement.causes):
            failed = resolvable if cause.resolvable else unresolvable
            # Encoded once: the same sentence goes out for thousands of nodes.
            failed.update(dict.fromkeys(judgement.refused(offer.names, number), Raw(json(cause.message))))
        return offer.result(judgement.passing, resolvable, unresolvable)

    def prioritize(self, args: ExtenderArgs) -> list[HostPriority]:
        """How good each of the nodes is. Raises msgspec.DecodeError."""
        names = Offer.read(args).names
        scores = self._verdict(args.pod).scores(names) if self._is_ours(args.pod) else [0] * len(names)
        return list(map(HostPriority, names, scores))

    def _is_ours(self, pod: Pod) -> bool:
        annotations = pod.metadata.annotations or {}
        named = GROUP_ANNOTATION in annotations or QUEUE_ANNOTATION in annotations
        return named or pod.spec.scheduler_name in self._scheduler_names

    def _verdict(self, pod: Pod) -> Verdict:
        if pod.spec.scheduler_name not in self._decided_names:
            return Refused(_not_decided(pod, self._decided_names))
        published = self._published()
        if published is None:
            return Refused(_NO_SESSION)
        record = published.pod(object_key(pod), pod.metadata.uid or "")
        return Refused(_not_known(pod)) if record is None else verdict(published, record)


def _not_known(pod: Pod) -> Reason:
    return Reason(Stage.Admission, "PodNotKnown", f"no session has seen pod {object_key(pod)} yet", Actionable.Wait)


def _not_decided(pod: Pod, names: Collection[str]) -> Reason:
    return Reason(
        Stage.Admission,
        "SchedulerNotServed",
        f"the pod names scheduler {pod.spec.scheduler_name}; decisions are made for {', '.join(sorted(names))}",
        Actionable.Admin,
    )
