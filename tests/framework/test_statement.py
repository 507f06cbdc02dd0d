"""What a statement says of where jobs and groups lie is undone with it, and stays when it is committed."""

from __future__ import annotations

from stromboli.framework.cluster.job import NOWHERE, SubJob
from stromboli.framework.session.session import Session
from stromboli.framework.session.statement import Statement
from tests import builders


def test_a_group_lies_where_an_attempt_puts_it_until_that_is_taken_back() -> None:
    cluster = builders.state(
        builders.queue("default"), *builders.racks(1, 1), builders.pod_group("j", 1), builders.gang("j", 1)
    )
    session = builders.decide(cluster, builders.policy("gang"), plain=True).session
    tree, job = session.view.topology, session.view.jobs["default/j"]
    group = next(iter(job.sub_jobs.values()))
    job.allocated_hyper_node = group.allocated_hyper_node = NOWHERE
    here, there = (int(row) for row in tree.lowest)
    one = session.statement()
    one.locate(group, here)
    assert group.allocated_hyper_node == here
    one.discard()
    assert group.allocated_hyper_node == NOWHERE
    parts = session.statement(), session.statement()
    for part, hyper_node in zip(parts, (here, there), strict=True):
        part.locate(group, hyper_node)
    parts[0].merge(parts[1])
    parts[0].end_attempt()
    assert group.allocated_hyper_node == NOWHERE
    parts[0].commit()
    assert group.allocated_hyper_node == tree.lca(here, there) != NOWHERE
    parts[0].discard()
    assert group.allocated_hyper_node == tree.lca(here, there)


def one_group_near_its_pods() -> tuple[Session, SubJob]:
    """A session in which a job with a topology has a pod in a rack, and another that waits."""
    cluster = builders.state(
        builders.queue("default"),
        *builders.racks(1, 1),
        builders.pod_group("j", 1, networkTopology={"mode": "soft"}),
        builders.pod("j-0", group="j", node="r0-0", phase="Running"),
        builders.pod("j-1", group="j", cpu="100"),
    )
    session = builders.decide(cluster, builders.policy("gang", "network-topology-aware"), plain=True).session
    return session, next(iter(session.view.jobs["default/j"].sub_jobs.values()))


def test_after_an_attempt_in_vain_the_next_pod_goes_near_those_of_the_group() -> None:
    session, group = one_group_near_its_pods()
    assert group.anchor == group.allocated_hyper_node != NOWHERE
    elsewhere = next(row for row in session.view.topology.lowest.tolist() if row != group.anchor)
    for end in (Statement.discard, Statement.end_attempt, Statement.commit):
        one, other = session.statement(), session.statement()
        other.anchor(group, elsewhere)
        one.merge(other)
        assert group.anchor == elsewhere
        end(one)
        assert group.anchor == group.allocated_hyper_node


def test_the_next_pod_goes_near_where_a_group_was_located_by_an_attempt_that_ended() -> None:
    session, group = one_group_near_its_pods()
    there = group.allocated_hyper_node
    wider = next(row for row in range(len(session.view.topology)) if session.view.topology.lca(there, row) != there)
    statement = session.statement()
    statement.anchor(group, wider)
    statement.locate(group, wider)
    statement.end_attempt()
    assert group.anchor == group.allocated_hyper_node == there
    statement.commit()
    assert group.anchor == group.allocated_hyper_node == session.view.topology.lca(there, wider)


def test_a_hyper_node_is_nominated_when_the_evictions_are_decided() -> None:
    session, group = one_group_near_its_pods()
    one, other = session.statement(), session.statement()
    other.nominate(group, 1)
    one.merge(other)
    assert group.nominated_hyper_node == NOWHERE
    one.commit()
    assert (group.nominated_hyper_node, group.nominations_void) == (1, False)
    session.statement().give_up_nomination(group)
    assert (group.nominated_hyper_node, group.nominations_void) == (NOWHERE, True)
