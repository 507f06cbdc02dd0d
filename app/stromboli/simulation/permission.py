"""Admission of objects in files by the LimitRanges and ResourceQuotas of their namespaces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from stromboli.api import objects
from stromboli.api.words import by_number, counted
from stromboli.simulation.defaults import of_runtime_class, with_defaults
from stromboli.simulation.forbidden import ForbiddenError
from stromboli.simulation.limit_ranges import LimitRanges
from stromboli.simulation.manifests import Loaded
from stromboli.simulation.resource_quotas import Asked, ResourceQuotas, has_ended, is_there
from stromboli.simulation.workloads import is_expanded
from stromboli.state.cluster import object_key
from stromboli.workloads.groups import owners_of

_CLAIM = "PersistentVolumeClaim"


class Permitted:
    """Objects that pass admission, with their defaults."""

    def __init__(self, loaded: Loaded, prioritized: Callable[[objects.Pod], objects.Pod]) -> None:
        """`prioritized` gives a pod its priority, and the class that it has without naming one: quotas go by it."""
        self._loaded = loaded
        self._prioritized = prioritized
        self._runtimes = {obj.metadata.name: obj for kind, obj in loaded.objects if kind == "RuntimeClass"}
        self._ranges = LimitRanges.of(obj for kind, obj in loaded.objects if kind == "LimitRange")
        quotas = [obj for kind, obj in loaded.objects if kind == "ResourceQuota"]
        self._quotas = ResourceQuotas(quotas, self._there() if quotas else ())
        #: why workloads that are not made are not, by uid
        self._refused: dict[str, str] = {}
        #: the number of pods of workloads, and why, and of how many, none were made, by kind and key
        self._pods: Counter[tuple[str, str]] = Counter()
        self._forbidden: dict[tuple[str, str], tuple[str, int]] = {}

    def made(self) -> Iterator[tuple[str, Any]]:
        """Admitted objects with their kinds; pods have all the requests that the API server gives them.

        After the last one, rejected objects are reported.
        """
        self._count_workloads()
        for kind, obj in self._loaded.objects:
            if kind == "Pod":
                pod = self._pod(self._complete(obj))
                if pod is not None:
                    yield kind, pod
            elif kind != "ResourceQuota" and (kind != _CLAIM or self._allows(obj)):
                yield kind, obj
        yield from self._quotas.manifests()
        for (kind, key), (why, pods) in self._forbidden.items():
            all_, verb = self._pods[kind, key], by_number(pods, "is", "are")
            said = f"{f'{pods} of ' if pods < all_ else ''}{counted(all_, 'pod')} {verb} not made: {why}"
            self._loaded.empty[key] = f"{kind} {key}: {said}"

    def _complete(self, pod: objects.Pod) -> objects.Pod:
        pod = with_defaults(self._prioritized(pod))
        return of_runtime_class(pod, self._runtimes.get(pod.spec.runtime_class_name or ""))

    def _there(self) -> Iterator[Asked]:
        """Existing objects that use what quotas count."""
        for kind, obj in self._loaded.objects:
            if kind == "Pod" and is_there(obj) and not has_ended(obj):
                yield Asked.by_pod(self._complete(obj))
            elif kind == _CLAIM and is_there(obj):
                yield Asked.by_claim(obj)
        for owner in self._loaded.owners.values():
            kind_of = self._loaded.kinds.of(owner)
            if kind_of is not None and not is_expanded(owner):
                yield Asked.by_object(owner, kind_of.row.plural)

    def _count_workloads(self) -> None:
        """Count the workloads that are created, and take note of those that are not."""
        for uid, owner in self._loaded.owners.items() if self._quotas else ():
            kind = self._loaded.kinds.of(owner)
            try:
                if kind is not None and is_expanded(owner):
                    self._quotas.create(Asked.by_object(owner, kind.row.plural))
            except ForbiddenError as error:
                self._refused[uid] = str(error)

    def _allows(self, claim: dict[str, Any]) -> bool:
        """Whether a PersistentVolumeClaim is made."""
        try:
            self._ranges.check_claim(claim)
            if not is_there(claim):
                self._quotas.create(Asked.by_claim(claim))
        except ForbiddenError as error:
            self._tell(_CLAIM, object_key(claim), str(error))
            return False
        return True

    def _pod(self, pod: objects.Pod) -> objects.Pod | None:
        """A pod as it is made; None if it is not."""
        if not (self._ranges or self._quotas):
            return pod
        known = self._loaded.owners
        owners = list(owners_of(pod, lambda reference: known.get(reference.uid)))
        of = (str(owners[-1]["kind"]), object_key(owners[-1])) if owners else None
        if of is not None:
            self._pods[of] += 1
        try:
            pod = self._ranges.applied(pod)
            why = next((self._refused[uid] for each in owners if (uid := each["metadata"]["uid"]) in self._refused), "")
            if not (why or is_there(pod) or has_ended(pod)):
                self._quotas.create(Asked.by_pod(pod))
        except ForbiddenError as error:
            why = str(error)
        if not why:
            return pod
        self._loaded.forbidden[object_key(pod)] = why
        if of is None:
            self._tell("Pod", object_key(pod), why)
        else:
            self._forbidden[of] = self._forbidden.get(of, (why, 0))[0], self._forbidden.get(of, ("", 0))[1] + 1
        return None

    def _tell(self, kind: str, key: str, why: str) -> None:
        place = self._loaded.places.get((kind, key))
        self._loaded.problems.append(f"{f'{place[0]}: ' if place else ''}{kind} {key}: {why}")
