"""Which service a command asks: one that is named, one of the cluster, or, saying so, sessions of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from stromboli.devserver import Options
from stromboli.state.cluster import ClusterState
from tests.builders import gang, node, pod_group, queue, state
from tests.cli.conftest import stromboli
from tests.live.cluster import Cluster
from tests.ui.cluster import Ran, served

#: only with it queue a deserves what its spec says
CAPACITY = """
actions: "enqueue, allocate"
tiers:
- plugins: [{name: gang}, {name: predicates}, {name: capacity}]
"""
NAMESPACE = "stromboli-system"
SCENARIO = """
name: half of a gang
config: |
  actions: "allocate"
  tiers:
  - plugins: [{name: gang}, {name: predicates}]
objects:
- {kind: Node, metadata: {name: n}, status: {allocatable: {cpu: "4", memory: 16Gi, pods: "10"}}}
- {kind: Queue, metadata: {name: q}, spec: {weight: 1}, status: {state: Open}}
- {kind: PodGroup, metadata: {name: train, namespace: default}, spec: {minMember: 2, queue: q}}
- kind: Pod
  metadata: {name: train-0, namespace: default, annotations: {scheduling.k8s.io/group-name: train}}
  spec: {schedulerName: volcano, containers: [{name: c, image: i, resources: {requests: {cpu: "1"}}}]}
"""


def known() -> ClusterState:
    """What the service knows: more than the API server does, so one sees who answers."""
    return state(
        *(node("n0"), queue("a", deserved={"cpu": "3"})),
        *(pod_group("waits", 9, queue="a"), *gang("waits", 9)),
    )


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    with served(Ran(known()).app()) as url:
        yield url


@pytest.fixture
def cluster(tmp_path: Path, repository: Path) -> Iterator[str]:
    """An API server, which the kubeconfig names, with a node and queue b."""
    cluster = Cluster(Options(), tmp_path / "config")
    cluster.define(*sorted((repository / "charts/stromboli/files/crds").glob("*.yaml")))
    url, amounts = cluster.server.url, {"cpu": "8", "memory": "8Gi", "pods": "10"}
    _create(url, "/api/v1/nodes", {"kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": amounts}})
    of_b = {"kind": "Queue", "metadata": {"name": "b"}, "spec": {"deserved": {"cpu": 5}}}
    _create(url, "/apis/scheduling.volcano.sh/v1beta1/queues", of_b)
    yield url
    cluster.stop()


def _create(url: str, path: str, manifest: dict[str, Any]) -> None:
    version = path.removeprefix("/apis/").removeprefix("/api/").partition("/namespaces")[0].rpartition("/")[0]
    body = {"apiVersion": version if "/namespaces" not in path else "v1", **manifest}
    httpx.post(url + path, json=body).raise_for_status()


def run_there(url: str, port: int, *, policy: str | None, arguments: tuple[str, ...] = ()) -> None:
    """Pod and ConfigMap of a service, as the chart makes them."""
    of = f"/api/v1/namespaces/{NAMESPACE}"
    _create(url, "/api/v1/namespaces", {"kind": "Namespace", "metadata": {"name": NAMESPACE}})
    if policy is not None:
        data = {"volcano-scheduler.conf": policy}
        _create(url, f"{of}/configmaps", {"kind": "ConfigMap", "metadata": {"name": "conf"}, "data": data})
    container = {
        "name": "stromboli",
        "image": "stromboli",
        "args": ["run", "--policy", "/etc/stromboli/volcano-scheduler.conf", *arguments],
        "ports": [{"name": "http", "containerPort": port}],
        "volumeMounts": [{"name": "policy", "mountPath": "/etc/stromboli"}],
    }
    volume = {"name": "policy", "configMap": {"name": "conf"}}
    labels = {"stromboli.io/leads": "true"}
    spec = {"containers": [container], "volumes": [volume], "nodeName": "n1"}
    _create(url, f"{of}/pods", {"kind": "Pod", "metadata": {"name": "leads", "labels": labels}, "spec": spec})


def of(tmp_path: Path) -> tuple[str, str]:
    """The options that name the cluster."""
    return "--kubeconfig", str(tmp_path / "config")


QUESTIONS = (
    (("queue", "tree"), "a "),
    (("queue", "list"), "a "),
    (("job", "list", "-A"), "waits"),
    (("why", "job", "default/waits"), "NeverFits"),
    (("why", "queue", "a"), "Queue a: Open"),
    (("top", "--once"), "1 node, 1 queue"),
    (("whatif", "-f", "-"), "no difference"),
    (("job", "delete", "default/waits", "--dry-run"), "0 wait after it"),
)


def test_every_question_goes_to_the_service_of_the_cluster(cluster: str, service: str, tmp_path: Path) -> None:
    run_there(cluster, urlsplit(service).port or 0, policy=CAPACITY)
    for words, says in QUESTIONS:
        told = stromboli(*words, *of(tmp_path), stdin="{kind: Queue, metadata: {name: a}, spec: {weight: 1}}")
        assert says in told.stdout, told.output
        assert (told.exit_code, told.stderr) == (0, "")
        assert stromboli(*words, "--url", service, stdin="{kind: Queue, metadata: {name: a}}").exit_code == 0


OF_ITS_OWN = 'actions: "allocate"\ntiers:\n- plugins: [{name: gang}, {name: capacity}]'


@pytest.mark.exhaustive
def test_the_doctor_looks_at_the_policy_and_the_cluster_of_the_service(cluster: str, tmp_path: Path) -> None:
    """Of the policy of the service and its queues, and with one's own rights at Deployments."""
    container = {"name": "c", "image": "i", "args": ["--scheduler-name=volcano"]}
    template = {"metadata": {"labels": {"app": "v"}}, "spec": {"containers": [container]}}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "v"}}, "template": template}
    deployment = {"kind": "Deployment", "metadata": {"name": "v"}, "spec": spec}
    httpx.post(f"{cluster}/apis/apps/v1/namespaces/default/deployments", json=deployment).raise_for_status()
    with served(Ran(known(), policy=OF_ITS_OWN).app()) as url:
        told = stromboli("doctor", "--url", url, *of(tmp_path))
        assert "policy: there is no predicates" in told.stdout, told.output
        assert "queue a: spec.deserved has no effect" not in told.stdout
        assert "default/v has 2 replicas that do not take turns" in told.stdout
        assert (told.exit_code, told.stderr) == (1, "")
        alone = stromboli("doctor", "--url", url, "--kubeconfig", tmp_path / "none")
        assert "policy: there is no predicates" in alone.stdout
        assert "Deployments and definitions are not looked at: " in alone.stderr
        run_there(cluster, urlsplit(url).port or 0, policy=None)
        assert "policy: there is no predicates" in stromboli("doctor", *of(tmp_path)).stdout


@pytest.mark.exhaustive
def test_the_doctor_looks_at_templates_of_workloads_without_pods(cluster: str, service: str, tmp_path: Path) -> None:
    def workload(kind: str, name: str, *, queue: str = "a", scheduler: str = "stromboli", card: str = "cpu") -> None:
        container = {"name": "c", "image": "i", "resources": {"requests": {card: "1"}, "limits": {card: "1"}}}
        pods = {"schedulerName": scheduler, "containers": [container], "restartPolicy": "Never"}
        notes = {"scheduling.volcano.sh/queue-name": queue}
        template = {"metadata": {"labels": {"app": name}, "annotations": notes}, "spec": pods}
        spec: dict[str, Any] = {"template": template}
        if kind == "CronJob":
            spec = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": spec}}
        elif kind == "Job":
            spec |= {"suspend": True}
        else:
            spec |= {"replicas": 0, "selector": {"matchLabels": {"app": name}}}
            pods |= {"restartPolicy": "Always"}
        group = "apps" if kind == "Deployment" else "batch"
        path = f"/apis/{group}/v1/namespaces/default/{kind.lower()}s"
        _create(cluster, path, {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})

    for kind in ("Deployment", "Job", "CronJob"):
        workload(kind, "right")
    workload("CronJob", "nightly", queue="aa")
    workload("Job", "suspended", card="nvidia.com/gpu")
    workload("Deployment", "none", scheduler="stromboly")
    workload("Job", "elsewhere", scheduler="default-scheduler", queue="of another")
    told = stromboli("doctor", "--url", service, *of(tmp_path))
    assert (told.exit_code, told.stderr) == (1, "")
    for line in (
        "queues: there is no queue aa, did you mean 'a'?, for 1 workload (CronJob default/nightly)",
        "pods: no node offers nvidia.com/gpu, for 1 workload (Job default/suspended)",
        "there is no scheduler stromboly, did you mean 'stromboli'?, for 1 workload (Deployment default/none)",
    ):
        assert line in told.stdout, told.stdout
    assert "right" not in told.stdout
    assert "elsewhere" not in told.stdout


def test_what_is_decided_here_is_decided_by_the_policy_of_the_service_and_told(cluster: str, tmp_path: Path) -> None:
    run_there(cluster, 1, policy=CAPACITY)
    told = stromboli("queue", "list", *of(tmp_path), "-o", "json")
    assert "cannot be asked" in told.stderr
    assert f"by the policy of the service {NAMESPACE}/leads: ConfigMap {NAMESPACE}/conf" in told.stderr
    (of_b,) = (each for each in json.loads(told.stdout) if each["name"] == "b")
    assert (of_b["deserved"]["cpu"], of_b["ignored"]) == (5.0, {})


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("found", "says"),
    [(True, "by the default policy: that of the service, in ConfigMap"), (False, "no service was found")],
)
def test_the_default_policy_never_stands_in_silently(cluster: str, tmp_path: Path, found: bool, says: str) -> None:
    if found:
        run_there(cluster, 1, policy=None)
    told = stromboli("queue", "list", *of(tmp_path))
    assert told.exit_code == 0, told.output
    assert says in told.stderr


@pytest.mark.exhaustive
def test_a_policy_that_is_named_is_used_whatever_service_there_is(cluster: str, service: str, tmp_path: Path) -> None:
    run_there(cluster, urlsplit(service).port or 0, policy=CAPACITY)
    (tmp_path / "policy").write_text(CAPACITY)
    told = stromboli("queue", "list", *of(tmp_path), "--policy", tmp_path / "policy", "-o", "json")
    assert [each["name"] for each in json.loads(told.stdout) if each["deserved"].get("cpu") == 5.0] == ["b"]
    assert told.stderr == ""


@pytest.mark.parametrize("with_policy", [False, True])
def test_what_is_named_is_asked_whatever_service_the_environment_has(
    cluster: str, service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_policy: bool
) -> None:
    """A shell keeps the address of the last cluster: its answers would be taken for those of the one that is named."""
    (tmp_path / "policy").write_text(CAPACITY)
    monkeypatch.setenv("STROMBOLI_URL", service)
    of_policy = ("--policy", str(tmp_path / "policy")) if with_policy else ()
    assert [each["name"] for each in json.loads(stromboli("queue", "list", "-o", "json").stdout)] == ["a"]
    asked = json.loads(stromboli("queue", "list", *of(tmp_path), *of_policy, "-o", "json").stdout)
    assert "b" in [each["name"] for each in asked]
    if of_policy:
        told = stromboli("queue", "list", "--url", f"{service}/", *of_policy)
        assert (told.exit_code, told.stdout) == (2, "")
        assert told.stderr.startswith("--policy: the service at --url decides by what it was started with")


@pytest.mark.parametrize(
    ("scheme", "says"),
    [("http", "what answers there is no service of stromboli"), ("https", "what answers there speaks HTTP, not HTTPS")],
)
def test_an_address_at_which_something_else_answers_is_told(cluster: str, scheme: str, says: str) -> None:
    url = cluster.replace("http:", f"{scheme}:")
    told = stromboli("queue", "list", "--url", url)
    assert (told.exit_code, told.stderr) == (2, f"{url}: {says}\n")


def test_a_service_that_is_nowhere_is_told_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setattr("stromboli.cli.sources.DEFAULT_URL", "http://127.0.0.1:1")
    told = stromboli("job", "list")
    assert (told.exit_code, told.stderr.count("\n")) == (2, 1)
    assert "no service answers" in told.stderr
    assert "(--url names a service, --context a cluster)" in told.stderr


def test_jobs_say_how_long_and_at_which_place_they_wait(service: str) -> None:
    (row,) = (line.split() for line in stromboli("job", "list", "-A", "--url", service).output.splitlines()[1:])
    assert row[:6] == ["default", "waits", "a", "Pending", "0/9", "9"]
    (told,) = json.loads(stromboli("job", "list", "-A", "--url", service, "-o", "json").output)
    assert told["since"] == told["created"] > 0


def test_a_scenario_can_be_asked_about(tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    told = stromboli("why", "job", "default/train", "-f", tmp_path / "scenario.yaml")
    assert told.exit_code == 0, told.output
    assert "train waits at " in told.output
