"""Everything that changes the cluster: the parts that write, and which of them carries out which decision."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from msgspec.structs import replace

from stromboli.api.crds import SCHEDULING, TOPOLOGY, PodGroup, PodGroupPhase
from stromboli.api.decisions import (
    Bind,
    Decision,
    EmitEvent,
    Evict,
    LiftGate,
    Nominate,
    RequestNodes,
    SetPodGroupStatus,
    SetPodUnscheduled,
    SetQueueStatus,
)
from stromboli.live.api_server.client import Credentials, Kube, Object
from stromboli.live.binding.binder import Binder
from stromboli.live.binding.claims import Claims
from stromboli.live.binding.evictor import Evictor
from stromboli.live.binding.gates import Gates
from stromboli.live.binding.recall import Recall
from stromboli.live.binding.volumes import Volumes
from stromboli.live.groups.native_groups import NativeGroups
from stromboli.live.groups.operator import Follower, Followers, Operator
from stromboli.live.groups.owners import Owners
from stromboli.live.groups.podgroups import PodGroupMaker
from stromboli.live.groups.provisioning import Provisioning
from stromboli.live.groups.suspended import Suspended
from stromboli.live.observer import Observer
from stromboli.live.process.limits import Reluctance
from stromboli.live.queues.controller import QueueController
from stromboli.live.queues.required import RequiredQueues
from stromboli.live.queues.states import QueueStates
from stromboli.live.reporting.events import Events, Reference
from stromboli.live.reporting.pod_conditions import PodConditions
from stromboli.live.reporting.set_aside import REASON, SetAside
from stromboli.live.reporting.status import StatusWriter, pod_group_fields
from stromboli.live.reporting.unserved import Unserved
from stromboli.live.settings import Settings
from stromboli.live.watch.mirror import Mirror
from stromboli.policy.queue_rules import QueueRule
from stromboli.state.cluster import object_key
from stromboli.state.snapshot import Snapshot
from stromboli.workloads.native import native_key

#: fields of a PodGroup's status that are facts about its pods, not explanations
_FACTS = ("phase", "running", "succeeded", "failed")
_API_VERSIONS = {"Queue": SCHEDULING, "PodGroup": SCHEDULING, "HyperNode": TOPOLOGY}


class Part(Protocol):
    """A part of the service that works until it is cancelled."""

    async def run(self) -> None: ...


class Writers:
    """The parts that write, each responsible for one kind of change."""

    def __init__(
        self,
        settings: Settings,
        mirror: Mirror,
        observer: Observer,
        kube: Kube,
        binder_kube: Kube,
        claims_path: Callable[[], str],
    ) -> None:
        """`binder_kube` has connections of its own for bindings and reservations.

        `claims_path` is the API path of ResourceClaims, whose version depends on the cluster.
        """
        name = settings.scheduler_names[0]
        self._mirror = mirror
        self._settings = settings
        self.events = Events(kube, observer, name, settings.events_per_second)
        mirror.complain(self._set_aside_event)
        workers, rate = settings.bind_connections, settings.binds_per_second
        self._claims = Claims(binder_kube, mirror, claims_path, workers=workers, rate=rate)
        self._volumes = Volumes(binder_kube, mirror, workers=workers, rate=rate)
        self._recall = Recall(kube, mirror)
        reservations = (self._claims, self._volumes)
        self._binder = Binder(binder_kube, mirror, self.events, self._recall, reservations, observer, settings)
        self.evictor = Evictor(kube, mirror, self.events, observer, name, delete=settings.delete_victims)
        self._gates = Gates(kube)
        self._status = StatusWriter(kube, mirror, observer, settings.status_writes_per_second)
        self._reluctance = Reluctance(settings.status_patience)
        # Most pods get a node while their gang is still being created, and the sums of a queue change with every gang.
        rate, patience = settings.pod_conditions_per_second, 2 * settings.status_patience
        self._pod_conditions = PodConditions(kube, mirror, self.events, rate, patience)
        self._set_aside = SetAside(kube, mirror, rate)
        self.unserved = Unserved(mirror, self.events, (*settings.scheduler_names, *settings.extender_scheduler_names))
        self._required_queues = RequiredQueues(kube, settings.default_queue)
        self.queues = QueueController(mirror, self._status, patience, self._required_queues.deleted_unseen)
        self._provisioning = Provisioning(kube, mirror, self.events)
        self._queue_states = QueueStates(kube, self.events)
        inherit = settings.inherit_owner_annotations
        self.native_groups = NativeGroups(kube, mirror)
        self.events.translate = self.native_groups.reference
        self._owners = Owners(kube, settings.kinds)
        self.suspended = Suspended(settings.kinds)
        self._pod_groups = PodGroupMaker(
            kube, mirror, self.events, self._owners, self._required_queues.want, inherit=inherit
        )

    def operator(self, credentials: Credentials, kube: Kube) -> Operator:
        """The operator, which reports rarely changing objects; it reads over connections of its own."""
        states, suspended = self._queue_states, self.suspended
        return Operator(
            credentials,
            kube,
            self._owners,
            Followers(
                Follower(self._queue_changed, self._queue_gone),
                Follower(states.command_seen, states.command_gone, states.commands_listed),
                lambda kind: Follower(self._workload_changed, suspended.gone, partial(suspended.listed, kind)),
            ),
        )

    def _queue_changed(self, queue: Object) -> None:
        self.queues.seen(queue)
        self._queue_states.queue_seen(queue)

    def _queue_gone(self, queue: Object) -> None:
        self._queue_states.queue_gone(queue)
        self._required_queues.deleted(object_key(queue))

    def _workload_changed(self, owner: Object) -> None:
        self.suspended.seen(owner)
        self._pod_groups.owner_changed(owner)

    def why_no_pod_group(self, kind: str, key: str) -> str:
        """Why there is no PodGroup for a pod or a workload; empty if no reason is known."""
        return self._pod_groups.why_not(kind, key)

    def follow(self, rules: Sequence[QueueRule]) -> None:
        """Give workloads their queues by rules from now on; those that have one stay there."""
        self._owners.rules = rules
        self.native_groups.rules = rules

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Start the parts that can work before the usage of queues has been restored: creating and opening queues."""
        tasks.create_task(self._required_queues.run(), name="queues")
        self.queues.begin()

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Start all other parts but those that need a complete mirror."""
        parts: tuple[Part, ...] = (
            self.events,
            self._binder,
            self._recall,
            self.evictor,
            self._status,
            self._pod_conditions,
            self._gates,
            self._set_aside,
            self.unserved,
            self._pod_groups,
            self._provisioning,
            self.native_groups,
            self._queue_states,
        )
        for part in parts:
            tasks.create_task(part.run(), name=type(part).__name__)

    @property
    def releasing(self) -> tuple[Part, ...]:
        """The parts that release reservations, to be run once the initial lists have been applied."""
        return self._claims, self._volumes

    def carry_out(
        self, decisions: Sequence[Decision], put_off: Collection[str], snapshot: Snapshot, session: int
    ) -> None:
        """Hand the decisions of a session, taken on a snapshot, to the parts that write them.

        Pending writes for jobs that were `put_off`, by key, are kept.
        """
        by_type: defaultdict[type[Decision], list[Any]] = defaultdict(list)
        for decision in decisions:
            by_type[type(decision)].append(decision)
        self._binder.submit([self._with_group(bind) for bind in by_type[Bind]], snapshot, session)
        self.evictor.evict(by_type[Evict], session)
        self.evictor.nominate(by_type[Nominate])
        self._gates.lift(by_type[LiftGate])
        self._set_pod_group_statuses(by_type[SetPodGroupStatus], by_type[EmitEvent], put_off)
        self._pod_conditions.tell(by_type[SetPodUnscheduled], put_off)
        self._provisioning.ask(by_type[RequestNodes])
        for queue in by_type[SetQueueStatus]:
            self.queues.decided(queue)
        self.queues.refresh()

    def _with_group(self, bind: Bind) -> Bind:
        """A binding with the annotations that put its pod into its group, where the pod lacks them."""
        added = self._pod_groups.annotations(bind.key)
        return replace(bind, annotations={**(bind.annotations or {}), **added}) if added else bind

    # -- PodGroups ---------------------------------------------------------------------------------------------------

    def _set_pod_group_statuses(
        self, statuses: Sequence[SetPodGroupStatus], events: Iterable[EmitEvent], put_off: Collection[str]
    ) -> None:
        """Queue the statuses for writing. The Events about a PodGroup follow its write, and lapse with it."""
        decided = {status.key: status for status in statuses}
        pending: defaultdict[str, list[EmitEvent]] = defaultdict(list)
        for event in events:
            pending[event.key if event.kind == "PodGroup" else ""].append(event)
        self._status.withdraw("PodGroup", but={*decided, *put_off})
        for key, decision in decided.items():
            pod_group = self._mirror.state.pod_group(key)
            if pod_group is None:
                continue
            emit = partial(self._emit, pending.pop(key, ()))
            if native_key(key):
                self.native_groups.decided(decision, emit)
                continue
            if decision.status.phase == PodGroupPhase.Inqueue != pod_group.status.phase:
                # The job's controller creates the pods only after admission; their absence is not worth an Event.
                self._status.put("PodGroup", key, {"phase": PodGroupPhase.Inqueue})
            else:
                fields, uid = pod_group_fields(decision.status, pod_group), pod_group.metadata.uid
                patience = self._patience_with(decision, pod_group)
                then = partial(self._written, uid, decision.minor, emit)
                self._status.put("PodGroup", key, fields, patience=patience, then=then)
        for others in pending.values():
            self._emit(others)

    def _patience_with(self, decision: SetPodGroupStatus, pod_group: PodGroup) -> float:
        """Seconds that a status may wait: few for a new phase or count, ever more for mere condition changes."""
        if any(getattr(decision.status, field) != getattr(pod_group.status, field) for field in _FACTS):
            self._reluctance.forget(pod_group.metadata.uid)
            return self._settings.status_patience
        return self._reluctance.pause(pod_group.metadata.uid, minor=decision.minor)

    def _written(self, uid: str, minor: bool, emit: Callable[[], None]) -> None:
        self._reluctance.told(uid, minor=minor)
        emit()

    # -- Events ------------------------------------------------------------------------------------------------------

    def _emit(self, events: Iterable[EmitEvent]) -> None:
        for event in events:
            about = Reference(_API_VERSIONS.get(event.kind, "v1"), event.kind, event.namespace, event.name, event.uid)
            self.events.emit(about, event.type, event.reason, event.message)

    def _set_aside_event(self, kind: str, key: str, uid: str, problem: str) -> None:
        """An object cannot be used for `problem`."""
        namespace, _, name = key.rpartition("/")
        about = Reference(_API_VERSIONS.get(kind, "v1"), kind, namespace, name, uid)
        self.events.emit(about, "Warning", REASON, problem)
