"""What a plugin is: a class whose methods are the extension points that it takes part in.

Override a method and the session calls it; leave it alone and it costs nothing. Plugins get read-only views and return
values: a key to sort by, the nodes that pass, a score per node, a vote, or the `Reason` for a no. One instance serves
one session.

    class Spot(Plugin):
        name = "spot"

        def predicate(self, pod, nodes):
            yield "not a spot node", nodes.facts.label("spot")[nodes.rows] >= 0
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, ClassVar, TypeAlias

from pydantic import BaseModel, ConfigDict

from stromboli.api.decisions import ClaimUse, VolumeUse
from stromboli.api.reasons import Reason
from stromboli.api.resources import Mask, Matrix, Rows, Vector
from stromboli.framework.definition import check_methods, public_methods
from stromboli.framework.job import Job, Queue, SubJob
from stromboli.framework.nodes import NodeView
from stromboli.framework.operation import Operation
from stromboli.framework.report import Report
from stromboli.framework.view import View
from stromboli.state.pods import PodRecord
from stromboli.state.reads import Reads


class Vote(IntEnum):
    """An opinion. A rejection anywhere decides; a permit decides at the end of its tier; else lower tiers are asked."""

    Reject = -1
    Abstain = 0
    Permit = 1


#: a vote, or a rejection with its reason
Verdict: TypeAlias = Vote | Reason
#: what to sort by, ascending: a number, a tuple of them, or anything that compares with its like
Key: TypeAlias = Any


class Passing(str):
    """A cause that goes away when pods go, such as a host port in use: evicting somebody may help."""

    __slots__ = ()


class Anywhere(str):
    """A cause in what the pod names, such as a claim that does not exist: a new node would be ruled out as well."""

    __slots__ = ()


class Failed(str):
    """A cause that is none: the plugin could not say, so no node passes."""

    __slots__ = ()


#: nodes that pass, by the cause that excludes the others
Filters: TypeAlias = Iterable[tuple[str, Mask]]


class Arguments(BaseModel):
    """Base of the models that read a plugin's `arguments`: unknown keys are errors, values keep their type."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, populate_by_name=True, use_attribute_docstrings=True
    )


class Plugin:
    """Base of all plugins; see the module's docstring. Methods that are not overridden are never called."""

    #: the name in the policy file
    name: ClassVar[str]
    #: other spellings of it that a policy file may have
    spellings: ClassVar[tuple[str, ...]] = ()
    #: the model of its arguments; None when it takes none
    Arguments: ClassVar[type[BaseModel] | None] = None
    #: points that it takes no part in though it implements them, for this session: set in `open`
    silent: frozenset[str] = frozenset()
    #: what predicates and scores read of pods beyond their class; see `Reads`
    reads: ClassVar[Reads] = Reads()
    #: the fields of a queue's spec, as they are written, that it heeds; what no plugin heeds is told to be ignored
    queue_fields: ClassVar[frozenset[str]] = frozenset()
    #: dataclasses that `leave` returns, or that are in it, beside plain data: a journal can keep them
    left_types: ClassVar[tuple[type, ...]] = ()
    #: whether what it says about victims protects them: then it is heard whatever its tier, and decides nothing for
    #: lower ones
    protects: ClassVar[bool] = False
    #: whether what it says about a victim never follows from candidates that come after it; then it may be asked about
    #: the first of them only
    in_turn: ClassVar[bool] = False
    #: whether what it says about a victim follows from the victim, and from the queue and the priorities of the pod
    #: that wants its place and of its job: then it is not asked again in a session
    steady: ClassVar[bool] = False
    #: whether a queue may take back all that it deserves by its `preemptive`, and not only what jobs need to run
    fills_shares: ClassVar[bool] = False
    #: whether those who give shares back go in their order, be it more of them, and not the fewest
    gives_back_in_order: ClassVar[bool] = False
    #: whether what it says about victims follows from shares: then it has no say in preemption within a queue where
    #: others have an opinion, unless the policy sets its `enablePreemptable`
    by_share: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        """Raises PluginDefinitionError for a public method that is no extension point, or cannot be called as one."""
        super().__init_subclass__(**options)
        check_methods(cls, Plugin)

    def __init__(self, arguments: Any = None, *, hierarchy: bool = False) -> None:
        """`arguments` is an instance of `Arguments`; `hierarchy` is the policy's `enableHierarchy`."""
        self.arguments = arguments
        self.hierarchy = hierarchy
        #: what the session before left under this name; None at first
        self.left: Any = None

    # -- life ----------------------------------------------------------------------------------------------------

    def open(self, view: View) -> None:
        """The session begins: keep the view, derive what the other methods need."""

    def close(self, report: Report) -> None:
        """The session ends: report gauges of queues and conditions of PodGroups."""

    def leave(self) -> Any:
        """What the plugin of the next session finds in `left`; anything that compares with its like by ==."""
        return self.left

    # -- orders: keys of all plugins are concatenated, smaller comes first ---------------------------------------

    def queue_order(self, queue: Queue) -> Key:
        """The place of a queue."""
        raise NotImplementedError

    def job_order(self, job: Job) -> Key:
        """The place of a job within its queue."""
        raise NotImplementedError

    def sub_job_order(self, sub_job: SubJob) -> Key:
        """The place of a sub group within its job."""
        raise NotImplementedError

    def task_order(self, pod: PodRecord) -> Key:
        """The place of a pod within its job."""
        raise NotImplementedError

    # -- admission and readiness ---------------------------------------------------------------------------------

    def job_valid(self, job: Job) -> Reason | None:
        """Why a job cannot be scheduled at all. The first reason counts; switches do not turn this point off."""
        raise NotImplementedError

    def job_enqueueable(self, job: Job) -> Verdict:
        """Whether a pending job may start to compete."""
        raise NotImplementedError

    def job_enqueued(self, job: Job) -> None:
        """A job was admitted."""
        raise NotImplementedError

    def job_missing(self, job: Job) -> int:
        """How many more pods of a job must get a place, at least, before it is ready to be committed.

        0 or less is ready; the largest answer of all plugins counts. Switched by `enableJobReady`.
        """
        raise NotImplementedError

    def job_pipelined(self, job: Job) -> Verdict:
        """Whether a job may keep places that become free later."""
        raise NotImplementedError

    def job_starving(self, job: Job) -> bool:
        """Whether a job may evict others. The first tier with an opinion decides, all its plugins must agree."""
        raise NotImplementedError

    def sub_job_missing(self, sub_job: SubJob) -> int:
        """The same for a sub group of a job that has sub group policies. Switched by `enableSubJobReady`."""
        raise NotImplementedError

    def sub_job_pipelined(self, sub_job: SubJob) -> Verdict:
        """Whether a group may keep places that become free later."""
        raise NotImplementedError

    def ceiling(self, view: View, queue: Queue) -> Vector | None:
        """The most that a queue may ever hold, shape (dimensions,); None when nothing limits it.

        Asked before `open`: a job that needs more than that is set aside before anybody counts it.
        """
        raise NotImplementedError

    def job_ceilings(self, view: View) -> Mapping[str, tuple[Vector, str]]:
        """The most that single jobs may ever hold, where that is less than what their queue may, by key.

        Each with words for who starts with more, such as `is never evicted, and starts with more than the quota`.
        Asked before `open`, as `ceiling` is.
        """
        raise NotImplementedError

    # -- shares --------------------------------------------------------------------------------------------------

    def overused(self, queue: Queue) -> Reason | None:
        """Why a queue gets nothing more."""
        raise NotImplementedError

    def allocatable(self, queue: Queue, pod: PodRecord, count: int) -> tuple[int, Reason | None]:
        """How many of `count` pods like this one a queue may take, and why not all. The smallest answer counts."""
        raise NotImplementedError

    def startable(self, queue: Queue, pod: PodRecord, count: int) -> tuple[int, Reason | None]:
        """How many of `count` pods like this one that a queue may take may start now, and why not all.

        Asked before pods are bound: the others are promised places at most. Terminating pods hold their room until they
        are gone, so a queue may have less room now than it will have. The smallest answer counts. Switched by
        `enabledAllocatable`.
        """
        raise NotImplementedError

    def lendable(self, queue: Queue, pods: Sequence[PodRecord]) -> Reason | None:
        """Why a queue may not take some pods, all of them together, beyond its share, though nobody can use the room.

        Asked when no share reaches what is left. Whoever answers is not asked `allocatable` about these pods; a plugin
        that leaves this alone still is. Switched by `enabledAllocatable`.
        """
        raise NotImplementedError

    # -- victims: running pods that may be evicted -----------------------------------------------------------------

    def preemptable(self, pod: PodRecord, candidates: Sequence[PodRecord]) -> Sequence[PodRecord] | None:
        """Those of the candidates that a pod of their own queue may evict to get a place; None for no opinion.

        Candidates come in the order in which they would be evicted. Of the plugins that do not merely protect
        pods (`protects`), those of the first tier with an opinion decide.
        """
        raise NotImplementedError

    def preemptable_jobs(self, pod: PodRecord, smallest: Callable[[], Matrix]) -> Mask | None:
        """The jobs, by index, shape (jobs,), of whose pods `preemptable` names any at all for a pod as things stand.

        Of each resource anybody in a job that holds a node requests as much as `smallest` tells, or more, shape (jobs,
        dimensions). Nobody is added while others go for the pod's job. Spares asking about the pods of the other jobs;
        None when all may be asked about.
        """
        raise NotImplementedError

    def reclaimable(self, pod: PodRecord, candidates: Sequence[PodRecord]) -> Sequence[PodRecord] | None:
        """Those of the candidates that a pod of another queue may evict; None for no opinion."""
        raise NotImplementedError

    def reclaimable_queues(self, pod: PodRecord, least: Matrix, smallest: Matrix, largest: Matrix) -> Mask | None:
        """The queues, by index, shape (queues,), of whose pods `reclaimable` names any at all for a pod.

        The others have what everybody in a queue requests at least, and the smallest and largest requests of those who
        ask for something, shape (queues, dimensions); smallest are infinite and largest 0 where nobody does. Spares
        asking about the pods of the other queues; None when all may be asked about.
        """
        raise NotImplementedError

    def gang_preemptable(self, job: Job, candidates: Sequence[PodRecord]) -> Sequence[PodRecord] | None:
        """Those of the candidates that a job of their own queue may evict to get all its places at once.

        Asked under Volcano's rules only; where vetoes are final, `preemptable` is asked for the job's first pod.
        """
        raise NotImplementedError

    def gang_reclaimable(self, job: Job, candidates: Sequence[PodRecord]) -> Sequence[PodRecord] | None:
        """The same for a job of another queue; where vetoes are final, `reclaimable` is asked."""
        raise NotImplementedError

    def preemptive(self, queue: Queue, pods: Sequence[PodRecord]) -> Reason | None:
        """Why a queue may not take back what others hold for some of its pods, all of them together."""
        raise NotImplementedError

    def victim_queue_order(self, queue: Queue, reclaimer: Queue) -> Key:
        """The place of a queue among those that a reclaimer takes from, smaller first; else it is the last served."""
        raise NotImplementedError

    def evictable_pods(self, rows: Rows) -> Mask | None:
        """Which of the pods in some rows may be evicted as things stand, whoever wants that, shape (rows,).

        Heard where a plugin `protects`: its `preemptable` and `reclaimable` name none of the others. Nobody is added
        while others go. Spares asking about the others; None when all may be asked about.
        """
        raise NotImplementedError

    def evictable(self, candidates: Sequence[PodRecord]) -> Sequence[PodRecord] | None:
        """Those of the candidates that may be evicted for the good of the cluster; None for no opinion."""
        raise NotImplementedError

    def victim_tasks(self, running: Sequence[PodRecord]) -> Sequence[PodRecord]:
        """Those of all running pods that should be evicted for the good of the cluster."""
        raise NotImplementedError

    # -- nodes ---------------------------------------------------------------------------------------------------

    def predicate(self, pod: PodRecord, nodes: NodeView) -> Filters:
        """Pairs of a cause and the mask of nodes, shape (nodes,), that do not have it."""
        raise NotImplementedError

    def node_order(self, pod: PodRecord, nodes: NodeView) -> Vector | None:
        """A score per node, shape (nodes,), that depends on that node alone; None when all are equal."""
        raise NotImplementedError

    def batch_node_order(self, pod: PodRecord, nodes: NodeView) -> Vector | None:
        """A score per node that depends on which nodes there are to choose from; None when all are equal."""
        raise NotImplementedError

    def identity(self, pod: PodRecord) -> Hashable:
        """What else than its class a pod's predicates and scores depend on, such as its queue.

        Pods with different answers share nothing, and predicates and scores are shown the pod itself: what they read
        of it has to follow from its class and this answer.
        """
        raise NotImplementedError

    def varies(self, pod: PodRecord) -> bool:
        """Whether predicates or scores of this pod depend on where other pods are placed, beyond amounts.

        Such pods are placed one at a time, with all nodes asked anew for each.
        """
        raise NotImplementedError

    def varies_on_node(self, pod: PodRecord) -> bool:
        """Whether they do, but what is said of a node only depends on pods that are placed there, or were.

        Such pods are placed one at a time, too, and only nodes where something changed are asked about again.
        `batch_node_order` may depend on more, since it is asked each time. Pods of a class share what was answered when
        they agree in `identity`, labels, namespace and job.
        """
        raise NotImplementedError

    def neighbourhoods(self, pod: PodRecord) -> Rows | None:
        """The number of each node's neighbourhood, shape (nodes,); None when placements change no score.

        For scores of `batch_node_order` that favour the neighbours of what was just placed: each placement raises them
        in its neighbourhood relative to all others, alike for all nodes in it. Switched by `enableNodeOrder`.
        """
        raise NotImplementedError

    # -- HyperNodes: given and returned as indices into `View.topology` ---------------------------------------

    def hyper_node_gradient(self, of: Job | SubJob, root: int, evicting: bool) -> list[Rows]:
        """HyperNodes at or below `root` to place a job or group in, the gradient to try first in front.

        `evicting` is set when victims may make the room. The first plugin that takes part decides. `root` only limits
        which are offered.
        """
        raise NotImplementedError

    def hyper_node_order(self, sub_job: SubJob, hyper_nodes: Rows) -> Vector:
        """A score for each of some HyperNodes, for all pods of a group together.

        Of a group that holds no place it does not depend on which others there are to choose from.
        """
        raise NotImplementedError

    def hyper_node_order_with(self, sub_job: SubJob, hyper_nodes: Rows, requested: Matrix) -> Vector | None:
        """What `hyper_node_order` would say of each if it was the only one and pods had got places there.

        `requested` is what these pods request, shape (dimensions, HyperNodes). None when that cannot be said; when
        somebody scores HyperNodes and leaves this alone, jobs with sub groups are tried in all of them.
        """
        raise NotImplementedError

    def one_by_one(self, pod: PodRecord) -> bool:
        """Whether a placement changes its node's score beyond what the node's amounts say; other nodes keep theirs.

        Such pods are placed one at a time. Switched by `enableNodeOrder`.
        """
        raise NotImplementedError

    def by_amounts(self, pod: PodRecord) -> bool:
        """Whether `node_order` says the same of all nodes that have the same amounts, whatever else tells them apart.

        What is known of one node is then said of others, while nobody was evicted or promised a place. Asked once for
        a class. Switched by `enableNodeOrder`.
        """
        raise NotImplementedError

    def refusal(self, pod: PodRecord, node: int) -> Reason | None:
        """Why a pod does not get the node that was chosen for it; it is then passed over."""
        raise NotImplementedError

    def bind_annotations(self, pod: PodRecord, node: int) -> Mapping[str, str]:
        """Annotations that go on a pod with its binding to a node."""
        raise NotImplementedError

    def bind_claims(self, pod: PodRecord, node: int) -> Sequence[ClaimUse]:
        """Resource claims that are reserved for a pod before it is bound. Asked only for pods that name claims."""
        raise NotImplementedError

    def bind_volumes(self, pod: PodRecord, node: int) -> Sequence[VolumeUse]:
        """PersistentVolumeClaims that are bound before a pod is. Asked only for pods that mount claims."""
        raise NotImplementedError

    # -- accounts ------------------------------------------------------------------------------------------------

    def on_allocate(self, operation: Operation) -> None:
        """Pods got a place (or a promise of one)."""
        raise NotImplementedError

    def on_deallocate(self, operation: Operation) -> None:
        """Pods lost it again."""
        raise NotImplementedError


#: methods that every session calls, whoever takes part in what
_LIFE = frozenset(("open", "close", "leave"))
#: the extension points, in the order of `Plugin`
POINTS = tuple(name for name, _ in public_methods(Plugin) if name not in _LIFE)


def extension_points(plugin: type[Plugin]) -> list[str]:
    """The extension points that a plugin takes part in, in the order of `Plugin`."""
    return [name for name in POINTS if getattr(plugin, name) is not getattr(Plugin, name)]
