"""A gang that lost pods asks for what it lacks, not once more for what it holds."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.engine import Engine, SessionResult
from stromboli.policy.document import DEFAULT_POLICY
from tests.builders import NOON, gang, node, pod_group, queue, state

SHARES = {
    "proportion": DEFAULT_POLICY,
    "capacity": DEFAULT_POLICY.replace("name: proportion", "name: capacity"),
    "tree": DEFAULT_POLICY.replace("name: proportion", "name: capacity\n    enableHierarchy: true"),
    "fairshare": DEFAULT_POLICY.replace("  - name: drf\n", "").replace("name: proportion", "name: fairshare"),
}
EVERY = pytest.mark.parametrize("text", SHARES.values(), ids=SHARES)


def decide(text: str, *objs: Any) -> SessionResult:
    """One session on a node of 8 CPUs, for a queue that may have them all."""
    limited = queue("full", capability={"cpu": "8"}, parent="root")
    return Engine(text).decide(state(node("n", cpu="8"), queue("root"), limited, *objs).snapshot(), now=NOON)


@EVERY
@pytest.mark.parametrize("lost", [1, 4, 7])
def test_it_is_admitted_for_what_it_lacks(text: str, lost: int) -> None:
    group = pod_group("train", 8, "full", phase="Pending", minResources={"cpu": "8"})
    held, new = gang("train", 8, memory="", node="n")[lost:], gang("train", lost, memory="")
    assert len(decide(text, group, held, new).session.bound) == lost


@EVERY
def test_others_do_not_get_what_it_lacks(text: str) -> None:
    """It is admitted first, and what it lays claim to is not there for the next."""
    group = pod_group("train", 8, "full", phase="Pending", minResources={"cpu": "8"})
    held, new = gang("train", 8, memory="", node="n")[1:], gang("train", 1, memory="")
    other = [pod_group("other", 1, "full", phase="Pending", created=9, minResources={"cpu": "1"})]
    result = decide(text, group, held, new, other, gang("other", 1, memory=""))
    assert set(result.session.bound) == {"default/train-0"}
