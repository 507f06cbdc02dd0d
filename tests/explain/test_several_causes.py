"""Jobs that several things keep waiting at once: each is named, with the changes that are enough together."""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations

import pytest

from stromboli.explain.answers import Answer
from stromboli.explain.words import lines
from tests.builders import node, pod, pod_group, queue, state
from tests.explain.asking import why

_PORT = [{"containerPort": 80, "hostPort": 80}]
_TAINT = {"key": "gpu", "value": "only", "effect": "NoSchedule"}
#: by what keeps a pod waiting, how the answer names it
NAMED = {
    "misspelt selector": ("node affinity/selector", "disk: hddd"),
    "taint": ("taint {gpu: only}", "taint gpu=only:NoSchedule"),
    "cordon": ("node(s) were unschedulable", "uncordon node n"),
    "memory": ("Insufficient memory", "the largest node has 32Gi"),
    "port": ("free ports", "default/holder ends"),
    "claim": ('persistentvolumeclaim "data" not found', "create PersistentVolumeClaim default/data"),
    "gate": ("scheduling gates hold the pod back: example.com/quota",),
    "closed queue": ("queue q takes no new work",),
    "limit": ("queue q has no capacity left in cpu", "raise capability of queue q"),
    "misspelt queue": ("there is no queue qq",),
}
_TOGETHER = [
    those
    for number in (1, 2, 3)
    for those in combinations(NAMED, number)
    # A job that names a queue which is not there waits for no other one.
    if not {"closed queue", "misspelt queue"} <= set(those) and not {"limit", "misspelt queue"} <= set(those)
]


def kept_by(causes: Collection[str]) -> Answer:
    """The answer about a job that some causes keep waiting."""
    spec = {
        "misspelt selector": {"nodeSelector": {"disk": "hddd"}},
        "memory": {"memory": "64Gi"},
        "port": {"ports": _PORT},
        "claim": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
        "gate": {"schedulingGates": [{"name": "example.com/quota"}]},
    }
    asked = {key: value for cause in causes for key, value in spec.get(cause, {}).items()}
    limit = {"capability": {"cpu": "500m"}} if "limit" in causes else {}
    there = state(
        queue("q", state="Closed" if "closed queue" in causes else "Open", **limit),
        queue("others"),
        node(
            "n", labels={"disk": "hdd"}, taints=[_TAINT] if "taint" in causes else [], unschedulable="cordon" in causes
        ),
        pod_group("holder", queue="others", phase="Running"),
        pod("holder-0", "holder", cpu="", memory="", node="n", ports=_PORT),
        pod_group("job", 1, queue="qq" if "misspelt queue" in causes else "q"),
        pod("job-0", "job", **asked),
    )
    return why(there, "job default/job")


@pytest.mark.one_in(61)
@pytest.mark.parametrize("causes", _TOGETHER, ids=" and ".join)
def test_each_cause_is_named_and_changes_are_found_that_are_enough_together(causes: tuple[str, ...]) -> None:
    found = kept_by(causes)
    text = "\n".join(lines(found))
    assert [cause for cause in causes if not any(name in text for name in NAMED[cause])] == [], text
    assert any(remedy.effect.startswith("1 pod bound") for remedy in found.remedies), text
