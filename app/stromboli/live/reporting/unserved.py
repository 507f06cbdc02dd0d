"""Reports pods that wait for a scheduler that never responds: most often its name is misspelt."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from stromboli.api import keys, objects
from stromboli.api.validation import did_you_mean
from stromboli.explain.checkup import Finding, scheduler_findings
from stromboli.explain.foreign import elsewhere, served_here
from stromboli.live.reporting.events import Events, Reference
from stromboli.live.watch.mirror import Mirror
from stromboli.state.pods import group_of
from stromboli.workloads.groups import controller

REASON = "SchedulerNotServed"
#: seconds that another scheduler has to respond to a pod, and between two checks
_PATIENCE, _LOOK = 10.0, 5.0
#: the scheduler where none is named; it is not ours to say whether it is there
_KUBE_SCHEDULER = "default-scheduler"
_FINISHED = ("Succeeded", "Failed")


@dataclass(slots=True)
class _Waiting:
    about: Reference
    scheduler: str
    #: the keys of the PodGroup that it names, and of its controller
    jobs: frozenset[str]
    since: float
    told: bool = False


class Unserved:
    """Knows the pods without a node of schedulers that are not served here."""

    def __init__(
        self, mirror: Mirror, events: Events, served: Collection[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._events = events
        self._served = frozenset(served)
        self._clock = clock
        self._pods: dict[str, _Waiting] = {}
        #: schedulers that placed a pod, or reported why they did not
        self._heard_of: set[str] = {_KUBE_SCHEDULER}
        mirror.listen("Pod", self._seen)

    async def run(self) -> None:
        """Emit Events until cancelled."""
        while True:
            await asyncio.sleep(_LOOK)
            self.tell()

    def tell(self) -> None:
        """Emit an Event about each pod that has waited long enough."""
        due = self._clock() - _PATIENCE
        for pod in self._pods.values():
            if not pod.told and pod.since <= due and pod.scheduler not in self._heard_of:
                pod.told = True
                self._events.emit(pod.about, "Warning", REASON, self._words(pod.scheduler))

    def why(self, key: str) -> str:
        """Why a pod is not known to sessions; empty unless it waits for a scheduler that is not served here."""
        pod = self._pods.get(key)
        return "" if pod is None else f"pod {key} waits for another scheduler: {self._words(pod.scheduler)}"

    def of_gang(self, key: str) -> str:
        """Pods of a PodGroup or workload that wait for schedulers not served here, in words; empty for none."""
        return elsewhere((pod.scheduler for pod in self._pods.values() if key in pod.jobs), self._served)

    def findings(self) -> list[Finding]:
        """The schedulers that never responded, each with the pods that wait for it."""
        silent = [(key, pod.scheduler, True) for key, pod in self._pods.items() if pod.scheduler not in self._heard_of]
        return list(scheduler_findings(silent, self._served))

    def _words(self, scheduler: str) -> str:
        near = did_you_mean(scheduler, self._served)
        silent = "" if scheduler in self._heard_of else ", which shows no activity"
        return f"spec.schedulerName is {scheduler}{silent}; {served_here(self._served)}{near}"

    def _seen(self, type: str, pod: objects.Pod | str) -> None:
        if isinstance(pod, str):
            self._pods.pop(pod, None)
            return
        name = pod.spec.scheduler_name or _KUBE_SCHEDULER
        if name in self._served:
            return
        if type == "DELETED" or pod.spec.node_name or pod.status.phase in _FINISHED:
            self._pods.pop(pod.metadata.key, None)
        elif pod.metadata.key not in self._pods:
            meta = pod.metadata
            about = Reference("v1", "Pod", meta.namespace or "", meta.name, meta.uid or "")
            owner = controller(pod)
            jobs = {group_of(meta), *([keys.key(meta.namespace, owner.name)] if owner is not None else [])}
            self._pods[meta.key] = _Waiting(about, name, frozenset(jobs), self._clock())
        if type != "DELETED" and (pod.spec.node_name or objects.refusal(pod.status.conditions or ()) is not None):
            self._heard_of.add(name)
