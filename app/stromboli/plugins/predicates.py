"""predicates: kube-scheduler's filters; each can be disabled."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial, reduce
from itertools import chain
from typing import ClassVar

import numpy as np
from pydantic import BaseModel, Field

from stromboli.api import objects
from stromboli.api.decisions import ClaimUse, VolumeUse
from stromboli.api.resources import Mask, fits
from stromboli.framework.cluster.nodes import NodeView
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Arguments, Plugin
from stromboli.framework.plugin.causes import Administrative, Detailed, Filters, Occupied
from stromboli.framework.plugin.operation import Kind, Operation
from stromboli.framework.plugin.relations import Narrowing, Relation
from stromboli.kube import node_affinity, taints
from stromboli.kube.csi_nodes import csi_nodes
from stromboli.kube.declared_features import declaring, required_features
from stromboli.kube.dra.claims import DynamicResources
from stromboli.kube.interpod import InterPod
from stromboli.kube.placed import PlacedPods, Scope
from stromboli.kube.ports import Ports, host_ports, ports_told
from stromboli.kube.spread import Spread, has_constraints
from stromboli.kube.storage import storage_of
from stromboli.kube.storage_capacity import StorageCapacity
from stromboli.kube.terms import requires_affinity
from stromboli.kube.volume_index import volume_index
from stromboli.kube.volume_limits import VolumeLimits
from stromboli.kube.volume_restrictions import VolumeRestrictions
from stromboli.kube.volumes import VolumeBinding, zone_filters
from stromboli.policy.arguments import AnyCase
from stromboli.state.classes import PodClass
from stromboli.state.nodes import NodeFacts
from stromboli.state.pods import PodRecord
from stromboli.state.reads import Reads


class UtilizationScore(AnyCase, Arguments):
    """A point of `volumebinding.shape`."""

    utilization: int
    score: int


class PredicatesArguments(Arguments):
    """The filters that are enabled."""

    node_affinity: bool = Field(default=True, alias="predicate.NodeAffinityEnable")
    """Node selectors and required node affinity."""
    node_ports: bool = Field(default=True, alias="predicate.NodePortsEnable")
    """Host ports."""
    taint_toleration: bool = Field(default=True, alias="predicate.TaintTolerationEnable")
    """Taints NoSchedule and NoExecute."""
    pod_affinity: bool = Field(default=True, alias="predicate.PodAffinityEnable")
    """Required inter-pod affinity and anti-affinity."""
    node_volume_limits: bool = Field(default=True, alias="predicate.NodeVolumeLimitsEnable")
    """Limits of attached volumes."""
    volume_zone: bool = Field(default=True, alias="predicate.VolumeZoneEnable")
    """Zones of bound volumes."""
    pod_topology_spread: bool = Field(default=True, alias="predicate.PodTopologySpreadEnable")
    """Topology spread constraints with DoNotSchedule."""
    volume_binding: bool = Field(default=True, alias="predicate.VolumeBindingEnable")
    """Whether volumes can be accessed from a node or provisioned for it."""
    cache: bool = Field(default=False, alias="predicate.CacheEnable")
    """With `predicate_cache: volcano`, pods with the same `volcano.sh/template-uid` share answers, whatever they
    request. Otherwise without effect, since answers are shared among equal pods."""
    dynamic_resource_allocation: bool = Field(default=True, alias="predicate.DynamicResourceAllocationEnable")
    """Accepted for compatibility, without effect in Volcano either."""
    volume_binding_weight: int = Field(default=1, alias="volumebinding.weight")
    """Accepted for compatibility: volumes are a filter here, not a score."""
    volume_binding_timeout: int = Field(default=600, alias="volumebinding.bindTimeoutSeconds")
    """Seconds to wait for a pod's claims to be bound, after which the pod is decided anew."""
    volume_binding_shape: list[UtilizationScore] = Field(default_factory=list, alias="volumebinding.shape")
    """Accepted for compatibility, as the weight."""
    dynamic_resources_timeout: int = Field(default=10, alias="dynamicresources.filterTimeoutSeconds")
    """Accepted for compatibility: sessions do not wait."""


class TemplateAnswers:
    """Answers about nodes by pod template, as Volcano caches them.

    A node is asked about only while the pod fits.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        #: template -> nodes that were asked about, and nodes that passed
        self._known: dict[str, tuple[Mask, Mask]] = {}

    def answer(self, pod: PodRecord, filters: Filters) -> Filters:
        """The filters' answer for nodes that the template was not asked about, and the cached answer for others."""
        template = pod.annotations.get(_TEMPLATE)
        if not template:
            yield from filters
            return
        nodes = self._view.nodes
        own = np.ones(len(nodes), np.bool_)
        for _, mask in filters:
            own &= mask
        asked, passed = self._known.setdefault(template, (np.zeros(len(nodes), np.bool_), own.copy()))
        new = ~asked & fits(self._view.request(pod), nodes.future_idle(), nodes.always)
        asked |= new
        passed[new] = own[new]
        yield "node(s) were refused to a pod of the same template", np.where(asked, passed, own)


_TEMPLATE = "volcano.sh/template-uid"
#: limit on cached answers about distinct terms
_MOST_KNOWN = 256


class Predicates(Plugin):
    name = "predicates"
    #: labels and namespaces matter to terms between pods, which make pods vary
    reads = Reads(annotations=(_TEMPLATE,), whole=True)
    Arguments: ClassVar[type[BaseModel]] = PredicatesArguments

    def open(self, view: View) -> None:
        facts, storage = view.nodes.facts, storage_of(view.snapshot)
        self._storage = storage
        #: answers that depend on nodes alone, by the terms of classes
        self._known: dict[bytes, list[tuple[str, Mask]]] = {}
        self._templates = None if view.rules.predicate_cache or not self.arguments.cache else TemplateAnswers(view)
        self._heeds_readiness = view.rules.ready_nodes
        #: by class
        self._scopes: dict[int, Scope] = {}
        #: the last pod that was asked about, and the state of the log
        self._asked: tuple[PodRecord | None, int, Scope] = (None, 0, Scope.Nowhere)
        self._placed = PlacedPods(view)
        self._inter_pod = InterPod(view, self._placed)
        self._spread = Spread(view, self._placed)
        self._ports = Ports(view, self._placed)
        restricts = view.rules.volume_restrictions
        self._volume_restrictions = VolumeRestrictions(storage, self._placed, len(facts)) if restricts else None
        self._volume_limits = VolumeLimits(view.snapshot, storage, self._placed)
        self._volume_binding = VolumeBinding(
            facts,
            storage,
            volume_index(view.snapshot, storage),
            partial(csi_nodes, view.snapshot),
            StorageCapacity(view.snapshot, storage),
        )
        self._claimed = view.snapshot.claimed
        self._dynamic_resources = DynamicResources(view)

    def predicate(self, pod: PodRecord, nodes: NodeView) -> Filters:
        everywhere = len(nodes) == len(nodes.facts)
        by_node = self._by_node(pod.pod_class, nodes.facts)
        if self._templates is not None:
            by_node = self._templates.answer(pod, by_node)
        asked = [by_node, self._by_placed_pods(pod)]
        if pod.pod_class.claims or pod.pod_class.disks:
            asked.append(self._by_volumes(pod, nodes.facts))
        if self._claimed or pod.pod_class.spec.resource_claims:
            allowed = partial(self._allowed, pod, nodes.facts)
            asked.append(self._dynamic_resources.filters(pod, allowed))
        for filters in asked:
            for cause, mask in filters:
                yield cause, mask if everywhere else mask[nodes.rows]

    def varies(self, pod: PodRecord) -> bool:
        return self._scope(pod) is Scope.Anywhere

    def varies_on_node(self, pod: PodRecord) -> bool:
        return self._scope(pod) is Scope.OnNode

    def by_class(self, pod: PodRecord) -> bool:
        return self._scope(pod) is Scope.Nowhere

    def _scope(self, pod: PodRecord) -> Scope:
        """The pods that a pod's answers depend on."""
        asked, changes, scope = self._asked
        if asked is not pod or changes != self._placed.changes:
            scope = self._scope_now(pod)
            self._asked = pod, self._placed.changes, scope
        return scope

    def _scope_now(self, pod: PodRecord) -> Scope:
        found = self._scopes.get(pod.pod_class.id)
        if found is None:
            found = self._scopes[pod.pod_class.id] = self._scope_of_class(pod)
        if not self.arguments.pod_affinity or not self._inter_pod.keeps_apart:
            return found
        return max(found, self._inter_pod.scope(pod))

    def _scope_of_class(self, pod: PodRecord) -> Scope:
        """The pods that a pod's answers depend on, apart from their anti-affinity."""
        enabled, pod_class = self.arguments, pod.pod_class
        if (
            (enabled.pod_affinity and requires_affinity(pod_class))
            or (enabled.pod_topology_spread and has_constraints(pod_class, "DoNotSchedule"))
            or (enabled.volume_binding and self._volume_binding.waits_for_consumer(pod))
            or pod_class.needs_claims(self._claimed)
        ):
            return Scope.Anywhere
        ports = enabled.node_ports and host_ports(pod_class) is not None
        volumes = enabled.node_volume_limits and self._volume_limits.concerns(pod)
        found = Scope.OnNode if ports or volumes else Scope.Nowhere
        if self._volume_restrictions is not None and (pod_class.claims or pod_class.disks):
            found = max(found, self._volume_restrictions.scope(pod))
        return found

    def relations(self, pods: Sequence[PodRecord]) -> list[Relation]:
        enabled = self.arguments
        found: list[Relation] = []
        if enabled.node_ports:
            found += self._ports.relations(pods)
        if enabled.pod_affinity:
            found += self._inter_pod.relations(pods)
        if enabled.pod_topology_spread:
            found += self._spread.relations(pods)
        if any(pod.pod_class.claims or pod.pod_class.disks for pod in pods):
            if self._volume_restrictions is not None:
                found += self._volume_restrictions.relations(pods)
            if enabled.node_volume_limits:
                found += self._volume_limits.relations(pods)
        found += self._dynamic_resources.relations(pods)
        if enabled.volume_binding:
            waits = np.array([self._volume_binding.waits_for_consumer(pod) for pod in pods], np.bool_)
            if waits.any():
                found.append(Narrowing("volumes that are chosen with the node", waits, (frozenset(),) * len(pods)))
        return found

    def bind_claims(self, pod: PodRecord, node: int) -> list[ClaimUse]:
        return self._dynamic_resources.uses(pod)

    def bind_volumes(self, pod: PodRecord, node: int) -> list[VolumeUse]:
        if not self.arguments.volume_binding:
            return []
        return self._volume_binding.uses(pod, float(self.arguments.volume_binding_timeout))

    def on_allocate(self, operation: Operation) -> None:
        self._placed.add(operation)
        for pod, node in zip(operation.pods, operation.nodes, strict=True) if self._has_claims(operation) else ():
            if operation.kind is Kind.Evict:
                self._dynamic_resources.stay(pod, node)
            else:
                self._volume_binding.assume(pod, node)
                self._dynamic_resources.assume(pod, node)

    def on_deallocate(self, operation: Operation) -> None:
        self._placed.remove(operation)
        for pod, node in zip(operation.pods, operation.nodes, strict=True) if self._has_claims(operation) else ():
            if operation.kind is Kind.Evict:
                self._dynamic_resources.leave(pod, node)
            else:
                self._volume_binding.forget(pod)
                self._dynamic_resources.forget(pod, node)

    def _has_claims(self, operation: Operation) -> bool:
        """Whether the pods claim volumes or devices."""
        pod_class = operation.pods[0].pod_class
        if pod_class.claims or pod_class.spec.resource_claims:
            return True
        return bool(self._claimed) and pod_class.needs_claims(self._claimed)

    def _by_node(self, pod_class: PodClass, facts: NodeFacts) -> Filters:
        """Answers that depend on nodes alone, computed once for all classes with equal terms."""
        found = self._known.get(pod_class.terms)
        if found is None:
            if len(self._known) == _MOST_KNOWN:
                self._known.clear()
            found = self._known[pod_class.terms] = list(self._of_nodes(pod_class.spec, facts))
        features = required_features(pod_class)
        if features:
            return [*found, ("node(s) didn't match Pod's required features", declaring(features, facts))]
        return found

    def _allowed(self, pod: PodRecord, facts: NodeFacts) -> Mask:
        """The nodes that neither they themselves nor placed pods rule out."""
        filters = chain(self._by_node(pod.pod_class, facts), self._by_placed_pods(pod))
        return reduce(np.logical_and, (mask for _, mask in filters), np.ones(len(facts), np.bool_))

    def _of_nodes(self, spec: objects.PodSpec, facts: NodeFacts) -> Filters:
        enabled = self.arguments
        tolerations = spec.tolerations or ()
        if facts.unschedulable.any() and not taints.tolerates_unschedulable(tolerations):
            yield Administrative("node(s) were unschedulable"), ~facts.unschedulable
        if enabled.node_affinity:
            mask = node_affinity.required_nodes(spec, facts)
            if mask is not None:
                words = "node(s) didn't match Pod's node affinity/selector"
                yield (
                    words if mask.any() else Detailed(words, cache(partial(node_affinity.unmatched, spec, facts))),
                    mask,
                )
        if enabled.taint_toleration:
            for taint, failing in taints.untolerated(tolerations, facts):
                if taint is None:
                    yield "node(s) had untolerated taints", ~failing
                else:
                    cause = f"node(s) had untolerated taint {{{taint.key}: {taint.value or ''}}}"
                    yield Administrative(cause) if taints.says_state(taint.key) else cause, ~failing
        if self._heeds_readiness:
            not_ready = taints.not_ready(tolerations, facts)
            if not_ready is not None:
                yield Administrative("node(s) were not ready"), ~not_ready

    def _by_placed_pods(self, pod: PodRecord) -> Filters:
        enabled = self.arguments
        ports = host_ports(pod.pod_class) if enabled.node_ports else None
        if ports:
            words = "node(s) didn't have free ports for the requested pod ports"
            yield Occupied(words, partial(ports_told, ports)), self._ports.free(ports)
        if enabled.pod_affinity:
            yield from self._inter_pod.filters(pod)
        if enabled.pod_topology_spread:
            yield from self._spread.filters(pod)

    def _by_volumes(self, pod: PodRecord, facts: NodeFacts) -> Filters:
        enabled = self.arguments
        if self._volume_restrictions is not None:
            yield from self._volume_restrictions.filters(pod)
        if enabled.node_volume_limits:
            yield from self._volume_limits.filters(pod)
        if enabled.volume_zone:
            yield from zone_filters(pod, facts, self._storage)
        if enabled.volume_binding:
            yield from self._volume_binding.filters(pod)
