"""The table of the fields of queues agrees with what plugins declare, and with everything that names ignored fields."""

from __future__ import annotations

from stromboli.discovery import discover
from stromboli.explain.checkup import queue_findings
from stromboli.explain.queues import explain_queue
from stromboli.framework.diagnosis.ignored import CONDITION, QUEUE_FIELDS, ignored_of_queue, told
from tests.builders import decide, node, policy, queue, state

SET = {
    "weight": 3,
    "capability": {"cpu": "4"},
    "deserved": {"cpu": "2"},
    "guarantee": {"resource": {"cpu": "1"}},
    "parent": "team",
    "borrowingLimit": {"cpu": "1"},
    "lendingLimit": {"cpu": "1"},
    "preemptMinRuntime": "30m",
    "reclaimMinRuntime": "10m",
    "priority": 5,
    "reclaimable": False,
    "affinity": {"nodeGroupAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": ["g"]}},
    "pools": [{"name": "gold"}],
    "dequeueStrategy": "fifo",
}


def test_the_table_has_what_the_plugins_of_the_package_declare() -> None:
    declared = {(name, field) for name, plugin in discover().plugins.items() for field in plugin.queue_fields}
    listed = {(name, field.name) for field in QUEUE_FIELDS for name in field.plugins if name not in field.hierarchical}
    assert listed == declared
    assert {field.name for field in QUEUE_FIELDS} == set(SET)


def test_the_condition_the_answer_and_the_doctor_name_the_same_fields() -> None:
    cluster = state(node("n"), queue("team"), queue("q", **SET))
    of_fairshare = {"weight", "capability", "deserved", "parent", "priority"}
    for by, actions, heeded in (
        ("gang", "allocate", set()),
        ("proportion", "allocate", {"weight", "capability", "guarantee", "priority"}),
        ("fairshare nodegroup", "allocate, reclaim", of_fairshare | {"reclaimable", "affinity"}),
    ):
        ignored = set(SET) - heeded - {"dequeueStrategy"}
        session = decide(cluster, policy(by, actions=actions)).session
        answer = explain_queue(session, "q")
        assert answer is not None
        assert set(answer.ignored) == ignored
        assert session.report.queue_conditions["q"][CONDITION].message == told(answer.ignored)
        problems = {each.problem for each in queue_findings(session)}
        assert problems >= {f"queue q: spec.{field} {why}" for field, why in answer.ignored.items()}


def test_a_queue_that_says_nothing_has_nothing_ignored() -> None:
    session = decide(state(node("n"), queue("q", parent="root", weight=1)), policy("gang")).session
    assert ignored_of_queue(session, session.view.queues["q"]) == {}
