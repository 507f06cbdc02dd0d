"""Puts each of our pods without a PodGroup into that of its workload, so that every pod belongs to a queue and a gang.

The group is created before a session sees any of its pods. Its members follow from the owners of pods, so nothing is
written to a pod while it waits: sessions see the pods as if they were annotated, and the binding carries the
annotations. A pod that kube-scheduler binds is annotated itself. When the size of an owner changes, its groups follow;
Kubernetes deletes them with it.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from stromboli.api import keys, objects
from stromboli.api.crds import FEWER, RUN_TIME, SLICES, WORKLOAD, PodGroup, group_uid
from stromboli.api.errors import StromboliError, in_words
from stromboli.api.keys import namespace_of
from stromboli.live.api_server.client import CONNECTION_ERRORS, ApiError, Kube, Object, already_exists
from stromboli.live.groups.gang_sizes import THERE, has_completed, may_have_changed
from stromboli.live.groups.group_writes import GroupWrites
from stromboli.live.groups.owners import Owners, print_of
from stromboli.live.groups.unmade import Unmade
from stromboli.live.process.fair_queue import FairQueue
from stromboli.live.process.limits import Backoff
from stromboli.live.process.logs import Logger
from stromboli.live.process.workers import run_workers
from stromboli.live.reporting.events import Events, Reference
from stromboli.live.watch.mirror import Mirror
from stromboli.state.cluster import object_key
from stromboli.state.pods import GROUP_ANNOTATION
from stromboli.workloads import Family, is_bare, label_of
from stromboli.workloads.gangs import has_ended
from stromboli.workloads.groups import controller
from stromboli.workloads.labelled import id_of
from stromboli.workloads.native import in_native_group
from stromboli.workloads.paths import text
from stromboli.workloads.vanished import is_of, note

log = Logger(__name__)

#: requests at a time: groups are made one by one, and their pods wait as long as a busy API server takes for each
_WORKERS = 32
#: seconds after which what is over of a workload is looked at again while it has pods
_LASTING = 5.0
_NOTHING: Mapping[str, str] = {}


class PodGroupMaker:
    """Follows pods and their owners, and makes and changes PodGroups, a few at a time."""

    def __init__(
        self,
        kube: Kube,
        mirror: Mirror,
        events: Events,
        owners: Owners,
        want_queue: Callable[[str, str], None],
        *,
        inherit: bool = True,
    ) -> None:
        """`want_queue` has a queue made below a parent; with `inherit` owners' annotations are copied to PodGroups."""
        self._writes = GroupWrites(kube, mirror)
        self._mirror = mirror
        self._state = mirror.state
        self._events = events
        self._owners = owners
        self._want_queue = want_queue
        self._inherit = inherit
        #: uids of controllers of pods, of pods without a controller, and of owners that changed
        self._queue: FairQueue[str] = FairQueue(self._namespace)
        #: those that are in the queue or worked on, and those to be worked on again
        self._queued: set[str] = set()
        self._again: set[str] = set()
        #: pods that the API server shows without a group, by the uid of their controller and by key
        self._bare: defaultdict[str, dict[str, objects.Pod]] = defaultdict(dict)
        self._manager: dict[str, str] = {}
        #: the workload of pods, by the uid of their controller
        self._families: dict[str, Family] = {}
        #: managers of pods of a workload, by the uid of the workload
        self._managers: defaultdict[str, set[str]] = defaultdict(set)
        #: keys of existing PodGroups
        self._made: set[str] = set()
        #: keys of the PodGroups that were made for an owner, by its uid
        self._groups_of: defaultdict[str, set[str]] = defaultdict(set)
        #: managers whose number of pods changed since they were read
        self._stale: set[str] = set()
        #: owners whose PodGroups are to follow, and what of each was read last
        self._changed: dict[str, Object] = {}
        self._prints: dict[str, int] = {}
        #: queue, priority and topology as declared by the owners, by the uid of the workload
        self._said: dict[str, Object] = {}
        #: number of pods of PodGroups that succeeded and are gone, as these do not say yet
        self._gone: Counter[str] = Counter()
        self._active = False
        self._backoffs: dict[str, Backoff] = {}
        self._unmade = Unmade()
        mirror.join_pods(self._joined)
        mirror.listen("Pod", self._pod_changed)
        mirror.listen("PodGroup", self._group_changed)

    async def run(self) -> None:
        """Make PodGroups until cancelled; only the leader does."""
        self._active = True
        for uid in {**self._bare, **self._groups_of}:
            self._enqueue(uid)
        await run_workers("podgroups", _WORKERS, self._work)

    def annotations(self, key: str) -> Mapping[str, str]:
        """The annotations that a binding adds to a pod: those of its group that the API server does not show."""
        uid = self._manager.get(key, "")
        family, pod = self._families.get(uid), self._bare[uid].get(key) if uid else None
        return _NOTHING if family is None or pod is None else family.annotations(pod)

    def why_not(self, kind: str, key: str) -> str:
        """Why there is no PodGroup for a pod, or for a workload of that name; empty if no reason is known."""
        return self._unmade.of(self._manager.get(key, "")) if kind == "pod" else self._unmade.of_workload(key)

    def owner_changed(self, owner: Object) -> None:
        """Have the PodGroups of an owner follow it; one whose spec, labels and annotations stay changes nothing."""
        uid, labelled = text(owner, "metadata.uid"), id_of(owner)
        self._owners.seen(owner)
        # Its pods were there before it, or it could not be read and may have been mended.
        for waited_for in {labelled, uid} & self._backoffs.keys():
            self._enqueue(waited_for)
        if not self._active or uid not in self._groups_of:
            return
        seen = print_of(owner)
        if self._prints.get(uid) != seen:
            self._prints[uid] = seen
            self._changed[uid] = owner
            self._enqueue(uid)

    def _namespace(self, uid: str) -> str:
        """The namespace of an owner that changed, or of the pods that something manages."""
        owner = self._changed.get(uid)
        return text(owner, "metadata.namespace") if owner else namespace_of(next(iter(self._bare.get(uid, ())), ""))

    # -- watched objects -------------------------------------------------------------------------------------------

    def _joined(self, pod: objects.Pod) -> objects.Pod:
        """A pod as sessions see it: in its group, once that exists."""
        key = object_key(pod)
        ours = self._state.is_ours(pod)
        if not ours or not is_bare(pod):
            self._forget(key)
            return in_native_group(pod, self._state.pod_group)
        manager, label = controller(pod), label_of(pod, self._owners.kinds)
        uid = label.id if label else manager.uid if manager else pod.metadata.uid or key
        if self._manager.get(key, uid) != uid:
            self._forget(key)
        before = self._bare[uid].get(key)
        self._bare[uid][key], self._manager[key] = pod, uid
        family = self._families.get(uid)
        if family is not None and self._key(family, pod) in self._made:
            owner, group = self._owners.latest(family.uid), self._key(family, pod)
            changed = before is None and may_have_changed(self._state, family, owner, group, pod)
            if changed or (before is None and family.is_sized):
                self._stale.add(uid)
            if changed or (before is None and (family.label is not None or family.is_sized)):
                self._enqueue(uid)
            if changed:
                # How many pods start together may have changed before it came.
                return pod
            annotations = {**(pod.metadata.annotations or {}), **family.annotations(pod)}
            return replace(pod, metadata=replace(pod.metadata, annotations=annotations))
        changed = before is not None and before.metadata.annotations != pod.metadata.annotations
        if changed or (before is None and uid not in self._backoffs):
            self._enqueue(uid)
        return pod

    def _pod_changed(self, type: str, pod: objects.Pod | str) -> None:
        if type != "DELETED":
            return
        key = pod if isinstance(pod, str) else object_key(pod)
        manager = None if isinstance(pod, str) else controller(pod)
        uid = self._manager.get(key) or (manager.uid if manager else "")
        self._forget(key)
        family = self._families.get(uid)
        ended = not isinstance(pod, str) and pod.status.phase == "Succeeded"
        if ended and self._active and not isinstance(pod, str):
            self._vanished(pod)
        if family is not None and (family.is_sized or (family.workload.dwindles and ended)):
            # The waiting pods may be all of the gang by now.
            for waiting in self._managers.get(family.uid, {uid}) & self._bare.keys():
                self._stale.add(waiting)
                self._enqueue(waiting)

    def _vanished(self, pod: objects.Pod) -> None:
        """A pod that succeeded is gone: have none wait for it, where its workload does not say so, too."""
        name = (pod.metadata.annotations or {}).get(GROUP_ANNOTATION, "")
        owner = self._owners.latest(uid := group_uid(name))
        if owner is not None and is_of(owner, pod):
            self._gone[keys.key(pod.metadata.namespace or "default", name)] += 1
            # A copy: the owner may be followed right now, for a pod that went before.
            self._changed[uid] = {**owner}
            self._enqueue(uid)

    def _group_changed(self, type: str, group: PodGroup | str) -> None:
        key = group if isinstance(group, str) else object_key(group)
        uid = group_uid(key.rpartition("/")[2])
        if not uid:
            if type == "DELETED" and key in self._made:
                self._made.discard(key)
                self._families.pop(key, None)
                # A label stands for it, and its key for the label.
                if key in self._bare:
                    self._enqueue(key)
            return
        if type != "DELETED":
            if not isinstance(group, str) and not group.metadata.owner_references:
                self._enqueue(uid)
            if key not in self._groups_of[uid]:
                # The owner may have changed while the group was made, or may have one of several for a while only.
                if self._groups_of[uid]:
                    self._prints.pop(uid, None)
                self._groups_of[uid].add(key)
                if (latest := self._owners.latest(uid)) is not None:
                    self.owner_changed(latest)
            return
        self._made.discard(key)
        self._groups_of[uid].discard(key)
        if not self._groups_of[uid]:
            del self._groups_of[uid]
            self._prints.pop(uid, None)
            self._said.pop(uid, None)
        for manager in self._managers.pop(uid, {uid}):
            if self._families.pop(manager, None) is not None and manager in self._bare:
                self._enqueue(manager)

    def _forget(self, key: str) -> None:
        uid = self._manager.pop(key, None)
        if uid is None:
            return
        self._bare[uid].pop(key, None)
        if not self._bare[uid]:
            del self._bare[uid]
            self._stale.discard(uid)
            self._unmade.forget(uid)
            family = self._families.get(uid)
            if family is not None and not family.uid:
                del self._families[uid]

    # -- work --------------------------------------------------------------------------------------------------------

    def _enqueue(self, uid: str) -> None:
        if uid in self._queued:
            self._again.add(uid)
        elif self._active:
            self._queued.add(uid)
            self._queue.put_nowait(uid)

    async def _work(self) -> None:
        while True:
            uid = await self._queue.get()
            await self._writes.turnstile.wait()
            self._again.discard(uid)
            try:
                for key in sorted(self._groups_of.get(uid, ())):
                    await self._writes.leave_to_pods(key)
                if uid in self._changed:
                    await self._follow(uid, self._changed[uid])
                if uid in self._bare:
                    await self._make(uid)
            except (ApiError, StromboliError, *CONNECTION_ERRORS) as error:
                self._stale.add(uid)
                self._later(uid, in_words(error))
            else:
                self._backoffs.pop(uid, None)
                self._unmade.forget(uid)
            self._queued.discard(uid)
            if uid in self._again:
                self._enqueue(uid)

    def _later(self, uid: str, why: str) -> None:
        pod = next(iter(self._bare[uid].values()), None) if uid in self._bare else None
        log.recurring("pod group not created", why, pod=object_key(pod) if pod else "", manager=uid)
        delay = self._backoffs.setdefault(uid, Backoff(1.0, 60.0)).delay()
        asyncio.get_running_loop().call_later(delay, self._enqueue, uid)
        if pod is None:
            return
        self._unmade.put(uid, why, self._owners.workloads(pod))
        about = Reference("v1", "Pod", pod.metadata.namespace or "default", pod.metadata.name, pod.metadata.uid or "")
        self._events.emit(about, "Warning", "PodGroupNotMade", why)

    async def _make(self, uid: str) -> None:
        """Create the missing PodGroups of the pods of a controller, and add the pods."""
        family, stale = self._families.get(uid), uid in self._stale
        if family is None or stale:
            self._stale.discard(uid)
            first = next(iter(self._bare[uid].values()))
            family = await self._owners.family(first, self._namespace_object(first.metadata.namespace), anew=stale)
            if family.uid:
                self._managers[family.uid].add(uid)
            if (family.is_sized or stale) and family.owner is not None:
                await self._follow(family.uid, family.owner)
        pods = list(self._bare.get(uid, {}).values())
        samples = {self._key(family, pod): pod for pod in reversed(pods)}
        for key, pod in samples.items():
            if key not in self._made and self._state.pod_group(key) is None:
                assigned = family.assigned(pod) if family.rules else None
                if assigned is not None and assigned.create and assigned.queue not in self._state.queues:
                    self._want_queue(assigned.queue, assigned.parent)
                if not await self._create(key, self._manifest(family, pod), family):
                    self._again.add(uid)
                    continue
            self._made.add(key)
        if family.uid:
            self._said.setdefault(family.uid, family.said)
        if uid in self._bare:
            self._families[uid] = family
            await self._add(uid, family)
        if family.label is not None and (group := self._state.pod_group(uid)) is not None:
            # All of its pods own it, so that it is deleted with the last of them.
            await self._writes.belong(group, [(pod.metadata.name, pod.metadata.uid or "") for pod in pods])

    def _manifest(self, family: Family, pod: objects.Pod) -> Object:
        manifest = family.manifest(pod)
        if not self._inherit:
            own = pod.metadata.annotations or {}
            annotations: Object = manifest["metadata"].pop("annotations", {})
            known = {*own, WORKLOAD, FEWER, RUN_TIME, SLICES}
            kept = {key: value for key, value in annotations.items() if key in known}
            manifest["metadata"] |= {"annotations": kept} if kept else {}
        return manifest

    async def _create(self, key: str, manifest: Object, family: Family) -> bool:
        """Returns False for a group that was deleted again before the API server's answer came."""
        owner = family.owner
        if owner is not None and family.uid not in self._groups_of:
            self._prints[family.uid] = print_of(owner)
        try:
            return await self._writes.make(key, manifest)
        except ApiError as error:
            if not already_exists(error):
                raise
            # It may have been made from another version of the owner.
            if owner is not None:
                self._prints.pop(family.uid, None)
                self.owner_changed(owner)
            return True

    async def _add(self, uid: str, family: Family) -> None:
        """Show pods to sessions in their groups."""
        joined = []
        for key, pod in list(self._bare[uid].items()):
            group, record = self._key(family, pod), self._state.record(key)
            if group in self._made and (record is None or record.job != group):
                self._mirror.upsert("Pod", key, pod, "MODIFIED")
                joined.append(pod)
        for pod in joined:
            if pod.spec.scheduler_name not in self._state.scheduler_names:
                await self._writes.annotate(pod, family.annotations(pod))

    async def _follow(self, uid: str, owner: Object) -> None:
        """Update the PodGroups of an owner that differ from its declaration."""
        kind = self._owners.kinds.of(owner)
        assert kind is not None
        above = tuple(await self._owners.above(owner))
        inside = self._namespace_object(owner["metadata"].get("namespace"))
        kinds, rules = self._owners.kinds, self._owners.rules
        family = Family(owner, kind, kinds.read(owner), kinds, above, namespace=inside, rules=rules)
        for manager in self._managers.get(uid, ()):
            if manager in self._families:
                self._families[manager] = family.beneath(self._families[manager])
        waiting = (pod for manager in self._managers.get(uid, ()) for pod in self._bare.get(manager, {}).values())
        sizes = {self._key(family, pod): family.workload.size(pod.metadata.annotations) for pod in waiting}
        before, lasting = self._said.get(uid), False
        for key in sorted(self._groups_of.get(uid, ())):
            if (group := self._state.pod_group(key)) is None:
                continue
            over, ended = family.is_over(group), has_ended(owner)
            if over and not self._state.jobs.has_pods(key):
                await self._writes.remove(group)
            elif over or (ended and self._state.has_pods(key, THERE, 1)):
                lasting = True
            elif not (ended and has_completed(self._state, key, group)):
                gone = note(owner, group.metadata.annotations, more := self._gone[key])
                if changes := family.changes(group, before, sizes.get(key, {}) | gone):
                    await self._writes.change(key, changes)
                self._gone -= Counter({key: more})
        self._said[uid] = family.said
        if self._changed.get(uid) is owner:
            if lasting:
                asyncio.get_running_loop().call_later(_LASTING, self._enqueue, uid)
            else:
                del self._changed[uid]

    def _namespace_object(self, name: str | None) -> Object:
        found: Object = self._state.objects["Namespace"].get(name or "default") or {}
        return found

    @staticmethod
    def _key(family: Family, pod: objects.Pod) -> str:
        return keys.key(pod.metadata.namespace or "default", family.name(pod))
