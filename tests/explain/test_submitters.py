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
}


@pytest.mark.parametrize("name", CASES)
def test_what_keeps_a_submitter_waiting_is_told(tmp_path: Path, name: str) -> None:
    case, file = CASES[name], tmp_path / "all.yaml"
    file.write_text(case.files)
    text = " ".join(stromboli(*case.question.split(), "-f", file).output.split())
    assert [each for each in case.says if each not in text] == [], text
    assert [each for each in case.not_said if each in text] == [], text
