"""Who may use which queue, on a real API server: what the chart's admission policies do, and what sessions say."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.controlplane.cluster import Cluster, eventually
from tests.e2e.conftest import Start
from tests.e2e.world import CORE, SCHEDULING, Object, World, define, pod

pytestmark = pytest.mark.e2e

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
QUEUES = "scheduling.volcano.sh/v1beta1"
PATCH = {"Content-Type": "application/merge-patch+json"}
SERVED = [
    f"--api-versions=admissionregistration.k8s.io/v1/{kind}"
    for kind in ("MutatingAdmissionPolicy", "ValidatingAdmissionPolicy")
]
#: creates the objects of a template of the chart with some values
Apply = Callable[..., None]


def create(world: World, helm: Path, repository: Path, template: str, *values: str) -> Iterator[str]:
    """Create the objects of a template of the chart with some values; their paths."""
    sets = [part for value in values for part in ("--set", value)]
    command = [str(helm), "template", "stromboli", "charts/stromboli", "--namespace", world.namespace]
    done = subprocess.run(
        [*command, "--show-only", f"templates/{template}", *sets, *SERVED],
        cwd=repository,
        env={"HOME": os.environ.get("HOME", "/")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for manifest in yaml.safe_load_all(done.stdout):
        if manifest:
            kind = manifest["kind"]
            plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
            path = f"/apis/{manifest['apiVersion']}/{plural.lower()}"
            yield f"{path}/{world.create(path, manifest)['metadata']['name']}"


@pytest.fixture
def apply(world: World, helm_binary: Path, repository: Path) -> Iterator[Apply]:
    made: list[str] = []

    def run(template: str, *values: str) -> None:
        made.extend(create(world, helm_binary, repository, template, *values))

    yield run
    for path in reversed(made):
        world.api.delete(path).raise_for_status()
    # The API server forgets a policy a moment later.
    groups, pods = f"{SCHEDULING}/namespaces/{world.namespace}/podgroups", f"{CORE}/namespaces/{world.namespace}/pods"
    tried = ((groups, group("nobody")), (pods, pod("tried", scheduler="default-scheduler")))
    eventually(lambda: not any(refused(world, *each) for each in tried))


@pytest.fixture
def board(world: World) -> World:
    """Two nodes, and queues: for the namespace `board` and those with a label, for none, and for all."""
    world.nodes(2, cpu="10")
    world.queue("open")
    selector = "stromboli.io/team in (board, cfo),!stromboli.io/intern"
    restricted = {
        "board-only": {"stromboli.io/namespaces": "board", "stromboli.io/namespace-selector": selector},
        "nobody": {"stromboli.io/namespaces": ""},
    }
    for name, said in restricted.items():
        metadata = {"name": name, "annotations": said}
        kind = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
        world.create(f"{SCHEDULING}/queues", {**kind, "metadata": metadata, "spec": {"weight": 1}})
    return world


def label(world: World, **labels: str | None) -> None:
    """Change labels of the namespace; they begin with stromboli.io."""
    named = {f"stromboli.io/{name}": value for name, value in labels.items()}
    path = f"{CORE}/namespaces/{world.namespace}"
    world.api.patch(path, json={"metadata": {"labels": named}}, headers=PATCH).raise_for_status()


def refused(world: World, path: str, manifest: Object) -> str:
    """What the API server says against an object, empty when it would take it."""
    answer = world.api.post(path, json=manifest, params={"dryRun": "All"})
    return "" if answer.is_success else str(answer.json()["message"])


def group(queue: str) -> Object:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "tried"},
        "spec": {"minMember": 1, "queue": queue},
    }


def job(**labels: str) -> Object:
    """A Job; the names of labels end in queue-name."""
    template = {"spec": {**pod("x")["spec"], "restartPolicy": "Never"}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "tried", "labels": {f"{key}.x-k8s.io/queue-name": value for key, value in labels.items()}},
        "spec": {"template": template},
    }


def test_what_names_a_queue_of_other_namespaces_is_refused_at_admission(board: World, apply: Apply) -> None:
    apply("queueaccess.yaml")
    groups = f"{SCHEDULING}/namespaces/{board.namespace}/podgroups"
    pods, jobs = f"{CORE}/namespaces/{board.namespace}/pods", f"/apis/batch/v1/namespaces/{board.namespace}/jobs"
    message = f"queue board-only takes no jobs of namespace {board.namespace}"
    eventually(lambda: message in refused(board, groups, group("board-only")))

    named = pod("tried", annotations={"scheduling.volcano.sh/queue-name": "board-only"})
    assert message in refused(board, pods, named)
    assert message in refused(board, jobs, job(kueue="board-only"))
    for path, manifest in ((groups, group("open")), (pods, pod("tried")), (jobs, job())):
        assert refused(board, path, manifest) == ""

    # An object that stands may not move there, and one that is there already may change otherwise.
    board.group("stands", 1, queue="open")
    move = board.api.patch(f"{groups}/stands", json={"spec": {"queue": "board-only"}}, headers=PATCH)
    assert move.status_code == 403
    assert message in move.text
    label(board, team="cfo")
    eventually(lambda: refused(board, groups, group("board-only")) == "")
    board.api.patch(f"{groups}/stands", json={"spec": {"queue": "board-only"}}, headers=PATCH).raise_for_status()
    label(board, team="web")
    eventually(lambda: message in refused(board, groups, group("board-only")))
    board.api.patch(f"{groups}/stands", json={"spec": {"minMember": 2}}, headers=PATCH).raise_for_status()

    label(board, team="board", intern="yes")
    eventually(lambda: message in refused(board, groups, group("board-only")))


def test_workloads_are_made_while_queues_are_not_defined(
    new_cluster: Callable[..., Cluster], definitions: list[Object], helm_binary: Path, repository: Path
) -> None:
    world = World(new_cluster(), "default")
    list(create(world, helm_binary, repository, "queueaccess.yaml"))
    jobs = f"/apis/batch/v1/namespaces/{world.namespace}/jobs"
    # The API server takes a policy in within a second or two.
    for _ in range(20):
        assert refused(world, jobs, job(kueue="nobody")) == ""
        time.sleep(0.25)
    define(world.api, definitions)
    metadata = {"name": "nobody", "annotations": {"stromboli.io/namespaces": ""}}
    world.create(f"{SCHEDULING}/queues", {"apiVersion": QUEUES, "kind": "Queue", "metadata": metadata, "spec": {}})
    eventually(lambda: "takes no jobs of namespace" in refused(world, jobs, job(kueue="nobody")), 60)


@pytest.mark.parametrize(
    ("selector", "allowed"),
    [
        ("stromboli.io/team=cfo", True),
        ("stromboli.io/team==web", False),
        ("stromboli.io/team!=web", True),
        ("stromboli.io/team notin (cfo, board)", False),
        ("stromboli.io/team in (web,cfo), !stromboli.io/intern", True),
        ("stromboli.io/team", True),
        ("!stromboli.io/team", False),
        ("gpu", False),
    ],
)
def test_admission_selects_the_namespaces_that_sessions_select(
    board: World, apply: Apply, start: Start, selector: str, allowed: bool
) -> None:
    label(board, team="cfo")
    note = {"stromboli.io/namespace-selector": selector, "stromboli.io/namespaces": None}
    path = f"{SCHEDULING}/queues/board-only"
    board.api.patch(path, json={"metadata": {"annotations": note}}, headers=PATCH).raise_for_status()
    board.gang("asks", 1, queue="board-only")
    start()
    if allowed:
        eventually(lambda: board.bound() == {"asks": 1})
    else:
        eventually(lambda: board.refused() == {"asks-0": "NamespaceNotAllowed"})
    apply("queueaccess.yaml")
    groups = f"{SCHEDULING}/namespaces/{board.namespace}/podgroups"
    eventually(lambda: "queue nobody takes no jobs" in refused(board, groups, group("nobody")))
    eventually(lambda: (refused(board, groups, group("board-only")) == "") is allowed)


def test_sessions_refuse_what_was_not_refused_at_admission(board: World, start: Start) -> None:
    board.gang("tenant", 2, queue="board-only")
    board.gang("own", 2, queue="open")
    start()
    eventually(lambda: board.bound() == {"own": 2})
    eventually(lambda: board.refused() == dict.fromkeys(("tenant-0", "tenant-1"), "NamespaceNotAllowed"))
    said = board.condition("tenant", "Unschedulable")
    assert said["reason"] == "NamespaceNotAllowed"
    assert f"queue board-only takes no jobs of namespace {board.namespace}" in said["message"]
    eventually(lambda: any("NamespaceNotAllowed" in event.get("note", "") for event in board.events()))

    label(board, team="cfo")
    eventually(lambda: board.bound() == {"own": 2, "tenant": 2})


def test_no_pod_passes_the_queues_in_a_guarded_namespace(board: World, plane: Cluster, apply: Apply) -> None:
    others = ("otherServices={kwok}", "bypassGuard.schedulerNames={batch}")
    apply("queueaccess.yaml", "bypassGuard.enabled=true", "queueAccess=false", *others)
    pods = f"{CORE}/namespaces/{board.namespace}/pods"
    past = pod("tried", scheduler="default-scheduler")
    label(board, guarded="true")
    eventually(lambda: "set schedulerName: stromboli instead of default-scheduler" in refused(board, pods, past))
    assert refused(board, pods, pod("tried")) == refused(board, pods, pod("tried", scheduler="batch")) == ""
    through = pod("tried", scheduler="default-scheduler", annotations={"scheduling.volcano.sh/queue-name": "open"})
    assert refused(board, pods, through) == ""
    assert "cannot name their node" in refused(board, pods, pod("tried", nodeName="node-0"))

    board.pods([pod("waits")])
    binding = {"metadata": {"name": "waits"}, "target": {"kind": "Node", "name": "node-0"}}
    assert "are bound by their scheduler only" in refused(board, f"{pods}/waits/binding", binding)
    for user in ("scheduler", "kwok"):
        with plane.client(user=user) as scheduler:
            scheduler.post(f"{pods}/waits/binding", json=binding, params={"dryRun": "All"}).raise_for_status()
    label(board, guarded=None)
    eventually(lambda: refused(board, pods, past) == "")


GROUP, QUEUE = "scheduling.k8s.io/group-name", "scheduling.volcano.sh/queue-name"


@pytest.fixture
def guarded(board: World, apply: Apply) -> World:
    """The guard, for pods of the service and of kube-scheduler's that name a queue."""
    apply("queueaccess.yaml", "bypassGuard.enabled=true", "queueAccess=false", "otherServices={kwok}")
    label(board, guarded="true")
    pods = f"{CORE}/namespaces/{board.namespace}/pods"
    eventually(lambda: bool(refused(board, pods, pod("tried", scheduler="default-scheduler"))))
    return board


@pytest.mark.parametrize("scheduler", ["stromboli", "default-scheduler"])
def test_no_pod_leaves_its_queue_in_a_guarded_namespace(guarded: World, scheduler: str) -> None:
    pods = f"{CORE}/namespaces/{guarded.namespace}/pods"
    notes = {GROUP: "gang", QUEUE: "open"}
    guarded.pods([pod("waits", scheduler=scheduler, annotations=notes, schedulingGates=[{"name": "example.com/own"}])])

    def changed(api: httpx.Client, **said: Any) -> str:
        answer = api.patch(f"{pods}/waits", json={"metadata": said}, headers=PATCH, params={"dryRun": "All"})
        return "" if answer.is_success else str(answer.json()["message"])

    for said in ({GROUP: None}, {GROUP: "another"}, {QUEUE: None}, {GROUP: None, QUEUE: None}):
        assert "stay in their PodGroup" in changed(guarded.api, annotations=said)
        with guarded.cluster.client(user="kwok") as service:
            assert changed(service, annotations=said) == ""
    assert changed(guarded.api, annotations={QUEUE: "nobody"}, labels={"a": "b"}, finalizers=["example.com/f"]) == ""


def test_controllers_and_kubelets_in_a_guarded_namespace(guarded: World) -> None:
    """What a controller makes is looked at as if a user had made it; what a kubelet runs by itself is there already."""
    apps = f"/apis/apps/v1/namespaces/{guarded.namespace}/replicasets"
    for name, scheduler in (("past", "default-scheduler"), ("through", "stromboli")):
        template = {"metadata": {"labels": {"a": name}}, "spec": pod("x", scheduler=scheduler)["spec"]}
        spec = {"replicas": 1, "selector": {"matchLabels": {"a": name}}, "template": template}
        guarded.create(apps, {"metadata": {"name": name}, "spec": spec})
    eventually(lambda: [each["metadata"]["labels"]["a"] for each in guarded.items(guarded._pods)] == ["through"])

    def said() -> list[str]:
        return [condition["message"] for condition in guarded.get(f"{apps}/past")["status"].get("conditions", ())]

    eventually(lambda: any("scheduled through queues" in message for message in said()))
    mirror = pod("mirror", scheduler="default-scheduler", nodeName="node-0")
    mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "0"
    node = guarded.get(f"{CORE}/nodes/node-0")["metadata"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": "node-0", "uid": node["uid"], "controller": True}
    mirror["metadata"]["ownerReferences"] = [owner]
    who = [("Impersonate-User", "system:node:node-0"), ("Impersonate-Group", "system:nodes")]
    with guarded.cluster.client() as kubelet:
        kubelet.headers = httpx.Headers([*kubelet.headers.multi_items(), *who, ("Impersonate-Group", ROOT)])
        kubelet.post(guarded._pods, json=mirror, params={"dryRun": "All"}).raise_for_status()


RULES = """
actions: "enqueue, allocate"
tiers: [{plugins: [{name: gang}, {name: predicates}]}]
queueRules:
- {queue: open, groups: [research]}
- {queue: "user-{user}", create: true}
"""


def identity(obj: Object) -> tuple[str, list[str]]:
    said = obj["metadata"].get("annotations", {})
    return said.get("stromboli.io/user", ""), said.get("stromboli.io/groups", "").split("\n")


def as_user(world: World, user: str, group: str, name: str) -> Object:
    """A Job of a user who claims to be another one in it and in its template."""
    lie = {"stromboli.io/user": "ceo", "stromboli.io/groups": "board"}
    manifest = job()
    manifest["metadata"] |= {"name": name, "annotations": lie}
    manifest["spec"]["template"]["metadata"] = {"annotations": lie}
    with world.cluster.client() as client:
        client.headers = httpx.Headers(
            [
                *client.headers.multi_items(),
                ("Impersonate-User", user),
                *(("Impersonate-Group", each) for each in (group, ROOT)),
            ]
        )
        answer = client.post(f"/apis/batch/v1/namespaces/{world.namespace}/jobs", json=manifest)
    assert answer.is_success, answer.text
    made: Object = answer.json()
    return made


#: who may do everything
ROOT = "system:masters"


def test_who_made_a_workload_is_known_and_cannot_be_forged(
    board: World, apply: Apply, start: Start, tmp_path: Path
) -> None:
    accounts = f"{CORE}/namespaces/{board.namespace}/serviceaccounts"
    board.create(accounts, {"metadata": {"name": "stromboli"}})
    rights = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    binding = {
        "metadata": {"name": board.namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "stromboli", "namespace": board.namespace}],
    }
    board.create(rights, binding)
    apply("useridentity.yaml", "userIdentity.enabled=true", "otherServices={kwok}")
    pods = f"{CORE}/namespaces/{board.namespace}/pods"

    def tried() -> str:
        answer = board.api.post(pods, json=pod("tried"), params={"dryRun": "All"})
        return identity(answer.json())[0]

    eventually(lambda: tried() == "admin")
    with board.cluster.client(user="kwok") as other:
        follows = pod("tried", annotations={"stromboli.io/user": "alice"})
        made = other.post(pods, json=follows, params={"dryRun": "All"}).raise_for_status().json()
    assert identity(made)[0] == "alice"
    research = as_user(board, "alice", "research", "first")
    assert identity(research)[0] == "alice"
    assert {"research", "board"} & set(identity(research)[1]) == {"research"}
    as_user(board, "bob@example.com", "web", "second")
    jobs = f"/apis/batch/v1/namespaces/{board.namespace}/jobs"
    lie = {"metadata": {"annotations": {"stromboli.io/user": "ceo"}, "labels": {"changed": "yes"}}}
    changed = board.api.patch(f"{jobs}/first", json=lie, headers=PATCH).raise_for_status().json()
    assert identity(changed)[0] == "alice"
    assert changed["metadata"]["labels"]["changed"] == "yes"
    eventually(lambda: len(board.items(pods)) == 2)
    assert {identity(made)[0] for made in board.items(pods)} == {""}

    policy = tmp_path / "policy.conf"
    policy.write_text(RULES)
    kubeconfig = board.cluster.service_account_kubeconfig(board.namespace, "stromboli")
    start("--policy", str(policy), kubeconfig=kubeconfig)
    eventually(lambda: len(board.placed()) == 2)
    groups = {group["metadata"]["ownerReferences"][0]["name"]: group for group in board.groups()}
    assert {name: group["spec"]["queue"] for name, group in groups.items()} == {
        "first": "open",
        "second": "user-bob-example-com",
    }
    assert {name: identity(group)[0] for name, group in groups.items()} == {
        "first": "alice",
        "second": "bob@example.com",
    }
    assert "user-bob-example-com" in board.queues()
    board.api.delete(f"{rights}/{board.namespace}").raise_for_status()


def test_pods_of_gangs_get_their_gate_where_the_namespace_says_so(board: World, apply: Apply) -> None:
    apply("ganggate.yaml", "gangGate.enabled=true")
    pods = f"{CORE}/namespaces/{board.namespace}/pods"

    def gates(manifest: Object) -> list[str]:
        answer = board.api.post(pods, json=manifest, params={"dryRun": "All"}).raise_for_status()
        return [gate["name"] for gate in answer.json()["spec"].get("schedulingGates", ())]

    member = pod("tried", "gang", scheduler="default-scheduler")
    assert gates(member) == []
    label(board, **{"gang-gate": "true"})
    eventually(lambda: gates(member) == ["stromboli.io/gang"])
    more = pod("tried", "gang", scheduler="default-scheduler", schedulingGates=[{"name": "example.com/data"}])
    assert gates(more) == ["example.com/data", "stromboli.io/gang"]
    assert gates(pod("tried", "gang")) == []
    assert gates(pod("tried", scheduler="default-scheduler")) == []
