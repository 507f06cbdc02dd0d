"""Applies watch events and lists of every kind to the state.

An object that fails validation is set aside with a reason until a change repairs it; all others are applied. Its last
valid version stays in the state. A bound pod is counted as far as it can be read, and an unbound pod is not placed by
its last valid version.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from msgspec.structs import astuple, replace

from stromboli import gate
from stromboli.api import objects
from stromboli.api.crds import Queue
from stromboli.api.errors import InvalidObjectError
from stromboli.api.pod_state import ON_NODE_STATES, PodState
from stromboli.api.words import counted
from stromboli.live.api_server.versions import is_older, version_of
from stromboli.live.observer import Observer
from stromboli.live.process.logs import Logger
from stromboli.state.cluster import ClusterState, object_key
from stromboli.state.pods import PodRecord, group_of
from stromboli.workloads.native import native_key

log = Logger(__name__)

Listener: TypeAlias = Callable[[str, Any], None]
"""Called with the event's type and the object; on DELETED with its last state or, inferred from a list, its key."""
Complaint: TypeAlias = Callable[[str, str, str, str], None]
"""Called with kind, key and uid (empty if unknown) of an object, and its problem."""
Refusal: TypeAlias = Callable[[str, str, Any, str], None]
"""Called with kind, key, object (None if nothing could be read) and its problem (empty once it is usable again)."""
_FINISHED = ("Succeeded", "Failed")
_PENDING = int(PodState.Pending)
_ON_NODE = frozenset(int(state) for state in ON_NODE_STATES)
_REMEMBERED = 10_000


class Sheet(Protocol):
    """A list in progress."""

    def add(self, obj: Any) -> None: ...

    def keep(self, key: str) -> None: ...

    def complete(self, version: str = "") -> list[str]: ...


class Applied(Protocol):
    """The changes of a kind's objects that a reflector reports."""

    def listing(self, kind: str) -> Sheet: ...

    def event(self, kind: str, type: str, obj: Any) -> None: ...

    def delete(self, kind: str, key: str, obj: Any) -> None: ...

    def set_aside(self, kind: str, key: str, problem: str, obj: Any = None) -> None: ...


class Mirror:
    """Applies watch events and lists to a ClusterState, and notifies listeners."""

    def __init__(self, state: ClusterState, wake: Callable[[bool], None], observer: Observer) -> None:
        """`wake(urgent)` is called after every change; urgent changes may make a pod schedulable."""
        self.state = state
        self._wake = wake
        self._observer = observer
        self._listeners: defaultdict[str, list[Listener]] = defaultdict(list)
        self._join: Callable[[objects.Pod], objects.Pod] = lambda pod: pod
        self._complaints: list[Complaint] = []
        self._refusals: list[Refusal] = []
        self._listings: dict[str, Listing] = {}
        #: the version of the last event or list of each kind
        self._reached: dict[str, str] = {}
        #: the versions of objects that were read individually, until the watch tells of them
        self._individually: dict[tuple[str, str], str] = {}
        #: (kind, key) -> problem of objects that were not read completely, so that each is reported once
        self._problems: dict[tuple[str, str], str] = {}
        #: objects that could not be read at all
        #: and the PodGroup that each names, empty for none
        self._aside: dict[tuple[str, str], str] = {}

    def listen(self, kind: str, listener: Listener) -> None:
        """Register a listener for changes of a kind, called after they were applied."""
        self._listeners[kind].append(listener)

    def join_pods(self, join: Callable[[objects.Pod], objects.Pod]) -> None:
        """Have pods applied as a function returns them: in the groups that follow from their owners."""
        self._join = join

    def complain(self, complaint: Complaint) -> None:
        """Register a listener called once for each problem of an object."""
        self._complaints.append(complaint)

    def refuse(self, refusal: Refusal) -> None:
        """Register a listener called whenever an object is set aside or usable again."""
        self._refusals.append(refusal)

    def listing(self, kind: str) -> Listing:
        """Begin to apply a complete list."""
        listing = self._listings[kind] = Listing(self, kind)
        return listing

    def event(self, kind: str, type: str, obj: Any) -> None:
        """Apply one watch event: ADDED, MODIFIED or DELETED."""
        key = object_key(obj)
        self._reached[kind] = version_of(obj)
        self._observer.watch_event(kind, type)
        read = self._individually.pop((kind, key), "") if self._individually else ""
        if type == "DELETED":
            self.delete(kind, key, obj)
        elif not read or read != version_of(obj):
            self.upsert(kind, key, obj, type)

    def looked_up(self, kind: str, obj: Any) -> bool:
        """Apply an object that was read individually; a list in progress may contain an older version.

        Returns False for one of a version that the watch has passed and that is not there: it was deleted meanwhile.
        """
        key, version = object_key(obj), version_of(obj)
        listing = self._listings.get(kind)
        if listing is not None:
            listing.seen[key] = version
        if is_older(version, self._reached.get(kind, "")) and not self._is_there(kind, key):
            return False
        self._individually[kind, key] = version
        self.upsert(kind, key, obj, "MODIFIED")
        return True

    def _is_there(self, kind: str, key: str) -> bool:
        return self.state.pod_group(key) is not None if kind == "PodGroup" else key in self.state.keys(kind)

    def upsert(self, kind: str, key: str, obj: Any, type: str) -> None:
        """Apply the current version of an object."""
        if isinstance(obj, objects.Pod):
            obj = self._join(obj)
        try:
            obj = gate.read(kind, obj)
        except InvalidObjectError as error:
            problem = f"{error.path}: {error.problem}" if error.path else error.problem
            self.set_aside(kind, key, problem, obj)
            self._take_what_it_holds(key, obj)
            return
        urgent = self._apply(kind, key, obj)
        before = self._problems.pop((kind, key), None) if self._problems else None
        problems = gate.unread(kind, obj)
        if problems:
            self._complain("annotation not used", kind, key, "; ".join(problems), _uid(obj), before)
        if self._aside and (kind, key) in self._aside:
            self._aside.pop((kind, key), None)
            self._refuse(kind, key, obj, "")
        self._tell(kind, type, obj, urgent)

    def delete(self, kind: str, key: str, obj: Any) -> None:
        """Remove an object."""
        self._problems.pop((kind, key), None)
        self._aside.pop((kind, key), None)
        urgent = kind != "Pod" or key in self.state.pods.by_key
        self.state.delete(kind, key)
        self._tell(kind, "DELETED", obj, urgent)

    def changed(self) -> None:
        """The state was changed other than by an object: wake a session."""
        self._wake(True)

    def unreadable(self, kind: str, key: str) -> str:
        """Why an object is set aside; empty if it is not."""
        return self._problems.get((kind, key), "it was set aside") if (kind, key) in self._aside else ""

    def unreadable_of(self, group: str) -> str:
        """The first pod of a PodGroup that is set aside, why, and how many more there are; empty for none."""
        pods = [key for (kind, key), of in self._aside.items() if kind == "Pod" and of == group]
        if not pods:
            return ""
        more = f", and so {counted(len(pods) - 1, 'more pod')}" if len(pods) > 1 else ""
        return f"Pod {pods[0]} exists, but could not be read: {self.unreadable('Pod', pods[0])}{more}"

    def set_aside(self, kind: str, key: str, problem: str, obj: Any = None) -> None:
        """Report a problem of an object, once."""
        before = self._problems.get((kind, key))
        self._complain("object set aside", kind, key, problem, "" if obj is None else _uid(obj), before)
        self._aside[kind, key] = group_of(obj.metadata) if isinstance(obj, objects.Pod) else ""
        self._refuse(kind, key, obj, problem)

    def _refuse(self, kind: str, key: str, obj: Any, problem: str) -> None:
        for refusal in self._refusals:
            refusal(kind, key, obj, problem)

    def _complain(self, what: str, kind: str, key: str, problem: str, uid: str, before: str | None) -> None:
        if len(self._problems) >= _REMEMBERED:
            del self._problems[next(iter(self._problems))]
        self._problems[kind, key] = problem
        if before == problem:
            return
        self._observer.malformed(kind, key)
        log.warning(what, kind=kind, key=key, problem=problem)
        for complaint in self._complaints:
            complaint(kind, key, uid, f"{what}: {problem}")

    def _take_what_it_holds(self, key: str, obj: Any) -> None:
        """Keep only the placement of a pod that is set aside."""
        if not isinstance(obj, objects.Pod):
            return
        if obj.spec.node_name:
            self._tell("Pod", "MODIFIED", obj, self._apply_pod(key, obj))
        elif key not in self.state.assumed:
            self.state.delete("Pod", key)

    def _tell(self, kind: str, type: str, obj: Any, urgent: bool | None) -> None:
        for listener in self._listeners.get(kind, ()):
            listener(type, obj)
        if urgent is not None:
            self._wake(urgent)

    def _apply(self, kind: str, key: str, obj: Any) -> bool | None:
        """Whether the change may make a pod schedulable; None if nothing changed."""
        if isinstance(obj, objects.Pod):
            return self._apply_pod(key, obj)
        before = _standing(self.state, kind, key)
        self.state.upsert(kind, obj)
        after = _standing(self.state, kind, key)
        if kind == "Node" and after is before:
            return None
        return before is None or before != after

    def _apply_pod(self, key: str, pod: objects.Pod) -> bool:
        pods = self.state.pods
        row = pods.by_key.get(key)
        before, record = (-1, None) if row is None else (int(pods.state[row]), pods.records[row])
        if self._is_irrelevant(pod):
            self.state.delete("Pod", key)
        else:
            self.state.upsert("Pod", pod)
        after = self._pod_state(key)
        if after == _PENDING:
            return self.state.may_start(key) and not (before == _PENDING and self._says_the_same(key, record))
        return before in _ON_NODE and (after not in _ON_NODE or self._holds_less(key, record))

    def _holds_less(self, key: str, before: PodRecord | None) -> bool:
        """Whether a pod's requests have shrunk in some resource."""
        now = self.state.record(key)
        if before is None or now is None or now.pod_class is before.pod_class:
            return False
        request = now.pod_class.request
        return any(request.get(name, 0) < amount for name, amount in before.pod_class.request.items())

    def _says_the_same(self, key: str, before: PodRecord | None) -> bool:
        """Whether a pod is unchanged except for its conditions."""
        now = self.state.record(key)
        if before is None or now is None:
            return False
        return astuple(replace(before, conditions=now.conditions)) == astuple(now)

    def _pod_state(self, key: str) -> int:
        """The PodState as a number, -1 for an unknown pod."""
        row = self.state.pods.by_key.get(key)
        return -1 if row is None else int(self.state.pods.state[row])

    def _is_irrelevant(self, pod: objects.Pod) -> bool:
        """Whether a pod of another scheduler has ended: it uses no resources and no gang counts it."""
        return pod.status.phase in _FINISHED and not self.state.is_ours(pod)


class Listing:
    """A list in progress: objects missing from it are removed on completion. No watch is open meanwhile."""

    def __init__(self, mirror: Mirror, kind: str) -> None:
        self._mirror = mirror
        self._kind = kind
        keys = mirror.state.keys(kind)
        # Kubernetes' own PodGroups come in a list of their own.
        self._known = {key for key in keys if not native_key(key)} if kind == "PodGroup" else set(keys)
        #: versions of objects that were read individually meanwhile
        self.seen: dict[str, str] = {}

    def add(self, obj: Any) -> None:
        """Apply an object of the list."""
        key = object_key(obj)
        self.keep(key)
        if not is_older(version_of(obj), self.seen.get(key, "")):
            self._mirror.upsert(self._kind, key, obj, "ADDED")

    def keep(self, key: str) -> None:
        """An object of the list cannot be read, and is kept."""
        self._known.discard(key)

    def complete(self, version: str = "") -> list[str]:
        """The list of a version is complete. Returns the keys of removed objects."""
        self._mirror._listings.pop(self._kind, None)
        self._mirror._reached[self._kind] = version
        dropped = sorted(self._known)
        for key in dropped:
            self._mirror.delete(self._kind, key, key)
        return dropped


def _standing(state: ClusterState, kind: str, key: str) -> Any:
    """The parts of an object that affect placement, for comparison before and after; None if unknown."""
    if kind == "Node":
        return state.nodes.record(key)
    if kind == "PodGroup":
        group = state.pod_group(key)
        return None if group is None else (group.metadata.uid, group.spec)
    if kind == "Queue":
        queue: Queue | None = state.queues.get(key)
        return None if queue is None else (queue.metadata.uid, queue.spec, queue.status.state)
    if kind == "ResourceClaim":
        claim = state.objects[kind].get(key)
        return (
            None if claim is None else (_uid(claim), claim.get("spec"), (claim.get("status") or {}).get("allocation"))
        )
    return None


def _uid(obj: Any) -> str:
    uid = (obj.get("metadata") or {}).get("uid") if isinstance(obj, dict) else obj.metadata.uid
    return str(uid or "")
