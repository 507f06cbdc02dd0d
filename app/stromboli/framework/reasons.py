"""The reasons that the framework itself finds. Plugins make theirs; docs/reasons.md lists all of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from stromboli.api.crds import PodGroupCondition
from stromboli.api.decisions import FOREIGN_POD_GROUP
from stromboli.api.keys import NATIVE_GROUP, namespace_of, outer_name
from stromboli.api.reasons import Actionable, Passage, Reason, Stage
from stromboli.api.resources import UNKNOWN
from stromboli.api.validation import nearest
from stromboli.api.words import counted
from stromboli.framework.cluster.job import Job, Queue
from stromboli.policy.rules import Rules
from stromboli.state.pods import PodRecord

#: where objects lie in memory, which differs from process to process: what is decided must not
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")
#: the most characters shown of an error message
_LONGEST = 400
#: the gates that Kueue sets
_OF_KUEUE = "kueue.x-k8s.io/"


def queue_not_open(queue: Queue) -> Reason:
    """A queue that takes nothing new, or nothing yet."""
    if not queue.state:
        return Reason(Stage.Admission, "QueueIsNew", f"queue {queue.name} is not open yet", Actionable.Wait)
    message = f"queue {queue.name} takes no new work: {not_open(queue)}"
    return Reason(Stage.Admission, "QueueNotOpen", message, Actionable.Admin)


def not_open(queue: Queue) -> str:
    """Reason why a queue takes no new work, in words."""
    if queue.state == "Open" and queue.closed_by is not None:
        return f"queue {queue.closed_by.name}, above it, is {queue.closed_by.state}"
    return f"its state is {queue.state or 'not set'}"


def namespace_not_allowed(job: Job) -> Reason:
    """A job whose namespace may not use its queue. Which namespaces may is not for everyone to read."""
    queue, tenants = job.queue.name, job.queue.tenants
    above = f", as queue {tenants.queue} above it says" if tenants is not None and tenants.queue != queue else ""
    message = f"queue {queue} takes no jobs of namespace {job.namespace}{above}"
    return Reason(Stage.Admission, "NamespaceNotAllowed", message, Actionable.User)


def gated(pod: PodRecord) -> Reason:
    """A pod that scheduling gates hold back."""
    names = [gate.name for gate in pod.pod_class.spec.scheduling_gates or ()]
    listed = ", ".join(names)
    words = f"scheduling gates hold the pod back: {listed}"
    # One look at the text, as a pod may have hundreds of gates.
    kueue = f", {_OF_KUEUE}" in f", {listed}"
    detail = (
        f"Kueue lifts its gates when it admits the workload: kubectl get workloads -n {pod.namespace}" if kueue else ""
    )
    return Reason(Stage.Admission, "SchedulingGated", words, Actionable.User, detail)


def same_role_failed(pod: PodRecord) -> Reason:
    """A pod that was not tried because another of its role found no node."""
    return Reason(Stage.Placement, "SameRoleFailed", f"another pod of role {pod.role} found no node", Actionable.Wait)


def evictions_paused(job: str, queue: str, times: int) -> Reason:
    """A job that got places back and lost them again to the same queue, too often."""
    words = f"{job} was evicted for queue {queue} {counted(times, 'time')} and got its places back"
    return Reason(Stage.Preemption, "EvictionsPaused", f"{words}: evictions are paused", Actionable.Admin)


def behind(queue: Queue) -> Reason:
    """A job of a queue that serves in strict order, and one before it waits."""
    words = f"queue {queue.name} serves its jobs strictly in order, and a PodGroup before this one waits"
    return Reason(Stage.QueueShare, "BehindInQueue", words, Actionable.Wait)


def with_refusals(reason: Reason, namespace: str, refused: Sequence[tuple[str, str, str]]) -> Reason:
    """The reason of a job of `namespace` whose victims stayed; `refused` has their jobs' keys and titles, and the API's
    answers."""
    return reason.saying(
        namespace,
        (
            Passage(
                (namespace_of(key),),
                f"pods of {job} were not evicted for it: {why.rstrip('.')}",
                "pods of another namespace were not evicted for it",
            )
            for key, job, why in refused
        ),
    )


def with_words(reason: Reason, words: str) -> Reason:
    """A reason with more words in its detail, unless it has them."""
    if words in reason.message or words in reason.detail:
        return reason
    return replace(reason, detail=f"{reason.detail}; {words}" if reason.detail else words)


def with_failure(reason: Reason, failed: Reason) -> Reason:
    """The reason of a job for which a plugin failed as well."""
    told = with_words(reason, failed.message)
    return told if told is reason else replace(told, passages=(*told.passages, *failed.passages))


def plugin_failed(plugin: str, error: BaseException) -> Reason:
    """A job or pod that is held because a plugin failed when it was asked about it.

    The error may name objects of any namespace, so only readers of everything get to see it.
    """
    reason = of_failure(f"plugin {plugin} failed: {type(error).__name__}")
    return replace(reason, passages=(Passage(("",), error_told(error), ""),))


def error_told(error: BaseException) -> str:
    """The class of an error and what it says, in one line of a bounded length."""
    try:
        text = _ADDRESS.sub("0x...", " ".join(str(error).split()))
    except Exception:
        text = "it does not say what is wrong"
    return f"{type(error).__name__}: {text if len(text) <= _LONGEST else f'{text[:_LONGEST]}...'}"


def of_failure(words: str) -> Reason:
    """The reason that a plugin failed, from the words that name it and its error."""
    return Reason(Stage.Admission, "PluginFailed", str(words), Actionable.Admin)


def not_admitted(job: Job) -> Reason:
    """A job that has not been asked for yet."""
    return Reason(Stage.Admission, "NotAdmitted", f"{job.title} is not admitted yet", Actionable.Wait)


def gang_blocked(job: Job, other: Reason | None = None) -> Reason:
    """A pod that has to wait for the rest of its gang; `other` says what one of those pods waits for."""
    held = f"{job.ready_count} of {job.min_available} hold one"
    pods = counted(job.min_available, "pod")
    others = other.passages if other else ()
    other = replace(other, passages=()) if other and others else other
    return Reason(
        Stage.Gang,
        "GangNotReady",
        f"{job.title} starts with {pods} together, and not all of them find a place",
        other.actionable if other else Actionable.Wait,
        f"{held}; {other.reason}: {other.numbered}" if other else held,
        passages=others,
    )


def unschedulable(rules: Rules, why: Reason) -> PodGroupCondition:
    """The condition of a PodGroup that cannot run. Volcano has a single reason for every cause."""
    word = why.reason if rules.conditions else "NotEnoughResources"
    # Built for thousands of reasons to compare them with the shown ones, and known to be valid.
    return PodGroupCondition.model_construct(type="Unschedulable", status="True", reason=word, message=why.told)


def not_tried(job: Job) -> Reason:
    """A pod beyond those that its gang starts with, for which no node was looked for."""
    start = "pod" if job.min_available == 1 else counted(job.min_available, "pod")
    return Reason(
        Stage.Placement,
        "NotTried",
        f"{job.title} has the {start} that it starts with, and this one's turn has not come",
        Actionable.Wait,
        f"{job.ready_count} hold a place",
    )


def _turn_pending(first: str) -> Reason:
    words = f"the session's budget ended before the PodGroup's turn, which comes {first}"
    return Reason(Stage.QueueShare, "TurnPending", words, Actionable.Wait)


#: of jobs that the budget of a session did not reach, and of those that had a turn in an earlier one; thousands share
#: them
TURN_PENDING = _turn_pending("in the next sessions")
TURN_PENDING_AGAIN = _turn_pending("when all others of its queue had theirs")


#: of jobs whose turn was cut, and that need a longer one
TURN_TOO_LONG = Reason(
    Stage.QueueShare,
    "TurnTooLong",
    "placing the PodGroup takes more steps than a turn allows: it gets longer turns less often",
    Actionable.Admin,
    "`session.steps` of the policy says how many steps a turn may take",
)


def with_last_turn(reason: Reason, job: Job) -> Reason:
    """The reason of a job, with the one that its PodGroup shows from its last turn if another turn is pending."""
    if reason is not TURN_PENDING_AGAIN:
        return reason
    said = next((c.message for c in job.pod_group.status.conditions if c.type == "Unschedulable"), "")
    return replace(reason, detail=f"before: {said}") if said else reason


def no_action(action: str) -> Reason:
    """A pod of a kind that the policy places nowhere."""
    message = f"the policy has no action {action}, which would place the pod"
    return Reason(Stage.Placement, "NoAction", message, Actionable.Admin)


def waits_for_release(node: str) -> Reason:
    """A pod that gets its place when terminating pods have gone."""
    return Reason(
        Stage.Placement,
        "WaitingForRelease",
        f"gets its place on {node} once terminating pods, or pods evicted for it, are gone",
        Actionable.Wait,
    )


def no_nodes() -> Reason:
    """A cluster, or a shard, without nodes."""
    return Reason(
        Stage.Placement, "NoNodes", "there are no nodes to choose from", Actionable.Admin, "0 nodes", scalable=True
    )


def moved(node: str, beneficiary: Job | None, namespace: str) -> Reason:
    """A pod of `namespace` that was evicted while another place is kept for its replacement."""
    who = beneficiary.called if beneficiary is not None and beneficiary.namespace == namespace else FOREIGN_POD_GROUP
    message = f"moved so that {who} fits; its replacement gets a place on {node}"
    return Reason(Stage.Placement, "Moved", message, Actionable.Wait)


def no_pod_group(pod: PodRecord) -> Reason:
    """A pod whose PodGroup, or whose PodGroup's queue, does not exist."""
    if not pod.job:
        return Reason(Stage.Admission, "NoPodGroup", "the pod belongs to no PodGroup", Actionable.User)
    native = outer_name(pod.job)
    name = pod.job if native is None else f"{native} of {NATIVE_GROUP}"
    return Reason(Stage.Admission, "PodGroupNotFound", f"there is no PodGroup {name}", Actionable.User)


def queue_not_found(queue: str, known: Iterable[str]) -> Reason:
    """A PodGroup whose queue does not exist; with the one of those that do whose name is much like it."""
    near = nearest(queue, tuple(known))
    detail = f"did you mean {near}?" if near else ""
    return Reason(Stage.Admission, "QueueNotFound", f"there is no queue {queue}", Actionable.User, detail)


def column_name(dimensions: Sequence[str], column: int) -> str:
    """The resource of a column, in words; resources that no node has share a column and cannot be told apart."""
    return "resources that no node offers" if dimensions[column] == UNKNOWN else dimensions[column]


def insufficient(dimensions: Sequence[str], pod: PodRecord, columns: Sequence[int]) -> str:
    """The cause that rules out nodes on which a pod lacks capacity in some columns: `Insufficient cpu and memory`."""
    names = [resource_name(dimensions, pod, column) for column in columns]
    return f"Insufficient {' and '.join(names)}" if names else "node(s) could not be chosen"


def resource_name(dimensions: Sequence[str], pod: PodRecord, column: int) -> str:
    """The resource of a column; for the one of resources that no node offers, which of these the pod asks for."""
    if dimensions[column] != UNKNOWN:
        return dimensions[column]
    first, *others = sorted(pod.pod_class.request.keys() - set(dimensions))
    return f"{first} and {counted(len(others), 'other')}" if others else first
