"""The chart on a real API server: it installs, may do what the scheduler does, and nothing more."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import yaml
from typer.testing import CliRunner, Result

from stromboli.api import crd_schema
from stromboli.api.crd_compare import is_ours
from stromboli.cli import make_app
from stromboli.live.leadership.leader_mark import LABEL
from stromboli.policy.document import DEFAULT_POLICY
from tests.controlplane.build import Binaries, monitoring_definitions
from tests.controlplane.cluster import Cluster, eventually

pytestmark = pytest.mark.e2e

NAMESPACE = "stromboli-system"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

RBAC = "rbac.authorization.k8s.io"
#: what it is to read and to write
VERBS = {"read": ("get", "list", "watch"), "write": ("create", "delete", "deletecollection", "patch", "update")}

Helm = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def helm(helm_binary: Path, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    home = tmp_path_factory.mktemp("helm")

    def run(*args: str, cwd: Path = repository) -> subprocess.CompletedProcess[str]:
        environment = {"HOME": str(home), "PATH": ""}
        command = [str(helm_binary), *args]
        return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)

    return run


@pytest.fixture(scope="module")
def installed(binaries: Binaries, helm: Helm) -> Iterator[Cluster]:
    """A cluster of its own, because CRDs stay after an uninstall."""
    with Cluster(binaries) as cluster:
        install(helm, cluster, "--set", "replicas=2")
        yield cluster


@pytest.fixture
def api(installed: Cluster) -> Iterator[httpx.Client]:
    with installed.client() as client:
        yield client


@pytest.fixture
def managed(installed: Cluster) -> Cluster:
    """The cluster, with its controllers."""
    if not installed.runs("kube-controller-manager"):
        installed.start_controller_manager()
    return installed


def test_lint_finds_nothing(helm: Helm) -> None:
    done = helm("lint", "--strict", "charts/stromboli")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "wrong",
    [
        "replica=2",
        "replicas=two",
        "leaderElection.leaseDuration=soon",
        "leaderElection.leaseDuration=601",
        "leaderElection.renewDeadline=7",
        "leaderElection.retryPeriod=5",
        "shard.standInFor[0].name=right,shard.standInFor[0].schedulerName=right",
        "schedulerName=left,shard.name=left,shard.standInFor[0].name=left,shard.standInFor[0].schedulerName=left",
        "service.prot=80",
        "schedulerName=A_B",
        "networkPolicy.form=x",
        "fullnameOverride=1a",
        "nameOverride=A",
        "image.tag=sha256:0a",
        "image.repository=example.com/a@sha256:0a",
        "extenderSchedulerNames={a b}",
        "tls.clientCertificates=true",
    ],
)
def test_a_wrong_value_is_refused_by_name(helm: Helm, wrong: str) -> None:
    done = helm("template", "stromboli", "charts/stromboli", "--set", wrong)
    assert done.returncode != 0
    assert wrong.partition("=")[0].rpartition(".")[2] in done.stderr


def rendered(helm: Helm, *values: str, of: str = "") -> dict[str, Any]:
    """What the chart, or one of its templates, makes with these values, by kind; of several of a kind the last."""
    return {obj["kind"]: obj for obj in made(helm, *values, of=of)}


def made(helm: Helm, *values: str, of: str = "") -> list[Any]:
    """All that the chart, or one of its templates, makes with these values."""
    sets = [part for value in values for part in ("--set", value)] + (["--show-only", of] if of else [])
    done = helm("template", "stromboli", "charts/stromboli", "--namespace", NAMESPACE, *sets)
    assert done.returncode == 0, done.stderr
    return [obj for obj in yaml.safe_load_all(done.stdout) if obj]


def test_a_section_without_values_is_missing(helm: Helm, repository: Path) -> None:
    values = yaml.safe_load((repository / "charts/stromboli/values.yaml").read_text())
    for name in (name for name, value in values.items() if isinstance(value, dict)):
        done = helm("template", "stromboli", "charts/stromboli", "--set", f"{name}=null")
        assert done.returncode == 0 or f"missing property '{name}'" in done.stderr, done.stderr


#: values that are put where a string goes
NAMES = (
    *("image.repository", "image.tag", "schedulerName", "extenderSchedulerNames[0]", "shard.name"),
    *("shard.standInFor[0].name", "serviceAccount.name", "priorityClassName"),
    *("podLabels.a", "podAnnotations.a", "nodeSelector.a", "image.pullSecrets[0].name", "journal.existingClaim"),
    *("tls.secretName", "ui.hosts[0]", "kubeScheduler.kubeconfig", "kubeScheduler.tls.caFile", "extraArgs[0]"),
)


@pytest.mark.parametrize("other", ["schedulerName", "extenderSchedulerNames[0]"])
@pytest.mark.parametrize("word", ["12", "1e3", "null", "true"])
def test_a_string_stays_one_whatever_it_looks_like(helm: Helm, word: str, other: str) -> None:
    """Where one scheduler's name is another than the other's."""

    def kinds(word: str) -> list[str]:
        sets = [part for name in NAMES if name != other for part in ("--set-string", f"{name}={word}")]
        # A shard stands in for others than itself.
        sets += ["--set-string", f"shard.standInFor[0].schedulerName={'other' if word == 'word' else '0'}"]
        sets += ["--set", "journal.disk=1,ui.enabled=true,ui.ownAccount=true,kubeScheduler.enabled=true"]
        sets += ["--set", "serviceMonitor.enabled=true,prometheusRule.enabled=true,dashboard.enabled=true"]
        done = helm("template", word, "charts/stromboli", "--namespace", word, *sets)
        assert done.returncode == 0, done.stderr
        objects = list(yaml.safe_load_all(done.stdout))
        objects += [yaml.safe_load(text) for each in objects if each for text in each.get("data", {}).values()]
        return [f"{at}: {type(value).__name__}" for each in objects for at, value in leaves(each)]

    assert kinds(word) == kinds("word")


def leaves(tree: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """What a document holds that has no parts, by its path."""
    parts = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    if not parts:
        yield at, tree
    for name, part in parts:
        yield from leaves(part, f"{at}/{name}")


def test_an_image_is_named_by_its_tag_or_its_digest(helm: Helm) -> None:
    def named(*values: str) -> set[str]:
        return {
            container["image"]
            for obj in made(helm, *values)
            if obj["kind"] in ("Deployment", "Job")
            for container in obj["spec"]["template"]["spec"]["containers"]
        }

    at = "image.repository=[fd00::1]:5000/stromboli"
    assert named(at, "image.tag=v1") == {"[fd00::1]:5000/stromboli:v1"}
    assert named(at, "image.tag=v1", "image.digest=sha256:0a") == {"[fd00::1]:5000/stromboli@sha256:0a"}


@pytest.mark.parametrize("release", ["12", "1.b", "a.b", "x" * 53, "b" * 50 + ".c"])
def test_every_release_has_names_of_its_own_that_services_may_have(helm: Helm, release: str) -> None:
    def names(release: str) -> set[str]:
        values = "ui.enabled=true,tls.secretName=certificate,nameOverride=" + "n" * 63
        done = helm("template", release, "charts/stromboli", "--set", values)
        assert done.returncode == 0, done.stderr
        services = [obj for obj in yaml.safe_load_all(done.stdout) if obj and obj["kind"] == "Service"]
        assert all(len(label) <= 63 for each in services for label in each["metadata"]["labels"].values())
        return {each["metadata"]["name"] for each in services}

    found = names(release)
    assert [name for name in found if not re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", name)] == []
    assert not found & names(f"{release[:-1]}y")


def test_labels_of_pods_are_added_to_those_they_are_found_by(helm: Helm) -> None:
    name = r"podLabels.app\.kubernetes\.io/name=other"
    spec = rendered(helm, "podLabels.team=a", name, r"podLabels.app\.kubernetes\.io/version=b")["Deployment"]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"].items() <= labels.items()
    assert (labels["team"], labels["app.kubernetes.io/version"]) == ("a", "b")


def test_only_those_who_are_named_may_ask(helm: Helm) -> None:
    policy, pods = (rendered(helm)[kind]["spec"] for kind in ("NetworkPolicy", "Deployment"))
    assert policy["podSelector"] == pods["selector"]
    (rule,) = policy["ingress"]
    assert {"podSelector": {}} in rule["from"]
    assert [port["port"] for port in rule["ports"]] == ["http"]

    more = rendered(helm, "networkPolicy.from[0].ipBlock.cidr=192.0.2.1/32")["NetworkPolicy"]["spec"]
    assert more["ingress"][0]["from"] == [{"ipBlock": {"cidr": "192.0.2.1/32"}}]
    assert "ingress" not in rendered(helm, "networkPolicy.from=null")["NetworkPolicy"]["spec"]
    assert "NetworkPolicy" not in rendered(helm, "networkPolicy.enabled=false")


def test_logs_and_spans_are_as_the_values_say(helm: Helm) -> None:
    endpoint = "http://collector:4318"
    values = ("log.format=json", "env[0].name=OTEL_EXPORTER_OTLP_ENDPOINT", f"env[0].value={endpoint}")
    (container,) = rendered(helm, *values)["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert {"--log-level=info", "--log-format=json"} <= set(container["args"])
    assert {"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": endpoint} in container["env"]


def test_replicas_are_spread_and_have_more_environment(helm: Helm) -> None:
    spread = "topologySpreadConstraints[{}]"
    values = [f"{spread.format(at)}.topologyKey={key}" for at, key in enumerate(("zone", "host"))]
    values += [f"{spread.format(1)}.labelSelector.matchLabels.app=other", "extraEnv[0].name=A", "extraEnv[0].value=b"]
    spec = rendered(helm, *values)["Deployment"]["spec"]
    by_zone, by_host = spec["template"]["spec"]["topologySpreadConstraints"]
    assert by_zone == {"topologyKey": "zone", "labelSelector": {"matchLabels": spec["selector"]["matchLabels"]}}
    assert by_host == {"topologyKey": "host", "labelSelector": {"matchLabels": {"app": "other"}}}
    assert {"name": "A", "value": "b"} in spec["template"]["spec"]["containers"][0]["env"]


def test_a_folder_of_plugins_is_filled_before_the_service_starts(helm: Helm) -> None:
    container = {"name": "plugins", "image": "example.com/plugins:1"}
    values = {
        "extraVolumes": [{"name": "plugins", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "plugins", "mountPath": "/plugins"}],
        "extraInitContainers": [container],
        "extraArgs": ["--plugins-dir=/plugins"],
    }
    done = helm("template", "stromboli", "charts/stromboli", "--show-only", "templates/deployment.yaml",
                *(f"--set-json={name}={json.dumps(value)}" for name, value in values.items()))  # fmt: skip
    pod = yaml.safe_load(done.stdout)["spec"]["template"]["spec"]
    (service,) = pod["containers"]
    assert pod["initContainers"] == [container]
    assert values["extraVolumes"][0] in pod["volumes"]
    assert values["extraVolumeMounts"][0] in service["volumeMounts"]
    assert "--plugins-dir=/plugins" in service["args"]


def test_releases_for_other_scheduler_names_lead_side_by_side(helm: Helm) -> None:
    def held(name: str) -> tuple[str, list[str]]:
        objects = rendered(helm, f"schedulerName={name}")
        (container,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
        lease = next(arg for arg in container["args"] if arg.startswith("--lease-name="))
        (usage,) = [rule["resourceNames"] for rule in objects["Role"]["rules"] if "resourceNames" in rule]
        return lease, usage

    assert held("stromboli") == ("--lease-name=stromboli", ["stromboli-usage"])
    assert held("batch") == ("--lease-name=batch", ["batch-usage"])


def test_a_release_has_the_nodes_of_a_shard(helm: Helm) -> None:
    objects = made(helm, "shard.name=left", "shard.mode=soft", "schedulerName=left")
    deployment = next(each for each in objects if each["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert {"--shard=left", "--shard-mode=soft", "--lease-name=left"} <= set(container["args"])
    rule = {
        "apiGroups": ["shard.volcano.sh"],
        "resources": ["nodeshards/status"],
        "resourceNames": ["left"],
        "verbs": ["patch"],
    }
    roles = {each["metadata"]["name"]: each["rules"] for each in objects if each["kind"] == "ClusterRole"}
    assert rule in roles["stromboli"]
    assert "nodeshards/status" not in str(made(helm))
    other = "shard.standInFor[0].name=right,shard.standInFor[0].schedulerName=theirs"
    standing_in = made(helm, "shard.name=left", "schedulerName=left", other)
    (container,) = next(each for each in standing_in if each["kind"] == "Deployment")["spec"]["template"]["spec"][
        "containers"
    ]
    assert {"--stand-in=theirs", "--stand-in-after=30"} <= set(container["args"])
    named = [rule.get("resourceNames") for each in standing_in if "rules" in each for rule in each["rules"]]
    assert ["left", "right"] in named
    assert ["left-usage", "theirs-usage"] in named
    refused = helm("template", "stromboli", "charts/stromboli", "--set", "shard.mode=loose")
    assert "mode" in refused.stderr


def test_alerts_and_the_dashboard_come_when_they_are_asked_for(helm: Helm, repository: Path) -> None:
    assert "PrometheusRule" not in rendered(helm)
    objects = rendered(helm, "prometheusRule.enabled=true", "prometheusRule.labels.team=a")
    files = repository / "charts/stromboli/files"
    assert objects["PrometheusRule"]["spec"] == yaml.safe_load((files / "alerts.yaml").read_text())
    assert objects["PrometheusRule"]["metadata"]["labels"]["team"] == "a"
    dashboard = rendered(helm, "dashboard.enabled=true", of="templates/dashboard.yaml")["ConfigMap"]
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(dashboard["data"]["stromboli.json"]) == json.loads((files / "dashboard.json").read_text())


def test_one_of_several_releases_is_missed_by_the_labels_it_is_scraped_by(helm: Helm) -> None:
    spec = rendered(helm, "prometheusRule.enabled=true", "serviceMonitor.enabled=true")["PrometheusRule"]["spec"]
    asked = {rule["alert"]: rule["expr"] for group in spec["groups"] for rule in group["rules"]}
    assert asked["StromboliIsGone"] == f'absent(stromboli_leading{{namespace="{NAMESPACE}", job="stromboli"}})'


def test_metrics_are_scraped_of_one_service(helm: Helm) -> None:
    values = ("serviceMonitor.enabled=true", "ui.enabled=true", "tls.secretName=certificate")
    objects = made(helm, *values)
    selected = rendered(helm, *values)["ServiceMonitor"]["spec"]["selector"]["matchLabels"]
    services = [each["metadata"] for each in objects if each["kind"] == "Service"]
    assert [each["name"] for each in services if selected.items() <= each["labels"].items()] == ["stromboli"]
    assert len(services) == 4


def test_alerts_lead_to_the_runbooks_where_these_are_served(helm: Helm) -> None:
    page = "https://example.com/runbooks.html"
    spec = rendered(helm, "prometheusRule.enabled=true", f"prometheusRule.runbooks={page}")["PrometheusRule"]["spec"]
    leads = [rule["annotations"]["runbook_url"] for group in spec["groups"] for rule in group["rules"]]
    assert leads
    assert {each.partition("#")[0] for each in leads} == {page}


def test_the_port_is_served_with_the_certificate_of_a_secret(helm: Helm) -> None:
    values = ("tls.secretName=certificate", "tls.clientCertificates=true", "serviceMonitor.enabled=true")
    objects = rendered(helm, *values)
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    mount = next(mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == "tls")
    given = {f"{mount}/{name}" for name in ("tls.crt", "tls.key", "ca.crt")}
    assert given <= set(container["args"])
    assert {container[f"{name}Probe"]["httpGet"]["scheme"] for name in ("startup", "liveness", "readiness")} == {
        "HTTPS"
    }
    assert {"name": "tls", "secret": {"secretName": "certificate"}} in pod["volumes"]
    assert objects["ServiceMonitor"]["spec"]["endpoints"][0]["scheme"] == "https"


def test_kube_scheduler_finds_the_replica_that_leads(helm: Helm, repository: Path) -> None:
    services = {obj["metadata"]["name"]: obj for obj in made(helm) if obj["kind"] == "Service"}
    config = yaml.safe_load((repository / "deploy" / "kube-scheduler-extender.yaml").read_text())
    address = urlsplit(config["extenders"][0]["urlPrefix"])
    leader = services[str(address.hostname).removesuffix(f".{NAMESPACE}.svc")]
    scraped = services["stromboli"]
    assert leader["spec"]["selector"] == {**scraped["spec"]["selector"], LABEL: "true"}
    assert leader["spec"]["ports"][0]["port"] == address.port


@pytest.mark.parametrize(
    ("value", "served"),
    [
        ("replicas=1", "default-scheduler"),
        ("extenderSchedulerNames={one}", "one"),
        ("extenderSchedulerNames=null", ""),
        ("schedulerName=default-scheduler", ""),
    ],
)
def test_pods_of_the_default_scheduler_are_served_through_the_extender(helm: Helm, value: str, served: str) -> None:
    (container,) = rendered(helm, value)["Deployment"]["spec"]["template"]["spec"]["containers"]
    names = [each.partition("=")[2] for each in container["args"] if each.startswith("--extender-scheduler-name=")]
    assert names == [served]


def test_the_page_has_no_rights_unless_it_is_given_an_account(helm: Helm) -> None:
    plain = page(helm)
    assert {kind for kind, _ in plain} == {"Deployment", "Service", "NetworkPolicy"}
    pod = plain["Deployment", "stromboli-ui"]["spec"]["template"]
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert "--token-file" not in pod["spec"]["containers"][0]["args"]
    given = page(helm, "ui.ownAccount=true")
    rules = given["ClusterRole", "stromboli-ui"]["rules"]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list"}
    assert {kind for rule in rules for kind in rule["resources"]} == {"nodes", "pods", "podgroups", "queues"}
    pod = given["Deployment", "stromboli-ui"]["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "stromboli-ui"
    assert "--token-file" in pod["containers"][0]["args"]


def test_nobody_reaches_the_page_who_is_not_named_and_the_page_reaches_the_service(helm: Helm) -> None:
    objects = page(helm, "ui.hosts={page.example.com}")
    own, asks = objects["NetworkPolicy", "stromboli-ui"]["spec"], objects["NetworkPolicy", "stromboli-ui-asks"]["spec"]
    assert (own["policyTypes"], own.get("ingress")) == (["Ingress"], None)
    labels = objects["Deployment", "stromboli-ui"]["spec"]["template"]["metadata"]["labels"]
    scheduler = rendered(helm)["Deployment"]["spec"]["selector"]["matchLabels"]
    assert own["podSelector"]["matchLabels"].items() <= labels.items()
    assert asks["ingress"][0]["from"][0]["podSelector"] == own["podSelector"]
    assert asks["podSelector"]["matchLabels"] == scheduler
    assert not scheduler.items() <= labels.items()
    replicas = objects["Service", "stromboli-replicas"]["spec"]
    assert (replicas["clusterIP"], replicas["selector"]) == ("None", scheduler)
    arguments = objects["Deployment", "stromboli-ui"]["spec"]["template"]["spec"]["containers"][0]["args"]
    assert arguments[arguments.index("--url") + 1] == f"https://stromboli-replicas.{NAMESPACE}.svc:8080"
    assert "page.example.com" in arguments
    refused = helm("template", "stromboli", "charts/stromboli", "--set", "ui.enabled=true")
    assert "ui.enabled needs tls.secretName" in refused.stderr


def page(helm: Helm, *values: str) -> dict[tuple[str, str], Any]:
    """What the chart makes for the page, by kind and name."""
    objects = made(helm, "ui.enabled=true", "tls.secretName=certificate", *values)
    named = {(obj["kind"], obj["metadata"]["name"]): obj for obj in objects}
    return {key: obj for key, obj in named.items() if key[1].startswith(("stromboli-ui", "stromboli-replicas"))}


def test_the_crds_are_served(api: httpx.Client, repository: Path) -> None:
    files = sorted((repository / "charts" / "stromboli" / "files" / "crds").glob("*.yaml"))
    assert files
    names = [yaml.safe_load(file.read_text())["metadata"]["name"] for file in files]
    eventually(lambda: all("True" in established(api, name) for name in names))


def deployed(api: httpx.Client) -> dict[str, Any]:
    """The spec of the Deployment's pods."""
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/stromboli"
    spec: dict[str, Any] = api.get(path).raise_for_status().json()["spec"]["template"]["spec"]
    return spec


def test_the_deployment_runs_the_configured_policy(api: httpx.Client) -> None:
    pod = deployed(api)
    (container,) = pod["containers"]
    policy = container["args"][container["args"].index("--policy") + 1]
    mount = next(m for m in container["volumeMounts"] if policy.startswith(m["mountPath"] + "/"))
    volume = next(v for v in pod["volumes"] if v["name"] == mount["name"])
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{volume['configMap']['name']}"
    data = api.get(path).raise_for_status().json()["data"]

    values = yaml.safe_load(data[Path(policy).name])

    assert values["actions"] == "enqueue, allocate, backfill"
    assert [plugin["name"] for plugin in values["tiers"][0]["plugins"]] == ["priority", "gang", "conformance"]


def test_the_pod_meets_the_restricted_security_standard(api: httpx.Client) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    api.patch(
        f"/api/v1/namespaces/{NAMESPACE}",
        json={"metadata": {"labels": labels}},
        headers={"Content-Type": "application/merge-patch+json"},
    ).raise_for_status()

    pod = {"metadata": {"name": "probe"}, "spec": deployed(api)}
    answer = api.post(f"/api/v1/namespaces/{NAMESPACE}/pods", params={"dryRun": "All"}, json=pod)

    assert answer.is_success, answer.text


@pytest.mark.parametrize(
    ("verb", "group", "resource"),
    [
        ("watch", "", "nodes"),
        ("watch", "", "pods"),
        ("create", "", "pods/binding"),
        ("patch", "", "pods/status"),
        ("create", "", "pods/eviction"),
        ("create", "", "events"),
        ("list", "policy", "poddisruptionbudgets"),
        ("list", "resource.k8s.io", "resourceclaims"),
        ("update", "resource.k8s.io", "resourceclaims/status"),
        ("update", "resource.k8s.io", "resourceclaims/binding"),
        ("create", "scheduling.volcano.sh", "queues"),
        ("list", "scheduling.k8s.io", "podgroups"),
        ("patch", "scheduling.volcano.sh", "queues/status"),
        ("create", "authentication.k8s.io", "tokenreviews"),
        ("create", "authorization.k8s.io", "subjectaccessreviews"),
    ],
)
def test_the_scheduler_may(installed: Cluster, verb: str, group: str, resource: str) -> None:
    assert may(installed, verb, group, resource, "anywhere")


def test_a_queue_in_use_cannot_be_deleted(api: httpx.Client) -> None:
    queues = "/apis/scheduling.volcano.sh/v1beta1/queues"
    eventually(lambda: api.get(queues).is_success)
    manifest = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "used"}}
    api.post(queues, json=manifest).raise_for_status()
    patch = {"headers": {"Content-Type": "application/merge-patch+json"}}
    api.patch(f"{queues}/used/status", json={"status": {"state": "Open", "running": 2}}, **patch).raise_for_status()

    def refused() -> str:
        answer = api.delete(f"{queues}/used", params={"dryRun": "All"})
        return "" if answer.is_success else answer.text

    eventually(lambda: "queue used has 2 PodGroups that wait or run" in refused())
    api.patch(f"{queues}/used/status", json={"status": {"running": 0, "completed": 2}}, **patch).raise_for_status()
    assert refused() == ""
    api.delete(f"{queues}/used").raise_for_status()


def test_users_may_do_with_podgroups_and_queues_what_the_table_of_roles_says(
    managed: Cluster, api: httpx.Client, repository: Path
) -> None:
    kinds, *roles = table_of_roles(repository)
    for role, *_ in roles:
        bind_role(api, role, {"apiGroup": RBAC, "kind": "Group", "name": role})
    expected = {
        (role, verb, kind): word in granted
        for role, *cells in roles
        for kind, granted in zip(kinds[1:], cells, strict=True)
        for word, verbs in VERBS.items()
        for verb in verbs
    }

    def answers() -> dict[tuple[str, str, str], bool]:
        return {asked: may_in_group(api, *asked) for asked in expected}

    # The controller adds to the roles of the cluster, and the API server learns of it a moment later.
    eventually(lambda: answers() == expected)
    words = "auth can-i create podgroups.scheduling.volcano.sh --namespace research --as alice --as-group"
    for role, told in (("edit", "yes\n"), ("view", "no\n")):
        assert kubectl(managed, *words.split(), role).stdout == told


def test_an_administrator_of_queues_opens_and_closes_them(managed: Cluster, api: httpx.Client) -> None:
    subject = {"kind": "ServiceAccount", "name": "queues", "namespace": "default"}
    api.post("/api/v1/namespaces/default/serviceaccounts", json={"metadata": {"name": "queues"}}).raise_for_status()
    bind_role(api, "stromboli-queue-admin", subject)
    queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "shut"}, "spec": {}}
    api.post("/apis/scheduling.volcano.sh/v1beta1/queues", json=queue).raise_for_status()
    account = managed.service_account_kubeconfig("default", "queues")
    command = [sys.executable, "-m", "stromboli", "queue", "close", "shut", "--kubeconfig", str(account)]

    def closed() -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    eventually(lambda: "queue shut is closed now" in closed())
    api.delete("/apis/scheduling.volcano.sh/v1beta1/queues/shut").raise_for_status()


def test_the_scheduler_may_hold_a_lease_in_its_namespace_only(installed: Cluster) -> None:
    assert may(installed, "update", "coordination.k8s.io", "leases", NAMESPACE)
    assert not may(installed, "update", "coordination.k8s.io", "leases", "kube-system")


def test_the_scheduler_may_write_no_configmap_but_its_own(installed: Cluster) -> None:
    assert may(installed, "create", "", "configmaps", NAMESPACE)
    assert not may(installed, "update", "", "configmaps", NAMESPACE)
    assert not may(installed, "create", "", "configmaps", "kube-system")


@pytest.mark.parametrize(
    ("verb", "group", "resource"),
    [
        ("list", "", "secrets"),
        ("get", "", "nodes"),
        ("create", "events.k8s.io", "events"),
        ("patch", "", "events"),
        ("watch", "apiextensions.k8s.io", "customresourcedefinitions"),
        ("create", "scheduling.k8s.io", "podgroups"),
        ("update", "scheduling.volcano.sh", "podgroups"),
        ("patch", "topology.volcano.sh", "hypernodes/status"),
        ("watch", "coordination.k8s.io", "leases"),
        ("create", "", "pods"),
        ("delete", "", "pods"),
        ("update", "", "nodes"),
        ("delete", "scheduling.volcano.sh", "queues"),
        ("update", "scheduling.volcano.sh", "queues"),
        ("patch", "rbac.authorization.k8s.io", "clusterroles"),
    ],
)
def test_the_scheduler_may_not(installed: Cluster, verb: str, group: str, resource: str) -> None:
    assert not may(installed, verb, group, resource, NAMESPACE)


def test_crds_of_another_owner_stay_until_they_are_taken_over_and_ours_outlive_the_release(
    new_cluster: Callable[..., Cluster], helm: Helm
) -> None:
    cluster = new_cluster()
    queues, groups = (f"{CRDS}/{name}.scheduling.volcano.sh" for name in ("queues", "podgroups"))
    with cluster.client() as api:
        api.post(CRDS, json=foreign_queue_crd()).raise_for_status()
        install(helm, cluster)
        assert api.get(queues).raise_for_status().json()["metadata"]["labels"] == {"installed-by": "volcano"}
        uninstall(helm, cluster)
        eventually(lambda: "True" in established(api, "podgroups.scheduling.volcano.sh"))
        kept = api.get(groups).raise_for_status().json()["metadata"]["uid"]
        install(helm, cluster, "--set", "crds.takeOver=true")
        assert is_ours(api.get(queues).raise_for_status().json())
        assert api.get(groups).raise_for_status().json()["metadata"]["uid"] == kept


def test_a_release_of_another_name_and_namespace_upgrades_the_crds(
    new_cluster: Callable[..., Cluster], helm: Helm
) -> None:
    cluster = new_cluster()
    install(helm, cluster)
    install(helm, cluster, "--set", "schedulerName=batch", "--set", "extenderSchedulerNames=null", release="batch")
    for release in ("stromboli", "batch"):
        uninstall(helm, cluster, release)
    with cluster.client() as api:
        path = f"{CRDS}/queues.scheduling.volcano.sh"
        older = api.get(path).raise_for_status().json()
        (version,) = older["spec"]["versions"]
        del version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["weight"]
        api.put(path, json=older).raise_for_status()
        install(helm, cluster, release="again", namespace="elsewhere")
        (version,) = api.get(path).raise_for_status().json()["spec"]["versions"]
    assert "weight" in version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]


def test_helm_runs_the_jobs_before_a_release_and_leaves_none(new_cluster: Callable[..., Cluster], helm: Helm) -> None:
    """kwok has their pods complete, though it runs none; without it they wait, as for an image that is not there."""
    cluster = new_cluster()
    cluster.start_controller_manager()
    cluster.start_scheduler()
    where = ("--namespace", NAMESPACE, "--kubeconfig", str(cluster.kubeconfig()))
    words = ("stromboli", "charts/stromboli", "--create-namespace", *where)
    done = helm("install", *words, "--timeout", "2s")
    assert done.returncode != 0
    assert "stromboli-policy-check" in done.stderr
    cluster.start_kwok()
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    with cluster.client() as api:
        node = {"metadata": {"name": "n"}, "status": {"capacity": amounts, "allocatable": amounts}}
        api.post("/api/v1/nodes", json=node).raise_for_status()
        done = helm("upgrade", "--install", *words, "--timeout", "120s")
        assert done.returncode == 0, done.stderr
        reasons = {
            (event["involvedObject"]["name"], event["reason"])
            for event in api.get(f"/api/v1/namespaces/{NAMESPACE}/events").raise_for_status().json()["items"]
            if event["involvedObject"]["kind"] == "Job"
        }
        assert {("stromboli-crds", "Completed"), ("stromboli-policy-check", "Completed")} <= reasons
        eventually(lambda: api.get(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs").json()["items"] == [])
        accounts = api.get(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts").json()["items"]
        assert "stromboli-crds" not in {account["metadata"]["name"] for account in accounts}


def test_an_uninstall_leaves_what_the_page_says_and_its_commands_leave_nothing(
    new_cluster: Callable[..., Cluster], helm: Helm, repository: Path
) -> None:
    cluster = new_cluster()
    cluster.start_controller_manager()
    where = ("--kubeconfig", str(cluster.kubeconfig()))
    section = (repository / "docs/chart.md").read_text().partition("## Uninstall\n")[2].partition("\n## ")[0]
    uninstall, *rest = [line.strip() for line in section.splitlines() if line.startswith("    ")]
    with cluster.client() as api:
        foreign = {**foreign_queue_crd(), "metadata": {"name": "jobs.batch.volcano.sh"}}
        foreign["spec"] = {**foreign["spec"], "group": "batch.volcano.sh", "names": {"plural": "jobs", "kind": "Job"}}
        api.post(CRDS, json=foreign).raise_for_status()
        before = beyond_namespaces(cluster)
        install(helm, cluster, "--set", "replicas=2")
        queues = "/apis/scheduling.volcano.sh/v1beta1/queues"
        eventually(lambda: api.get(queues).is_success)
        queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "research"}}
        api.post(queues, json=queue).raise_for_status()
        done = helm(*shlex.split(uninstall)[1:], "--wait", *where)
        assert done.returncode == 0, done.stderr
        ours = {
            f"customresourcedefinition.apiextensions.k8s.io/{each['metadata']['name']}"
            for each in crd_schema.manifests()
        }
        eventually(lambda: beyond_namespaces(cluster) - before == {f"namespace/{NAMESPACE}", *ours})
        assert api.get(f"{queues}/research").is_success
        for line in rest:
            assert kubectl(cluster, *shlex.split(line)[1:]).returncode == 0
        eventually(lambda: beyond_namespaces(cluster) == before)


def beyond_namespaces(cluster: Cluster) -> set[str]:
    """Definitions, and what else is the cluster's and named like the chart, by kind and name."""
    kinds = kubectl(cluster, "api-resources", "--namespaced=false", "--verbs=list", "-o", "name").stdout.split()
    found = kubectl(cluster, "get", ",".join(kinds), "-o", "name").stdout.split()
    return {name for name in found if "stromboli" in name or name.startswith("customresourcedefinition")}


def test_a_policy_with_mistakes_ends_an_upgrade_before_it_begins(helm: Helm, tmp_path: Path) -> None:
    objects = made(helm, "policy=actions: alocate", of="templates/policycheck.yaml")
    (config, job) = sorted(objects, key=lambda obj: int(obj["metadata"]["annotations"]["helm.sh/hook-weight"]))
    assert [each["metadata"]["annotations"]["helm.sh/hook"] for each in objects] == ["pre-install,pre-upgrade"] * 2
    assert job["spec"]["backoffLimit"] == 0
    done = as_a_job(job, [config], tmp_path, None)
    assert done.exit_code != 0
    assert "did you mean 'allocate'" in done.stderr
    assert made(helm, of="templates/policycheck.yaml") != []
    assert "policy-check" not in str(made(helm, "checkPolicy=false"))


def test_a_policy_is_checked_with_the_plugins_of_the_service(helm: Helm) -> None:
    values = {
        "extraVolumes": [{"name": "plugins", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "plugins", "mountPath": "/plugins"}],
        "extraInitContainers": [{"name": "plugins", "image": "example.com/plugins:1"}],
        "extraArgs": ["--pod-events", "--plugins-dir", "/plugins"],
    }
    sets = [f"--set-json={name}={json.dumps(value)}" for name, value in values.items()]
    done = helm("template", "stromboli", "charts/stromboli", "--show-only", "templates/policycheck.yaml", *sets)
    job = next(obj for obj in yaml.safe_load_all(done.stdout) if obj["kind"] == "Job")
    pod = job["spec"]["template"]["spec"]
    assert pod["initContainers"] == values["extraInitContainers"]
    assert values["extraVolumes"][0] in pod["volumes"]
    assert values["extraVolumeMounts"][0] in pod["containers"][0]["volumeMounts"]
    assert pod["containers"][0]["args"][-2:] == ["--plugins-dir", "/plugins"]


def test_a_manifest_has_the_crds_where_there_is_no_cluster_to_ask(helm: Helm) -> None:
    objects = made(helm)
    definitions = [obj for obj in objects if obj["kind"] == "CustomResourceDefinition"]
    assert {each["metadata"]["name"]: each for each in definitions} == {
        each["metadata"]["name"]: each for each in crd_schema.manifests()
    }
    assert "stromboli-crds" not in {obj["metadata"]["name"] for obj in objects}
    assert made(helm, "crds.install=false") == [obj for obj in objects if obj["kind"] != "CustomResourceDefinition"]


#: pages in the order in which a reader follows them
JOURNEYS = (("README.md",), ("docs/start.md", "docs/operations.md"), ("docs/migration.md",))


@pytest.mark.parametrize("pages", JOURNEYS, ids=" ".join)
def test_the_helm_lines_of_the_pages_work(
    installed: Cluster, helm: Helm, repository: Path, tmp_path: Path, pages: tuple[str, ...]
) -> None:
    (tmp_path / "charts").symlink_to(repository / "charts")
    for name in ("volcano-scheduler.conf", "policy.conf"):
        (tmp_path / name).write_text(DEFAULT_POLICY)
    cluster = ("--kubeconfig", str(installed.kubeconfig()))
    lines = [line for page in pages for line in helm_lines((repository / page).read_text())]
    assert lines
    for line in lines:
        if line.startswith("helm install"):
            helm("uninstall", "stromboli", "--wait", "--namespace", NAMESPACE, *cluster)
        _, *words = shlex.split(line.replace("REGISTRY", "registry.example.com"))
        done = helm(*words, "--no-hooks", *cluster, cwd=tmp_path)
        assert done.returncode == 0, f"{line}: {done.stderr}"
        if "upgrade" in words:
            with installed.client() as api:
                image = deployed(api)["containers"][0]["image"]
            assert image.startswith("registry.example.com/"), f"{line}: forgets what was set"


#: values that make objects that the defaults do not
VALUE_SETS = (
    (),
    ("replicas=3", "tls.secretName=certificate", "tls.clientCertificates=true", "dashboard.enabled=true"),
    ("ui.enabled=true", "ui.ownAccount=true", "tls.secretName=certificate"),
    ("shard.name=left", "schedulerName=left", "deleteVictims=true", "journal.disk=1000000", "log.format=json"),
    ("crds.install=false", "checkPolicy=false", "networkPolicy.enabled=false", "queueProtection=false"),
    ("kubeScheduler.enabled=true", "kubeScheduler.clusterIP=10.0.0.77", "tls.secretName=certificate"),
    (
        *("userIdentity.enabled=true", "gangGate.enabled=true", "bypassGuard.enabled=true", "podLabels.team=a"),
        *("bypassGuard.schedulerNames={team}", "otherServices={system:serviceaccount:team:stromboli}"),
    ),
    (
        "userIdentity.enabled=true",
        "bypassGuard.enabled=true",
        "bypassGuard.binders={o'neil,a\\\\b}",
        "otherServices={o'neil}",
    ),
    ("serviceMonitor.enabled=true", "prometheusRule.enabled=true", "prometheusRule.labels.team=batch"),
    (
        *("topologySpreadConstraints[0].maxSkew=1", "topologySpreadConstraints[0].topologyKey=zone"),
        *("topologySpreadConstraints[0].whenUnsatisfiable=ScheduleAnyway", "replicas=2", "priorityClassName=high"),
        *("extraVolumes[0].name=plugins", "extraVolumes[0].emptyDir.medium=Memory", "nodeSelector.disk=ssd"),
        *("extraVolumeMounts[0].name=plugins", "extraVolumeMounts[0].mountPath=/plugins", "extraEnv[0].name=A"),
        *(
            "extraEnv[0].value=b",
            "extraInitContainers[0].name=fill",
            "extraInitContainers[0].image=example.com/plugins:1",
        ),
        "extraArgs={--plugins-dir=/plugins}",
    ),
    ("rbac.aggregate=false", "serviceAccount.create=false", "priorityClassName=", "journal.existingClaim=x"),
)


@pytest.fixture(scope="module")
def monitored(installed: Cluster) -> Cluster:
    """The cluster with the definitions of the Prometheus operator."""
    for path in monitoring_definitions():
        kubectl(installed, "create", "-f", str(path))
    with installed.client() as api:
        eventually(lambda: api.get("/apis/monitoring.coreos.com/v1/servicemonitors").is_success)
        eventually(lambda: api.get("/apis/monitoring.coreos.com/v1/prometheusrules").is_success)
    return installed


@pytest.mark.parametrize("values", VALUE_SETS, ids=",".join)
def test_the_api_server_takes_every_field_of_what_the_values_make(
    monitored: Cluster, helm: Helm, values: tuple[str, ...]
) -> None:
    """For a release with the longest name that Helm takes."""
    sets = [part for value in values for part in ("--set", value)]
    served = ("--api-versions", "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy")
    done = helm("template", "r" * 53, "charts/stromboli", "--namespace", NAMESPACE, *served, *sets)
    assert done.returncode == 0, done.stderr
    taken = json.loads(dry_run(monitored, "-f", "-", "--output=json", stdin=done.stdout))["items"]
    for wanted, found in zip(filter(None, yaml.safe_load_all(done.stdout)), taken, strict=True):
        kept = dict(leaves(found))
        # Else whoever compares the two, as Argo CD and Flux do, would apply it again and again.
        assert {at: kept.get(at) for at, _ in leaves(wanted)} == dict(leaves(wanted)), wanted["metadata"]["name"]


def test_the_kustomize_base_is_what_the_chart_makes(installed: Cluster, helm: Helm, repository: Path) -> None:
    base = repository / "deploy/kustomize"
    done = helm("template", "stromboli", "charts/stromboli", "--namespace", NAMESPACE, "--no-hooks")
    assert (base / "stromboli.yaml").read_text() == done.stdout, "run `make kustomize`"
    applied = dry_run(installed, "-k", str(base), "--force-conflicts")
    assert "namespace/stromboli-system" in applied
    assert "deployment.apps/stromboli" in applied


def dry_run(cluster: Cluster, *words: str, stdin: str = "") -> str:
    """What kubectl would apply; the API server refuses fields that it does not know."""
    strictly = ["apply", "--server-side", "--dry-run=server", "--validate=strict"]
    done = kubectl(cluster, *strictly, *words, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout


def kubectl(cluster: Cluster, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("kubectl")), "--kubeconfig", str(cluster.kubeconfig()), *words]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)


def helm_lines(page: str) -> list[str]:
    """The commands of helm in a page's blocks."""
    found = re.findall(r"^ {4,}(helm (?:[^\n]*\\\n)*[^\n]*)$", page, re.MULTILINE)
    return [" ".join(line.replace("\\\n", " ").split()) for line in found]


def kube_scheduler_config(helm: Helm, *values: str) -> dict[str, Any]:
    """The configuration that the chart makes for kube-scheduler."""
    data = rendered(helm, "kubeScheduler.enabled=true", *values, of="templates/kubescheduler.yaml")["ConfigMap"]["data"]
    config: dict[str, Any] = yaml.safe_load(data["kube-scheduler.yaml"])
    return config


def test_kube_scheduler_runs_by_the_configuration_of_the_chart(cluster: Cluster, helm: Helm) -> None:
    files = {"ca": cluster.ca_file, "cert": cluster.directory / "server.crt", "key": cluster.directory / "server.key"}
    of_tls = [f"kubeScheduler.tls.{name}File={path}" for name, path in files.items()]
    for values in (
        ["kubeScheduler.httpTimeout=3s", "extenderSchedulerNames={default-scheduler,batch}"],
        ["tls.secretName=certificate", *of_tls, "kubeScheduler.managedResources[0].name=nvidia.com/gpu"],
        ["tls.secretName=certificate", "tls.clientCertificates=true", *of_tls, "kubeScheduler.ignorable=false"],
    ):
        config = kube_scheduler_config(helm, f"kubeScheduler.kubeconfig={cluster.kubeconfig('scheduler')}", *values)
        cluster.start_scheduler(config)
        cluster.stop_scheduler()


def test_kube_scheduler_asks_the_leader_of_the_release(helm: Helm, repository: Path) -> None:
    plain = kube_scheduler_config(helm)
    example = yaml.safe_load((repository / "deploy" / "kube-scheduler-extender.yaml").read_text())
    assert plain["extenders"] == example["extenders"]
    assert plain["profiles"] == [{"schedulerName": "default-scheduler"}]

    values = ("kubeScheduler.enabled=true", "kubeScheduler.clusterIP=10.0.0.77", "tls.secretName=certificate")
    (extender,) = kube_scheduler_config(helm, *values)["extenders"]
    assert extender["urlPrefix"] == "https://10.0.0.77:8080"
    assert extender["tlsConfig"]["serverName"] == f"stromboli-leader.{NAMESPACE}.svc"
    services = {obj["metadata"]["name"]: obj["spec"] for obj in made(helm, *values) if obj["kind"] == "Service"}
    assert services["stromboli-leader"]["clusterIP"] == "10.0.0.77"
    assert "clusterIP" not in services["stromboli"]
    (extender,) = kube_scheduler_config(helm, "kubeScheduler.clusterIP=fd00::77")["extenders"]
    assert extender["urlPrefix"] == "http://[fd00::77]:8080"


def test_nobody_asks_a_release_that_serves_no_other_scheduler(helm: Helm) -> None:
    sets = ("--set", "kubeScheduler.enabled=true", "--set", "extenderSchedulerNames=null")
    done = helm("template", "stromboli", "charts/stromboli", *sets)
    assert done.returncode != 0
    assert "extenderSchedulerNames names no scheduler" in done.stderr


def install(helm: Helm, cluster: Cluster, *args: str, release: str = "stromboli", namespace: str = NAMESPACE) -> None:
    """Install the chart; no kubelet runs its Jobs, so what they would do is done here, with their rights."""
    where = ("--namespace", namespace, "--kubeconfig", str(cluster.kubeconfig()))
    template = helm("template", release, "charts/stromboli", "--dry-run=server", *where, *args)
    assert template.returncode == 0, template.stderr
    objects = [obj for obj in yaml.safe_load_all(template.stdout) if obj]
    hooks = [obj for obj in objects if "pre-install" in str(obj["metadata"].get("annotations"))]
    jobs, others = ([obj for obj in hooks if (obj["kind"] == "Job") is is_job] for is_job in (True, False))
    assert len(jobs) == 2
    with cluster.client() as api, tempfile.TemporaryDirectory() as folder:
        api.post("/api/v1/namespaces", json={"metadata": {"name": namespace}})
        for obj in others:
            api.post(collection(obj), json=obj).raise_for_status()
        for job in jobs:
            # The API server learns of new roles a moment after it has made them.
            eventually(lambda job=job: as_a_job(job, others, Path(folder), cluster).exit_code == 0)
        for obj in others:
            api.delete(f"{collection(obj)}/{obj['metadata']['name']}").raise_for_status()
    done = helm("install", release, "charts/stromboli", "--create-namespace", "--no-hooks", *where, *args)
    assert done.returncode == 0, done.stderr


def uninstall(helm: Helm, cluster: Cluster, release: str = "stromboli") -> None:
    done = helm("uninstall", release, "--namespace", NAMESPACE, "--kubeconfig", str(cluster.kubeconfig()))
    assert done.returncode == 0, done.stderr


def collection(obj: dict[str, Any]) -> str:
    """Where an object of the chart's hooks is made."""
    group, kind, namespace = obj["apiVersion"], obj["kind"].lower(), obj["metadata"].get("namespace")
    start = "/api/v1" if group == "v1" else f"/apis/{group}"
    return f"{start}/namespaces/{namespace}/{kind}s" if namespace else f"{start}/{kind}s"


def as_a_job(job: dict[str, Any], others: list[dict[str, Any]], folder: Path, cluster: Cluster | None) -> Result:
    """What a Job's container runs, by its account, and with the files of its ConfigMap."""
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    words = [str(word) for word in container["args"]]
    for volume, mount in zip(pod.get("volumes", ()), container.get("volumeMounts", ()), strict=True):
        name = volume["configMap"]["name"]
        config = next(obj for obj in others if obj["kind"] == "ConfigMap" and obj["metadata"]["name"] == name)
        for file, text in config["data"].items():
            (folder / file).write_text(text)
        words = [word.replace(mount["mountPath"], str(folder)) for word in words]
    if cluster is not None and "serviceAccountName" in pod:
        account = cluster.service_account_kubeconfig(job["metadata"]["namespace"], pod["serviceAccountName"])
        words += ["--kubeconfig", str(account)]
    return CliRunner().invoke(make_app(), words)


def established(api: httpx.Client, crd: str) -> list[str]:
    """The values of a CRD's condition Established, of which there is at most one."""
    status = api.get(f"{CRDS}/{crd}").raise_for_status().json().get("status", {})
    return [c["status"] for c in status.get("conditions", []) if c["type"] == "Established"]


def may(cluster: Cluster, verb: str, group: str, resource: str, namespace: str) -> bool:
    """Whether the chart's ServiceAccount may, by the API server's own word."""
    name, _, subresource = resource.partition("/")
    attributes = {
        "verb": verb, "group": group, "resource": name, "subresource": subresource, "namespace": namespace,
    }  # fmt: skip
    config = json.loads(cluster.service_account_kubeconfig(NAMESPACE, "stromboli").read_text())
    token = config["users"][0]["user"]["token"]
    with cluster.client() as api:
        api.headers["Authorization"] = f"Bearer {token}"
        answer = api.post(
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            json={"spec": {"resourceAttributes": attributes}},
        )
    allowed: bool = answer.raise_for_status().json()["status"]["allowed"]
    return allowed


def table_of_roles(repository: Path) -> list[list[str]]:
    """The rows of the table of roles in docs/operations.md, its head first, without marks."""
    text = (repository / "docs/operations.md").read_text()
    lines = text[text.index("| ClusterRole |") :].partition("\n\n")[0].splitlines()
    rows = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]
    return [rows[0], *rows[2:]]


def bind_role(api: httpx.Client, role: str, subject: dict[str, str]) -> None:
    """Give a ClusterRole to a user, a group or an account, in all namespaces."""
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}
    binding = {"metadata": {"name": f"{subject['name']}-has-{role}"}, "roleRef": reference, "subjects": [subject]}
    api.post(f"/apis/{RBAC}/v1/clusterrolebindings", json=binding).raise_for_status()


def may_in_group(api: httpx.Client, group: str, verb: str, resource: str) -> bool:
    """Whether a member of a group may, asked as `kubectl auth can-i --as-group` does."""
    kind, _, subresource = resource.partition("/")
    attributes = {
        "verb": verb, "group": "scheduling.volcano.sh", "resource": kind, "subresource": subresource,
        "namespace": "default",
    }  # fmt: skip
    answer = api.post(
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        json={"spec": {"resourceAttributes": attributes}},
        headers={"Impersonate-User": "alice", "Impersonate-Group": group},
    )
    allowed: bool = answer.raise_for_status().json()["status"]["allowed"]
    return allowed


def foreign_queue_crd() -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "queues", "singular": "queue", "kind": "Queue", "listKind": "QueueList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "queues.scheduling.volcano.sh", "labels": {"installed-by": "volcano"}},
        "spec": {"group": "scheduling.volcano.sh", "scope": "Cluster", "names": names, "versions": [version]},
    }
