"""What controllers make of TrainJobs by their runtimes, and of RayJobs beside their clusters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from stromboli.api.quantity import parse
from stromboli.explain.remedies import explained
from stromboli.simulation.run import Run
from tests.cli.conftest import stromboli
from tests.workloads.test_gangs import POD, RAY, Object, problems, ray, replicas, simulated

TRAINER = "trainer.kubeflow.org/v1alpha1"
TRAINS = {"metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}}


def node(cpu: str = "1", name: str = "node") -> Object:
    container = {"name": name, "resources": {"requests": {"cpu": cpu}}}
    return {"spec": {"schedulerName": "stromboli", "containers": [container]}}


def runtime(*jobs: Object, kind: str = "ClusterTrainingRuntime", **more: Any) -> Object:
    template = more.pop("template", {})
    spec = {"template": {**template, "spec": {"replicatedJobs": list(jobs)}}, **more}
    return {"apiVersion": TRAINER, "kind": kind, "metadata": {"name": "torch"}, "spec": spec}


def replicated(name: str, *, trains: bool = False, template: Object | None = None, **spec: Any) -> Object:
    made = {"spec": {**spec, "template": template or node()}}
    return {"name": name, "template": {**made, **(TRAINS if trains else {})}}


def patch(labels: Object | None = None, job: str = "", selector: Object | None = None) -> Object:
    """What a manager changes of a runtime's template."""
    pods = {"template": {"spec": {"template": {"spec": {"nodeSelector": selector}}}}}
    template = {
        "metadata": {"labels": labels or {}},
        "spec": {"replicatedJobs": [{"name": job, **pods}] if job else []},
    }
    return {"manager": "example.com/team", "trainingRuntimeSpec": {"template": template}}


def train_job(numbers: Object | None = None, **spec: Any) -> Object:
    named = {"runtimeRef": {"name": "torch"}, **({"trainer": numbers} if numbers else {}), **spec}
    return {"apiVersion": TRAINER, "kind": "TrainJob", "metadata": {"name": "llm"}, "spec": named}


def gangs(done: Run) -> list[int]:
    groups = [group for group in done.session.view.snapshot.pod_groups if group is not None]
    return sorted(group.spec.min_member for group in groups)


MPI = {"mlPolicy": {"numNodes": 1, "mpi": {"runLauncherAsNode": True}}}
WORKERS = {"mlPolicy": {"numNodes": 1, "mpi": {}}}
TORCH = replicated("node", trains=True)
AFTER = {**TORCH, "dependsOn": [{"name": "init", "status": "Complete"}]}
LAUNCHED = replicated("launcher", trains=True), replicated("node", parallelism=1)


@pytest.mark.parametrize(
    ("numbers", "of", "together"),
    [
        (None, runtime(TORCH), [1]),
        (None, runtime(TORCH, mlPolicy={"numNodes": 3}), [3]),
        ({"numNodes": 4}, runtime(TORCH, mlPolicy={"numNodes": 3}), [4]),
        ({"numNodes": 2}, runtime(replicated("init", parallelism=2), TORCH), [4]),
        ({"numNodes": 3}, runtime(replicated("init"), AFTER), [1]),
        ({"numNodes": 4}, runtime(*LAUNCHED, **MPI), [4]),
        ({"numNodes": 4}, runtime(*LAUNCHED, **WORKERS), [5]),
        (None, runtime(*LAUNCHED, **MPI), [2]),
    ],
)
def test_a_train_job_starts_with_the_pods_of_its_runtime(
    numbers: Object | None, of: Object, together: list[int]
) -> None:
    for order in ((train_job(numbers), of), (of, train_job(numbers))):
        done = simulated(*order)
        assert gangs(done) == together
        assert len(done.bindings) == sum(together)


def test_the_runtime_of_the_namespace_is_named_by_its_kind() -> None:
    reference = {"name": "torch", "kind": "TrainingRuntime", "apiGroup": "trainer.kubeflow.org"}
    own = runtime(TORCH, kind="TrainingRuntime", mlPolicy={"numNodes": 2})
    assert gangs(simulated(train_job(runtimeRef=reference), own, runtime(TORCH))) == [2]


def test_a_train_job_says_what_its_nodes_ask_for_and_where_they_run() -> None:
    asked = {"numNodes": 2, "resourcesPerNode": {"requests": {"cpu": "40"}}}
    other = {"name": "other", "resources": {"requests": {"cpu": "1"}}}
    both = node("1")
    both["spec"]["containers"].append(other)
    (group,) = (
        group
        for group in simulated(
            train_job(asked), runtime(replicated("node", trains=True, template=both))
        ).session.view.snapshot.pod_groups
        if group is not None
    )
    assert (group.spec.min_resources or {})["cpu"] == "82"
    for change in (
        {"podSpecOverrides": [{"targetJobs": [{"name": "node"}], "nodeSelector": {"no": "where"}}]},
        {"podTemplateOverrides": [{"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"no": "where"}}}]},
        {"runtimePatches": [patch(job="node", selector={"no": "where"})]},
    ):
        assert not simulated(train_job(**change), runtime(TORCH)).bindings
    elsewhere = {"podSpecOverrides": [{"targetJobs": [{"name": "init"}], "nodeSelector": {"no": "where"}}]}
    assert simulated(train_job(**elsewhere), runtime(TORCH)).bindings
    elsewhere = {"runtimePatches": [patch(job="init", selector={"no": "where"})]}
    assert simulated(train_job(**elsewhere), runtime(replicated("init", parallelism=0), TORCH)).bindings


def test_what_a_node_asks_for_is_laid_over_what_its_runtime_does_also_beside_a_launcher_that_is_a_node() -> None:
    asked = {"numNodes": 2, "resourcesPerNode": {"requests": {"memory": "1Gi"}}}
    groups = simulated(train_job(asked), runtime(*LAUNCHED, **MPI)).session.view.snapshot.pod_groups
    (least,) = (group.spec.min_resources or {} for group in groups if group is not None)
    assert (least["cpu"], least["memory"]) == ("2", str(2 * 2**30))


def test_what_a_runtime_says_of_its_queue_gives_way_to_the_train_job() -> None:
    labels = {"kueue.x-k8s.io/queue-name": "runtime"}
    queues = [{"kind": "Queue", "metadata": {"name": name}} for name in ("runtime", "own")]
    of = runtime(TORCH, template={"metadata": {"labels": labels}})
    said = {"kueue.x-k8s.io/queue-name": "own"}
    for change, queue in (({}, "runtime"), ({"labels": said}, "own"), ({"runtimePatches": [patch(said)]}, "own")):
        groups = simulated(*queues, train_job(**change), of).session.view.snapshot.pod_groups
        assert [group.spec.queue for group in groups if group is not None] == [queue]


def test_a_policy_of_volcano_in_a_runtime_says_how_close_together_pods_are() -> None:
    tier = {"networkTopology": {"mode": "soft", "highestTierAllowed": 2}}
    groups = simulated(train_job(), runtime(TORCH, podGroupPolicy={"volcano": tier})).session.view.snapshot.pod_groups
    (topology,) = (group.spec.network_topology for group in groups if group is not None)
    assert topology is not None
    assert (topology.mode, topology.highest_tier_allowed) == ("soft", 2)


def test_the_trainers_own_group_has_all_pods_start_together_in_the_queue_that_is_said() -> None:
    of = runtime(replicated("init", parallelism=2), TORCH, podGroupPolicy={"volcano": {}})
    queue = {"kind": "Queue", "metadata": {"name": "own"}}
    noted = {"annotations": {"scheduling.volcano.sh/queue-name": "own"}}
    done = simulated(queue, train_job({"numNodes": 2}, **noted), of)
    (group,) = (group for group in done.session.view.snapshot.pod_groups if group is not None)
    assert (group.key, group.spec.min_member, group.spec.queue) == ("default/llm", 4, "own")
    assert (group.spec.min_resources or {})["pods"] == "4"
    assert len(done.bindings) == 4


def test_the_trainers_own_group_is_told_to_wait_for_good_for_pods_that_come_after_others() -> None:
    of = runtime(replicated("init"), AFTER, podGroupPolicy={"volcano": {}})
    waits = simulated(train_job({"numNodes": 2}), of)
    assert waits.bindings == {}
    answer = explained(waits.session, "job", "default/llm", waits.rehearsal)
    assert answer is not None
    assert "JobSet default/llm makes Jobs when those before them are ready" in answer.detail
    change = "leave podGroupPolicy out of the runtime of TrainJob default/llm"
    assert [each.change.partition(",")[0] for each in answer.remedies] == [change]


def test_a_train_job_that_is_suspended_or_runs_elsewhere_has_no_pods() -> None:
    for change in ({"suspend": True}, {"managedBy": "kueue.x-k8s.io/multikueue"}):
        assert not simulated(train_job(**change), runtime(TORCH)).bindings


def test_a_runtime_that_is_not_there_is_named() -> None:
    (line,) = problems(train_job())
    assert (
        "TrainJob llm: spec.runtimeRef: its pods follow from ClusterTrainingRuntime torch, which does not exist" in line
    )


def test_a_train_job_in_an_app_wrapper_finds_its_runtime() -> None:
    wrapper = {"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "metadata": {"name": "w"}}
    spec = {"components": [{"template": train_job({"numNodes": 2})}]}
    assert gangs(simulated({**wrapper, "spec": spec}, runtime(TORCH))) == [2]


def test_a_pod_in_an_app_wrapper_is_one() -> None:
    wrapper = {"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "metadata": {"name": "w"}}
    wrapped = [{"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, **POD}} for name in "ab"]
    done = simulated({**wrapper, "spec": {"components": wrapped}})
    assert sorted(done.bindings) == ["default/a", "default/b"]


@pytest.mark.parametrize(
    ("application", "executor", "memory"),
    [
        ({}, {"memory": "4g"}, 4096 + 409),
        ({}, {"memory": "1g"}, 1024 + 384),
        ({}, {}, 1024 + 384),
        ({}, {"memory": "512"}, 512 + 384),
        ({"type": "Python"}, {"memory": "1g"}, 1024 + 409),
        ({"memoryOverheadFactor": "0.5"}, {"memory": "2G"}, 3072),
        ({}, {"memory": "1024mb", "memoryOverhead": "1g"}, 2048),
    ],
)
def test_pods_of_spark_ask_for_their_heap_and_what_comes_beside_it(
    application: Object, executor: Object, memory: int
) -> None:
    kind = {"apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication", "metadata": {"name": "w"}}
    spec = {"driver": {"schedulerName": "stromboli"}, "executor": {**executor, "schedulerName": "stromboli"}}
    done = simulated({**kind, "spec": {**spec, **application}})
    (group,) = (each for each in done.session.view.snapshot.pod_groups if each and "executor" in each.metadata.name)
    assert int((group.spec.min_resources or {})["memory"]) // 2**20 == memory


def spark(**spec: Any) -> Object:
    kind = {"apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication", "metadata": {"name": "w"}}
    return {**kind, "spec": {"driver": {"schedulerName": "stromboli"}, **spec}}


GPU = {"name": "nvidia.com/gpu", "quantity": 2}
TEMPLATE = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": 2}}}]}}
SIDECAR = {"name": "proxy", "resources": {"requests": {"nvidia.com/gpu": "2"}}}


@pytest.mark.parametrize("executor", [{"gpu": GPU}, {"template": TEMPLATE}, {"sidecars": [SIDECAR]}])
def test_executors_ask_for_what_their_application_or_its_template_says(executor: Object) -> None:
    done = simulated(spark(executor={**executor, "instances": 3, "schedulerName": "stromboli"}))
    (group,) = (each for each in done.session.view.snapshot.pod_groups if each and "executor" in each.metadata.name)
    assert (group.spec.min_resources or {})["requests.nvidia.com/gpu"] == "6"


ZONE = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
NEAR = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [ZONE]}}


@pytest.mark.parametrize(
    ("application", "executor"),
    [
        ({"nodeSelector": {"zone": "a"}}, {}),
        ({}, {"nodeSelector": {"zone": "a"}}),
        ({}, {"affinity": {"nodeAffinity": NEAR}}),
        ({}, {"template": {"spec": {"nodeSelector": {"zone": "a"}}}}),
    ],
)
def test_executors_go_where_their_application_or_its_template_says(application: Object, executor: Object) -> None:
    executor = {**executor, "instances": 2, "schedulerName": "stromboli"}
    assert (
        not {"default/w-exec-0", "default/w-exec-1"}
        & simulated(spark(executor=executor, **application)).bindings.keys()
    )


@pytest.mark.parametrize(
    ("said", "first", "together"),
    [
        ({"dynamicAllocation": {"enabled": True, "maxExecutors": 5}}, 0, []),
        ({"dynamicAllocation": {"enabled": True, "initialExecutors": 3}}, 3, [1]),
        (
            {"sparkConf": {"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.minExecutors": "2"}},
            2,
            [2],
        ),
        ({"sparkConf": {"spark.executor.instances": "4"}}, 4, [4]),
        ({}, 1, [1]),
    ],
)
def test_an_application_begins_with_the_executors_that_it_asks_for(
    said: Object, first: int, together: list[int]
) -> None:
    done = simulated(spark(executor={"schedulerName": "stromboli"}, **said))
    assert (len(done.bindings), gangs(done)) == (1 + first, [1, *together])


@pytest.mark.parametrize(("options", "cpu"), [({}, 3000), ({"resources": {"cpu": "2"}}, 2000)])
def test_with_volcano_as_batch_scheduler_the_operator_makes_a_group_that_starts_with_the_driver(
    options: Object, cpu: int
) -> None:
    more = {"batchScheduler": "volcano", "batchSchedulerOptions": {"queue": "default", **options}}
    done = simulated(spark(executor={"instances": 2}, **more))
    # The pods are of the batch scheduler, which is not served here.
    assert done.bindings == {}
    (group,) = (each for each in done.session.view.snapshot.pod_groups if each is not None)
    assert (group.metadata.name, group.spec.min_member, group.spec.queue) == ("spark-w-pg", 1, "default")
    assert parse((group.spec.min_resources or {})["cpu"]) * 1000 == cpu


CLUSTER = {"rayClusterSpec": ray(replicas(2, groupName="a"))}
NAMELESS = {"spec": {"containers": POD["spec"]["containers"]}}


@pytest.mark.parametrize(
    ("spec", "together"),
    [
        ({**CLUSTER, "submitterPodTemplate": POD}, [1, 3]),
        ({**CLUSTER, "submitterPodTemplate": POD, "submissionMode": "K8sJobMode"}, [1, 3]),
        ({**CLUSTER, "submitterPodTemplate": POD, "submissionMode": "HTTPMode"}, [3]),
        ({**CLUSTER, "submitterPodTemplate": POD, "submissionMode": "SidecarMode"}, [3]),
        ({**CLUSTER, "submitterPodTemplate": POD, "clusterSelector": {"ray.io/cluster": "there"}}, [1]),
        # Another scheduler takes care of the submitter.
        ({**CLUSTER, "submitterPodTemplate": NAMELESS}, [3]),
        (CLUSTER, [3]),
    ],
)
def test_a_ray_job_has_a_submitter_where_a_job_submits_it(spec: Object, together: list[int]) -> None:
    made = {"apiVersion": RAY, "kind": "RayJob", "metadata": {"name": "tune"}, "spec": spec}
    assert gangs(simulated(made)) == together


@pytest.mark.parametrize(
    ("kind", "spec", "milli"),
    [
        ("RayCluster", ray(), 1000),
        ("RayCluster", ray(enableInTreeAutoscaling=True), 1500),
        (
            "RayCluster",
            ray(enableInTreeAutoscaling=True, autoscalerOptions={"resources": {"requests": {"cpu": "2"}}}),
            3000,
        ),
        ("RayJob", {"rayClusterSpec": ray(), "submissionMode": "HTTPMode"}, 1000),
        ("RayJob", {"rayClusterSpec": ray(), "submissionMode": "SidecarMode"}, 1500),
        ("RayJob", {"rayClusterSpec": ray(enableInTreeAutoscaling=True), "submissionMode": "SidecarMode"}, 2000),
        # The wait for the head comes before the container that runs.
        ("RayCluster", ray(replicas(1, groupName="a")), 2000),
    ],
)
def test_the_pods_of_ray_have_the_containers_that_kuberay_adds(kind: str, spec: Object, milli: int) -> None:
    done = simulated({"apiVersion": RAY, "kind": kind, "metadata": {"name": "tune"}, "spec": spec})
    (group,) = (each for each in done.session.view.snapshot.pod_groups if each is not None)
    assert parse((group.spec.min_resources or {})["cpu"]) * 1000 == milli


def test_a_kind_with_a_maker_that_is_not_known_is_refused() -> None:
    row = {"group": "example.com", "kind": "Thing", "plural": "things", "starts": "inParts", "maker": "ray_jobs"}
    kind = {"apiVersion": "stromboli.io/v1alpha1", "kind": "WorkloadKind", "metadata": {"name": "t"}, "spec": row}
    (line,) = problems(kind)
    assert "spec.maker: unknown maker 'ray_jobs', did you mean 'ray_job'?" in line


def test_a_component_without_pod_sets_beside_one_that_has_some_has_its_pods_too() -> None:
    wrapper = {"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "metadata": {"name": "w"}}
    counted = {"parallelism": 2, "completions": 2, "template": POD}
    said, unsaid = (
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": counted} for name in "ab"
    )
    pod_sets = [{"replicas": 2, "path": "template.spec.template"}]
    done = simulated(
        {**wrapper, "spec": {"components": [{"template": said, "podSets": pod_sets}, {"template": unsaid}]}}
    )
    assert (len(done.bindings), gangs(done)) == (4, [2])


def test_each_role_of_a_disaggregated_set_is_served_by_gangs_of_its_own() -> None:
    def role(name: str, replicas: int, size: int) -> Object:
        inner = {"size": size, "workerTemplate": node()}
        return {"name": name, "spec": {"replicas": replicas, "leaderWorkerTemplate": inner}}

    spec = {"roles": [role("prefill", 2, 3), role("decode", 1, 2)]}
    named = {"apiVersion": "disaggregatedset.x-k8s.io/v1", "kind": "DisaggregatedSet", "metadata": {"name": "llm"}}
    done = simulated({**named, "spec": spec})
    assert gangs(done) == [2, 3, 3]
    assert len(done.bindings) == 8


FLOW = "flow.volcano.sh/v1alpha1"


def job_flow(*flows: Object) -> Object:
    return {"apiVersion": FLOW, "kind": "JobFlow", "metadata": {"name": "nightly"}, "spec": {"flows": list(flows)}}


def job_template(name: str, pods: int) -> Object:
    tasks = [{"name": "main", "replicas": pods, "template": node()}]
    spec = {"schedulerName": "stromboli", "minAvailable": pods, "tasks": tasks}
    return {"apiVersion": FLOW, "kind": "JobTemplate", "metadata": {"name": name}, "spec": spec}


def test_a_job_flow_begins_with_the_jobs_that_wait_for_no_other() -> None:
    flow = job_flow({"name": "load"}, {"name": "scan"}, {"name": "train", "dependsOn": {"targets": ["load", "scan"]}})
    templates = job_template("load", 2), job_template("scan", 3), job_template("train", 4)
    for order in ((flow, *templates), (*templates, flow)):
        done = simulated(*order)
        assert (gangs(done), len(done.bindings)) == ([2, 3], 5)
        assert {pod.rpartition("/")[2] for pod in done.bindings} >= {"nightly-load-main-0", "nightly-scan-main-2"}


def test_a_job_flow_says_what_is_other_than_in_the_template() -> None:
    change = {"spec": {"minAvailable": 1, "tasks": [{"name": "main", "replicas": 5}]}}
    done = simulated(job_flow({"name": "load", "patch": change}), job_template("load", 2))
    assert (gangs(done), len(done.bindings)) == ([1], 5)


@pytest.mark.parametrize(
    ("flows", "says"),
    [
        ([{"name": "loda"}], "spec.flows[0].name: there is no JobTemplate 'loda': add it"),
        (
            [{"name": "load"}, {"name": "load2", "dependsOn": {"targets": ["laod"]}}],
            "spec.flows[1].dependsOn.targets: there is no flow 'laod', did you mean 'load'?",
        ),
    ],
)
def test_a_flow_of_what_is_not_there_is_told(flows: list[Object], says: str) -> None:
    (line,) = problems(job_flow(*flows), job_template("load", 2))
    assert line.endswith(says)


def test_when_the_job_of_a_flow_is_made_is_told(tmp_path: Path) -> None:
    flow = job_flow({"name": "load"}, {"name": "train", "dependsOn": {"targets": ["load"]}})
    file = tmp_path / "flow.yaml"
    file.write_text(yaml.safe_dump_all([flow, job_template("load", 2), job_template("train", 2)]))
    says = "JobFlow default/nightly makes Job nightly-train when load completed"
    assert says in stromboli("simulate", file).output
    assert says in stromboli("why", "job", "nightly-train", "-f", file).output
