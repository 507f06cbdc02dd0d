"""Remedies for pods that cannot go to any node because of their claims: missing claims, and problems behind others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from stromboli.api import keys, objects
from stromboli.api.resources import fits
from stromboli.api.validation import nearest
from stromboli.api.words import first_few
from stromboli.explain.rehearsal import node_of, pod_of
from stromboli.explain.remedies.case import MOST_ALIKE, Candidate, Case
from stromboli.explain.remedies.changes import put_node, respec
from stromboli.kube.storage import BIND_COMPLETED, NO_PROVISIONER
from stromboli.state.cluster import ClusterState
from stromboli.state.pods import PodRecord

_VOLUME, _DEVICES = "PersistentVolumeClaim", "ResourceClaim"
#: the kind of their classes, and the field that names one
_CLASS = {_VOLUME: ("StorageClass", "storageClassName"), _DEVICES: ("DeviceClass", "deviceClassName")}
#: the objects behind an existing claim
_BEHIND = {_VOLUME: "volumes", _DEVICES: "devices"}


def claims(case: Case) -> Iterator[Candidate]:
    """Claims that are made or met. It is tried without them, since it is not known which node they would be for."""
    if case.reason not in ("NoMatchingNode", "NeverFits"):
        return
    named = dict.fromkeys(claim for pod in case.pods for claim in _claims(pod))
    there = {kind: case.rehearsal.state.keys(kind) for kind in _BEHIND}
    if case.reason == "NeverFits":
        yield from _elsewhere(case, [claim for claim in named if claim[1] in there[claim[0]]])
        return
    yield from _unmade(case)
    if not named:
        return
    missing = [claim for claim in named if claim[1] not in there[claim[0]]]
    if any(said.startswith("ResourceClaimTemplate ") for said in _by_source(case, missing)):
        # What was made from a template is not made by hand.
        return
    if missing:
        near = [nearest(key, [other for other in there[kind] if _beside(key, other)]) for kind, key in missing]
        instead = f", or name {', '.join(filter(None, near))} instead" if any(near) else ""
        made = f"create {_listed(missing)}{instead}"
        yield Candidate(made, "user", partial(_without, pods=case.pods, gone=missing))
    there_now = [claim for claim in named if claim not in missing]
    lost = [claim for claim in there_now if _has_lost(case.rehearsal.state, claim)]
    if lost:
        again = f"delete {_listed(lost)} and create it again, as its volume is gone"
        yield Candidate(again, "user", partial(_without, pods=case.pods, gone=lost))
    yield from _elsewhere(case, there_now)
    unmet = [claim for claim in there_now if claim not in lost and not _met(case.rehearsal.state, claim)]
    yield from _released(case, unmet)
    yield from _classes(case, unmet)
    yield from _selecting(case, unmet)
    if unmet:
        words = [f"create {_listed(missing)}"] if missing else []
        for kind, what in _BEHIND.items():
            of_kind = [claim for claim in unmet if claim[0] == kind]
            made = _to_be_made(case.rehearsal.state, of_kind) if kind == _VOLUME else ""
            if made:
                words.append(made)
            elif of_kind:
                words.append(f"provide {what} for {first_few(list(_by_source(case, of_kind)), MOST_ALIKE)}")
        yield Candidate(" and ".join(words), "admin", partial(_without, pods=case.pods, gone=named))


def _beside(key: str, other: str) -> bool:
    """Whether two objects are in one namespace."""
    return key.partition("/")[0] == other.partition("/")[0]


def _to_be_made(state: ClusterState, claims: Sequence[tuple[str, str]]) -> str:
    """Whose part it is to make volumes, and where it says why it has not; empty where nothing makes them."""
    named = {_class_of(state.objects[_VOLUME][key]) for _, key in claims}
    made = {name: (state.objects["StorageClass"].get(name) or {}).get("provisioner") for name in named}
    makers = {name: maker for name, maker in made.items() if maker and maker != NO_PROVISIONER}
    if not makers or len(makers) < len(named):
        return ""
    by = " and ".join(f"{maker} (StorageClass {name})" for name, maker in sorted(makers.items()))
    namespace, _, first = claims[0][1].partition("/")
    told = f"kubectl describe pvc {first} -n {namespace} says what keeps it from that"
    return f"have {by} make the volume of {first_few([f'{kind} {key}' for kind, key in claims], MOST_ALIKE)}: {told}"


def _met(state: ClusterState, claim: tuple[str, str]) -> bool:
    """Whether a claim has what it asks for: then it is in use, or out of reach."""
    kind, key = claim
    manifest = state.objects[kind][key]
    if kind == _VOLUME:
        return BIND_COMPLETED in (manifest["metadata"].get("annotations") or {})
    return bool((manifest.get("status") or {}).get("allocation"))


def _unmade(case: Case) -> Iterator[Candidate]:
    """Claims that are yet to be made from templates."""
    pod = case.pods[0]
    wanted = [each for each in pod.pod_class.spec.resource_claims or () if each.resource_claim_template_name]
    unmade = [each for each in wanted if each.name not in pod.claim_names]
    if unmade:
        names = dict.fromkeys(f"{pod.namespace}/{each.resource_claim_template_name}" for each in unmade)
        words = f"create ResourceClaimTemplate {', '.join(names)}, if it does not exist: the claim is made from it"
        rest = [each for each in pod.pod_class.spec.resource_claims or () if each not in unmade]
        yield Candidate(words, "user", respec(case, resource_claims=rest))


def _volume(state: ClusterState, claim: tuple[str, str]) -> tuple[str, Mapping[str, Any] | None]:
    """The volume that a claim names, empty for none, and its manifest if it is there."""
    kind, key = claim
    name = (state.objects[kind][key].get("spec") or {}).get("volumeName") or "" if kind == _VOLUME else ""
    return name, state.objects["PersistentVolume"].get(name)


def _has_lost(state: ClusterState, claim: tuple[str, str]) -> bool:
    """Whether a claim is bound to a volume that is not there."""
    name, volume = _volume(state, claim)
    return bool(name) and volume is None


def _elsewhere(case: Case, claims: Collection[tuple[str, str]]) -> Iterator[Candidate]:
    """A node with the labels that the volume of a claim asks of its node, or its data where nodes are, where no node
    that is large enough has them.
    """
    nodes = case.session.view.nodes
    large = fits(case.asked, nodes.allocatable)
    records = [record for at, record in enumerate(nodes.facts.records) if large[at]]
    for claim in claims:
        name, volume = _volume(case.rehearsal.state, claim)
        affinity = ((volume or {}).get("spec") or {}).get("nodeAffinity") or {}
        term: Mapping[str, Any] = next(iter((affinity.get("required") or {}).get("nodeSelectorTerms") or ()), {})
        said = [
            each for each in term.get("matchExpressions") or () if each.get("operator") == "In" and each.get("values")
        ]
        labels = {each["key"]: each["values"][0] for each in said}
        if not labels or not records or any(labels.items() <= record.labels.items() for record in records):
            continue
        first = records[0]
        if list(labels) == ["kubernetes.io/hostname"]:
            gone = labels["kubernetes.io/hostname"]
            words = f"bring back node {gone}, where PersistentVolume {name} of {claim[0]} {claim[1]} is"
            yield Candidate(words, "admin", partial(_without, pods=case.pods, gone=[claim]))
            words = f"delete {claim[0]} {claim[1]} and create it again, if its data may be lost with node {gone}"
            yield Candidate(words, "user", partial(_without, pods=case.pods, gone=[claim]))
            continue
        node = node_of(first)
        meta = replace(node.metadata, name=f"{node.metadata.name}-more", uid=f"{node.metadata.name}-more")
        meta = replace(meta, labels={**(meta.labels or {}), **labels, "kubernetes.io/hostname": meta.name})
        where = ", ".join(f"{key}: {value}" for key, value in labels.items())
        words = f"add 1 node like {first.name} with {where}, where PersistentVolume {name} of {claim[0]} {claim[1]} is"
        yield Candidate(words, "admin", put_node(replace(node, metadata=meta)))
        if there := ", ".join(f"{key}: {first.labels[key]}" for key in labels if key in first.labels):
            words = f"move the data of {claim[0]} {claim[1]} to {there}, where {first.name} is"
            yield Candidate(words, "user", partial(_without, pods=case.pods, gone=[claim]))


def _released(case: Case, claims: Collection[tuple[str, str]]) -> Iterator[Candidate]:
    """Volumes of a claim's class that are kept for a claim which is gone."""
    state = case.rehearsal.state
    for claim in [claim for claim in claims if claim[0] == _VOLUME]:
        wanted = _class_of(state.objects[_VOLUME][claim[1]])
        for name, volume in state.objects["PersistentVolume"].items():
            if (volume.get("status") or {}).get("phase") == "Released" and _class_of(volume) == wanted:
                words = f"remove spec.claimRef of PersistentVolume {name}, which is Released, for {_listed([claim])}"
                yield Candidate(words, "admin", partial(_without, pods=case.pods, gone=[claim]))


def _class_of(manifest: Mapping[str, Any]) -> str:
    return (manifest.get("spec") or {}).get("storageClassName") or ""


def _classes(case: Case, claims: Collection[tuple[str, str]]) -> Iterator[Candidate]:
    """Classes that claims name and that are not there: what was probably meant, or the class made."""
    state = case.rehearsal.state
    for said, alike in _by_source(case, claims).items():
        of, field = _CLASS[alike[0][0]]
        there = state.keys(of)
        spec = state.objects[alike[0][0]][alike[0][1]].get("spec") or {}
        for name in [name for name in _named(spec, field) if name and name not in there]:
            if near := nearest(name, sorted(there)):
                corrected = partial(_renamed, field=field, wrong=name, right=near)
                yield Candidate(f"set {field}: {near} in {said}", "user", partial(_respecified, alike, corrected))
            behind = "" if alike[0][0] == _VOLUME else ", and devices of it"
            change = partial(_without, pods=case.pods, gone=alike)
            yield Candidate(f"create {of} {name}{behind}", "admin", change)


def _selecting(case: Case, claims: Collection[tuple[str, str]]) -> Iterator[Candidate]:
    """Claims of devices whose own selectors no device meets."""
    for said, alike in _by_source(case, [claim for claim in claims if claim[0] == _DEVICES]).items():
        spec = case.rehearsal.state.objects[_DEVICES][alike[0][1]].get("spec") or {}
        if _unselected(spec) != spec:
            words = f"have the selector of {said} choose devices that there are"
            yield Candidate(words, "user", partial(_respecified, alike, _unselected))


def _by_source(case: Case, claims: Collection[tuple[str, str]]) -> dict[str, list[tuple[str, str]]]:
    """Claims by the object that specifies them: the template that they were made from, or themselves."""
    templates = {
        keys.key(pod.namespace, made): keys.key(pod.namespace, each.resource_claim_template_name)
        for pod in case.pods
        for each in pod.pod_class.spec.resource_claims or ()
        if each.resource_claim_template_name and (made := pod.claim_names.get(each.name))
    }
    out: dict[str, list[tuple[str, str]]] = {}
    for kind, key in claims:
        made_of = templates.get(key) if kind == _DEVICES else None
        out.setdefault(f"ResourceClaimTemplate {made_of}" if made_of else f"{kind} {key}", []).append((kind, key))
    return out


def _respecified(claims: Collection[tuple[str, str]], change: Callable[[Any], Any], state: ClusterState) -> None:
    """Claims with another spec each."""
    for kind, key in claims:
        manifest = state.objects[kind][key]
        state.upsert(kind, {**manifest, "spec": change(manifest.get("spec") or {})})


def _unselected(spec: Any) -> Any:
    """A copy without selectors, however deep."""
    if isinstance(spec, dict):
        return {name: _unselected(value) for name, value in spec.items() if name != "selectors"}
    return [_unselected(each) for each in spec] if isinstance(spec, list) else spec


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
    """A copy in which a wrong value of a field is replaced."""
    if isinstance(spec, dict):
        return {
            name: right if name == field and value == wrong else _renamed(value, field, wrong, right)
            for name, value in spec.items()
        }
    return [_renamed(each, field, wrong, right) for each in spec] if isinstance(spec, list) else spec


def _claims(pod: PodRecord) -> Iterator[tuple[str, str]]:
    """The kind and the key of each claim that a pod names, or that was made for it from a template."""
    spec = pod.pod_class.spec
    for volume in spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            yield _VOLUME, keys.key(pod.namespace, volume.persistent_volume_claim.claim_name)
    for claim in spec.resource_claims or ():
        if name := claim.resource_claim_name or pod.claim_names.get(claim.name):
            yield _DEVICES, keys.key(pod.namespace, name)


def _listed(claims: Collection[tuple[str, str]]) -> str:
    return first_few([f"{kind} {key}" for kind, key in claims], MOST_ALIKE)


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
            if (_DEVICES, keys.key(here, each.resource_claim_name or record.claim_names.get(each.name, ""))) not in gone
        ]
        state.upsert("Pod", replace(pod, spec=replace(spec, volumes=volumes, resource_claims=devices)))
