"""Remedies for pods that their claims keep from all nodes: claims that are missing, and what stands behind others."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial

from msgspec.structs import replace

from stromboli.api import keys, objects
from stromboli.explain.rehearsal import pod_of
from stromboli.explain.remedies.case import MOST_ALIKE, Candidate, Case
from stromboli.state.cluster import ClusterState
from stromboli.state.pods import PodRecord

_VOLUME, _DEVICES = "PersistentVolumeClaim", "ResourceClaim"
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
    unmet = [claim for claim in named if claim not in missing]
    if unmet:
        words = [f"create {_listed(missing)}"] if missing else []
        for kind, what in _BEHIND.items():
            if of_kind := [claim for claim in unmet if claim[0] == kind]:
                words.append(f"provide {what} for {_listed(of_kind)}")
        yield Candidate(" and ".join(words), "admin", partial(_without, pods=case.pods, gone=named))


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
