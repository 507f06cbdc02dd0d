"""sla: jobs that have waited long enough."""

from __future__ import annotations

import pytest

from stromboli.api.errors import PolicyError
from tests.builders import NOON, node, pod, pod_group
from tests.plugins.sessions import decide, policy

#: seconds since the epoch of PodGroups that the builders create at 0
CREATED = 1_704_067_200.0


def group(name: str, waiting_time: str = "", **spec: object):
    made = pod_group(name, phase="Pending", minResources={"cpu": "8"}, **spec)
    made.metadata.annotations.update({"sla-waiting-time": waiting_time} if waiting_time else {})
    return made


def admitted(*groups, now: float, arguments=None) -> set[str]:
    """The jobs that are admitted though the cluster is full."""
    text = policy("overcommit", actions="enqueue").replace(
        "- name: gang\n", "- name: gang\n  - name: sla\n" + _arguments(arguments)
    )
    full = node("n1", cpu="8"), pod("alien", scheduler="other", node="n1", cpu="8")
    session = decide(*full, *groups, by=text, now=now).session
    return {job.name for job in session.view.jobs.values() if job.phase == "Inqueue"}


def _arguments(arguments) -> str:
    if arguments is None:
        return ""
    return "    arguments:\n" + "".join(f"      {key}: {value}\n" for key, value in arguments.items())


def test_an_overdue_job_is_admitted_against_lower_tiers() -> None:
    assert admitted(group("old", "10m"), now=CREATED + 599) == set()
    assert admitted(group("old", "10m"), now=CREATED + 600) == {"old"}


def test_the_annotation_outweighs_the_argument() -> None:
    jobs = [group("own", "1h"), group("usual")]
    assert admitted(*jobs, now=CREATED + 120, arguments={"sla-waiting-time": "1m30s"}) == {"usual"}


@pytest.mark.parametrize("written", ["soon", "-5m", "0"])
def test_an_annotation_that_cannot_be_used_is_none(written: str) -> None:
    assert admitted(group("odd", written), now=CREATED + 10**6) == set()
    assert admitted(group("odd", written), now=CREATED + 10**6, arguments={"sla-waiting-time": "1s"}) == {"odd"}


def test_the_earliest_deadline_comes_first() -> None:
    late, early, none = pod_group("a-late"), pod_group("b-early"), pod_group("0-none")
    late.metadata.annotations["sla-waiting-time"] = "2h"
    early.metadata.annotations["volcano.sh/sla-waiting-time"] = "1h"
    pods = [pod(name, name.rpartition("-")[0]) for name in ("a-late-0", "b-early-0", "0-none-0")]
    session = decide(node("n1", cpu="1"), late, early, none, *pods, by=policy("sla")).session
    assert list(session.bound) == ["default/b-early-0"]


def test_an_argument_that_is_no_duration_is_an_error() -> None:
    with pytest.raises(PolicyError, match=r"sla-waiting-time: 'tomorrow' is not a duration"):
        decide(by=policy("sla", {"sla-waiting-time": "tomorrow"}), now=NOON)
