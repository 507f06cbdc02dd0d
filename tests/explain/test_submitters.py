"""Situations as submitters meet them: files, and the sentences that name cause, number, who can act and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.conftest import stromboli

NODE = """
kind: Node
metadata: {name: n, labels: {kubernetes.io/hostname: n}}
status: {allocatable: {cpu: "32", memory: 64Gi, pods: "20"}}
---
"""
GROUP = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: train, namespace: a}
spec: {minMember: 2, queue: default}
---
"""
VOLCANO = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: train, namespace: a}
spec:
  minAvailable: LEAST
  schedulerName: volcano
  tasks:
  - name: ps
    replicas: 1
    template: {spec: {containers: [{name: m, image: x, resources: {requests: {cpu: "40"}}}]}}
  - name: worker
    replicas: 2
    dependsOn: {name: [ps], iteration: any}
    template: {spec: {containers: [{name: m, image: x, resources: {requests: {cpu: "2"}}}]}}
"""


def pod(name: str, *, namespace: str = "a", group: str = "train", asks: str = 'cpu: "2"', **spec: str) -> str:
    """The text of a pod of a gang."""
    more = "".join(f", {key}: {value}" for key, value in spec.items())
    noted = f", annotations: {{scheduling.k8s.io/group-name: {group}}}" if group else ""
    resources = f"{{requests: {{{asks}}}, limits: {{{asks}}}}}"
    return f"""
kind: Pod
metadata: {{name: {name}, namespace: {namespace}{noted}}}
spec: {{schedulerName: stromboli, containers: [{{name: main, image: x, resources: {resources}}}]{more}}}
---
"""


def cards(capacity: int, allocatable: int | None) -> str:
    """The text of a node with cards."""
    left = "" if allocatable is None else f', nvidia.com/gpu: "{allocatable}"'
    return f"""
kind: Node
metadata: {{name: gpu-1}}
status:
  allocatable: {{cpu: "32", memory: 64Gi, pods: "20"{left}}}
  capacity: {{cpu: "32", memory: 64Gi, pods: "20", nvidia.com/gpu: "{capacity}"}}
---
"""


@dataclass(frozen=True)
class Case:
    """Manifests, a question, and what is and is not said."""

    files: str
    question: str
    says: tuple[str, ...]
    not_said: tuple[str, ...] = ()


CLAIM = """
{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: gpu}, spec: {}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: my-gpu, namespace: a, uid: c1}
spec: {devices: {requests: [{exactly: {deviceClassName: gpu}, name: r}]}}
status:
  allocation:
    devices: {results: [{device: g0, driver: d, pool: n2, request: r}]}
    nodeSelector: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [n2]}]}]}
---
"""
ROLES = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: train, namespace: a}
spec:
  replicatedJobs:
  - name: workers
    replicas: 2
    template: {spec: {parallelism: 1, template: {spec: &pod {schedulerName: stromboli, restartPolicy: Never, containers:
      [{name: m, image: x, resources: {requests: {cpu: "2"}}}]}}}}
  - name: driver
    template: {spec: {parallelism: 1, template: {spec: {<<: *pod, containers:
      [{name: m, image: x, resources: {requests: {cpu: "40"}}}]}}}}
"""
VOLUME = """
kind: PersistentVolume
metadata: {name: pv1}
spec:
  accessModes: [ReadWriteOnce]
  capacity: {storage: 1Gi}
  claimRef: {name: data, namespace: a, uid: u1}
  local: {path: /x}
  nodeAffinity: {required: {nodeSelectorTerms: [
    {matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [gone-7]}]}]}}
status: {phase: Bound}
---
kind: PersistentVolumeClaim
metadata: {name: data, namespace: a, uid: u1, annotations: {pv.kubernetes.io/bind-completed: "yes"}}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, volumeName: pv1}
status: {phase: Bound}
---
"""
RAY = """
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: ray, namespace: a}
spec:
  enableInTreeAutoscaling: true
  headGroupSpec: {template: {spec: &pod {schedulerName: stromboli, containers: [
    {name: m, image: x, resources: {requests: {cpu: "20"}}}]}}}
  workerGroupSpecs: [{groupName: gpu, replicas: 3, minReplicas: 1, maxReplicas: 8, template: {spec: *pod}}]
"""
NEAR = (
    "{podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: "
    "[{labelSelector: {matchLabels: {app: cache}}, topologyKey: kubernetes.io/hostname}]}}"
)
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: train, namespace: a}
spec: {parallelism: 1, template: {spec: {schedulerName: strombolli, restartPolicy: Never, containers: [
  {name: m, image: x}]}}}
"""
TWO = NODE + GROUP + pod("train-0") + pod("train-1", namespace="b")
CARD = pod("train-0", group="", asks="nvidia.com/gpu: 1")
MEND = "admin: mend nvidia.com/gpu of node gpu-1 (8, none allocatable: see its device plugin) -> 1 pod bound"
CASES = {
    "a gang lacks pods that are in another namespace": Case(
        TWO,
        "why job a/train",
        (
            "it has 1; 1 pod of namespace b names PodGroup train, and the pods of a gang are in the namespace of their",
            "Who can change it: the user",
        ),
    ),
    "a pod is in another namespace than its PodGroup": Case(
        TWO,
        "why pod b/train-1",
        ("the pods of a gang are in the namespace of their PodGroup, and PodGroup a/train is in another",),
    ),
    "no card of a node can be allocated": Case(
        cards(8, 0) + CARD,
        "why pod a/train-0",
        (
            "asks for 1, node gpu-1 has 8, none allocatable: is its device plugin well?",
            "Who can change it: an administrator",
            MEND,
        ),
        ("ask for no nvidia.com/gpu",),
    ),
    "a node says nothing of its cards but that it has them": Case(
        cards(8, None) + CARD,
        "why pod a/train-0",
        ("asks for 1, node gpu-1 has 8, none allocatable", MEND),
        ("no node offers",),
    ),
    "too few cards of a node can be allocated": Case(
        cards(8, 7) + pod("train-0", group="", asks="nvidia.com/gpu: 8"),
        "why pod a/train-0",
        ("asks for 8, node gpu-1 has 8, 7 of them allocatable: is its device plugin well?",),
    ),
    "cards that cannot be allocated are found before a job waits for them": Case(
        cards(8, 0), "doctor", ("nodes: nvidia.com/gpu: 1 node (gpu-1) with 8, none allocatable",)
    ),
    "all cards that can be allocated": Case(cards(8, 8), "doctor", ("nothing found",)),
    "a pod of a task is not made before those of another run": Case(
        NODE + VOLCANO.replace("LEAST", "3"),
        "why pod a/train-worker-0",
        ("pod a/train-worker-0 is not made yet: Job a/train makes pods of worker when those of ps run",),
        ("did you mean",),
    ),
    "a task waits for one that fits nowhere": Case(
        NODE + VOLCANO.replace("LEAST", "1"),
        "why pod a/train-worker-0",
        ("Job a/train makes pods of worker when those of ps run; ",),
    ),
    "a gang lacks pods of a task that waits for another": Case(
        NODE + VOLCANO.replace("LEAST", "3").replace("40", "2"),
        "why job a/train",
        ("Job a/train makes pods of worker when those of ps run; role worker needs 2 pods and has 0",),
    ),
    "a claim has its devices on another node": Case(
        NODE + CLAIM + pod("train-0", group="", resourceClaims="[{name: gpu, resourceClaimName: my-gpu}]"),
        "why pod a/train-0",
        ("resourceclaim not available on the node the devices of ResourceClaim my-gpu are on no existing node",),
    ),
    "a claim has its devices on a node that is tainted": Case(
        NODE
        + NODE.replace("name: n,", "name: n2,").replace(
            "status:", "spec: {taints: [{key: x, effect: NoSchedule}]}\nstatus:"
        )
        + CLAIM
        + pod("train-0", group="", resourceClaims="[{name: gpu, resourceClaimName: my-gpu}]"),
        "why pod a/train-0",
        ("the devices of ResourceClaim my-gpu are on n2", "user: tolerate taint x:NoSchedule -> 1 pod bound"),
    ),
    "one role of a gang is too large": Case(
        NODE + ROLES, "why job a/train", ("cpu: role driver asks for 40, the largest node has 32",)
    ),
    "a RayCluster that autoscales is too large": Case(
        NODE + RAY,
        "why job a/ray",
        ("user: lower the replicas, or minReplicas where it autoscales, of RayCluster a/ray",),
    ),
    "a pod wants to be near pods that are not there": Case(
        NODE + pod("train-0", group="", affinity=NEAR),
        "why pod a/train-0",
        ("no pod of namespace a with app=cache has a node", "user: drop the required pod affinity (app=cache by"),
    ),
    "the name of a volume claim is misspelt": Case(
        NODE + VOLUME + pod("train-0", group="", volumes="[{name: d, persistentVolumeClaim: {claimName: dta}}]"),
        "why pod a/train-0",
        ("user: create PersistentVolumeClaim a/dta, or name a/data instead -> 1 pod bound",),
    ),
    "a local volume was on a node that is gone": Case(
        NODE + VOLUME + pod("train-0", group="", volumes="[{name: d, persistentVolumeClaim: {claimName: data}}]"),
        "why pod a/train-0",
        (
            "the volume pv1 of claim data is in kubernetes.io/hostname: gone-7, a node that does not exist",
            "admin: bring back node gone-7, where PersistentVolume pv1 of PersistentVolumeClaim a/data is -> 1 pod",
        ),
        ("move the data",),
    ),
    "what a RuntimeClass adds makes a pod too large": Case(
        NODE
        + "{kind: RuntimeClass, metadata: {name: gvisor}, handler: runsc, overhead: {podFixed: {cpu: 31500m}}}\n---\n"
        + pod("train-0", group="", runtimeClassName="gvisor"),
        "why pod a/train-0",
        ("cpu: asks for 33.5, 31.5 of it the overhead of its RuntimeClass, the largest node has 32",),
    ),
    "the scheduler of a workload is misspelt": Case(
        NODE + JOB,
        "why job a/train",
        ("Job a/train: 1 pod of it waits for another scheduler: spec.schedulerName is strombolli; ",),
        ("kubectl describe",),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_keeps_a_submitter_waiting_is_told(tmp_path: Path, name: str) -> None:
    case, file = CASES[name], tmp_path / "all.yaml"
    file.write_text(case.files)
    text = " ".join(stromboli(*case.question.split(), "-f", file).output.split())
    assert [each for each in case.says if each not in text] == [], text
    assert [each for each in case.not_said if each in text] == [], text
