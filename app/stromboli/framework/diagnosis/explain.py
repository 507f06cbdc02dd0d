"""Why pods have no place: a reason for every pod that waits, and what keeps one from every node."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from stromboli.api.pod_state import PodState
from stromboli.api.reasons import Actionable, Reason, Stage
from stromboli.api.resources import PODS, TOLERANCE, Mask, Rows, Vector, compared, fits, told
from stromboli.framework import reasons
from stromboli.framework.cluster.job import Job
from stromboli.framework.cluster.view import View
from stromboli.framework.diagnosis.telling import silent_to_tell
from stromboli.framework.plugin.causes import Administrative, Anywhere, Detailed, Elsewhere, Failed, Passing
from stromboli.framework.reasons import column_name
from stromboli.framework.session.never_fits import larger_than_any_node
from stromboli.framework.session.session import Session
from stromboli.state.pods import QUEUE_GATE, PodRecord

#: suffixes of the names of actions that give places of some jobs to others
_TAKING = ("preempt", "reclaim")
#: the action that evicts pods so that their job waits, and says why
_TIMING_OUT = "timeouts"
#: the states of pods for which an answer about their job looks for places
_UNPLACED = (PodState.Pending, PodState.Pipelined)
_PIPELINED = int(PodState.Pipelined)
#: the states of pods that have no place yet
_WITHOUT_PLACE = (PodState.Pending, PodState.Allocated, PodState.Pipelined)
_FULL = "ClusterFull"
#: names of queues that a session compares at most with those of queues that do not exist, to tell which was meant
_MOST_COMPARED = 500


def pending_reasons(session: Session) -> dict[str, Reason]:
    """Why each pod without a place has none, by pod key; nothing pending is without a reason."""
    return {pod.key: reason for pod, reason, _ in waiting(session)}


def waiting(session: Session, *, shown: bool = False) -> Iterator[tuple[PodRecord, Reason, bool]]:
    """Each pod without a place, the reason, and whether more nodes would help it.

    With `shown`, only pods whose shown reason may change: jobs beyond the session's budget keep the reason that an
    earlier session found, and a few of their pods that show no reason yet are covered by each session.
    """
    view = session.view
    passed = view.trace.not_reached if shown else ()
    pods = view.pods
    blocked: dict[int, _Blocked] = {}
    rows = np.flatnonzero(np.logical_or.reduce([pods.state == each for each in _WITHOUT_PLACE]))
    silent = silent_to_tell(session, rows) if passed else ()
    promised = (pods.state[rows] == _PIPELINED).tolist()
    gated = view.jobs.membership.has_gated
    unseen = _known_without_a_look(view, rows, gated)
    for at, row in enumerate(rows.tolist()):
        record = pods.records[row]
        if record is None or record.node_name:
            continue
        if record.job in passed and row not in silent:
            continue
        if promised[at]:
            yield record, _why_promised(view, record), False
            continue
        known = view.trace.jobs.get(record.job) if unseen[at] else None
        own = view.trace.pods.get(row)
        if known is not None and (own is None or known.stage <= own.stage):
            yield record, known, known.scalable
            continue
        job = view.jobs.in_row(int(pods.job[row]))
        if job is None:
            yield record, _why_pending(session, record, None), False
            continue
        if job.row not in blocked:
            blocked[job.row] = _Blocked(session, job, gated=bool(gated[job.index]))
        yield record, *blocked[job.row].why(record)


def _known_without_a_look(view: View, rows: Rows, gated: Mask) -> list[bool]:
    """Which of the pods in some rows belong to jobs without a Job object: facts about the job say why they wait.

    Jobs with `gated` pods do not count, as they are looked at pod by pod.
    """
    unmade = np.append(view.jobs.unmade & ~gated, False) & (len(view.nodes) > 0)
    unseen: list[bool] = unmade[view.jobs.membership.index_of[view.pods.job[rows]]].tolist()
    return unseen


class _Blocked:
    """Reasons that keep the pods of one job from their places."""

    __slots__ = ("_first", "_gated", "_helped", "_job", "_session", "_together")

    def __init__(self, session: Session, job: Job, *, gated: bool) -> None:
        self._session = session
        self._job = job
        #: whether gates may hold back some of them
        self._gated = gated
        #: whether nodes help any of them; None when it was not asked for
        self._helped: bool | None = None
        #: reason of the first of them
        self._first = session.view.reason(job)
        #: the reason of those that only wait for others
        self._together: Reason | None = None

    def why(self, pod: PodRecord) -> tuple[Reason, bool]:
        """Why one of them waits, and whether more nodes would help."""
        reason = _why_pending(self._session, pod, self._job, self._first)
        if reason.reason == "GangNotReady":
            reason = self._together = self._together or reason
        waits_for_others = reason.reason in ("GangNotReady", "SameRoleFailed")
        scalable = self._first.scalable if waits_for_others and self._first else reason.scalable
        return reason, scalable and self._nodes_help()

    def _nodes_help(self) -> bool:
        """Whether more nodes help any of them: not those of a gang that lacks pods, or pods without gates."""
        if self._helped is None:
            ask, job, view = self._session.ask, self._job, self._session.view
            lacking, gated = ask.job_valid(job), 0
            if self._gated and ask.job_missing(job) > 0:
                gated = sum(pod.pod_class.gated for pod in view.records(view.membership.pending(job.index)))
            self._helped = (lacking is None or lacking.scalable) and (
                not gated or job.valid_count - gated >= job.min_available
            )
        return self._helped


def why(session: Session, pod: PodRecord, job: Job | None, blocking: Reason | None = None) -> Reason:
    """Why a pod without a place has none; `job` is None when its PodGroup is not in the session.

    `blocking` is `View.reason(job)` for callers that know it: finding it takes a look at all pods of the job.
    """
    if session.view.pods.state[pod.row] == PodState.Pipelined:
        return _why_promised(session.view, pod)
    return _why_pending(session, pod, job, blocking)


def no_such_queue(view: View, queue: str) -> Reason:
    """Why nothing runs in a queue that does not exist, with similar names for as many queues as a session compares."""
    lost = view.trace.lost
    if queue not in lost:
        lost[queue] = reasons.queue_not_found(queue, view.queues if may_compare(view) else ())
    return lost[queue]


def may_compare(view: View) -> bool:
    """Whether the name of one more queue that does not exist is compared with those that do."""
    return len(view.trace.lost) * len(view.queues) < _MOST_COMPARED


def _why_pending(session: Session, pod: PodRecord, job: Job | None, blocking: Reason | None = None) -> Reason:
    view = session.view
    if not len(view.nodes) and job is not None and not pod.pod_class.gated:
        # More nodes help neither a gang that lacks pods nor one that is beyond its queue's limit.
        return session.ask.job_valid(job) or view.never_fits.get(job.key) or reasons.no_nodes()
    if job is None:
        pod_group = view.snapshot.pod_groups[row] if (row := int(view.pods.job[pod.row])) >= 0 else None
        return no_such_queue(view, pod_group.spec.queue) if pod_group else reasons.no_pod_group(pod)
    if _is_held_back(view, pod, job):
        return reasons.gated(pod)
    own = view.trace.pods.get(pod.row)
    of_job = view.trace.jobs.get(job.key)
    if of_job is not None and (own is None or of_job.stage <= own.stage):
        return reasons.with_last_turn(of_job, job)
    if own is not None:
        return own
    action = "backfill" if pod.pod_class.best_effort else "allocate"
    if action not in session.policy.actions:
        return reasons.no_action(action)
    if job.pending_phase:
        return reasons.not_admitted(job)
    if session.ask.job_missing(job) > 0 or view.pods.state[pod.row] == PodState.Allocated:
        return reasons.gang_blocked(job, blocking or session.ask.job_valid(job))
    return blocking or reasons.not_tried(job)


def _is_held_back(view: View, pod: PodRecord, job: Job) -> bool:
    """Whether a pod shows its gates as the reason: not if this session recorded why it did not lift the only one."""
    if not pod.pod_class.gated:
        return False
    lifted = all(gate.name == QUEUE_GATE for gate in pod.pod_class.spec.scheduling_gates or ())
    return not (lifted and (pod.row in view.trace.pods or job.key in view.trace.jobs))


def why_job(session: Session, job: Job) -> Reason | None:
    """The reason of the first stage that blocks a job, on all surfaces; None when its first pods have places."""
    view = session.view
    rows = view.membership.pending(job.index)
    if len(rows):
        first = view.record(int(rows[0]))
        if first.pod_class.gated and all(_is_held_back(view, pod, job) for pod in view.records(rows)):
            return reasons.gated(first)
        found = view.reason(job) if len(view.nodes) else None
        return found or _why_pending(session, first, job)
    promised = _promised_pods(view, job)
    if promised:
        return _why_promised(view, promised[0])
    if job.phase == "Completed" or (job.size and job.ready_count >= job.min_available):
        return None
    return view.reason(job) or session.ask.job_valid(job)


def may_wait(job: Job) -> bool:
    """Whether `why_job` may find a reason for a job, judging by its pod counts."""
    return bool(job.counts[PodState.Pending] or job.counts[PodState.Pipelined] or job.ready_count < job.min_available)


def without_place(session: Session, job: Job) -> list[PodRecord]:
    """The pods of a job that have no place, or are promised one that others still hold."""
    view = session.view
    rows = view.membership.rows(job.index)
    return view.records(rows[np.isin(view.pods.state[rows], _UNPLACED)])


def _promised_pods(view: View, job: Job) -> list[PodRecord]:
    rows = view.membership.rows(job.index)
    return view.records(rows[view.pods.state[rows] == _PIPELINED])


def _why_promised(view: View, pod: PodRecord) -> Reason:
    """Why a pod that is promised a place does not have it yet."""
    in_queue = view.trace.promised.get(pod.row)
    if in_queue is not None and in_queue.reason != _FULL:
        return in_queue
    # A cluster is full until what it waits for is gone.
    return reasons.waits_for_release(view.nodes.name(int(view.pods.node[pod.row])))


def why_moved(session: Session, pod: PodRecord) -> Reason | None:
    """Why a pod was evicted while another place is kept for its replacement; None for any other pod."""
    move = session.outcome.moved.get(pod.row)
    if move is None:
        return None
    return reasons.moved(session.view.nodes.name(move.nodes[0]), session.view.jobs.get(move.beneficiary), pod.namespace)


def all_reasons(session: Session) -> dict[str, Reason]:
    """Why each pod without a place has none, and why pods move, by pod key."""
    moved = ((move.pods[0].key, why_moved(session, move.pods[0])) for move in session.outcome.moved.values())
    return pending_reasons(session) | {key: reason for key, reason in moved if reason is not None}


def unplaceable(session: Session, pod: PodRecord, within: Mask | None = None) -> Reason:
    """Why no node takes a pod, with the number of nodes that each cause rules out.

    The message names the causes without counts, so that an unchanged situation reads the same.
    """
    if within is not None or session.kernel.varies(pod):
        return _unplaceable(session, pod, within)
    kernel, known = session.kernel, session.view.trace.kinds
    kind, changes = kernel.identity(pod), len(session.view.nodes.log)
    when, reason, steps = known.get(kind, (-1, None, 0))
    if reason is not None and not session.report.tells and reason.actionable is Actionable.Wait:
        # Which nodes lack what changes with each placed pod, but is not reported. Steps count as if it were computed.
        kernel.steps += steps if when != changes else 0
        known[kind] = changes, reason, steps
    elif reason is None or when != changes:
        before = kernel.steps
        reason = _unplaceable(session, pod, None)
        known[kind] = changes, reason, kernel.steps - before
    return reason


def matches_nowhere(session: Session, pod: PodRecord) -> bool:
    """Whether no node would take a pod even if all were free; asked once for pods with the same terms about nodes."""
    kernel, known = session.kernel, session.view.trace.nowhere
    if kernel.varies(pod):
        return False
    terms = kernel.terms(pod)
    if terms not in known:
        known[terms] = not len(kernel.possible(pod))
    return known[terms]


def _unplaceable(session: Session, pod: PodRecord, within: Mask | None) -> Reason:
    left = np.ones(len(session.view.nodes), np.bool_) if within is None else within.copy()
    if not left.any():
        return reasons.no_nodes()
    causes, counts = list[str](), dict[str, int]()
    for cause, failed in session.kernel.causes(pod):
        if isinstance(cause, Failed):
            return reasons.of_failure(cause)
        hit = failed & left
        if hit.any():
            causes.append(cause)
            counts[cause] = counts.get(cause, 0) + int(hit.sum())
            left &= ~hit
    passing = any(isinstance(cause, Passing | Elsewhere) for cause in causes)
    if left.any():
        reason = _no_capacity(session, pod, left, counts, passing=passing)
        if reason.actionable is Actionable.User:
            reason = replace(reason, actionable=_who_changes(session, pod, causes))
    else:
        message = f"no node takes the pod: {_listed(counts)}"
        scalable = not any(isinstance(cause, Anywhere) for cause in causes)
        who = Actionable.Wait if passing else _who_changes(session, pod, causes)
        reason = Reason(Stage.Placement, "NoMatchingNode", message, who, nodes=counts, scalable=scalable)
    found = (cause.detail() for cause in causes if isinstance(cause, Detailed))
    return reason.saying(pod.namespace, dict.fromkeys(each for each in found if each.words))


def _who_changes(session: Session, pod: PodRecord, causes: list[str]) -> Actionable:
    """Who can make a node take a pod: an administrator, if only administrative causes bar a large enough one."""
    if not any(isinstance(cause, Administrative) for cause in causes):
        return Actionable.User
    large_enough = fits(session.view.request(pod), session.view.nodes.allocatable)
    return Actionable.Admin if (session.kernel.mendable(pod) & large_enough).any() else Actionable.User


def _no_capacity(session: Session, pod: PodRecord, nodes: Mask, counts: dict[str, int], *, passing: bool) -> Reason:
    """The reason of a pod that some nodes would take if they had free capacity; `passing` says if others may, too."""
    view = session.view
    request, rows = view.request(pod), view.nodes.rows if nodes.all() else np.flatnonzero(nodes)
    whole = view.nodes.view(rows).allocatable
    if session.report.tells:
        counts |= _lacking(session, pod, rows)
    if fits(request, whole).any() or passing:
        message = f"no node is available: {_listed(counts)}"
        return Reason(Stage.Placement, "Unschedulable", message, Actionable.Wait, nodes=counts, scalable=True)
    return larger_than_any_node(view, pod, whole, counts)


def _lacking(session: Session, pod: PodRecord, rows: Rows) -> dict[str, int]:
    """Number of nodes by the set of resources that they lack, in words."""
    view, request, counts = session.view, session.view.request(pod), dict[str, int]()
    future = view.nodes.future_idle(rows)
    columns = np.flatnonzero(compared(request, view.nodes.always)).tolist()
    # A bit for each column that a node lacks capacity in, so that each node is counted once.
    lacks = np.zeros(len(rows), np.int64)
    for at, column in enumerate(columns):
        lacks |= (future[column] <= request[column] - TOLERANCE).astype(np.int64) << at
    lacking, numbers = np.unique(lacks, return_counts=True)
    for bits, number in zip(lacking.tolist(), numbers.tolist(), strict=True):
        lacked = [column for at, column in enumerate(columns) if bits >> at & 1]
        counts[reasons.insufficient(view.dimensions, pod, lacked)] = number
    return counts


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(sorted(counts))


class Evictions:
    """Rules by which pods are evicted, with the numbers: priorities within a queue, shares between two."""

    def __init__(self, session: Session) -> None:
        self._session = session
        #: amounts that each queue held at the start, once needed
        self._held: dict[str, Vector] | None = None
        #: by victim's job and class, and beneficiary
        self._known: dict[tuple[str, int, str, str], str] = {}
        #: by queue and columns
        self._known_shares: dict[tuple[str, tuple[int, ...]], str] = {}

    def why(self, pod: PodRecord, action: str, beneficiary: str) -> str:
        """Why an action evicts a pod for a PodGroup; empty where the action's name says it all."""
        key = (pod.job, pod.pod_class.id, action, beneficiary)
        if key not in self._known:
            held_back = self._session.view.trace.jobs.get(pod.job) if action == _TIMING_OUT else None
            said = "" if held_back is None else held_back.message
            self._known[key] = self._why(pod, beneficiary) if action.endswith(_TAKING) else said
        return self._known[key]

    def _why(self, pod: PodRecord, beneficiary: str) -> str:
        view = self._session.view
        job, other = view.jobs.get(pod.job), view.jobs.get(beneficiary)
        if job is None or other is None:
            return ""
        if job is other:
            return f"pods of {job.title} that are served before it need its place"
        if job.queue is other.queue and job.namespace != other.namespace:
            # Both jobs show this, and neither tenant may learn the other's priority.
            return f"a higher priority goes first in queue {job.queue.name}"
        if job.queue is other.queue:
            return f"priority {other.priority} goes before {job.priority} in queue {job.queue.name}"
        columns = tuple(c for c in np.flatnonzero(view.request(pod)).tolist() if c != PODS)
        sides = []
        for queue in (job.queue.name, other.queue.name):
            if (queue, columns) not in self._known_shares:
                self._known_shares[queue, columns] = self._share_of(queue, columns)
            sides.append(self._known_shares[queue, columns])
        return f"shares of queues: {'; '.join(sides)}"

    def _share_of(self, queue: str, columns: tuple[int, ...]) -> str:
        """`q0 holds cpu 4 and deserves 8, memory ...`, if a plugin computed the deserved share."""
        view = self._session.view
        if self._held is None:
            self._held = view.by_queue(view.job_allocated)
        deserved = self._session.report.queue(queue).amounts.get("deserved")
        parts = []
        for column in columns:
            name = column_name(view.dimensions, column)
            share = "" if deserved is None else f" and deserves {told(name, deserved[column])}"
            parts.append(f"{name} {told(name, self._held[queue][column])}{share}")
        return f"{queue} holds {', '.join(parts) or 'nothing'}"
