"""The claims that a pod names: as objects, or through a template from which one is created for the pod."""

from __future__ import annotations

from collections.abc import Mapping

from stromboli.api import keys
from stromboli.api.objects import PodResourceClaim
from stromboli.kube.dra.holdings import claim_name
from stromboli.kube.dra.objects import ClaimError, DeviceObjects, ResourceClaim
from stromboli.state.plain import NO_OBJECTS, PlainObjects
from stromboli.state.pods import PodRecord


class ClaimsOfPods:
    """Finds the claims that pods name."""

    def __init__(self, plain: Mapping[str, PlainObjects]) -> None:
        self.plain = plain.get("ResourceClaim", NO_OBJECTS)
        self.objects = DeviceObjects(plain)

    def of(self, pod: PodRecord) -> list[ResourceClaim]:
        """The claims of a pod, each once. Raises ClaimError when one is missing."""
        found: dict[str, ResourceClaim] = {}
        for named in pod.pod_class.spec.resource_claims or ():
            name = claim_name(pod, named)
            if name == "":
                continue
            claim = self._find(pod, named)
            if claim is None:
                raise ClaimError(_missing(named, name))
            found[claim.key] = claim
        return list(found.values())

    def existing(self, pod: PodRecord) -> list[ResourceClaim]:
        """The claims of a pod that exist."""
        found = (self._find(pod, named) for named in pod.pod_class.spec.resource_claims or ())
        return list({claim.key: claim for claim in found if claim is not None}.values())

    def _find(self, pod: PodRecord, named: PodResourceClaim) -> ResourceClaim | None:
        name = claim_name(pod, named)
        claim = self.objects.claim_of(keys.key(pod.namespace, name)) if name else None
        # One of that name that was made for another pod is not this pod's.
        return claim if claim is None or named.resource_claim_name or claim.made_for(pod.uid) else None


def _missing(named: PodResourceClaim, name: str | None) -> str:
    if name is not None:
        return f'resourceclaim "{name}" not found'
    return f'the resourceclaim for "{named.name}" has not been created from its template yet'
