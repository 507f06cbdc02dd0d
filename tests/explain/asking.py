"""Questions to clusters in tests: a session, then what it answers."""

from __future__ import annotations

from stromboli.engine import Engine
from stromboli.explain.answers import Answer, QueueAnswer
from stromboli.explain.queues import explain_queue
from stromboli.explain.rehearsal import Rehearsal
from stromboli.explain.remedies import explained
from stromboli.explain.words import lines
from stromboli.framework.cluster.environment import OFFLINE
from stromboli.policy.document import DEFAULT_POLICY
from stromboli.state.cluster import ClusterState
from tests.builders import NOON


def answer(cluster: ClusterState, question: str, policy: str = DEFAULT_POLICY) -> Answer | QueueAnswer | None:
    """The answer to `job NAMESPACE/NAME`, `pod NAMESPACE/NAME` or `queue NAME`."""
    engine = Engine(policy)
    fork = cluster.fork()
    session = engine.decide(cluster.snapshot(), now=NOON).session
    kind, _, key = question.partition(" ")
    if kind == "queue":
        return explain_queue(session, key)
    return explained(session, kind, key, Rehearsal(engine, fork, OFFLINE, NOON))


def why(cluster: ClusterState, question: str, policy: str = DEFAULT_POLICY) -> Answer:
    """The answer to a question about a job or pod that is there."""
    found = answer(cluster, question, policy)
    assert isinstance(found, Answer)
    return found


def said(cluster: ClusterState, question: str, policy: str = DEFAULT_POLICY) -> str:
    """The answer to a question as `why` prints it."""
    found = answer(cluster, question, policy)
    assert found is not None
    return "\n".join(lines(found))
