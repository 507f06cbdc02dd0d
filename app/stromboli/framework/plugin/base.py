"""The plugin interface: a class whose methods are the extension points in which it takes part.

Override a method and the session calls it; methods that are not overridden cost nothing. Plugins get read-only views
and return values: a key to sort by, the nodes that pass, a score per node, a vote, or the `Reason` for a rejection. One
instance serves one session.

    class Spot(Plugin):
        name = "spot"

        def predicate(self, pod, nodes):
            yield "not a spot node", nodes.facts.label("spot")[nodes.rows] >= 0
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, ClassVar, TypeAlias

from pydantic import BaseModel, ConfigDict

from stromboli.api.decisions import ClaimUse, VolumeUse
from stromboli.api.reasons import Reason
from stromboli.api.resources import Rows, Vector
from stromboli.framework.cluster.job import Job, Queue, SubJob
from stromboli.framework.cluster.nodes import NodeView
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.causes import Filters
from stromboli.framework.plugin.combination import Combination, Declaration, combines, declarations
from stromboli.framework.plugin.definition import check_methods
from stromboli.framework.plugin.hints import Hints, holds
from stromboli.framework.plugin.operation import Operation
from stromboli.framework.plugin.relations import Relation
from stromboli.framework.plugin.report import Report
from stromboli.state.pods import PodRecord
from stromboli.state.reads import Reads


class Vote(IntEnum):
    """An opinion. A rejection anywhere decides; a permit decides at the end of its tier; else lower tiers are asked."""

    Reject = -1
    Abstain = 0
    Permit = 1


#: a vote, or a rejection with its reason
Verdict: TypeAlias = Vote | Reason
#: sort key, ascending: a number, a tuple of them, or anything that compares with its like
Key: TypeAlias = Any


class Arguments(BaseModel):
    """Base of the models that read a plugin's `arguments`: unknown keys are errors, values keep their type."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, populate_by_name=True, use_attribute_docstrings=True
    )


class Plugin(Hints):
    """Base of all plugins. Methods that are not overridden are never called."""

    #: the name in the policy file
    name: ClassVar[str]
    #: other spellings of it that a policy file may have
    spellings: ClassVar[tuple[str, ...]] = ()
    #: the extension points that it takes part in: found when the class is made
    taking_part: ClassVar[frozenset[str]] = frozenset()
    #: the model of its arguments; None when it takes none
    Arguments: ClassVar[type[BaseModel] | None] = None
    #: points that it takes no part in though it implements them, for this session: set in `open`
    silent: frozenset[str] = frozenset()
    #: pod fields that predicates and scores read beyond their class; see `Reads`
    reads: ClassVar[Reads] = Reads()
    #: whether what it permits outweighs rejections by others in its tier; it may be set in `open`
    insists: bool = False
    #: the fields of a queue's spec that it reads, by their names there; fields without a reader are reported as ignored
    queue_fields: ClassVar[frozenset[str]] = frozenset()
    #: dataclasses that `leave` returns, or that are in it, besides plain data: a journal can keep them
    left_types: ClassVar[tuple[type, ...]] = ()
    #: whether what it says about victims protects them: then it is heard whatever its tier, and decides nothing for
    #: lower ones
    protects: ClassVar[bool] = False
    #: whether a queue may reclaim its whole share by its `preemptive`, and not only what jobs need to run
    fills_shares: ClassVar[bool] = False
    #: whether its `allocatable` limits the number of pods, so that it is asked about those that request nothing, too
    counts_pods: ClassVar[bool] = False
    #: whether shares are given back in the plugin's order of victims even if more pods are evicted
    gives_back_in_order: ClassVar[bool] = False
    #: whether what it says about victims follows from shares: then it has no say in preemption within a queue where
    #: others have an opinion, unless the policy sets its `enablePreemptable`
    by_share: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        """Raises PluginDefinitionError for a public method that is no extension point, or cannot be called as one."""
        super().__init_subclass__(**options)
        check_methods(cls, Plugin)
        cls.taking_part = frozenset(point for point in POINTS if _takes_part(cls, point))

    def __init__(self, arguments: Any = None, *, hierarchy: bool = False) -> None:
        """`arguments` is an instance of `Arguments`; `hierarchy` is the policy's `enableHierarchy`."""
        self.arguments = arguments
        self.hierarchy = hierarchy
        #: state that the session before left under this name; None at first
        self.left: Any = None

    # -- life ----------------------------------------------------------------------------------------------------

    def open(self, view: View) -> None:
        """The session begins: keep the view, prepare the other methods' data."""

    def close(self, report: Report) -> None:
        """The session ends: report gauges of queues and conditions of PodGroups."""

    def leave(self) -> Any:
        """State that the plugin of the next session finds in `left`; it must be comparable by ==."""
        return self.left

    # -- orders: keys of all plugins are concatenated, smaller comes first ---------------------------------------

    @combines(Combination.Concatenated, switch="queue_order")
    def queue_order(self, queue: Queue) -> Key:
        """The place of a queue."""
        raise NotImplementedError

    @combines(Combination.Concatenated, switch="job_order")
    def job_order(self, job: Job) -> Key:
        """The place of a job within its queue."""
        raise NotImplementedError

    @combines(Combination.Concatenated, switch="sub_job_order")
    def sub_job_order(self, sub_job: SubJob) -> Key:
        """The place of a sub group within its job."""
        raise NotImplementedError

    @combines(Combination.Concatenated, switch="task_order")
    def task_order(self, pod: PodRecord) -> Key:
        """The place of a pod within its job."""
        raise NotImplementedError

    # -- admission and readiness ---------------------------------------------------------------------------------

    @combines(Combination.FirstReason)
    def job_valid(self, job: Job) -> Reason | None:
        """Why a job cannot be scheduled at all. The first reason counts; switches do not turn this point off."""
        raise NotImplementedError

    @combines(Combination.Vote, switch="job_enqueued")
    def job_enqueueable(self, job: Job) -> Verdict:
        """Whether a pending job may start to compete."""
        raise NotImplementedError

    @combines(Combination.Told, switch="job_enqueued")
    def job_enqueued(self, job: Job) -> None:
        """A job was admitted."""
        raise NotImplementedError

    @combines(Combination.Largest, switch="job_ready")
    def job_missing(self, job: Job) -> int:
        """Number of further pods of a job that must get a place, at least, before it is ready to be committed.

        0 or less is ready; the largest answer of all plugins counts.
        """
        raise NotImplementedError

    @combines(Combination.Vote, switch="job_pipelined")
    def job_pipelined(self, job: Job) -> Verdict:
        """Whether a job may keep places that become free later."""
        raise NotImplementedError

    @combines(Combination.FirstTierAgrees, switch="job_starving")
    def job_starving(self, job: Job) -> bool:
        """Whether a job may evict others. The first tier with an opinion decides, all its plugins must agree."""
        raise NotImplementedError

    @combines(Combination.Largest, switch="sub_job_ready")
    def sub_job_missing(self, sub_job: SubJob) -> int:
        """Number of further pods that a sub group must get, at least; asked of jobs that have sub group policies."""
        raise NotImplementedError

    @combines(Combination.Vote, switch="sub_job_pipelined")
    def sub_job_pipelined(self, sub_job: SubJob) -> Verdict:
        """Whether a group may keep places that become free later."""
        raise NotImplementedError

    @combines(Combination.LowestLimit)
    def ceiling(self, view: View, queue: Queue) -> Vector | None:
        """The most that a queue may ever hold, shape (dimensions,); None when nothing limits it.

        Asked before `open`: a job that needs more than that is set aside before plugins count it.
        """
        raise NotImplementedError

    @combines(Combination.EachByKey)
    def job_ceilings(self, view: View) -> Mapping[str, tuple[Vector, str]]:
        """The most that single jobs may ever hold, by key, where that is less than what their queue may hold.

        Each comes with words for jobs that start with more, such as `is never evicted, and starts with more than the
        quota`. Asked before `open`, like `ceiling`.
        """
        raise NotImplementedError

    # -- shares --------------------------------------------------------------------------------------------------

    @combines(Combination.FirstReason, switch="overused")
    def overused(self, queue: Queue) -> Reason | None:
        """Why a queue gets nothing more."""
        raise NotImplementedError

    @combines(Combination.Smallest, switch="allocatable")
    def allocatable(self, queue: Queue, pod: PodRecord, count: int) -> tuple[int, Reason | None]:
        """Number of pods like this one, `count` at most, that a queue may take, and why not all."""
        raise NotImplementedError

    @combines(Combination.Smallest, switch="allocatable")
    def startable(self, queue: Queue, pod: PodRecord, count: int) -> tuple[int, Reason | None]:
        """Number of pods that can start now, of `count` identical ones that a queue may take, and why not all.

        Asked before pods are bound while others terminate; pods that may not start yet are nominated. Terminating pods
        count until they are gone, so a queue may have less free capacity now than later.
        """
        raise NotImplementedError

    @combines(Combination.FirstReason, switch="allocatable")
    def lendable(self, queue: Queue, pods: Sequence[PodRecord]) -> Reason | None:
        """Why a queue may not borrow capacity that no share reaches for some pods, all of them together.

        A plugin that answers is not asked `allocatable` about these pods; one
        that leaves this alone still is.
        """
        raise NotImplementedError

    # -- victims: running pods that may be evicted -----------------------------------------------------------------

    @combines(Combination.Victims, switch="preemptable")
    def preemptable(self, pod: PodRecord, candidates: Sequence[PodRecord]) -> Sequence[PodRecord] | None:
        """The candidates that a pod of their own queue may evict to get a place; None for no opinion.

        Candidates come in the order in which they would be evicted. Apart from plugins that only protect pods
        (`protects`), the first tier with an opinion decides.
        """
        raise NotImplementedError

    @combines(Combination.Victims, switch="reclaimable")
    def reclaimable(self, pod: PodRecord, candidates: Sequence[PodRecord]) -> Sequence[PodRecord] | None:
        """The candidates that a pod of another queue may evict; None for no opinion."""
        raise NotImplementedError

    @combines(Combination.Victims)
    def gang_preemptable(self, job: Job, candidates: Sequence[PodRecord]) -> Sequence[PodRecord] | None:
        """The candidates that a job of their own queue may evict to get all its places at once.

        Asked under Volcano's rules only; where vetoes are final, `preemptable` is asked for the job's first pod.
        """
        raise NotImplementedError

    @combines(Combination.Victims)
    def gang_reclaimable(self, job: Job, candidates: Sequence[PodRecord]) -> Sequence[PodRecord] | None:
        """The pods that a job of another queue may take; where vetoes are final, `reclaimable` is asked."""
        raise NotImplementedError

    @combines(Combination.FirstReason, switch="preemptive")
    def preemptive(self, queue: Queue, pods: Sequence[PodRecord]) -> Reason | None:
        """Why a queue may not take back what others hold for some of its pods, all of them together."""
        raise NotImplementedError

    @combines(Combination.Concatenated)
    def victim_queue_order(self, queue: Queue, reclaimer: Queue) -> Key:
        """The place of a queue among those that a reclaimer takes from, smaller first; else it is the last served."""
        raise NotImplementedError

    @combines(Combination.Intersection)
    def evictable(self, candidates: Sequence[PodRecord]) -> Sequence[PodRecord] | None:
        """The candidates that may be evicted for the good of the cluster; None for no opinion."""
        raise NotImplementedError

    @combines(Combination.FirstTierUnion, switch="victim")
    def victim_tasks(self, running: Sequence[PodRecord]) -> Sequence[PodRecord]:
        """The running pods that should be evicted for the good of the cluster."""
        raise NotImplementedError

    # -- nodes ---------------------------------------------------------------------------------------------------

    @combines(Combination.AllPass, switch="predicate", of_class=True)
    def predicate(self, pod: PodRecord, nodes: NodeView) -> Filters:
        """Pairs of a cause and the mask of nodes, shape (nodes,), that do not have it."""
        raise NotImplementedError

    @combines(Combination.Joined, switch="predicate")
    def relations(self, pods: Sequence[PodRecord]) -> Sequence[Relation]:
        """Relations between placements of some pods of a gang, if `predicate` follows from them.

        Each pod stands for all identical ones. Asked when a gang found no places in the order of its pods, to search
        for places or to prove that there are none. A plugin that varies and does not override this is asked about each
        placement that was found; for pods that vary by it nothing is proven.
        """
        raise NotImplementedError

    @combines(Combination.Sum, switch="node_order", of_class=True)
    def node_order(self, pod: PodRecord, nodes: NodeView) -> Vector | None:
        """A score per node, shape (nodes,), that depends on that node alone; None when all are equal."""
        raise NotImplementedError

    @combines(Combination.Sum, switch="node_order", of_class=True)
    def batch_node_order(self, pod: PodRecord, nodes: NodeView) -> Vector | None:
        """A score per node that depends on which nodes there are to choose from; None when all are equal."""
        raise NotImplementedError

    # -- HyperNodes: given and returned as indices into `View.topology` ---------------------------------------

    @combines(Combination.FirstPlugin, switch="hyper_node_gradient")
    def hyper_node_gradient(self, of: Job | SubJob, root: int, evicting: bool) -> list[Rows]:
        """HyperNodes at or below `root` to place a job or group in, the gradient to try first in front.

        `evicting` is set when pods may be evicted for it. The first plugin that takes part decides. `root` only limits
        which are offered.
        """
        raise NotImplementedError

    @combines(Combination.Sum, switch="hyper_node_order")
    def hyper_node_order(self, sub_job: SubJob, hyper_nodes: Rows) -> Vector:
        """A score for each of some HyperNodes, for all pods of a group together.

        For an unplaced group, scores must not depend on the other candidates.
        """
        raise NotImplementedError

    @combines(Combination.FirstReason)
    def refusal(self, pod: PodRecord, node: int) -> Reason | None:
        """Why a pod does not get the node that was chosen for it; it is then passed over."""
        raise NotImplementedError

    @combines(Combination.FirstReason, switch="allocatable")
    def starts_later(self, pod: PodRecord, node: int) -> Reason | None:
        """Why a pod that `startable` lets start may not start yet on the node that was chosen for it.

        Asked as that is; the pod is nominated for the node.
        """
        raise NotImplementedError

    @combines(Combination.LastByKey)
    def bind_annotations(self, pod: PodRecord, node: int) -> Mapping[str, str]:
        """Annotations that go on a pod with its binding to a node."""
        raise NotImplementedError

    @combines(Combination.Joined)
    def bind_claims(self, pod: PodRecord, node: int) -> Sequence[ClaimUse]:
        """Resource claims that are reserved for a pod before it is bound. Asked only for pods that name claims."""
        raise NotImplementedError

    @combines(Combination.Joined)
    def bind_volumes(self, pod: PodRecord, node: int) -> Sequence[VolumeUse]:
        """PersistentVolumeClaims that are bound before a pod is. Asked only for pods that mount claims."""
        raise NotImplementedError

    # -- accounts ------------------------------------------------------------------------------------------------

    @combines(Combination.Told)
    def on_allocate(self, operation: Operation) -> None:
        """Pods got a place (or a promise of one)."""
        raise NotImplementedError

    @combines(Combination.Told)
    def on_deallocate(self, operation: Operation) -> None:
        """Pods lost it again."""
        raise NotImplementedError


#: declarations of the extension points, in the order of `Plugin`; its hints are the last
DECLARED: Mapping[str, Declaration] = dict(declarations(Plugin))
#: those of them that are hints
HINTS = frozenset(name for name, _ in declarations(Hints))
#: the extension points
POINTS = tuple(DECLARED)


def _takes_part(plugin: type[Plugin], point: str) -> bool:
    """Whether a plugin overrides an extension point; a hint has to describe methods that the plugin still has."""
    overridden = getattr(plugin, point) is not getattr(Plugin, point)
    return overridden and holds(plugin, point, *DECLARED[point].about)


def extension_points(plugin: type[Plugin]) -> list[str]:
    """The extension points that a plugin takes part in, in the order of `Plugin`; its hints are the last."""
    return [name for name in POINTS if name in plugin.taking_part]
