"""What the chart grants is enough for the service as the chart runs it."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import pytest
import yaml

from stromboli.live.api_server.access import AccessReviews
from stromboli.live.api_server.client import Credentials, Kube
from tests.controlplane.cluster import eventually
from tests.controlplane.projects import released
from tests.e2e.audit import Audit, right
from tests.e2e.conftest import Start
from tests.e2e.disks import Disks, pod_with_claims
from tests.e2e.provisioner import PROVISIONER, VOLUMES, Provisioner, volume
from tests.e2e.service import Service
from tests.e2e.test_claims import Devices, disturbed
from tests.e2e.test_definitions import without_status
from tests.e2e.watch import PodWatch
from tests.e2e.world import CORE, Object, World, define, pod

pytestmark = pytest.mark.e2e

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAMESPACE = "stromboli-system"
Helm = Callable[..., "subprocess.CompletedProcess[str]"]
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/stromboli"


#: what the chart grants, and what the service does with it
RIGHTS = {
    "list nodes": "knows where pods may go",
    "watch nodes": "sees nodes come and go",
    "list pods": "knows the pods",
    "watch pods": "sees pods come and go",
    "list persistentvolumes": "places pods by their volumes",
    "watch persistentvolumes": "sees volumes change",
    "get persistentvolumes": "reads volumes anew that others change",
    "patch persistentvolumes": "gives volumes to claims",
    "list persistentvolumeclaims": "places pods by their claims",
    "watch persistentvolumeclaims": "sees claims change",
    "get persistentvolumeclaims": "reads claims anew that others change",
    "patch persistentvolumeclaims": "says for which node the volume of a claim is made",
    "list namespaces": "knows the queues that namespaces name",
    "watch namespaces": "sees the labels of namespaces change",
    "list resourcequotas": "admits gangs by quotas",
    "watch resourcequotas": "sees quotas change",
    "list scheduling.k8s.io/priorityclasses": "orders gangs by priority",
    "watch scheduling.k8s.io/priorityclasses": "sees priorities change",
    "list policy/poddisruptionbudgets": "spares pods by their budgets",
    "watch policy/poddisruptionbudgets": "sees budgets change",
    "list storage.k8s.io/csidrivers": "knows who publishes the capacity of storage",
    "watch storage.k8s.io/csidrivers": "sees drivers change",
    "list storage.k8s.io/csinodes": "counts the volumes of nodes",
    "watch storage.k8s.io/csinodes": "sees drivers change",
    "list storage.k8s.io/csistoragecapacities": "places pods where volumes can be made",
    "watch storage.k8s.io/csistoragecapacities": "sees storage change",
    "list storage.k8s.io/storageclasses": "binds volumes late",
    "watch storage.k8s.io/storageclasses": "sees storage classes change",
    "list storage.k8s.io/volumeattachments": "counts the volumes of nodes",
    "watch storage.k8s.io/volumeattachments": "sees volumes attached and detached",
    "list resource.k8s.io/deviceclasses": "allocates devices",
    "watch resource.k8s.io/deviceclasses": "sees device classes change",
    "list resource.k8s.io/devicetaintrules": "keeps pods from tainted devices",
    "watch resource.k8s.io/devicetaintrules": "sees taints change, from 1.37 on",
    "list resource.k8s.io/resourceclaims": "allocates devices",
    "watch resource.k8s.io/resourceclaims": "sees claims change",
    "get resource.k8s.io/resourceclaims": "reads claims anew that others change",
    "create resource.k8s.io/resourceclaims": "makes claims for extended resources",
    "delete resource.k8s.io/resourceclaims": "takes them back",
    "update resource.k8s.io/resourceclaims": "keeps claims with devices from being deleted",
    "update resource.k8s.io/resourceclaims/status": "gives claims their devices",
    "update resource.k8s.io/resourceclaims/binding": "may do so: the API server asks for this right as well",
    "list resource.k8s.io/resourceslices": "allocates devices",
    "watch resource.k8s.io/resourceslices": "sees devices change",
    "list nodeinfo.volcano.sh/numatopologies": "places pods on NUMA nodes",
    "watch nodeinfo.volcano.sh/numatopologies": "sees NUMA nodes change",
    "list shard.volcano.sh/nodeshards": "keeps to its shard",
    "watch shard.volcano.sh/nodeshards": "sees shards change",
    "list topology.volcano.sh/hypernodes": "keeps gangs together",
    "watch topology.volcano.sh/hypernodes": "sees the network change",
    "list bus.volcano.sh/commands": "opens and closes queues for Volcano's Commands",
    "watch bus.volcano.sh/commands": "sees Commands come",
    "delete bus.volcano.sh/commands": "takes away Commands that were obeyed",
    "get apiextensions.k8s.io/customresourcedefinitions": "knows what the cluster's definitions drop",
    "create authentication.k8s.io/tokenreviews": "knows who asks why",
    "create authorization.k8s.io/subjectaccessreviews": "tells nobody of what he may not read",
    "list scheduling.volcano.sh/queues": "knows the queues",
    "watch scheduling.volcano.sh/queues": "sees queues change",
    "create scheduling.volcano.sh/queues": "makes the root and the default queue",
    "get scheduling.volcano.sh/queues": "knows whether a queue that a Command names is open by now",
    "patch scheduling.volcano.sh/queues": "marks queues that are closed with their parent",
    "patch scheduling.volcano.sh/queues/status": "opens queues, and says what they hold",
    "list scheduling.volcano.sh/podgroups": "knows the gangs",
    "watch scheduling.volcano.sh/podgroups": "sees gangs change",
    "create scheduling.volcano.sh/podgroups": "makes groups for bare pods",
    "delete scheduling.volcano.sh/podgroups": "takes away the groups of replicas that are gone",
    "patch scheduling.volcano.sh/podgroups": "writes phases where the status is no subresource",
    "patch scheduling.volcano.sh/podgroups/status": "writes phases and conditions",
    "list scheduling.k8s.io/podgroups": "knows Kubernetes' own gangs",
    "watch scheduling.k8s.io/podgroups": "sees Kubernetes' own gangs change",
    "patch scheduling.k8s.io/podgroups/status": "says whether Kubernetes' own gangs are scheduled",
    "get apps/deployments": "asks what owns the owners of pods",
    "get batch/cronjobs": "asks what owns the owners of pods",
    "get replicationcontrollers": "asks owners for the size of their gang",
    "get apps/replicasets": "asks owners for the size of their gang",
    "get apps/statefulsets": "asks owners for the size of their gang",
    "get apps/daemonsets": "asks owners for the size of their gang",
    "get batch/jobs": "asks owners for the size of their gang",
    "get leaderworkerset.x-k8s.io/leaderworkersets": "asks owners for the size of their gang",
    "list leaderworkerset.x-k8s.io/leaderworkersets": "has groups follow their owners",
    "watch leaderworkerset.x-k8s.io/leaderworkersets": "has groups follow their owners",
    "list batch/jobs": "has groups follow their Jobs",
    "watch batch/jobs": "has groups follow their Jobs",
    "create pods/binding": "binds",
    "get pods": "looks up what became of a binding",
    "patch pods": "puts bare pods that kube-scheduler binds into their group",
    "patch pods/status": "says why pods wait, and whom it evicts",
    "create pods/eviction": "evicts",
    "list autoscaling.x-k8s.io/provisioningrequests": "knows the nodes that gangs asked for",
    "watch autoscaling.x-k8s.io/provisioningrequests": "sees them answered",
    "create autoscaling.x-k8s.io/provisioningrequests": "asks for the nodes of gangs where the policy says so",
    "delete autoscaling.x-k8s.io/provisioningrequests": "asks no longer",
    "create podtemplates": "says what the pods of such gangs ask for",
    "delete podtemplates": "says so no longer",
    "create events": "tells what it did",
    "get configmaps": "goes on with what queues held over time",
    "create configmaps": "keeps what queues held over time",
    "update configmaps": "keeps what queues held over time",
    "get coordination.k8s.io/leases": "takes turns with other replicas",
    "create coordination.k8s.io/leases": "takes turns with other replicas",
    "update coordination.k8s.io/leases": "takes turns with other replicas",
}
#: workloads of other projects, of which this cluster has none, or some of another test
OTHERS = {
    f"{verb} {group}/{plural}"
    for group, plurals in {
        "argoproj.io": ("cronworkflows", "workflows"),
        "disaggregatedset.x-k8s.io": ("disaggregatedsets",),
        "jobset.x-k8s.io": ("jobsets",),
        "kubeflow.org": (*("jaxjobs", "mpijobs", "notebooks", "paddlejobs", "pytorchjobs", "tfjobs", "xgboostjobs"),),
        "ray.io": ("rayclusters", "raycronjobs", "rayjobs", "rayservices"),
        "scheduling.sigs.k8s.io": ("podgroups",),
        "scheduling.x-k8s.io": ("podgroups",),
        "sparkoperator.k8s.io": ("scheduledsparkapplications", "sparkapplications", "sparkconnects"),
        "trainer.kubeflow.org": ("trainjobs",),
        "workload.codeflare.dev": ("appwrappers",),
    }.items()
    for plural in plurals
    for verb in ("get", "list", "watch")
}
#: of these the record of requests says nothing: one is asked for with another, one is of Kubernetes 1.37, nodes are
#: asked for only where the policy says so and the cluster has the kind, and no owner is read that was just watched
ASKED_BESIDE = {
    "get batch/jobs",
    "get leaderworkerset.x-k8s.io/leaderworkersets",
    "update resource.k8s.io/resourceclaims/binding",
    "watch resource.k8s.io/devicetaintrules",
    *(f"{right} scheduling.k8s.io/podgroups" for right in ("list", "watch")),
    "patch scheduling.k8s.io/podgroups/status",
    *(f"{right} autoscaling.x-k8s.io/provisioningrequests" for right in ("list", "watch", "create", "delete")),
    *(f"{right} podtemplates" for right in ("create", "delete")),
}
#: a workload of another project that this cluster has
SET = ("leaderworkerset.x-k8s.io", "LeaderWorkerSet")
#: the chart's policy evicts nobody
EVICTING = """
actions: "enqueue, allocate, preempt, backfill"
tiers:
  - plugins: [{name: priority}, {name: gang}, {name: conformance}]
  - plugins: [{name: predicates}, {name: nodeorder}]
"""
#: nor does it remember what queues held
REMEMBERING = """
actions: "enqueue, allocate"
tiers:
  - plugins: [{name: gang}, {name: predicates}, {name: fairshare, arguments: {usage.halfLife: 60s}}]
"""
VOLCANO = (
    ("nodeinfo.volcano.sh", "v1alpha1", "numatopologies"),
    ("shard.volcano.sh", "v1alpha1", "nodeshards"),
    ("bus.volcano.sh", "v1alpha1", "commands"),
)


@pytest.fixture
def helm(world: World, helm_binary: Path, repository: Path, tmp_path: Path) -> Helm:
    """helm in the chart's namespace of the world's cluster."""

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        place = ["--kubeconfig", str(world.cluster.kubeconfig())]
        place += [] if "--namespace" in args else ["--namespace", NAMESPACE]
        home = {"HOME": str(tmp_path), "PATH": ""}
        command = [str(helm_binary), *args, *place]
        return subprocess.run(command, cwd=repository, env=home, capture_output=True, text=True, check=False)

    return run


@pytest.fixture
def release(world: World, helm: Helm, tmp_path: Path) -> Iterator[World]:
    """The chart on the world's cluster, for two replicas; there is no kubelet to run them."""
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({"replicas": 2, "policy": EVICTING}))
    done = helm("install", "stromboli", "charts/stromboli", "--create-namespace", "--no-hooks", "--values", str(values))
    assert done.returncode == 0, done.stderr
    yield world
    done = helm("uninstall", "stromboli", "--wait")
    assert done.returncode == 0, done.stderr
    # The namespace stays for the next release, as the API server takes five seconds to delete one.
    for path in ("coordination.k8s.io/v1", "events.k8s.io/v1"):
        kind = "leases" if path.startswith("coordination") else "events"
        world.api.delete(f"/apis/{path}/namespaces/{NAMESPACE}/{kind}").raise_for_status()
    world.api.delete(f"/api/v1/namespaces/{NAMESPACE}/configmaps").raise_for_status()


@pytest.fixture
def others(world: World) -> Iterator[None]:
    """What else the service reads or meets: Volcano's kinds, a priority, and a rule by which bindings are refused."""
    rule = {
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}
            ]
        },
        "validations": [{"expression": "object.metadata.name != 'refused'"}],
    }
    admission = "/apis/admissionregistration.k8s.io/v1"
    made = [
        ("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 1000}),
        (f"{admission}/validatingadmissionpolicies", {"metadata": {"name": "refusing"}, "spec": rule}),
        (
            f"{admission}/validatingadmissionpolicybindings",
            {"metadata": {"name": "refusing"}, "spec": {"policyName": "refusing", "validationActions": ["Deny"]}},
        ),
        *((CRDS, definition(*kind)) for kind in VOLCANO),
    ]
    for path, manifest in made:
        world.create(path, manifest)
    eventually(lambda: all(world.api.get(f"/apis/{g}/{v}/{plural}").is_success for g, v, plural in VOLCANO))
    yield
    for path, manifest in made:
        world.api.delete(f"{path}/{manifest['metadata']['name']}").raise_for_status()


@pytest.mark.usefixtures("others")
def test_the_chart_grants_what_the_service_uses_and_nothing_else(
    release: World, start: Start, audit: Audit, tmp_path: Path, definitions: list[Object]
) -> None:
    """Without any one of its rights the service would be refused something that it does here."""
    world = release
    world.nodes(2, cpu="4")
    define(world.api, released([SET]))
    arguments = deployed(world, tmp_path)
    service = start(*arguments, kubeconfig=world.cluster.service_account_kubeconfig(NAMESPACE, "stromboli"))
    world.gang("train", 4)
    world.gang("large", 9)
    notes = {"scheduling.volcano.sh/queue-name": "default"}
    advised = pod("advised", cpu="100m", scheduler="default-scheduler", annotations=notes)
    world.pods([pod("bare"), advised, *owned(world)])

    eventually(lambda: len(world.placed()) == 7)
    eventually(lambda: world.group_status("train").get("phase") == "Running")
    eventually(lambda: world.condition("large", "Unschedulable") != {})
    eventually(lambda: world.refused() != {})
    eventually(lambda: any(event["reason"] == "Scheduled" for event in world.events()))

    world.pods([pod("refused", cpu="100m"), pod("urgent", cpu="4", priorityClassName="high")])
    eventually(lambda: "urgent" in world.placed())
    eventually(lambda: any(event["reason"] == "FailedBinding" for event in world.events()))
    (tmp_path / "volcano-scheduler.conf").write_text(REMEMBERING)
    eventually(lambda: any(event["reason"] == "PolicyLoaded" for event in world.events("default")))
    with subresource_removed(world, definitions):
        world.gang("late", 1, cpu="100m")
        eventually(lambda: world.group_status("late").get("phase") == "Running")

    given_devices(world)
    given_volumes(world, audit)
    closed_by_command(world)
    scaled_down(world)
    asyncio.run(reviewed(world))

    assert world.get(LEASE)["spec"]["holderIdentity"]
    assert service.end() == 0
    assert not world.get(LEASE)["spec"].get("holderIdentity"), "the lease was kept"
    assert audit.denied() == []
    assert set(granted(world)) == set(RIGHTS) | OTHERS, "a right has no use that is named here"
    assert audit.used() - OTHERS | ASKED_BESIDE == set(RIGHTS)


@pytest.mark.parametrize(("serves", "side_by_side"), [("batch", True), ("stromboli", False)])
def test_a_second_release_leads_beside_the_first_or_takes_turns_with_it(
    release: World, helm: Helm, start: Start, tmp_path: Path, serves: str, side_by_side: bool
) -> None:
    """By the scheduler names that they serve: they share a lease, or each has its own."""
    release.nodes(2, cpu="4")
    sets = ("--set", f"schedulerName={serves}", "--set", "extenderSchedulerNames=null")
    done = helm("install", "second", "charts/stromboli", "--no-hooks", *sets)
    assert done.returncode == 0, done.stderr
    try:
        first, second = (
            start(
                *deployed(release, tmp_path, name),
                kubeconfig=release.cluster.service_account_kubeconfig(NAMESPACE, name),
            )
            for name in ("stromboli", "second-stromboli")
        )
        assert [each.metric("stromboli_leading") for each in (first, second)] == [1, float(side_by_side)]
        for name in {"stromboli", serves}:
            release.group(name, 2)
            release.pods([pod(f"{name}-{number}", name, scheduler=name) for number in range(2)])
        eventually(lambda: release.bound() == dict.fromkeys({"stromboli", serves}, 2))
        assert first.end() == 0
        eventually(lambda: second.metric("stromboli_leading") == 1)
    finally:
        assert helm("uninstall", "second", "--wait").returncode == 0


def test_releases_of_one_name_in_two_namespaces_lead_side_by_side_and_end_alone(
    release: World, helm: Helm, start: Start, tmp_path: Path
) -> None:
    world, elsewhere = release, ("--namespace", "team")
    world.nodes(2, cpu="4")
    sets = ("--no-hooks", "--create-namespace", "--set", "extenderSchedulerNames=null", *elsewhere)
    refused = helm("install", "stromboli", "charts/stromboli", *sets)
    assert f"a release in namespace {NAMESPACE} has the ClusterRole stromboli" in refused.stderr
    own = ("--set", "fullnameOverride=stromboli-team", "--set", "schedulerName=team")
    assert " ".join(own) in refused.stderr
    # One of another name would serve the same pods, by a lease of its own.
    refused = helm("install", "other", "charts/stromboli", *sets)
    assert f"the release stromboli in namespace {NAMESPACE} schedules the pods of stromboli" in refused.stderr
    done = helm("install", "stromboli", "charts/stromboli", *sets, *own)
    assert done.returncode == 0, done.stderr
    try:
        accounts = world.cluster.service_account_kubeconfig
        first = start(*deployed(world, tmp_path), kubeconfig=accounts(NAMESPACE, "stromboli"))
        arguments = deployed(world, tmp_path, "stromboli-team", "team")
        second = start(*arguments, kubeconfig=accounts("team", "stromboli-team"))
        assert [each.metric("stromboli_leading") for each in (first, second)] == [1, 1]
        for name in ("stromboli", "team"):
            world.group(name, 2)
            world.pods([pod(f"{name}-{number}", name, scheduler=name) for number in range(2)])
        eventually(lambda: world.bound() == {"stromboli": 2, "team": 2})
        assert second.end() == 0
        # What one leaves is neither the rights of the other nor the definitions.
        assert helm("uninstall", "stromboli", "--wait", *elsewhere).returncode == 0
        world.gang("after", 2)
        eventually(lambda: world.bound()["after"] == 2)
        # And under another name it is back.
        done = helm("install", "again", "charts/stromboli", *sets, "--set", "schedulerName=team")
        assert done.returncode == 0, done.stderr
        arguments = deployed(world, tmp_path, "again-stromboli", "team")
        start(*arguments, kubeconfig=accounts("team", "again-stromboli"))
        world.pods([pod("team-2", "team", scheduler="team")])
        eventually(lambda: world.bound()["team"] == 3)
        assert helm("uninstall", "again", "--wait", *elsewhere).returncode == 0
    finally:
        helm("uninstall", "stromboli", *elsewhere)
        world.api.delete("/api/v1/namespaces/team").raise_for_status()


def test_a_rollback_amid_bindings_binds_nothing_twice_and_loses_nothing(
    release: World, helm: Helm, start: Start, audit: Audit, tmp_path: Path
) -> None:
    """An upgrade brings another policy and limits, and is taken back while gangs are bound and one waits."""
    world, gangs, size = release, 8, 10
    world.nodes(size, cpu=str(gangs + 1))
    account = world.cluster.service_account_kubeconfig(NAMESPACE, "stromboli")

    def replica(of: str, *more: str) -> Service:
        """A replica as the Deployment has it now; there is no kubelet to start one."""
        (folder := tmp_path / of).mkdir()
        return start(*deployed(world, folder), *more, kubeconfig=account)

    first = replica("first")
    world.gang("runs", size)
    eventually(lambda: world.bound()["runs"] == size)
    ran, before = world.placed(), deployed(world, tmp_path)
    done = helm("upgrade", "stromboli", "charts/stromboli", "--no-hooks", "--set", "leaderElection.leaseDuration=9")
    assert done.returncode == 0, done.stderr
    assert deployed(world, tmp_path) != before
    second = replica("second", "--binds-per-second", "1")
    assert first.end() == 0
    with PodWatch(world.cluster, world.namespace) as watch:
        for number in range(gangs):
            world.gang(f"gang-{number}", size)
        watch.wait_bound(size + 3)
        # Seconds later than the others, so that it is served after them.
        world.gang("waits", 2 * size)
        done = helm("rollback", "stromboli", "--no-hooks")
        assert done.returncode == 0, done.stderr
        assert deployed(world, tmp_path) == before
        # As a Deployment rolls: the new replica is ready before the old one is told to end.
        third = replica("third")
        assert len(watch.bound) < size * gangs, "all was bound before the rollback"
        assert second.end() == 0
        watch.wait_bound(size * (gangs + 1))
        assert watch.moved == []
    assert world.placed().items() >= ran.items()
    assert world.bound() == {"runs": size} | {f"gang-{number}": size for number in range(gangs)}
    assert max(audit.accepted(world.namespace).values()) == 1
    eventually(lambda: world.condition("waits", "Unschedulable") != {})
    for gang, member in product(range(2), range(size)):
        path = f"{CORE}/namespaces/{world.namespace}/pods/gang-{gang}-{member}"
        world.api.delete(path, params={"gracePeriodSeconds": "0"}).raise_for_status()
    eventually(lambda: world.bound()["waits"] == 2 * size)
    assert third.end() == 0


def test_the_test_of_a_release_starts_a_gang(release: World, helm: Helm, start: Start, tmp_path: Path) -> None:
    release.nodes(2, cpu="1")
    assert helm("test", "stromboli", "--timeout", "1s").returncode != 0, "nobody is there to place it"
    account = release.cluster.service_account_kubeconfig(NAMESPACE, "stromboli")
    start(*deployed(release, tmp_path), kubeconfig=account)
    done = helm("test", "stromboli", "--timeout", "60s")
    assert done.returncode == 0, done.stderr


def given_devices(world: World) -> None:
    """Have claims allocated that another client changes meanwhile."""
    devices = Devices(world)
    devices.device_class("gpu")
    devices.slice("gpus", [{"name": f"gpu-{number}"} for number in range(20)], allNodes=True)
    with disturbed(world, [f"{devices.claims}/claims-{number}" for number in range(20)]):
        devices.gang("claims", 20, cpu="1m")
        eventually(lambda: len(devices.allocated()) == 20)
    devices.clear()
    given_extended_resources(world, devices)


def given_extended_resources(world: World, devices: Devices) -> None:
    """Have a pod get a claim for its extended resources in place of one that an earlier attempt left."""
    devices.slice("late", [{"name": "gpu-0"}], allNodes=True)
    resources = {"requests": {"cpu": "1m", "example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}
    world.pods([pod("extended", containers=[{"name": "main", "image": "example.com/x:1", "resources": resources}])])
    uid = world.get(f"{CORE}/namespaces/{world.namespace}/pods/extended")["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "extended", "uid": uid, "controller": True}
    notes = {"resource.kubernetes.io/extended-resource-claim": "true"}
    metadata = {"name": "left-over", "annotations": notes, "ownerReferences": [owner]}
    world.create(devices.claims, {"metadata": metadata, "spec": {"devices": {}}})
    eventually(lambda: "left-over" not in {claim["metadata"]["name"] for claim in world.items(devices.claims)})
    devices.device_class("gpu", extendedResourceName="example.com/gpu")
    eventually(lambda: world.placed().get("extended", "") != "")
    devices.clear()


def given_volumes(world: World, audit: Audit) -> None:
    """Have claims bound, until another client has changed one of them, and one of the volumes, a moment before."""
    disks = Disks(world)
    world.nodes(1, cpu="4", prefix="disk")
    disks.storage_class("local")
    disks.storage_class("made", PROVISIONER)
    with Provisioner(world.cluster, world.namespace):
        for gang in range(10):
            if {"get persistentvolumes", "get persistentvolumeclaims"} <= audit.used():
                break
            bound_amid_changes(disks, f"disks-{gang}")
    disks.clear()


def bound_amid_changes(disks: Disks, gang: str) -> None:
    """Have the claims of a gang bound while these and the volumes change all the time."""
    names = [f"{gang}-{number}" for number in range(8)]
    disks.volumes([volume(name, "disk-0", "local") for name in names])
    claims = [(f"{name}-{of}", of) for name in names for of in ("local", "made")]
    disks.claim_all([disks.claim(name, of) for name, of in claims])
    of_claims = [f"{disks.claims}/{name}" for name, _ in claims]
    with disturbed(disks.world, of_claims), disturbed(disks.world, [f"{VOLUMES}/{name}" for name in names]):
        disks.world.group(gang, len(names))
        disks.world.pods([pod_with_claims(n, f"{n}-local", f"{n}-made", group=gang, cpu="1m") for n in names])
        eventually(lambda: {name for name, _ in claims} <= disks.bound().keys())


def closed_by_command(world: World) -> None:
    """Have a queue closed as `vcctl` does, and with it the one below."""
    world.queue("above")
    world.queue("below", parent="above")
    commands = f"/apis/bus.volcano.sh/v1alpha1/namespaces/{world.namespace}/commands"
    target = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "name": "above"}
    command = {"apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Commands", "metadata": {"name": "close"}}
    world.create(commands, {**command, "action": "CloseQueue", "target": target})
    below = "/apis/scheduling.volcano.sh/v1beta1/queues/below"
    eventually(lambda: world.get(below).get("status", {}).get("state") == "Closed")
    eventually(lambda: world.items(commands) == [])


def scaled_down(world: World) -> None:
    """Have a workload that goes on lose a replica, and with it its PodGroup."""
    group, kind = SET
    sets = f"/apis/{group}/v1/namespaces/{world.namespace}/leaderworkersets"
    spec = {"replicas": 1, "leaderWorkerTemplate": {"size": 1, "workerTemplate": {"spec": pod("")["spec"]}}}
    whole = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": "serve"}, "spec": spec}
    meta = world.create(sets, whole)["metadata"]
    replica = pod("serve-0", cpu="100m")
    owner = {"apiVersion": f"{group}/v1", "kind": kind, "name": "serve", "uid": meta["uid"], "controller": True}
    labels = {"leaderworkerset.sigs.k8s.io/group-index": "0"}
    replica["metadata"] |= {"labels": labels, "ownerReferences": [owner]}
    world.pods([replica])
    eventually(lambda: "serve-0" in world.placed())
    headers = {"Content-Type": "application/merge-patch+json"}
    world.api.patch(f"{sets}/serve", json={"spec": {"replicas": 0}}, headers=headers).raise_for_status()
    pods = f"{CORE}/namespaces/{world.namespace}/pods"
    world.api.delete(f"{pods}/serve-0", params={"gracePeriodSeconds": "0"}).raise_for_status()
    eventually(lambda: not any(meta["uid"] in each["metadata"]["name"] for each in world.groups()), 60)


async def reviewed(world: World) -> None:
    """Ask who a user is and what the user may read, with the rights of the service."""
    own = yaml.safe_load(world.cluster.service_account_kubeconfig(NAMESPACE, "stromboli").read_text())
    kube = Kube(Credentials.load(world.cluster.service_account_kubeconfig(NAMESPACE, "stromboli")))
    try:
        reviews = AccessReviews(kube)
        user = await reviews.user(own["users"][0]["user"]["token"])
        assert user is not None
        assert not await reviews.may(user, "get", "", "secrets", world.namespace)
    finally:
        await kube.close()


def owned(world: World) -> list[Object]:
    """Pods for whose gangs owners of each kind are asked. All of them exist: references to others would be removed."""
    labels = {"app": "owner"}
    template = {**pod(""), "metadata": {"labels": labels}}
    once = {"template": {"spec": {**pod("")["spec"], "restartPolicy": "Never"}}}
    alike = {"selector": {"matchLabels": labels}, "template": template}
    specs: dict[tuple[str, str], Object] = {
        ("apps/v1", "ReplicaSet"): {"replicas": 0, **alike},
        ("apps/v1", "StatefulSet"): {"replicas": 0, "serviceName": "owner", **alike},
        ("apps/v1", "DaemonSet"): alike,
        ("batch/v1", "Job"): {"suspend": True, **once},
        ("apps/v1", "Deployment"): {"replicas": 0, **alike},
        ("batch/v1", "CronJob"): {"suspend": True, "schedule": "0 0 1 1 *", "jobTemplate": {"spec": once}},
        ("v1", "ReplicationController"): {"replicas": 0, "selector": labels, "template": template},
    }
    references = []
    for (version, kind), spec in specs.items():
        root = f"/apis/{version}" if "/" in version else CORE
        path = f"{root}/namespaces/{world.namespace}/{kind.lower()}s"
        meta = world.create(path, {"metadata": {"name": "owner"}, "spec": spec})["metadata"]
        references.append({"apiVersion": version, "kind": kind, "name": "owner", "uid": meta["uid"]})
    first, second = pod("owned", cpu="100m"), pod("owned-too", cpu="100m")
    first["metadata"]["ownerReferences"], second["metadata"]["ownerReferences"] = references[:4], references[4:]
    return [first, second]


def granted(world: World) -> Iterator[str]:
    """All that the chart's roles allow."""
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    for role in (f"{rbac}/clusterroles/stromboli", f"{rbac}/namespaces/{NAMESPACE}/roles/stromboli"):
        for rule in world.get(role)["rules"]:
            for parts in product(rule["verbs"], rule["apiGroups"], rule["resources"]):
                yield right(*parts)


@contextmanager
def subresource_removed(world: World, definitions: list[Object]) -> Iterator[None]:
    """PodGroups as Volcano defines them, while the context lasts."""
    ours = next(d for d in definitions if d["spec"]["names"]["kind"] == "PodGroup")
    path, headers = f"{CRDS}/{ours['metadata']['name']}", {"Content-Type": "application/merge-patch+json"}
    versions = without_status(ours)["spec"]["versions"]
    world.api.patch(path, json={"spec": {"versions": versions}}, headers=headers).raise_for_status()
    yield
    restored = {"spec": {"versions": ours["spec"]["versions"]}}
    world.api.patch(path, json=restored, headers=headers).raise_for_status()


def definition(group: str, version: str, plural: str) -> Object:
    """A definition that says nothing of what is in its objects."""
    anything = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    names = {"plural": plural, "singular": plural[:-1], "kind": plural.title()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "annotations": {"api-approved.kubernetes.io": "unapproved, a test"}},
        "spec": {
            "group": group,
            "names": names,
            "scope": "Namespaced" if plural == "commands" else "Cluster",
            "versions": [{"name": version, "served": True, "storage": True, "schema": anything}],
        },
    }


def deployed(world: World, directory: Path, name: str = "stromboli", namespace: str = NAMESPACE) -> list[str]:
    """The arguments that the Deployment gives to `run`, with its policy as a file; tests listen elsewhere."""
    deployment = world.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}")
    container: Object = deployment["spec"]["template"]["spec"]["containers"][0]
    command, *arguments = container["args"]
    assert command == "run"
    config = world.get(f"/api/v1/namespaces/{namespace}/configmaps/{name}")["data"]
    at = arguments.index("--policy") + 1
    policy = directory / Path(arguments[at]).name
    policy.write_text(config[policy.name])
    arguments[at] = str(policy)
    at = arguments.index("--listen")
    return [*arguments[:at], *arguments[at + 2 :], "--lease-namespace", namespace]
