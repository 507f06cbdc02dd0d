"""Why jobs wait in a cluster without nodes: an autoscaler is asked for some where they help."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.framework.diagnosis.explain import all_reasons, why_job
from stromboli.policy.document import DEFAULT_POLICY
from tests.builders import gang, pod_group, queue
from tests.plugins.sessions import decide, policy

LIMITED = queue("small", capability={"cpu": "4"})


@pytest.mark.parametrize("by", [DEFAULT_POLICY, policy("capacity")], ids=["default", "capacity"])
@pytest.mark.parametrize(
    ("objs", "reason", "helps"),
    [
        ((pod_group("job", 3), *gang("job", 3)), "NoNodes", True),
        ((pod_group("job", 3, queue="small"), *gang("job", 3)), "NoNodes", True),
        ((pod_group("job", 3), *gang("job", 2)), "NotEnoughPods", False),
        ((pod_group("job", 9, queue="small"), *gang("job", 9)), "NeverFits", False),
        ((pod_group("job", 9, queue="small"), *gang("job", 8), *gang("job", 9, cpu="2")[8:]), "NeverFits", False),
    ],
)
def test_nodes_are_missing_only_where_they_would_help(objs: Any, reason: str, helps: bool, by: str) -> None:
    session = decide(LIMITED, *objs, by=by).session
    found = all_reasons(session).values()
    assert {(each.reason, each.scalable) for each in found} == {(reason, helps)}
    told = why_job(session, session.view.jobs["default/job"])
    assert told is not None
    assert told.reason == reason
