"""Workloads in many states get the PodGroups from the service that `simulate` shows for the same files.

What controllers make of each, as `simulate` has it, is created with its owners; all meet one service.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import yaml

from stromboli.simulation.admission import admit
from stromboli.simulation.manifests import load
from stromboli.workloads import known_kinds
from tests.live.cluster import Cluster
from tests.live.conftest import StartService, until
from tests.live.test_workloads import define, engine, groups

Object = dict[str, Any]
MIN_MEMBER = "scheduling.volcano.sh/group-min-member"
GROUP, ROLE = "scheduling.k8s.io/group-name", "volcano.sh/task-spec"
#: what both say of a group
SAID = ("minMember", "minTaskMember", "minResources", "queue", "priorityClassName", "networkTopology")


def template(cpu: str = "1", **more: Any) -> Object:
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    return {"spec": {"schedulerName": "stromboli", "restartPolicy": "Never", "containers": [container], **more}}


def whole(api_version: str, kind: str, spec: Object, **notes: str) -> Object:
    metadata = {"annotations": {key.replace("__", "/"): value for key, value in notes.items()}} if notes else {}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def job(pods: int, completions: int | None = None, cpu: str = "1", **more: Any) -> Object:
    counted = {} if completions is None else {"completions": completions}
    return {"parallelism": pods, **counted, "template": template(cpu), **more}


def batch(pods: int, completions: int | None = None, notes: Object | None = None, **more: Any) -> Object:
    made = whole("batch/v1", "Job", job(pods, completions, **more))
    return {**made, "metadata": {"annotations": notes or {}}}


def job_set(*jobs: Object, **more: Any) -> Object:
    return whole("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": list(jobs), **more})


def replicated(name: str, pods: int, replicas: int = 1, cpu: str = "1", **more: Any) -> Object:
    return {"name": name, "replicas": replicas, "template": {"spec": job(pods, pods, cpu)}, **more}


def ray(*workers: Object, **more: Any) -> Object:
    spec = {
        "headGroupSpec": {"rayStartParams": {}, "template": template("2")},
        "workerGroupSpecs": list(workers),
        **more,
    }
    return whole("ray.io/v1", "RayCluster", spec)


def worker(name: str, replicas: int, cpu: str = "1", **more: Any) -> Object:
    return {"groupName": name, "replicas": replicas, "template": template(cpu), **more}


def lws(replicas: int, size: int, **more: Any) -> Object:
    inner = {"size": size, "workerTemplate": template(), **more.pop("inner", {})}
    spec = {"replicas": replicas, "leaderWorkerTemplate": inner, **more}
    return whole("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec)


def kubeflow(
    kind: str, field: str, policy: Object | None = None, elastic: Object | None = None, **roles: int
) -> Object:
    specs = {
        role: {"replicas": count, "template": template("2" if role != "Worker" else "1")}
        for role, count in roles.items()
    }
    spec = {field: specs, "runPolicy": policy or {}, **({"elasticPolicy": elastic} if elastic else {})}
    return whole("kubeflow.org/v1", kind, spec)


def spark(**spec: Any) -> Object:
    roles = {
        "driver": {"cores": 1, "schedulerName": "stromboli"},
        "executor": {"cores": 1, "schedulerName": "stromboli"},
    }
    roles["executor"] |= spec.pop("executor", {})
    return whole("sparkoperator.k8s.io/v1beta2", "SparkApplication", {"type": "Scala", **roles, **spec})


def wrapper(*components: Object) -> Object:
    return whole("workload.codeflare.dev/v1beta2", "AppWrapper", {"components": list(components)})


def wrapped(name: str, pods: int, sets: list[Object] | None) -> Object:
    inner = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": job(pods, pods)}
    return {"template": inner, **({"podSets": sets} if sets is not None else {})}


def apps(kind: str, replicas: int, **more: Any) -> Object:
    return whole("apps/v1", kind, {"replicas": replicas, "template": template(restartPolicy="Always"), **more})


def mpi(**more: Any) -> Object:
    specs = {role: {"replicas": count, "template": template()} for role, count in (("Launcher", 1), ("Worker", 3))}
    return whole("kubeflow.org/v2beta1", "MPIJob", {"mpiReplicaSpecs": specs, **more})


def train(runtime: str, nodes: int) -> Object:
    spec = {"runtimeRef": {"name": runtime}, "trainer": {"numNodes": nodes}}
    return whole("trainer.kubeflow.org/v1alpha1", "TrainJob", spec)


def runtime(name: str, **policy: Any) -> Object:
    trainer = {"metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}}
    jobs = [{"name": "node", "template": {**trainer, "spec": {"template": template()}}}]
    spec = {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": {"spec": {"replicatedJobs": jobs}}, **policy}
    made = whole("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime", spec)
    return {**made, "metadata": {"name": name}}


def noted(made: Object, notes: Object, where: str = "annotations") -> Object:
    return {**made, "metadata": {**made["metadata"], where: notes}}


RUNTIMES = (runtime("torch"),)
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
PYTORCH = ("PyTorchJob", "pytorchReplicaSpecs")
JOB_POLICY = {"rules": [{"succeededIndexes": "0", "succeededCount": 1}]}
TEMPLATE_SET = [{"replicas": 2, "path": "template.spec.template"}]
VARIANTS: dict[str, Object] = {
    "job": batch(3, 3),
    "job-suspended": batch(3, 3, suspend=True),
    "job-of-a-queue-of-work": batch(3),
    "job-completing": batch(4, 2),
    "job-paused": batch(0, 3),
    "job-with-success-policy": batch(3, 3, completionMode="Indexed", successPolicy=JOB_POLICY),
    "job-with-backoff-per-index": batch(3, 3, completionMode="Indexed", backoffLimitPerIndex=1, maxFailedIndexes=1),
    "job-annotated": batch(4, 4, {MIN_MEMBER: "2"}),
    "job-annotated-beyond": batch(2, 2, {MIN_MEMBER: "5"}),
    "job-of-kueue": batch(4, 4, {"kueue.x-k8s.io/job-min-parallelism": "3"}),
    "job-elsewhere": batch(2, 2, managedBy="kueue.x-k8s.io/multikueue"),
    "job-with-topology": batch(2, 2, {"kueue.x-k8s.io/podset-required-topology": "rack"}),
    "job-with-deadline": batch(2, 2, activeDeadlineSeconds=600),
    "job-with-every-policy": batch(
        4, 8, completionMode="Indexed", backoffLimitPerIndex=2, maxFailedIndexes=3, podReplacementPolicy="Failed",
        podFailurePolicy={"rules": [{"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [42]}}]},
        successPolicy=JOB_POLICY,
    ),
    "job-of-kubernetes-gangs": batch(4, 4, scheduling={"schedulingPolicy": {"gang": {"minCount": 3}}}),
    "cronjob": whole("batch/v1", "CronJob", {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job(2, 2)}}),
    "cronjob-suspended": whole(
        "batch/v1", "CronJob", {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": job(2, 2)}}
    ),
    "jobset": job_set(replicated("driver", 1, cpu="2"), replicated("worker", 2, 2)),
    "jobset-in-order": job_set(
        replicated("driver", 1), replicated("worker", 2, 2), startupPolicy={"startupPolicyOrder": "InOrder"}
    ),
    "jobset-dependent": job_set(
        replicated("init", 1), replicated("node", 2, dependsOn=[{"name": "init", "status": "Complete"}])
    ),
    "jobset-chained": job_set(
        replicated("a", 1),
        replicated("b", 2, dependsOn=[{"name": "a", "status": "Ready"}]),
        replicated("c", 3, dependsOn=[{"name": "b", "status": "Ready"}]),
    ),
    "jobset-exclusive": noted(job_set(replicated("worker", 3, 2)), {EXCLUSIVE: "rack"}),
    "jobset-exclusive-on-labelled-nodes": noted(
        job_set(replicated("worker", 3, 2)), {EXCLUSIVE: "rack", "alpha.jobset.sigs.k8s.io/node-selector": "true"}
    ),
    "jobset-of-none": job_set(replicated("driver", 1), replicated("worker", 2, 0)),
    "jobset-suspended": job_set(replicated("worker", 2), suspend=True),
    "raycluster": ray(worker("gpu", 2)),
    "raycluster-of-several": ray(worker("gpu", 2, minReplicas=1), worker("cpu", 1, cpu="3", numOfHosts=2)),
    "raycluster-scaling": ray(
        worker("gpu", 3, minReplicas=1, maxReplicas=5), worker("tpu", 2, minReplicas=1, numOfHosts=2),
        enableInTreeAutoscaling=True,
    ),
    "raycluster-below-its-least": ray(worker("gpu", 1, minReplicas=2)),
    "raycluster-above-its-most": ray(worker("gpu", 5, maxReplicas=2)),
    "raycluster-half-suspended": ray(worker("gpu", 2), worker("cpu", 2, suspend=True)),
    "raycluster-alone": ray(),
    "raycluster-in-a-tier": noted(
        ray(worker("gpu", 2)),
        {"volcano.sh/network-topology-mode": "soft", "volcano.sh/network-topology-highest-tier-allowed": "2"},
        "labels",
    ),
    "rayjob-scaling": whole("ray.io/v1", "RayJob", {
        "entrypoint": "python train.py",
        "rayClusterSpec": ray(worker("tpu", 2, minReplicas=1, numOfHosts=4), enableInTreeAutoscaling=True)["spec"],
    }),
    "rayservice-at-rest": whole("ray.io/v1", "RayService", {
        "rayClusterConfig": ray(worker("gpu", 0, minReplicas=0), enableInTreeAutoscaling=True)["spec"],
    }),
    "lws": lws(2, 3),
    "lws-of-one": lws(2, 1),
    "lws-recreated": lws(1, 2, inner={"restartPolicy": "RecreateGroupOnPodRestart"}),
    "lws-of-sub-groups": lws(1, 4, inner={"subGroupPolicy": {"subGroupSize": 2}}),
    "lws-leader-first": lws(1, 3, startupPolicy="LeaderReady"),
    "lws-of-two-templates": lws(1, 2, inner={"leaderTemplate": template("3")}),
    "disaggregatedset": whole("disaggregatedset.x-k8s.io/v1", "DisaggregatedSet", {
        "roles": [{"name": "prefill", "spec": lws(2, 2)["spec"]}, {"name": "decode", "spec": lws(1, 3)["spec"]}],
    }),
    "pytorchjob": kubeflow(*PYTORCH, Master=1, Worker=2),
    "pytorchjob-elastic": kubeflow(*PYTORCH, None, {"minReplicas": 1, "maxReplicas": 4}, Master=1, Worker=3),
    "pytorchjob-said": kubeflow(
        *PYTORCH, {"schedulingPolicy": {"minAvailable": 2, "queue": "research"}}, Master=1, Worker=3
    ),
    "pytorchjob-suspended": kubeflow(*PYTORCH, {"suspend": True}, Master=1, Worker=2),
    "mpijob-that-works-in-its-launcher": mpi(runLauncherAsWorker=True),
    "mpijob-that-waits": mpi(launcherCreationPolicy="WaitForWorkersReady", runLauncherAsWorker=True),
    "trainjob": train("torch", 3),
    "tfjob": kubeflow("TFJob", "tfReplicaSpecs", PS=2, Chief=1, Worker=2),
    "sparkapplication": spark(executor={"instances": 2}),
    "sparkapplication-dynamic": spark(
        dynamicAllocation={"enabled": True, "initialExecutors": 3, "minExecutors": 2, "maxExecutors": 5}
    ),
    "appwrapper": wrapper(wrapped("inner-a", 2, TEMPLATE_SET)),
    "appwrapper-of-several": wrapper(wrapped("inner-b", 2, TEMPLATE_SET), wrapped("inner-c", 2, TEMPLATE_SET)),
    "appwrapper-said-in-part": wrapper(wrapped("inner-d", 2, TEMPLATE_SET), wrapped("inner-e", 2, None)),
    "appwrapper-unsaid": wrapper(wrapped("inner-f", 2, None)),
    "deployment": apps("Deployment", 2),
    "deployment-annotated": {**apps("Deployment", 2), "metadata": {"annotations": {MIN_MEMBER: "2"}}},
    "statefulset": apps("StatefulSet", 2),
    "statefulset-of-none": apps("StatefulSet", 0),
}  # fmt: skip


@cache
def simulated() -> tuple[list[tuple[str, Any]], dict[str, Object]]:
    """The objects that all variants become, and their owners by uid."""
    texts = [
        yaml.safe_dump({**each, "metadata": {**each["metadata"], "name": name}}) for name, each in VARIANTS.items()
    ]
    texts += map(yaml.safe_dump, RUNTIMES)
    loaded = load(["-"], io.BytesIO("---\n".join(texts).encode()))
    found = admit(loaded, ("stromboli",))
    assert loaded.problems == []
    return found, loaded.owners


def manager(manifest: Object) -> str:
    return next((each["uid"] for each in manifest["metadata"].get("ownerReferences") or () if each["controller"]), "")


class Made:
    """What simulate makes, in a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: the references to owners in the cluster, by the uid that simulate gave
        self._owners: dict[str, Object] = {}

    def references(self, manifest: Object) -> list[Object]:
        uid = manager(manifest)
        return [self.owner(uid)] if uid else []

    def owner(self, uid: str) -> Object:
        if uid not in self._owners:
            found = simulated()[1][uid]
            kind = known_kinds().of(found)
            assert kind is not None
            meta = {key: found["metadata"].get(key) for key in ("name", "labels", "annotations")}
            meta["ownerReferences"] = self.references(found)
            manifest = {**{key: found[key] for key in ("apiVersion", "kind", "spec")}, "metadata": meta}
            made = self._cluster.create(
                f"/apis/{found['apiVersion']}/namespaces/default/{kind.row.plural}", _without_nothing(manifest)
            )
            named = {"name": meta["name"], "uid": made["metadata"]["uid"], "controller": True}
            self._owners[uid] = {"apiVersion": found["apiVersion"], "kind": found["kind"], **named}
        return self._owners[uid]

    def pod(self, pod: Any) -> None:
        spec = next(iter(msgspec.to_builtins(pod.spec.containers)))
        meta = {"labels": pod.metadata.labels or {}, "annotations": _own(pod)}
        meta["ownerReferences"] = self.references(msgspec.to_builtins(pod))
        cpu = spec["resources"]["requests"]["cpu"]
        container = {"name": "main", "image": "x", "resources": _without_nothing(spec["resources"])}
        assert cpu
        self._cluster.pod(pod.metadata.name, metadata=meta, containers=[container])


def _own(pod: Any) -> Object:
    return {key: value for key, value in (pod.metadata.annotations or {}).items() if key not in (GROUP, ROLE)}


def _without_nothing(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nothing(each) for key, each in value.items() if each is not None}
    return [_without_nothing(each) for each in value] if isinstance(value, list) else value


def expected() -> Iterator[tuple[str, Object]]:
    """What simulate says of the group of each pod, by the name of the pod."""
    found = {obj.metadata.name: obj for kind, obj in simulated()[0] if kind == "PodGroup"}
    for kind, obj in simulated()[0]:
        if kind == "Pod":
            spec = found[obj.metadata.annotations[GROUP]].spec.model_dump(
                by_alias=True, mode="json", exclude_unset=True
            )
            yield obj.metadata.name, _said(spec)


def _said(spec: Object) -> Object:
    said = {key: spec.get(key) for key in SAID}
    return {
        **said,
        "queue": said["queue"] or "default",
        "minResources": dict(sorted((said["minResources"] or {}).items())),
    }


async def test_each_has_the_groups_that_simulate_shows(
    bare_cluster: Cluster, definitions: list[Path], start: StartService
) -> None:
    bare_cluster.define(*definitions)
    used = {(each["apiVersion"], each["kind"]) for each in simulated()[1].values()}
    for version, kind in sorted(used):
        if not version.startswith(("batch/", "apps/")):
            define(bare_cluster, *version.split("/"), kind)
    made, wanted = Made(bare_cluster), dict(expected())
    service = await start(engine)
    for uid in simulated()[1]:
        made.owner(uid)
    for kind, obj in simulated()[0]:
        if kind == "Pod":
            made.pod(obj)

    def shown() -> dict[str, Object]:
        specs, records = groups(bare_cluster), (service.state.record(f"default/{name}") for name in wanted)
        names = {each.name: each.job.partition("/")[2] for each in records if each is not None}
        return {name: _said(specs[group]["spec"]) for name, group in names.items() if group in specs}

    await until(lambda: len(shown()) == len(wanted), "all pods are in groups")
    found = shown()
    assert {name: (found[name], said) for name, said in wanted.items() if found[name] != said} == {}


def test_those_that_have_no_pods_have_none_in_simulate() -> None:
    named = {name.rpartition("-")[0] for name, _ in expected()}
    for name in (
        "job-suspended",
        "job-paused",
        "job-elsewhere",
        "cronjob-suspended",
        "jobset-suspended",
        "statefulset-of-none",
    ):
        assert not any(each == name or each.startswith(f"{name}-") for each in named), name
