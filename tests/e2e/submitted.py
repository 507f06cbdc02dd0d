"""Workloads of many kinds, and what the controllers of these kinds make of them, with their labels and owners.

Jobs, StatefulSets and Deployments among them become pods by the controllers of the cluster, whose pods of Jobs complete
as soon as they run. Objects are in fields, as the released definitions of their kinds take them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from stromboli.workloads import known_kinds
from tests.controlplane.cluster import eventually
from tests.e2e.world import Object, World, pod

#: the label of the nodes for the pods of a workload
NODES_OF = "nodes-of"
QUEUE, PRIORITY = "research", "urgent"
NOTHING: Mapping[str, str] = {}
SAID = {"kueue.x-k8s.io/queue-name": QUEUE, "kueue.x-k8s.io/priority-class": PRIORITY}

BATCH, JOB_SET, RAY, KUBEFLOW = "batch/v1", "jobset.x-k8s.io/v1alpha2", "ray.io/v1", "kubeflow.org/v1"
SPARK, ARGO, LWS = "sparkoperator.k8s.io/v1beta2", "argoproj.io/v1alpha1", "leaderworkerset.x-k8s.io/v1"
WRAPPER, TRAINER = "workload.codeflare.dev/v1beta2", "trainer.kubeflow.org/v1alpha1"


@dataclass(frozen=True, slots=True)
class Made:
    """An object, and what is made of it."""

    version: str
    kind: str
    #: what its name has beside that of its owner
    suffix: str
    spec: Object
    parts: tuple[Made, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    #: whether a controller of the cluster makes it
    comes: bool = False
    #: whether it makes its parts itself, once it runs
    runs: bool = False


@dataclass(frozen=True, slots=True)
class Submitted:
    """A kind of workload, by the number of pods of the role that scales."""

    name: str
    tree: Callable[[str, int], Made]
    #: how many pods start together in each of its PodGroups, in the order in which they start
    together: Callable[[int], list[int]]
    #: where its pods start one by one
    pods: Callable[[int], int] | None = None
    #: whether its pods come to an end
    ends: bool = True
    #: how many pods start together in PodGroups that ask for no CPU
    beside: tuple[int, ...] = ()

    def count(self, size: int) -> int:
        """How many pods it has that ask for a CPU."""
        return self.pods(size) if self.pods else sum(self.together(size))

    def short(self, size: int) -> int:
        """CPUs with which a pod or a gang of it waits, and no gang that has started finds room to grow."""
        several = len(self.together(size)) > 1 and not self.pods
        return self.started(size) if several else self.count(size) - 1

    def started(self, size: int) -> int:
        """How many pods start on `short` CPUs."""
        return self.count(size) - 1 if self.pods else sum(self.together(size)[:-1])

    def submit(self, world: World, size: int) -> None:
        """Create it and what is made of it, or change what is there already."""
        apply(world, self.tree(self.name, size), self.name)

    def withdraw(self, world: World) -> None:
        """Delete it, and have the cluster delete what it owns."""
        path = path_of(world, self.tree(self.name, 1), self.name)
        world.api.delete(path, params={"propagationPolicy": "Background"}).raise_for_status()


def path_of(world: World, made: Made, name: str) -> str:
    row = known_kinds().get(made.version, made.kind)
    assert row is not None, made
    root = f"/apis/{made.version}" if "/" in made.version else f"/api/{made.version}"
    return f"{root}/namespaces/{world.namespace}/{row.row.plural}/{name}"


def apply(world: World, made: Made, name: str, owner: Object | None = None) -> None:
    """Create or change an object and its parts."""
    path = path_of(world, made, name)
    if made.comes:
        eventually(lambda: world.api.get(path).is_success, 60)
        there = world.get(path)
    else:
        meta: Object = {"name": name, "labels": dict(made.labels)}
        if owner is not None:
            keys = {key: owner[key] for key in ("apiVersion", "kind")}
            named = {key: owner["metadata"][key] for key in ("name", "uid")}
            meta["ownerReferences"] = [{**keys, **named, "controller": True}]
        manifest = {"apiVersion": made.version, "kind": made.kind, "metadata": meta, "spec": made.spec}
        headers = {"Content-Type": "application/apply-patch+yaml"}
        answer = world.api.patch(path, json=manifest, headers=headers, params={"fieldManager": "test", "force": "true"})
        assert answer.is_success, f"{path}: {answer.text}"
        there = answer.json()
    if made.runs:
        eventually(lambda: bool(world.get(path)["spec"].get("nodeName")), 60)
    for part in made.parts:
        apply(world, part, f"{name}-{part.suffix}", there)


def pods_of(made: Made, name: str) -> Iterator[str]:
    """The names of the pods that no controller of the cluster makes."""
    if made.kind == "Pod" and not made.comes:
        yield name
    for part in made.parts:
        yield from pods_of(part, f"{name}-{part.suffix}")


# -- what controllers make ---------------------------------------------------------------------------------------------


def template(name: str, cpu: str = "1", **labels: str) -> Object:
    spec = {**pod("", cpu=cpu)["spec"], "restartPolicy": "Never", "nodeSelector": {NODES_OF: name}}
    return {"metadata": {"labels": labels}, "spec": spec}


def _forever(name: str, **labels: str) -> Object:
    made = template(name, **labels)
    return {**made, "spec": {**made["spec"], "restartPolicy": "Always"}}


def _pods(name: str, role: str, count: int, labels: Mapping[str, str], *parts: Made) -> tuple[Made, ...]:
    spec = template(name)["spec"]
    return tuple(Made("v1", "Pod", f"{role}-{number}", spec, parts, labels) for number in range(count))


def _job(name: str, suffix: str, pods: int, labels: Mapping[str, str] = NOTHING, cpu: str = "1") -> Made:
    counted = {"parallelism": pods, "completions": pods, "completionMode": "Indexed", "backoffLimit": 6}
    return Made(BATCH, "Job", suffix, {**counted, "template": template(name, cpu)}, (), labels)


def job(name: str, size: int) -> Made:
    return _job(name, "", size, SAID)


def cron_job(name: str, size: int) -> Made:
    made = _job(name, "29734560", size)
    spec = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": made.spec}}
    return Made(BATCH, "CronJob", "", spec, (made,), SAID)


def _job_set(name: str, suffix: str, size: int, labels: Mapping[str, str]) -> Made:
    driver, workers = (
        _job(name, f"{role}-0", pods, {"jobset.sigs.k8s.io/replicatedjob-name": role})
        for role, pods in (("driver", 1), ("worker", size))
    )
    replicated = [
        {"name": role, "replicas": 1, "template": {"spec": made.spec}}
        for role, made in (("driver", driver), ("worker", workers))
    ]
    return Made(JOB_SET, "JobSet", suffix, {"replicatedJobs": replicated}, (driver, workers), labels)


def job_set(name: str, size: int) -> Made:
    return _job_set(name, "", size, SAID)


def train_job(name: str, size: int) -> Made:
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": size}}
    return Made(TRAINER, "TrainJob", "", spec, (_job_set(name, "run", size, {}),), SAID)


def leader_worker_set(name: str, size: int) -> Made:
    return _leader_worker_set(name, "", size, SAID)


def disaggregated_set(name: str, size: int) -> Made:
    sets = tuple(_leader_worker_set(name, role, size, {}) for role in ("prefill", "decode"))
    roles = [{"name": each.suffix, "spec": each.spec} for each in sets]
    return Made("disaggregatedset.x-k8s.io/v1", "DisaggregatedSet", "", {"roles": roles}, sets, SAID)


def _leader_worker_set(name: str, suffix: str, size: int, told: Mapping[str, str]) -> Made:
    labels = {"leaderworkerset.sigs.k8s.io/name": f"{name}{suffix}", "leaderworkerset.sigs.k8s.io/group-index": "0"}

    def stateful(suffix: str, replicas: int, role: str, *parts: Made) -> Made:
        both = {**labels, "role": role}
        spec = {"replicas": replicas, "podManagementPolicy": "Parallel", "serviceName": name}
        spec |= {"selector": {"matchLabels": both}, "template": _forever(name, **both)}
        return Made("apps/v1", "StatefulSet", suffix, spec, parts)

    leader = Made("v1", "Pod", "0", {}, (stateful("workers", size, "worker"),), comes=True)
    spec = {"replicas": 1, "leaderWorkerTemplate": {"size": size + 1, "workerTemplate": _forever(name)}}
    return Made(LWS, "LeaderWorkerSet", suffix, spec, (stateful("leaders", 1, "leader", leader),), told)


def _cluster_spec(name: str, size: int) -> Object:
    part = {"rayStartParams": {}, "template": template(name)}
    workers = {"groupName": "gpu", "replicas": size, "minReplicas": 0, "maxReplicas": 9, **part}
    return {"headGroupSpec": part, "workerGroupSpecs": [workers]}


def _ray_cluster(name: str, suffix: str, size: int, labels: Mapping[str, str]) -> Made:
    head = _pods(name, "head", 1, {"ray.io/cluster": name, "ray.io/node-type": "head", "ray.io/group": "headgroup"})
    labelled = {"ray.io/cluster": name, "ray.io/node-type": "worker", "ray.io/group": "gpu"}
    parts = (*head, *_pods(name, "gpu-worker", size, labelled))
    return Made(RAY, "RayCluster", suffix, _cluster_spec(name, size), parts, labels)


def ray_cluster(name: str, size: int) -> Made:
    return _ray_cluster(name, "", size, SAID)


def _ray_job(name: str, suffix: str, size: int, labels: Mapping[str, str]) -> Made:
    spec = {"entrypoint": "python train.py", "rayClusterSpec": _cluster_spec(name, size)}
    # The submitter waits for the cluster, and asks for next to nothing.
    parts = (_ray_cluster(name, "cluster", size, {}), _job(name, "submit", 1, cpu="0"))
    return Made(RAY, "RayJob", suffix, spec, parts, labels)


def ray_job(name: str, size: int) -> Made:
    return _ray_job(name, "", size, SAID)


def ray_cron_job(name: str, size: int) -> Made:
    made = _ray_job(name, "run", size, {})
    return Made(RAY, "RayCronJob", "", {"schedule": "0 0 1 1 *", "jobTemplate": made.spec}, (made,), SAID)


def ray_service(name: str, size: int) -> Made:
    spec = {"rayClusterConfig": _cluster_spec(name, size)}
    return Made(RAY, "RayService", "", spec, (_ray_cluster(name, "cluster", size, {}),), SAID)


def _trained(name: str, kind: str, field: str, suffix: str, **roles: int) -> Made:
    specs = {role: {"replicas": count, "template": template(name)} for role, count in roles.items()}
    policy = {"schedulingPolicy": {"queue": QUEUE, "priorityClass": PRIORITY}}
    parts = tuple(
        made
        for role, count in roles.items()
        for made in _pods(name, role.lower(), count, {"training.kubeflow.org/replica-type": role.lower()})
    )
    return Made(KUBEFLOW, kind, suffix, {field: specs, "runPolicy": policy}, parts)


def trained(kind: str, field: str, **fixed: int) -> Callable[[str, int], Made]:
    """A kind of the training operator, with some roles beside the workers."""
    return lambda name, size: _trained(name, kind, field, "", **fixed, Worker=size)


def mpi_job(name: str, size: int) -> Made:
    specs = {
        role: {"replicas": count, "template": template(name)} for role, count in (("Launcher", 1), ("Worker", size))
    }
    policy = {"schedulingPolicy": {"queue": QUEUE, "priorityClass": PRIORITY}}
    parts = (_job(name, "launcher", 1), *_pods(name, "worker", size, {"training.kubeflow.org/job-role": "worker"}))
    return Made("kubeflow.org/v2beta1", "MPIJob", "", {"mpiReplicaSpecs": specs, "runPolicy": policy}, parts)


def _spark(name: str, suffix: str, size: int, labels: Mapping[str, str]) -> Made:
    roles = {"driver": {"cores": 1}, "executor": {"cores": 1, "instances": size}}
    spec = {"type": "Scala", "sparkVersion": "4.0.0", "mainApplicationFile": "local:///app.jar", **roles}
    selector = {"spark-app-selector": f"spark-{name}"}
    executors = _pods(name, "exec", size, {**selector, "spark-role": "executor"})
    (first,) = _pods(name, "driver", 1, {**selector, "spark-role": "driver"}, *executors)
    return Made(SPARK, "SparkApplication", suffix, spec, (replace(first, runs=True),), labels)


def spark_application(name: str, size: int) -> Made:
    return _spark(name, "", size, SAID)


def scheduled_spark(name: str, size: int) -> Made:
    made = _spark(name, "run", size, {})
    return Made(SPARK, "ScheduledSparkApplication", "", {"schedule": "@yearly", "template": made.spec}, (made,), SAID)


def spark_connect(name: str, size: int) -> Made:
    selector = {"sparkoperator.k8s.io/connect-name": name}
    executors = _pods(name, "exec", size, {**selector, "spark-role": "executor"})
    (server,) = _pods(name, "server", 1, {**selector, "spark-role": "connect-server"}, *executors)
    roles = {"server": {"template": template(name)}, "executor": {"cores": 1, "instances": size}}
    spec = {"sparkVersion": "4.0.0", **roles}
    version = "sparkoperator.k8s.io/v1alpha1"
    return Made(version, "SparkConnect", "", spec, (replace(server, runs=True),), SAID)


def spark_submit(name: str, size: int) -> Made:
    """A driver that nothing owns, and its executors."""
    (driver,) = _spark(name, "", size, {}).parts
    return replace(driver, labels={**driver.labels, **SAID})


def workflow(name: str, size: int) -> Made:
    return _workflow(name, "", size, SAID)


def _workflow(name: str, suffix: str, size: int, labels: Mapping[str, str]) -> Made:
    spec = {"entrypoint": "main", "templates": [{"name": "main", "container": {"image": "example.com/step:1"}}]}
    steps = _pods(name, "main", size, {"workflows.argoproj.io/workflow": name})
    return Made(ARGO, "Workflow", suffix, spec, steps, labels)


def cron_workflow(name: str, size: int) -> Made:
    made = _workflow(name, "run", size, {})
    return Made(ARGO, "CronWorkflow", "", {"schedules": ["0 0 1 1 *"], "workflowSpec": made.spec}, (made,), SAID)


def app_wrapper(name: str, size: int) -> Made:
    inner = _trained(name, "PyTorchJob", "pytorchReplicaSpecs", "torch", Master=1, Worker=size)
    place = "template.spec.pytorchReplicaSpecs"
    sets = [
        {"replicas": count, "path": f"{place}.{role}.template"} for role, count in (("Master", 1), ("Worker", size))
    ]
    wrapped = {"apiVersion": KUBEFLOW, "kind": "PyTorchJob", "metadata": {"name": f"{name}-torch"}, "spec": inner.spec}
    return Made(WRAPPER, "AppWrapper", "", {"components": [{"template": wrapped, "podSets": sets}]}, (inner,), SAID)


def replicated(kind: str, **more: Any) -> Callable[[str, int], Made]:
    """A kind of Kubernetes whose pods run for good."""

    def made(name: str, size: int) -> Made:
        spec = {
            "replicas": size,
            "selector": {"matchLabels": {"app": name}},
            "template": _forever(name, app=name),
            **more,
        }
        return Made("apps/v1", kind, "", spec, (), SAID)

    return made


def notebook(name: str, size: int) -> Made:
    """Its controller makes a StatefulSet of one pod; people scale it to none and back."""
    stateful = replicated("StatefulSet", serviceName="s")(name, size)
    part = Made("apps/v1", "StatefulSet", "set", stateful.spec)
    return Made(KUBEFLOW, "Notebook", "", {"template": template(name)}, (part,), SAID)


def _one(_: int) -> list[int]:
    return [1]


SUBMITTED = (
    Submitted("job", job, lambda n: [n]),
    Submitted("cronjob", cron_job, lambda n: [n]),
    Submitted("jobset", job_set, lambda n: [1 + n]),
    Submitted("trainjob", train_job, lambda n: [1 + n]),
    Submitted("leaderworkerset", leader_worker_set, lambda n: [1 + n], ends=False),
    Submitted("disaggregatedset", disaggregated_set, lambda n: [1 + n, 1 + n], ends=False),
    Submitted("raycluster", ray_cluster, lambda n: [1 + n]),
    Submitted("rayjob", ray_job, lambda n: [1 + n], beside=(1,)),
    Submitted("raycronjob", ray_cron_job, lambda n: [1 + n], beside=(1,)),
    Submitted("rayservice", ray_service, lambda n: [1 + n]),
    Submitted("pytorchjob", trained("PyTorchJob", "pytorchReplicaSpecs", Master=1), lambda n: [1 + n]),
    Submitted("tfjob", trained("TFJob", "tfReplicaSpecs", PS=1), lambda n: [1 + n]),
    Submitted("xgboostjob", trained("XGBoostJob", "xgbReplicaSpecs", Master=1), lambda n: [1 + n]),
    Submitted("paddlejob", trained("PaddleJob", "paddleReplicaSpecs"), lambda n: [n]),
    Submitted("jaxjob", trained("JAXJob", "jaxReplicaSpecs"), lambda n: [n]),
    Submitted("mpijob", mpi_job, lambda n: [1 + n]),
    Submitted("sparkapplication", spark_application, lambda n: [1, n]),
    Submitted("scheduledsparkapplication", scheduled_spark, lambda n: [1, n]),
    Submitted("sparkconnect", spark_connect, lambda n: [1, n]),
    Submitted("appwrapper", app_wrapper, lambda n: [1 + n]),
    Submitted("sparksubmit", spark_submit, lambda _: [1, 1], lambda n: 1 + n),
    Submitted("workflow", workflow, _one, lambda n: n),
    Submitted("cronworkflow", cron_workflow, _one, lambda n: n),
    Submitted("notebook", notebook, _one, lambda n: n, ends=False),
    Submitted("deployment", replicated("Deployment"), _one, lambda n: n, ends=False),
    Submitted("statefulset", replicated("StatefulSet", serviceName="s"), _one, lambda n: n, ends=False),
)
