"""Hints: declarations of a plugin about its own answers, so that a session keeps them instead of asking again.

Hints are for speed and change no decision. Some restrict: answers are kept for all pods of a class, and a plugin whose
answers depend on more has to say so (`identity`, `varies`, `varies_on_node`, `one_by_one`, `neighbourhoods`). The
others permit, and a plugin that does not override them is asked more often.

A hint that permits describes methods of the class that defines it. A subclass that overrides one of those methods loses
the hint unless it defines it, too; any other subclass keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import ClassVar

from stromboli.api.resources import Mask, Matrix, Rows, Vector
from stromboli.framework.cluster.job import SubJob
from stromboli.framework.plugin.combination import Combination, combines
from stromboli.state.pods import PodRecord


class Hints:
    """The hints that a plugin may give. Methods left alone are never called."""

    #: whether what it says about a victim follows from the victim, and from the queue and the priorities of the pod
    #: that wants its place and of its job: then it is not asked again in a session
    steady: ClassVar[bool] = False
    #: whether its `preemptable` has an opinion whatever the candidates: then plugins of lower tiers that do not protect
    #: pods have no say in preemption
    always_decides: ClassVar[bool] = False

    # -- warnings: dependencies of answers beyond the pod's class and its node's amounts ---------------------------

    @combines(Combination.Alike)
    def identity(self, pod: PodRecord) -> Hashable:
        """Anything besides its class that a pod's predicates and scores depend on, such as its queue.

        Pods with different answers share nothing, and predicates and scores are shown the pod itself: what they read
        of it has to follow from its class and this answer.
        """
        raise NotImplementedError

    @combines(Combination.AnyPlugin)
    def varies(self, pod: PodRecord) -> bool:
        """Whether predicates or scores of this pod depend on where other pods are placed, beyond amounts.

        Such pods are placed one at a time, with all nodes asked anew for each.
        """
        raise NotImplementedError

    @combines(Combination.AnyPlugin)
    def varies_on_node(self, pod: PodRecord) -> bool:
        """Whether they do, but the answer for a node only depends on pods that are, or were, placed there.

        Such pods are placed one at a time, too, but only nodes where something changed are asked about again.
        `batch_node_order` may depend on more, since it is asked each time. Pods of a class share answers if they agree
        in `identity`, labels, namespace and job; see `by_class`.
        """
        raise NotImplementedError

    @combines(Combination.AnyPlugin, switch="node_order", of_class=True)
    def one_by_one(self, pod: PodRecord) -> bool:
        """Whether a placement changes its node's score beyond what the node's amounts say; other nodes keep theirs.

        Such pods are placed one at a time.
        """
        raise NotImplementedError

    @combines(Combination.Each, switch="node_order", of_class=True)
    def neighbourhoods(self, pod: PodRecord) -> Rows | None:
        """The number of each node's neighbourhood, shape (nodes,); None when placements change no score.

        For scores of `batch_node_order` that favour the neighbours of the pod just placed: each placement raises them
        in its neighbourhood relative to all others, alike for all nodes in it.
        """
        raise NotImplementedError

    # -- permissions: questions that need not be asked -------------------------------------------------------------

    @combines(Combination.AllPlugins, switch="node_order", of_class=True, about=("node_order",))
    def by_amounts(self, pod: PodRecord) -> bool:
        """Whether `node_order` says the same of all nodes that have the same amounts, whatever else tells them apart.

        What is known of one node is then said of others, while no pod was evicted or promised a place. Asked once for
        a class.
        """
        raise NotImplementedError

    @combines(Combination.AllPlugins, about=("varies_on_node",))
    def by_class(self, pod: PodRecord) -> bool:
        """Whether the answer about nodes for this pod follows from its class, its `identity` and the pods on the node,
        and not from its labels, namespace or job as well.

        Pods of a class that vary on nodes then share what is known of nodes, whatever their job.
        """
        raise NotImplementedError

    @combines(Combination.Columns, switch="job_order", about=("job_order",))
    def job_orders(self) -> Vector | Rows | None:
        """Answers of `job_order` for all jobs as things stand, by index, shape (jobs,), if these are numbers.

        Spares asking about each of thousands that wait, most of which have no turn in the session; None when they are
        to be asked about.
        """
        raise NotImplementedError

    @combines(Combination.SumOfAll, switch="hyper_node_order", about=("hyper_node_order",))
    def hyper_node_order_with(self, sub_job: SubJob, hyper_nodes: Rows, requested: Matrix) -> Vector | None:
        """Answers that `hyper_node_order` would give for each HyperNode if it were the only one and pods had been
        placed there.

        `requested` is what these pods request, shape (dimensions, HyperNodes). None if that cannot be computed; if a
        plugin scores HyperNodes and does not override this, jobs with sub groups are tried in all of them.
        """
        raise NotImplementedError

    @combines(Combination.VictimsAtMost, about=("preemptable",))
    def preemptable_jobs(self, pod: PodRecord, smallest: Callable[[], Matrix]) -> Mask | None:
        """The jobs, by index, shape (jobs,), of whose pods `preemptable` returns any for a pod in the current state.

        Of each resource every placed pod of a job requests at least `smallest`, shape (jobs, dimensions). Evictions for
        the pod's job add no jobs. Pods of other jobs need not be asked about; None if all may be candidates.
        """
        raise NotImplementedError

    @combines(Combination.VictimsAtMost, about=("reclaimable",))
    def reclaimable_queues(self, pod: PodRecord, least: Matrix, smallest: Matrix, largest: Matrix) -> Mask | None:
        """The queues, by index, shape (queues,), of whose pods `reclaimable` returns any for a pod.

        `least` is what every pod of a queue requests at least; `smallest` and `largest` are the smallest and largest
        requests of its pods that request the resource at all, infinite and 0 if none does; each has shape (queues,
        dimensions). Pods of other queues need not be asked about; None if all may be candidates.
        """
        raise NotImplementedError

    @combines(Combination.VictimsAtMost, about=("preemptable", "reclaimable"))
    def evictable_pods(self, rows: Rows) -> Mask | None:
        """Mask of the pods in `rows` that may be evicted in the current state, for any beneficiary, shape (rows,).

        Asked if a plugin `protects`: its `preemptable` and `reclaimable` return no others. Evictions add none. The
        others need not be asked about; None if all may be candidates.
        """
        raise NotImplementedError


#: the hints that are no methods
FLAGS = ("steady", "always_decides")


def holds(plugin: type, hint: str, *about: str) -> bool:
    """Whether a hint of a class describes the methods `about` as they are: none was overridden below the hint."""
    given = _owner(plugin, hint)
    return all(given <= _owner(plugin, method) or _has_no(method, plugin.__mro__[given]) for method in about)


def _owner(plugin: type, name: str) -> int:
    """The place of the class that defines something, among a class and its bases; 0 is the class itself."""
    return next(place for place, owner in enumerate(plugin.__mro__) if name in vars(owner))


def _has_no(method: str, plugin: type) -> bool:
    """Whether a class leaves an extension point alone; a hint of it is for subclasses that do not."""
    return hasattr(getattr(plugin, method), "declaration")
