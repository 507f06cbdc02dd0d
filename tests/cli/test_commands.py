"""What all commands have in common, and those that look at a cluster: lists, the doctor, and the page about them."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from stromboli.cli.references.commands import everything
from stromboli.engine import Engine
from stromboli.explain.checkup import OF_SESSIONS, Finding, policy_findings
from stromboli.policy.document import DEFAULT_POLICY
from stromboli.state.cluster import ClusterState
from tests.builders import decide, node, pod, pod_group, policy, queue, racks, state
from tests.cli.conftest import stromboli
from tests.live.cluster import Cluster
from tests.live.conftest import bare_cluster, options
from tests.ui.cluster import Ran, served

__all__ = ["bare_cluster", "options"]

CLUSTER = """
{kind: Node, metadata: {name: n}, status: {allocatable: {cpu: "4", memory: 16Gi, pods: "10"}}}
---
{kind: Queue, metadata: {name: team}, spec: {weight: 3, deserved: {cpu: 2}}}
---
{kind: Queue, metadata: {name: research}, spec: {weight: 1, parent: team}}
---
{kind: PodGroup, metadata: {name: lost}, spec: {minMember: 1, queue: reserch}}
---
{kind: PodGroup, metadata: {name: train}, spec: {minMember: 2, queue: research}}
---
kind: Pod
metadata: {name: train-0, annotations: {scheduling.k8s.io/group-name: train}}
spec: {schedulerName: stromboli, containers: [{name: c, image: i, resources: {requests: {cpu: "1"}}}]}
---
kind: Pod
metadata: {name: orphan, namespace: other, annotations: {scheduling.k8s.io/group-name: gone}}
spec: {schedulerName: volcano, containers: [{name: c, image: i}]}
"""


def test_each_help_text_has_an_example() -> None:
    found = dict(everything())
    assert len(found) > 20
    assert [name for name, command in found.items() if "Example: stromboli " not in (command.help or "")] == []


def test_groups_are_listed_without_importing_their_commands() -> None:
    """To import all of them takes seconds, and lists and completion are what newcomers ask for first."""
    heavy = {"fastapi", "kubernetes", "numpy"}
    listed = f"""
import sys
from stromboli.cli.completion import completed
groups = {{"stromboli": [], "stromboli queue": ["queue"], "stromboli lab": ["lab"]}}
lines = [f"{{words}} {{line}}" for words, group in groups.items() for line in [*completed([*group, ""])][:-1]]
assert not {heavy} & sys.modules.keys()
print(dict(line.split("\t") for line in lines))
"""
    done = subprocess.run([sys.executable, "-c", listed], capture_output=True, text=True, check=True)
    purposes, told = ast.literal_eval(done.stdout), dict(everything())
    assert purposes == {words: told[words].get_short_help_str() for words in purposes}
    assert len(purposes) > 20


def test_commands_that_ask_a_service_do_not_import_the_engine() -> None:
    """To import it takes longer than most answers."""
    engine = {"stromboli.engine", "stromboli.framework"}
    modules = ", ".join(f"stromboli.cli.{command}" for command in ("why", "queue", "job", "top"))
    started = f"import sys, {modules}; assert not {engine} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", started], check=True)


@pytest.mark.parametrize(
    ("command", "option", "value", "most"),
    [
        (("simulate", "-"), "--cycles", "1001", "1000"),
        (("simulate", "-"), "--max-file-size", "65537", "65536"),
        (("bench", "engine"), "--nodes", "1000001", "1000000"),
        (("bench", "matrix"), "--runs", "1001", "1000"),
        (("plugins", "check", "gang"), "--clusters", "10001", "10000"),
        (("demo",), "--api-port", "65536", "65535"),
    ],
)
def test_numbers_have_a_most(command: tuple[str, ...], option: str, value: str, most: str) -> None:
    result = stromboli(*command, option, value)
    assert result.exit_code == 2
    assert f"invalid value for '{option}': input should be less than or equal to {most}, not '{value}'" in result.stderr


def test_the_version_and_a_plugin_are_printed() -> None:
    assert stromboli("--version").output.startswith("stromboli ")
    assert stromboli("plugins", "gang").output.startswith("## gang\n\nPods of a job start together")
    assert (stromboli("plugins", "gagn").exit_code, stromboli("plugins", "allocate").exit_code) == (2, 0)


FULL = """
actions: "enqueue, allocate, preempt, reclaim"
tiers:
- plugins: [{name: gang, enableJobOrder: false}, {name: drf, enabledClusterOrder: true}]
- plugins: [{name: predicates}, {name: capacity, enableHierarchy: true}]
- plugins: [{name: nodeorder, arguments: {nodeaffinity.weight: 9}}]
configurations: [{name: preempt, arguments: {minCandidateNodesAbsolute: 7}}]
metrics: {type: prometheus, address: "http://p:9090"}
compatibility: volcano
rules: {veto: strict}
evictions: {window: 90s}
"""


@pytest.mark.parametrize("policy", [DEFAULT_POLICY, FULL])
def test_a_policy_is_shown_with_all_that_it_leaves_out(tmp_path: Path, policy: str) -> None:
    (tmp_path / "policy.conf").write_text(policy)
    shown = stromboli("config", "show", tmp_path / "policy.conf").output
    again, before = Engine(shown), Engine(policy)
    assert (again.policy.tiers, again.rules) == (before.policy.tiers, before.rules)
    assert again.policy.action_arguments == before.policy.action_arguments
    assert (again.policy.metrics, again.policy.evictions) == (before.policy.metrics, before.policy.evictions)
    assert "tainttoleration.weight: 3" in shown
    if policy is DEFAULT_POLICY:
        assert stromboli("config", "show").output == shown


def test_the_policy_in_force_at_a_service_is_shown() -> None:
    with served(Ran(state(queue("default", weight=1))).app()) as url:
        told = yaml.safe_load(stromboli("config", "show", "--url", url).output)
    assert told["actions"] == ["enqueue", "allocate", "backfill"]
    assert told["rules"]["veto"] == "strict"


def test_queues_are_listed_and_shown_as_a_tree(files: Path) -> None:
    lines = stromboli("queue", "tree", "-f", files).output.splitlines()
    names = {line.strip().split()[0]: len(line) - len(line.lstrip()) for line in lines[1:]}
    assert names == {"root": 0, "team": 2, "research": 4, "default": 2}
    listed = json.loads(stromboli("queue", "list", "-f", files, "-o", "json").output)
    found = {queue["name"]: queue for queue in listed}
    assert found["research"]["jobs"] == {"Inqueue": 1}
    assert list(found["team"]["ignored"]) == ["deserved"]


def test_jobs_are_listed_with_a_word_why_they_wait(files: Path) -> None:
    rows = [line.split() for line in stromboli("job", "list", "-A", "-f", files).output.splitlines()]
    assert [(row[1], row[-1]) for row in rows[1:]] == [("lost", "QueueNotFound"), ("train", "NotEnoughPods")]
    assert len(stromboli("job", "list", "-n", "other", "-f", files).stdout.splitlines()) == 1


def test_jobs_of_a_queue_that_is_not_there_are_not_an_empty_list(files: Path) -> None:
    told = stromboli("job", "list", "-A", "--queue", "reserach", "-f", files)
    assert (told.exit_code, told.stdout) == (1, "")
    assert "there is no queue reserach, did you mean 'research'?" in told.stderr
    assert len(stromboli("job", "list", "-A", "--queue", "default", "-f", files).output.splitlines()) <= 2


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (
            ("-n", "defalt"),
            "there are no jobs of namespace defalt, did you mean namespace 'default'?; other namespaces",
        ),
        (("-n", "other"), "there are no jobs of namespace other; other namespaces have 2 jobs (-A)"),
        (("-A", "--reason", "NotEnoughPodz"), "there are no jobs of reason NotEnoughPodz, did you mean reason"),
    ],
)
def test_that_no_job_is_as_is_asked_for_is_told(files: Path, asked: tuple[str, ...], says: str) -> None:
    told = stromboli("job", "list", *asked, "-f", files)
    assert (told.exit_code, len(told.stdout.splitlines())) == (0, 1)
    assert told.stderr.startswith(says), told.stderr


def test_the_doctor_names_misspelt_fields(files: Path) -> None:
    files.write_text(CLUSTER.replace("weight: 3", "wieght: 3"))
    told = stromboli("doctor", "-f", files)
    assert "document 2: Queue team: spec.wieght: unknown field, with the value 3, did you mean 'weight'?" in told.output


def test_the_doctor_finds_nothing_in_files_that_are_not_there(tmp_path: Path) -> None:
    told = stromboli("doctor", "-f", tmp_path / "none.yaml")
    assert (told.exit_code, told.stdout) == (2, "")
    assert "none.yaml: No such file or directory" in told.stderr


def test_the_doctor_names_what_keeps_pods_waiting(files: Path) -> None:
    told = stromboli("doctor", "-f", files, "--scheduler-name", "stromboli")
    assert told.exit_code == 1
    for problem in (
        "queues: queue team: spec.deserved has no effect under this policy: it is read by the plugins capacity and",
        "queues: queue research: spec.parent has no effect",
        "queues: there is no queue reserch, did you mean 'research'?, for 1 job (default/lost)",
        "schedulers: 1 pod (other/orphan) wait for scheduler volcano",
    ):
        assert problem in told.output


@pytest.mark.parametrize(
    ("actions", "plugins", "problem"),
    [
        ("allocate, enqueue", "gang predicates proportion", "enqueue runs after allocate"),
        ("enqueue, allocate", "gang predicates capacity proportion", "proportion and capacity both divide the cluster"),
        ("enqueue, allocate, reclaim", "gang predicates conformance", "reclaim has no plugin that determines shares"),
        ("enqueue, allocate, preempt", "gang predicates drf", "pods of kube-system may be evicted"),
        ("allocate", "gang predicates overcommit", "overcommit has no effect without enqueue"),
    ],
)
def test_policies_that_hardly_mean_what_they_say(actions: str, plugins: str, problem: str) -> None:
    named = "".join(f"  - name: {name}\n" for name in plugins.split())
    found = list(policy_findings(Engine(f"actions: {actions!r}\ntiers:\n- plugins:\n{named}")))
    assert [finding.problem for finding in found] == [problem]
    assert list(policy_findings(Engine(DEFAULT_POLICY))) == []


def test_a_plugin_below_one_that_outvotes_it_is_found() -> None:
    tiers = "".join(f"- plugins: [{{name: {name}}}]\n" for name in ("gang", "predicates", "sla"))
    (found,) = policy_findings(Engine(f"actions: allocate\ntiers:\n{tiers}"))
    assert found.problem.startswith("tiers[2].plugins[0]: what sla permits at job_pipelined is not heard where gang")


def findings(*objects: Any, by: str = DEFAULT_POLICY) -> list[str]:
    """The problems that the doctor finds in a session on some objects."""
    return doubts(state(*objects), by)


def doubts(cluster: ClusterState, by: str = DEFAULT_POLICY) -> list[str]:
    """The problems that the doctor finds in a session on a cluster."""
    session = decide(cluster, by).session
    return [found.problem for check in OF_SESSIONS for found in check(session)]


@pytest.mark.parametrize("word", ["deserved", "guarantee"])
@pytest.mark.parametrize("each", [4, 5])
def test_the_doctor_adds_up_what_queues_are_promised(word: str, each: int) -> None:
    amounts: dict[str, Any] = {"cpu": str(each)}
    spec = {word: {"resource": amounts} if word == "guarantee" else amounts}
    child = {"parent": "a", **spec}
    found = findings(node("n"), queue("a", **spec), queue("b", **spec), queue("c", **child), by=TREE)
    said = [f"queues are promised 10 cpu by spec.{word}, and the cluster has 8"] if each == 5 else []
    assert [problem for problem in found if "promised" in problem] == said


TREE = "actions: allocate\ntiers:\n- plugins: [{name: gang}, {name: capacity, enableHierarchy: true}]"
CARDS = {"nvidia.com/gpu": "4"}


@pytest.mark.parametrize("name", ["nvidia.com/gpus", "nvidia.com/GPU", "example.com/card"])
def test_the_doctor_names_cards_that_no_node_offers(name: str) -> None:
    cards = node("n", resources=CARDS)
    near = ", did you mean 'nvidia.com/gpu'?" if name.startswith("nvidia") else ""
    waits = [pod_group("job"), pod("job-0", "job", resources={name: "1"})]
    found = findings(cards, queue("default", capability={name: "1"}), *waits)
    assert f"queue default names {name}, which no node offers{near}" in found
    assert f"1 pod (default/job-0): no node offers {name}{near}" in found
    assert findings(cards, queue("default", capability=CARDS)) == []


@pytest.mark.parametrize("name", ["example.com/card", "deviceclass.resource.kubernetes.io/cards"])
def test_the_doctor_knows_cards_that_a_device_class_stands_for(name: str) -> None:
    spec = {"selectors": [], "extendedResourceName": "example.com/card"}
    stands = {"kind": "DeviceClass", "metadata": {"name": "cards"}, "spec": spec}
    limits = {"requests": {name: "1"}, "limits": {name: "1"}}
    waits = pod("job-0", "job", containers=[{"name": "c", "image": "i", "resources": limits}])
    cluster = state(node("n"), queue("default", capability={name: "1"}), pod_group("job"), waits)
    cluster.upsert("DeviceClass", stands)
    assert [each for each in doubts(cluster) if "offers" in each] == []


def test_the_doctor_names_what_is_no_resource() -> None:
    found = findings(node("n"), queue("default", capability={"cpuu": "4"}))
    assert found == ["queue default names cpuu, which is no resource of nodes, did you mean 'cpu'?"]


@pytest.mark.parametrize(
    ("asks", "told"),
    [
        ({"requests": {"memory": 16}}, "is given 16 bytes of memory"),
        ({"requests": {"memory": "100m"}}, "is given 1 byte of memory"),
        ({"limits": {"memory": "512"}}, "is given 512 bytes of memory"),
        ({"requests": {"ephemeral-storage": 20}}, "is given 20 bytes of ephemeral-storage"),
        ({"requests": {"cpu": "4000"}}, "requests 4,000 cpu, the largest node has 8"),
        ({"requests": CARDS}, "requests nvidia.com/gpu and has no limit of it"),
        ({"requests": CARDS, "limits": {"nvidia.com/gpu": 1}}, "requests nvidia.com/gpu and has another limit of it"),
        ({"requests": {"cpu": "9000", "memory": "2Mi"}}, ""),
        ({"requests": CARDS, "limits": CARDS}, ""),
    ],
)
def test_the_doctor_doubts_what_containers_ask_for(asks: dict[str, Any], told: str) -> None:
    container = {"name": "c", "image": "i", "resources": asks}
    cards = node("n", resources=CARDS)
    job = pod_group("job"), *(pod(f"job-{i}", "job", containers=[container]) for i in range(2))
    said = [f"2 pods (default/job-0, default/job-1): container c {told}"] if told else []
    assert findings(cards, queue("default"), *job) == said
    group = findings(cards, queue("default"), pod_group("small", minResources={"memory": 64}))
    assert group == ["PodGroup default/small: spec.minResources has 64 bytes of memory"]


@pytest.mark.parametrize("mode", ["hard", "soft"])
def test_the_doctor_knows_what_a_topology_needs(mode: str) -> None:
    group = pod_group("job", networkTopology={"mode": mode, "highestTierAllowed": 1})
    found = findings(node("n"), queue("default"), group, by=policy("gang", "predicates"))
    hard = "1 job (default/job) must stay in one HyperNode"
    said = [f"{hard}, and the policy has no network-topology-aware", f"{hard}, and there are none"]
    assert [each for each in found if each.startswith(hard)] == (said if mode == "hard" else [])
    assert hard not in "".join(findings(*racks(2, 2), queue("default"), group))
    labels = "topology: {levels: [{nodeLabel: rack}]}\n" + policy("gang", "predicates network-topology-aware")
    assert hard not in "".join(findings(node("n", labels={"rack": "1"}), queue("default"), group, by=labels))
    unlabelled = findings(*racks(2, 2), queue("default"), group, by=labels)
    assert [each for each in unlabelled if each.startswith(hard)] == (said[1:] if mode == "hard" else [])


POOLS = """actions: allocate
tiers:
- plugins: [{name: gang}, {name: conformance}]
- plugins:
  - name: nodepools
    arguments:
      pools:
      - {name: gold, nodeSelector: {card: a100}}
      - {name: spot, nodeSelector: {capacity: spot}}
      - {name: old, nodeSelector: {card: k80}}
- plugins: [{name: predicates}, {name: capacity}]
"""


def test_the_doctor_looks_at_node_pools() -> None:
    nodes = [node("both", labels={"card": "a100", "capacity": "spot"}), node("spot", labels={"capacity": "spot"})]
    team = queue("default", pools=[{"name": "gild"}, {"name": "spot"}])
    job = pod_group("job")
    job.metadata.annotations["stromboli.io/pools"] = "spot,silver"
    assert [each for each in findings(nodes, team, job, by=POOLS) if "pool" in each] == [
        "node pool old has no nodes",
        "node pools gold and spot both select 1 node (both), which count in gold only",
        "queue default names node pool gild, which the policy does not, did you mean 'gold'?",
        "1 job (default/job) may use node pool silver, which the policy does not name",
    ]


def test_a_pool_that_never_has_a_node_is_a_mistake(tmp_path: Path) -> None:
    path = tmp_path / "policy.conf"
    path.write_text(POOLS.replace("{card: k80}", "{card: a100, zone: a}"))
    told = stromboli("config", "check", str(path))
    assert told.exit_code == 2
    assert "pool old never has a node: pool gold, which comes first, selects all that it does" in told.stderr


def test_two_schedulers_on_one_name_and_missing_definitions(bare_cluster: Cluster) -> None:
    for name in ("stromboli", "old"):
        container = {"name": "c", "image": "i", "args": ["--scheduler-name=volcano"]}
        template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
        bare_cluster.create(
            "/apis/apps/v1/namespaces/default/deployments",
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": name},
                "spec": {"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": template},
            },
        )
    told = json.loads(stromboli("doctor", "--kubeconfig", bare_cluster.kubeconfig, "-o", "json").stdout)
    problems = {Finding(**each).problem for each in told}
    assert problems >= {
        "scheduling.volcano.sh/v1beta1 Queue is not defined",
        "default/old and default/stromboli both schedule the pods of volcano",
        "Deployment default/old has 2 replicas that do not take turns",
    }


def test_a_job_is_listed_and_answered_by_the_name_of_its_workload(tmp_path: Path) -> None:
    group = "podgroup-2501bd87-7271-44c9-bca5-7a647eed8c5b"
    owner = "{apiVersion: batch/v1, kind: Job, name: cap, uid: 2501bd87-7271-44c9-bca5-7a647eed8c5b, controller: true}"
    for queue_name, reason in (("default", "NeverFits"), ("defualt", "QueueNotFound")):
        (tmp_path / "cluster.yaml").write_text(f"""
{{kind: Node, metadata: {{name: n}}, status: {{allocatable: {{cpu: "4", memory: 16Gi, pods: "10"}}}}}}
---
{{kind: Queue, metadata: {{name: default}}, spec: {{weight: 1}}}}
---
kind: PodGroup
metadata: {{name: {group}, ownerReferences: [{owner}]}}
spec: {{minMember: 1, queue: {queue_name}}}
---
kind: Pod
metadata: {{name: cap-0, annotations: {{scheduling.k8s.io/group-name: {group}}}}}
spec: {{schedulerName: stromboli, containers: [{{name: c, image: i, resources: {{requests: {{cpu: "9"}}}}}}]}}
""")
        files = str(tmp_path / "cluster.yaml")
        row = stromboli("job", "list", "-f", files).output.splitlines()[1].split()
        assert row[1] == "cap"
        assert reason in row
        said = stromboli("why", "job", "cap", "-f", files).output
        assert said.startswith(f"Job default/cap (PodGroup {group}) waits at ")
