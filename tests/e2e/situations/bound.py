"""Pods that have a node, or a workload that was submitted, and nothing runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.e2e.situations.site import Site
from tests.e2e.world import CORE, pod


def _waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"name": "main", "state": {"waiting": {"reason": reason, "message": message}}}


def _placed(site: Site, **status: Any) -> None:
    on = site.node()
    site.group("train", 1, site.name)
    site.place(site.member("train-0", "train"), on, **status)


def image(site: Site) -> None:
    containers = [_waiting("ImagePullBackOff", 'Back-off pulling image "example.com/train:2"')]
    _placed(site, phase="Pending", containerStatuses=containers)


def config(site: Site) -> None:
    containers = [_waiting("CreateContainerConfigError", 'configmap "settings" not found')]
    _placed(site, phase="Pending", containerStatuses=containers)


def init(site: Site) -> None:
    running = [{"name": "wait-for-db", "state": {"running": {}}}]
    _placed(site, phase="Pending", initContainerStatuses=running, containerStatuses=[_waiting("PodInitializing")])


def crash(site: Site) -> None:
    _placed(site, phase="Running", containerStatuses=[_waiting("CrashLoopBackOff")])


def memory(site: Site) -> None:
    before = {"lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
    _placed(site, phase="Running", containerStatuses=[_waiting("CrashLoopBackOff") | before])


def failed(site: Site) -> None:
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": "Traceback\nRuntimeError: no data"}}
    _placed(site, phase="Failed", containerStatuses=[{"name": "main", "state": ended}])


def unready(site: Site) -> None:
    on = site.node(ready="Unknown")
    site.group("train", 1, site.name)
    site.place(site.member("train-0", "train"), on)


def gone(site: Site) -> None:
    site.group("train", 1, site.name)
    site.pods(
        [site.member("train-0", "train") | {"spec": {**site.member("x", "")["spec"], "nodeName": "no-such-node"}}]
    )


#: what is made, and what is said of the job and of its pod
BOUND: dict[str, tuple[Callable[[Site], None], str]] = {
    "image": (image, "image cannot be pulled"),
    "config": (config, "a ConfigMap or Secret"),
    "init": (init, "init container wait-for-db runs, and the others start after it"),
    "crash": (crash, "container ends again and again"),
    "memory": (memory, "the last time OOMKilled, exit code 137"),
    "failed": (failed, "container main ended: exit code 1: its last words: RuntimeError: no data"),
    "unready": (unready, "node unready-n is not ready (Ready is Unknown)"),
    "gone": (gone, "node no-such-node does not exist"),
}


@dataclass(frozen=True)
class Submitted:
    """What a user submitted, how it is asked about, and what is said."""

    make: Callable[[Site], None]
    question: tuple[str, str]
    says: tuple[str, ...]
    #: part of an Event on an object of this kind and name, `KIND/NAME`; empty for none
    event: tuple[str, str] = ("", "")
    #: the exit code of `stromboli why`
    code: int = 0


def _job(site: Site, **more: Any) -> None:
    site.node()
    notes = more.pop("annotations", {})
    template = {"spec": {**pod("", cpu="1")["spec"], "restartPolicy": "Never", **more.pop("pods", {})}}
    spec = {"parallelism": 2, "completions": 2, "template": template, **more}
    site.put("/apis/batch/v1/jobs", {"metadata": {"name": "train", "annotations": notes}, "spec": spec})


def of_another_scheduler(site: Site) -> None:
    site.node()
    site.pods([site.member("train-0", "", scheduler="stromboly")])


def group_misspelt(site: Site) -> None:
    site.node()
    site.group("train", 1, site.name)
    site.pods([site.member("train-0", "trian")])


def queue_of_a_job_misspelt(site: Site) -> None:
    _job(site, annotations={"scheduling.volcano.sh/queue-name": f"{site.name}x"})


def misspelt_number(site: Site) -> None:
    _job(site, annotations={"scheduling.volcano.sh/group-min-member": "three"})


def without_priority_class(site: Site) -> None:
    _job(site, pods={"priorityClassName": "no-such-class"})


def suspended(site: Site) -> None:
    _job(site, suspend=True)


def refused_by_quota(site: Site) -> None:
    site.put("/api/v1/resourcequotas", {"metadata": {"name": "team"}, "spec": {"hard": {"pods": "1"}}})
    path = f"{CORE}/namespaces/{site.namespace}/resourcequotas/team"
    site.status(path, {"hard": {"pods": "1"}, "used": {"pods": "0"}})
    _job(site, annotations={"scheduling.volcano.sh/queue-name": site.name})


def misspelt(site: Site) -> None:
    site.runs("train", 1, site.node())


SUBMITTED: dict[str, Submitted] = {
    "scheduler": Submitted(
        of_another_scheduler,
        ("pod", "train-0"),
        ("spec.schedulerName is stromboly", "did you mean 'stromboli'?"),
        ("Pod/train-0", "SchedulerNotServed"),
        1,
    ),
    "group": Submitted(
        group_misspelt,
        ("pod", "train-0"),
        ("there is no PodGroup {}/trian", "set the annotation scheduling.k8s.io/group-name: train on the pods"),
    ),
    "queue-of-job": Submitted(
        queue_of_a_job_misspelt,
        ("job", "train"),
        ("there is no queue {}x", "set the annotation scheduling.volcano.sh/queue-name: {} on Job {}/train"),
    ),
    "annotation": Submitted(
        misspelt_number,
        ("job", "train"),
        ("Job {}/train: metadata.annotations[scheduling.volcano.sh/group-min-member]: should be a number",),
        code=1,
    ),
    "no-class": Submitted(
        without_priority_class,
        ("job", "train"),
        ("Job {}/train has no pods; its Events say why: kubectl describe job train -n {}",),
        code=1,
    ),
    "paused": Submitted(
        suspended,
        ("job", "train"),
        ("Job paused/train is suspended, so it has no pods: stromboli job resume train -n paused",),
        code=1,
    ),
    "quota-of-job": Submitted(
        refused_by_quota,
        ("job", "train"),
        ("ResourceQuotaExceeded", "ResourceQuota team", "pods: 1 of 1 used, 1 more requested"),
    ),
    "job-name": Submitted(misspelt, ("job", "trian"), ("there is no job {}/trian, did you mean 'train'?",), code=1),
    "pod-name": Submitted(misspelt, ("pod", "tran-0"), ("there is no pod {}/tran-0, did you mean 'train-0'?",), code=1),
}
