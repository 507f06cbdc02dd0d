"""The part of a journal that does not depend on the policy: arrivals, run times, and other changes.

Where and when pods ran follows from decisions and is left out; how long they ran does not. An evicted pod and the one
that its controller created in its place are one piece of work.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from stromboli.api import objects
from stromboli.api.pod_state import PodState
from stromboli.framework.cluster.environment import Environment, NodeUsage
from stromboli.journal import wire
from stromboli.journal.events import Event, Gone, Put, Reader
from stromboli.journal.outcome import decisions
from stromboli.journal.remembered import known
from stromboli.journal.replay import Engines
from stromboli.journal.segment import Segment, sessions
from stromboli.journal.wire import JournalError
from stromboli.state.pods import GROUP_ANNOTATION, observed_state

_OVER = (PodState.Succeeded, PodState.Failed)


@dataclass(slots=True, eq=False)
class Work:
    """A pod, and those that came in its stead; times are in seconds since the epoch."""

    #: as it waits
    pod: objects.Pod
    #: key of its PodGroup, empty when it has none
    job: str
    arrived: float
    #: the node that it had when recording began
    node: str = ""
    #: seconds that it runs; None when it outlasts the recording
    runs: float | None = None
    #: its last phase, empty when it is deleted
    ends_as: str = ""
    #: when it was withdrawn before it ran
    withdrawn: float | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """The environment that sessions get from a time on."""

    node_usage: Mapping[str, NodeUsage] | None = None
    queue_usage: Mapping[str, Mapping[str, float]] | None = None
    #: the policy, and what outweighs what it says
    policy: tuple[str, str | None] | None = None


@dataclass(slots=True)
class History:
    """Arrivals, runs and changes during a journal."""

    began: wire.Began
    environment: Environment
    #: of the first session and the last
    since: float
    until: float = 0.0
    works: list[Work] = field(default_factory=list)
    #: changes of everything but pods of ours
    events: list[tuple[float, Event]] = field(default_factory=list)
    told: list[tuple[float, Told]] = field(default_factory=list)
    #: when sessions were
    sessions: list[float] = field(default_factory=list)


def history_of(entries: Iterable[wire.Entry], engines: Engines) -> History:
    """Read a journal. Raises JournalError, also for one without sessions."""
    writer: _Writer | None = None
    for segment, session in sessions(entries):
        if writer is None:
            environment = known(segment.layout.remembered, engines.registry, None)
            writer = _Writer(History(segment.began, environment, session.now))
        writer.session(segment, session)
    if writer is None:
        raise JournalError("no session is in this journal")
    return writer.history


@dataclass(slots=True, eq=False)
class _Pod:
    """A pod as it was seen last."""

    uid: str
    work: Work
    began: float | None = None
    over: bool = False


class _Writer:
    def __init__(self, history: History) -> None:
        self.history = history
        self._segment: Segment | None = None
        #: whose pods are work
        self._schedulers: frozenset[str] = frozenset()
        self._reader = Reader()
        self._pods: dict[str, _Pod] = {}
        #: other existing objects, by kind and key
        self._there: set[tuple[str, str]] = set()
        #: uids of pods that were evicted
        self._evicted: set[str] = set()
        #: work that waits for the pod that takes it up again, by job
        self._vacant: defaultdict[str, deque[Work]] = defaultdict(deque)

    def _begin(self, segment: Segment, now: float) -> None:
        """A full list of all objects begins; objects that it does not name are gone."""
        began = segment.began
        self._segment, self._reader = segment, Reader()
        self._schedulers = frozenset((*began.scheduler_names, *began.extender_scheduler_names))
        pods, others = set(self._pods), set(self._there)
        for event in self._reader.events(segment.changes):
            if isinstance(event, Put):
                pods.discard(event.key)
                others.discard((event.kind, event.key))
            self._event(event, now)
        for key in sorted(pods):
            self._event(Gone("Pod", key), now)
        for kind, key in sorted(others):
            self._event(Gone(kind, key), now)

    def session(self, segment: Segment, session: wire.Session) -> None:
        """Adds the changes before a session, and its evictions."""
        history, now = self.history, session.now
        if segment is not self._segment:
            self._begin(segment, now)
        history.until = max(history.until, now)
        history.sessions.append(now)
        policy = (session.policy, segment.began.compatibility) if session.policy else None
        if policy or session.node_usage is not None or session.queue_usage is not None:
            history.told.append((now, Told(session.node_usage, session.queue_usage, policy)))
        for event in self._reader.events(session.changes):
            self._event(event, now)
        if b"Evict" in session.decisions:
            self._evicted |= set(_evicted(decisions(session.decisions)))

    def _event(self, event: Event, now: float) -> None:
        match event:
            case Put("Pod", key, pod):
                self._put(key, pod, event, now)
            case Gone("Pod", key):
                known_pod = self._pods.pop(key, None)
                if known_pod is None:
                    self.history.events.append((now, event))
                else:
                    self._end(known_pod, now, "")
            case Put(kind, key) | Gone(kind, key):
                (self._there.add if isinstance(event, Put) else self._there.discard)((kind, key))
                self.history.events.append((now, event))

    def _put(self, key: str, pod: objects.Pod, event: Event, now: float) -> None:
        if pod.spec.scheduler_name not in self._schedulers:
            self.history.events.append((now, event))
            return
        seen = self._pods.get(key)
        if seen is not None and seen.uid != pod.metadata.uid:
            self._end(seen, now, "")
            seen = None
        if seen is None:
            seen = self._pods[key] = _Pod(pod.metadata.uid or "", self._work(pod, now))
        state = observed_state(pod)
        if seen.began is None and pod.spec.node_name:
            seen.began = now
        if state in _OVER or state == PodState.Releasing:
            self._end(seen, now, state.name if state in _OVER else "")

    def _work(self, pod: objects.Pod, now: float) -> Work:
        """The work of a pod that is new."""
        group = (pod.metadata.annotations or {}).get(GROUP_ANNOTATION)
        job = f"{pod.metadata.namespace}/{group}" if group else ""
        vacant = self._vacant[job]
        if vacant:
            return vacant.popleft()
        work = Work(waiting(pod), job, now, node=pod.spec.node_name or "")
        self.history.works.append(work)
        return work

    def _end(self, pod: _Pod, now: float, phase: str) -> None:
        if pod.over:
            return
        pod.over = True
        if pod.uid in self._evicted:
            self._vacant[pod.work.job].append(pod.work)
        elif pod.began is None:
            pod.work.withdrawn = now
        else:
            # Clocks may step back, and another replica's be behind.
            pod.work.runs, pod.work.ends_as = max(0.0, now - pod.began), phase


def waiting(pod: objects.Pod) -> objects.Pod:
    """A pod as it waits."""
    change = msgspec.structs.replace
    metadata = change(pod.metadata, deletion_timestamp=None)
    status = objects.PodStatus(phase="Pending", resource_claim_statuses=pod.status.resource_claim_statuses)
    return change(pod, metadata=metadata, spec=change(pod.spec, node_name=""), status=status)


def _evicted(decided: Iterable[Any]) -> Iterable[str]:
    """The uids of pods that were evicted."""
    for decision in decided:
        match decision:
            case ["Evict", {"uid": str(uid)}]:
                yield uid
