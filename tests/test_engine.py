"""Sessions one after the other."""

from __future__ import annotations

from stromboli.engine import Engine, Successive
from stromboli.framework.environment import Environment, NodeUsage
from tests import builders


def test_a_session_sees_the_load_that_was_told_before_it() -> None:
    nodes = [builders.node("busy"), builders.node("calm")]
    cluster = builders.state(nodes, builders.queue("default"), builders.pod_group("g"), builders.gang("g", 1))
    sessions = Successive(Engine(builders.policy("gang", "predicates usage")), Environment())
    for expected, busiest in (("calm", "busy"), ("busy", "calm")):
        sessions.node_usage = {
            name: NodeUsage(90.0 if name == busiest else 5.0, 10.0, builders.NOON) for name in ("busy", "calm")
        }
        result = sessions.decide(cluster.snapshot(), now=builders.NOON)
        assert result.session.bound == {"default/g-0": expected}
