"""Decisions of sessions, kept in bounded memory and put into words when they are asked for."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stromboli.api.decisions import Bind, Decision, EmitEvent, Evict, Nominate, SetPodGroupStatus
from stromboli.api.keys import namespace_of
from stromboli.api.pod_state import PodState
from stromboli.api.words import counted
from stromboli.explain.overview import Moment
from stromboli.framework.cluster.job import title_of
from stromboli.framework.session.session import Session

#: decisions that are kept: of a gang of eight about twenty
_MOST = 20_000
#: nodes that a moment names
_NODES = 3
#: phases of a PodGroup as moments
_PHASES = {"Inqueue": "admitted", "Running": "runs", "Completed": "completed", "Unknown": "stopped"}


@dataclass(frozen=True, slots=True)
class _Decided:
    number: int
    at: float
    decisions: Sequence[Decision]
    #: the jobs of pods that were bound, evicted or promised a node, by key
    jobs: Mapping[str, str]
    #: names for users of the jobs that pods were evicted for, by key
    called: Mapping[str, str]
    #: keys of the jobs whose phase changed
    moved: Collection[str]


class DecidedSessions:
    """Written in the event loop after each session; readable from any thread."""

    def __init__(self) -> None:
        self._kept: deque[_Decided] = deque()
        self._count = 0

    def add(self, number: int, at: float, session: Session) -> None:
        """Keep the decisions of a session."""
        if not session.decisions:
            return
        view, outcome = session.view, session.outcome
        jobs = {key: pod.job for key, pod in outcome.victims.items()}
        jobs |= {pod.key: pod.job for pod in map(view.record, outcome.promised)}
        if session.bound:
            binding = view.records(np.flatnonzero(view.pods.state == PodState.Binding))
            jobs |= {pod.key: pod.job for pod in binding if pod.key in session.bound}
        statuses = [each for each in session.decisions if isinstance(each, SetPodGroupStatus) and each.key in view.jobs]
        moved = {each.key for each in statuses if each.status.phase != view.jobs[each.key].pod_group.status.phase}
        served = {each.beneficiary for each in session.decisions if isinstance(each, Evict)}
        called = {key: title_of(view.jobs, key) for key in served}
        self._kept.append(_Decided(number, at, session.decisions[:_MOST], jobs, called, moved))
        self._count += len(self._kept[-1].decisions)
        while self._count > _MOST and len(self._kept) > 1:
            self._count -= len(self._kept.popleft().decisions)

    def of_session(self, number: int, within: Collection[str] | None = None) -> list[Moment] | None:
        """The decisions of a session `within` some namespaces; None if they are not kept any more."""
        kept = self._kept.copy()
        if kept and number < kept[0].number:
            return None
        found = next((each for each in kept if each.number == number), None)
        told = _moments(found) if found else iter(())
        return [each for each in told if within is None or each.namespace in within]

    def of_job(self, key: str) -> list[Moment]:
        """The decisions about a job, in order. A decision that was repeated before it took effect is shown once."""
        told: list[Moment] = []
        last: dict[bool, tuple[str, str]] = {}
        for each in self._kept.copy():
            for moment in _moments(each, key):
                said = (moment.what, moment.text)
                is_step = moment.what in ("bound", "evicted")
                if is_step or last.get(moment.what in _PHASES.values()) != said:
                    told.append(moment)
                last[moment.what in _PHASES.values()] = said
        return told


def _moments(decided: _Decided, only: str = "") -> Iterator[Moment]:
    """The decisions of a session, equal ones about one job merged."""
    phases: dict[tuple[str, str, str], None] = {}
    pods: defaultdict[tuple[str, str, str], list[Bind | Evict | Nominate]] = defaultdict(list)
    said: dict[tuple[str, str, str], None] = {}
    for each in decided.decisions:
        match each:
            case Bind() | Evict():
                why = each.told(each.namespace, decided.called[each.beneficiary]) if isinstance(each, Evict) else ""
                job = decided.jobs.get(each.key) or each.key
                pods[job, "evicted" if isinstance(each, Evict) else "bound", why].append(each)
            case Nominate():
                pods[decided.jobs.get(each.key) or each.key, "promised", ""].append(each)
            case SetPodGroupStatus() if each.key in decided.moved and each.status.phase in _PHASES:
                phases[each.key, _PHASES[each.status.phase], ""] = None
            case EmitEvent(kind="PodGroup", reason="Unschedulable" | "Schedulable"):
                said[each.key, "waits" if each.reason == "Unschedulable" else "goes on", each.message] = None
    of_pods = [(*who, len(some), _on_nodes(some)) for who, some in pods.items()]
    for job, what, why, number, where in (
        *((*each, 0, "") for each in phases),
        *of_pods,
        *((*each, 0, "") for each in said),
    ):
        if only in ("", job):
            yield Moment(
                at=decided.at,
                session=decided.number,
                namespace=namespace_of(job),
                name=job.removeprefix(f"{namespace_of(job)}/"),
                what=what,
                pods=number,
                text=why or where,
            )


def _on_nodes(pods: Sequence[Bind | Evict | Nominate]) -> str:
    nodes = list(dict.fromkeys(pod.node for pod in pods))
    more = f" and {counted(len(nodes) - _NODES, 'more node')}" if len(nodes) > _NODES else ""
    return f"on {', '.join(nodes[:_NODES])}{more}"
