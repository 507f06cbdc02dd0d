"""Remedies for pods that their claims keep from all nodes: claims that are missing, and what stands behind others."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from stromboli.api import keys, objects
from stromboli.api.validation import nearest
from stromboli.explain.rehearsal import pod_of
from stromboli.explain.remedies.case import MOST_ALIKE, Candidate, Case
from stromboli.kube.storage import BIND_COMPLETED
from stromboli.state.cluster import ClusterState
from stromboli.state.pods import PodRecord

_VOLUME, _DEVICES = "PersistentVolumeClaim", "ResourceClaim"
#: the kind of their classes, and the field that names one
_CLASS = {_VOLUME: ("StorageClass", "storageClassName"), _DEVICES: ("DeviceClass", "deviceClassName")}
#: what stands behind a claim that is there
_BEHIND = {_VOLUME: "volumes", _DEVICES: "devices"}


def claims(case: Case) -> Iterator[Candidate]:
    """Claims that are made or met. It is tried without them, since it is not known which node they would be for."""
    if case.reason != "NoMatchingNode":
        return
    named = dict.fromkeys(claim for pod in case.pods for claim in _claims(pod))
    if not named:
        return
    there = {kind: case.rehearsal.state.keys(kind) for kind in _BEHIND}
    missing = [claim for claim in named if claim[1] not in there[claim[0]]]
    if missing:
        yield Candidate(f"create {_listed(missing)}", "user", partial(_without, pods=case.pods, gone=missing))
    unmet = [claim for claim in named if claim not in missing and not _met(case.rehearsal.state, claim)]
    yield from _classes(case, unmet)
    if unmet:
        words = [f"create {_listed(missing)}"] if missing else []
        for kind, what in _BEHIND.items():
            if of_kind := [claim for claim in unmet if claim[0] == kind]:
                words.append(f"provide {what} for {_listed(of_kind)}")
        yield Candidate(" and ".join(words), "admin", partial(_without, pods=case.pods, gone=named))


def _met(state: ClusterState, claim: tuple[str, str]) -> bool:
    """Whether a claim has what it asks for: then it is in use, or out of reach."""
    kind, key = claim
    manifest = state.objects[kind][key]
    if kind == _VOLUME:
        return BIND_COMPLETED in (manifest["metadata"].get("annotations") or {})
    return bool((manifest.get("status") or {}).get("allocation"))


def _classes(case: Case, claims: Collection[tuple[str, str]]) -> Iterator[Candidate]:
    """Classes that claims name and that are not there: what was probably meant, or the class made."""
    state = case.rehearsal.state
    for claim in claims:
        of, field = _CLASS[claim[0]]
        manifest = state.objects[claim[0]][claim[1]]
        there = state.keys(of)
        for name in [name for name in _named(manifest.get("spec") or {}, field) if name and name not in there]:
            if near := nearest(name, sorted(there)):
                words = f"set {field}: {near} in {claim[0]} {claim[1]}"
                right = {**manifest, "spec": _renamed(manifest["spec"], field, name, near)}
                yield Candidate(words, "user", partial(_put, kind=claim[0], manifest=right))
            behind = "" if claim[0] == _VOLUME else ", and devices of it"
            change = partial(_without, pods=case.pods, gone=[claim])
            yield Candidate(f"create {of} {name}{behind}", "admin", change)


def _named(spec: object, field: str) -> Iterator[str]:
    """The values of a field, however deep."""
    if isinstance(spec, dict):
        for name, value in spec.items():
            if name == field and isinstance(value, str):
                yield value
            yield from _named(value, field)
    elif isinstance(spec, list):
        for each in spec:
            yield from _named(each, field)


def _renamed(spec: Any, field: str, wrong: str, right: str) -> Any:
    """A copy in which a field has another value where it has a wrong one."""
    if isinstance(spec, dict):
        return {
            name: right if name == field and value == wrong else _renamed(value, field, wrong, right)
            for name, value in spec.items()
        }
    return [_renamed(each, field, wrong, right) for each in spec] if isinstance(spec, list) else spec


def _put(state: ClusterState, kind: str, manifest: Mapping[str, Any]) -> None:
    state.upsert(kind, manifest)


def _claims(pod: PodRecord) -> Iterator[tuple[str, str]]:
    """The kind and the key of each claim that a pod names; those made from templates are left to their controllers."""
    spec = pod.pod_class.spec
    for volume in spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            yield _VOLUME, keys.key(pod.namespace, volume.persistent_volume_claim.claim_name)
    for claim in spec.resource_claims or ():
        if claim.resource_claim_name:
            yield _DEVICES, keys.key(pod.namespace, claim.resource_claim_name)


def _listed(claims: Collection[tuple[str, str]]) -> str:
    named = [f"{kind} {key}" for kind, key in claims]
    more = len(named) - MOST_ALIKE
    return ", ".join(named[:MOST_ALIKE]) + (f" and {more} more" if more > 0 else "")


def _without(state: ClusterState, pods: Collection[PodRecord], gone: Collection[tuple[str, str]]) -> None:
    """Pods that ask for some of their claims no longer."""
    for record in pods:
        pod = pod_of(record, "", objects.PodStatus(phase="Pending"))
        spec, here = pod.spec, record.namespace
        volumes = [
            each
            for each in spec.volumes or ()
            if each.persistent_volume_claim is None
            or (_VOLUME, keys.key(here, each.persistent_volume_claim.claim_name)) not in gone
        ]
        devices = [
            each
            for each in spec.resource_claims or ()
            if (_DEVICES, keys.key(here, each.resource_claim_name or "")) not in gone
        ]
        state.upsert("Pod", replace(pod, spec=replace(spec, volumes=volumes, resource_claims=devices)))
