"""What holds in any history where pods bring volumes and devices along, or request amounts as a whole.

Nodes have local volumes, devices, and a limit on attached volumes; pods are resized, and nodes closed, besides.
`STROMBOLI_HISTORIES` and the rest as for the other histories.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test
from msgspec.structs import replace as with_fields

from stromboli.api import objects
from stromboli.api.decisions import Bind, VolumeUse
from stromboli.engine import SessionResult
from stromboli.kube.dra.reservation import reserved
from stromboli.kube.volume_reservation import completed, shown_bound
from tests.expectations.test_changing_histories import ChangingHistories, ChangingWorld
from tests.expectations.test_histories import HISTORIES, PHASES, SHARES, few_jobs, jobs, orders, queue_specs, sizes
from tests.expectations.world import Job
from tests.kube.test_dra import claim as device_claim
from tests.kube.test_dra import device, device_class, request, resource_slice
from tests.kube.test_volumes import ZONE, affinity, claim, csi_node, storage_class, volume

Manifest = dict[str, Any]
#: the driver of the volumes that are made where they are needed
DRIVER = "csi.example.com"
#: what each pod brings along: a claim that its successor has as well, of a class whose volumes lie on nodes, or whose
#: volumes are made in a zone; a claim that ends with the pod; one or two devices; amounts of the pod as a whole
BRINGS = ("local", "made", "scratch", "device", "devices", "whole")


class Extras(NamedTuple):
    """What a node has beside amounts."""

    volumes: int
    #: how many volumes can be attached
    attached: int
    devices: int


@dataclass
class ClaimWorld(ChangingWorld):
    """Pods bring claims along."""

    #: what nodes have, in turn
    extras: Sequence[Extras] = (Extras(1, 1, 1),)
    #: claims and volumes, by kind and key
    kept: dict[tuple[str, str], Manifest] = field(default_factory=dict)

    def of(self, node: str) -> Extras:
        return self.extras[int(node[1:]) % len(self.extras)]

    def zone(self, node: str) -> str:
        return f"z{int(node[1:]) % 2}"

    # -- objects -----------------------------------------------------------------------------------------------------

    def state(self) -> Any:
        made = super().state()
        self._provide()
        for each in self._of_nodes():
            made.upsert(each["kind"], each)
        for (kind, _), each in self.kept.items():
            made.upsert(kind, each)
        return made

    def _of_nodes(self) -> Iterator[Manifest]:
        yield from (storage_class("local"), storage_class("made", DRIVER), device_class())
        for node in self.nodes:
            yield csi_node(node, self.of(node).attached)
            yield resource_slice(node, *(device(f"d{at}") for at in range(self.of(node).devices)))

    def _provide(self) -> None:
        """Local volumes for new nodes, claims for new pods; what pods had to themselves ends with them."""
        for node in self.nodes:
            for at in range(self.of(node).volumes):
                self.kept.setdefault(("PersistentVolume", f"{node}-v{at}"), volume(f"{node}-v{at}", node))
        live = set[str]()
        for pod, job in self._pods():
            for kind, each in _claims(job, pod):
                live.add(each["metadata"]["name"])
                self.kept.setdefault((kind, f"default/{each['metadata']['name']}"), each)
        names = {job.name for job in self.jobs}
        for kind, key in [*self.kept]:
            name = key.rpartition("/")[2]
            lasts = kind == "PersistentVolume" or (name.rpartition("-data")[0] in names and "-data" in name)
            if not lasts and name not in live:
                del self.kept[kind, key]

    def _pods(self) -> Iterator[tuple[str, Job]]:
        yield from ((name, job) for job in self.jobs for name in job.pods)
        yield from ((name, job) for name, (job, _, _) in self.leaving.items())

    def _told(self, each: Any) -> Any:
        each = super()._told(each)
        match each:
            case objects.Node():
                labels = {**each.metadata.labels, ZONE: self.zone(each.metadata.name)}
                return with_fields(each, metadata=with_fields(each.metadata, labels=labels))
            case objects.Pod():
                return _with_claims(each, dict(self._pods())[each.metadata.name])
        return each

    # -- sessions ----------------------------------------------------------------------------------------------------

    def session(self) -> tuple[Counter[str], SessionResult]:
        changes, result = super().session()
        for each in result.decisions:
            if isinstance(each, Bind):
                self._carry_out(each)
        self._check()
        return changes, result

    def _carry_out(self, bind: Bind) -> None:
        """Give the claims of a pod that is bound their devices and volumes."""
        for use in bind.claims:
            key = "ResourceClaim", use.key
            self.kept[key] = reserved(self.kept[key], use, bind.name, bind.uid)
        for each in bind.volumes:
            self._bind_claim(each, bind.node)

    def _bind_claim(self, use: VolumeUse, node: str) -> None:
        key = "PersistentVolumeClaim", use.key
        name = use.volume
        if not name:
            name = f"made-for-{use.name}"
            csi = {"driver": DRIVER, "volumeHandle": name}
            of = {"storageClassName": "made", "csi": csi, "nodeAffinity": affinity(ZONE, self.zone(node))}
            self.kept["PersistentVolume", name] = volume(name, **of)
        found = self.kept["PersistentVolume", name]
        assert not found["spec"].get("claimRef"), f"{name} was given away twice"
        self.kept["PersistentVolume", name] = {**shown_bound(found, self.kept[key]), "status": {"phase": "Bound"}}
        self.kept[key] = completed(self.kept[key], name)

    # -- what is checked ---------------------------------------------------------------------------------------------

    def _check(self) -> None:
        on = [(job, name, node) for job in self.jobs for name, node in job.pods.items() if node]
        on += [(job, name, node) for name, (job, node, _) in self.leaving.items()]
        attached, taken = set[tuple[str, str]](), Counter[tuple[str, str]]()
        for job, pod, node in on:
            for kind, each in _claims(job, pod):
                now = self.kept[kind, f"default/{each['metadata']['name']}"]
                if kind == "ResourceClaim":
                    results = now["status"]["allocation"]["devices"]["results"]
                    assert {result["pool"] for result in results} == {node}
                    taken.update((node, result["device"]) for result in results)
                    continue
                bound = self.kept["PersistentVolume", now["spec"]["volumeName"]]
                if "csi" in bound["spec"]:
                    attached.add((node, bound["metadata"]["name"]))
                (term,) = bound["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
                assert term["matchExpressions"][0]["values"] in ([node], [self.zone(node)])
        for node, count in Counter(node for node, _ in attached).items():
            assert count <= self.of(node).attached, f"too much is attached to {node}"
        assert max(taken.values(), default=1) == 1, "a device was given away twice"


def _claims(job: Job, pod: str) -> Iterator[tuple[str, Manifest]]:
    """The claims of a pod as they are made, with their kind."""
    if job.brings in ("local", "made"):
        name = f"{job.name}-data{job.ordinals[pod]}"
        yield "PersistentVolumeClaim", claim(name, job.brings)
    elif job.brings == "scratch":
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": f"uid-{pod}", "controller": True}
        made = claim(f"{pod}-scratch", "made")
        yield "PersistentVolumeClaim", made | {"metadata": made["metadata"] | {"ownerReferences": [owner]}}
    elif job.brings in ("device", "devices"):
        yield "ResourceClaim", device_claim(f"{pod}-gpu", request(count=len(job.brings) - len("device") + 1))


def _with_claims(pod: objects.Pod, job: Job) -> objects.Pod:
    """A pod with what it brings along."""
    name, spec = pod.metadata.name, pod.spec
    for kind, each in _claims(job, name):
        of = each["metadata"]["name"]
        if kind == "ResourceClaim":
            said = objects.PodResourceClaim(name="gpu", resource_claim_name=of)
            spec = with_fields(spec, resource_claims=[said])
        elif job.brings == "scratch":
            template = {"volumeClaimTemplate": {"spec": each["spec"]}}
            spec = with_fields(spec, volumes=[objects.Volume(name="scratch", ephemeral=template)])
        else:
            source = objects.ClaimVolume(claim_name=of)
            spec = with_fields(spec, volumes=[objects.Volume(name="data", persistent_volume_claim=source)])
    main = spec.containers[0]
    if job.brings == "whole" and main.resources.requests and not job.gpu:
        spec = with_fields(
            spec,
            containers=[with_fields(main, resources=objects.ResourceRequirements())],
            resources=main.resources,
        )
    return with_fields(pod, spec=spec)


extras = st.builds(Extras, st.integers(0, 2), st.integers(0, 3), st.integers(0, 3))
jobs_with_claims = st.tuples(jobs, st.sampled_from(["", *BRINGS])).map(lambda drawn: drawn[0] | {"brings": drawn[1]})


class ClaimHistories(ChangingHistories):
    """A cluster whose pods bring claims along."""

    world: ClaimWorld

    @initialize(
        order=orders,
        shares=st.sampled_from(SHARES),
        nodes=st.lists(sizes, min_size=1, max_size=3),
        specs=st.tuples(*[queue_specs] * 5),
        first=st.lists(jobs_with_claims, min_size=3, max_size=5),
        then=st.lists(jobs_with_claims, min_size=2, max_size=4),
        patience=st.integers(0, 3),
        absence=st.integers(0, 2),
        more=st.lists(extras, min_size=1, max_size=2),
    )
    def begin(self, more: Sequence[Extras], **drawn: Any) -> None:
        self.make_world = lambda *of, **options: ClaimWorld(*of, **options, extras=more)
        super().begin(**drawn)

    @few_jobs
    @rule(drawn=jobs_with_claims)
    def a_job_comes(self, drawn: dict[str, Any]) -> None:
        super().a_job_comes(drawn)

    def pods_with_cpus(self) -> list[tuple[Job, str]]:
        return [(job, pod) for job, pod in super().pods_with_cpus() if job.brings != "whole"]


@pytest.mark.exhaustive
def test_histories_of_claims() -> None:
    run_state_machine_as_test(
        ClaimHistories,
        settings=settings(max_examples=HISTORIES, stateful_step_count=8, phases=PHASES, deadline=None),
    )
