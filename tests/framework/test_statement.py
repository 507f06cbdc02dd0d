"""What a statement says of where jobs and groups lie is undone with it, and stays when it is committed."""

from __future__ import annotations

from stromboli.framework.job import NOWHERE
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
