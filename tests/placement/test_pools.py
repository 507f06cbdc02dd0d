"""Gangs under limits of node pools: what some division between pools allows starts, and of other gangs it is proven."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from stromboli.framework.diagnosis.explain import why_job
from tests.builders import decide, node, pod, pod_group, policy, queue, state
from tests.fuzz import tried

POOLS = """\
    arguments:
      pools:
      - {name: r, nodeSelector: {pool: r}}
      - {name: s, nodeSelector: {pool: s}}
"""
POLICY = policy("priority gang", "nodepools", "predicates capacity").replace(
    "- name: nodepools\n", f"- name: nodepools\n{POOLS}"
)

nodes = st.lists(st.tuples(st.sampled_from("rs"), st.integers(1, 5)), min_size=1, max_size=3)
limits = st.dictionaries(st.sampled_from("rs"), st.integers(1, 6), max_size=2)


def possible(hosts: Sequence[tuple[str, int]], most: dict[str, int], gang: Sequence[int]) -> bool:
    """Whether each pod can have a node, none with too much on it and no pool beyond its limit."""
    for way in product(range(len(hosts)), repeat=len(gang)):
        used = [sum(cpu for cpu, on in zip(gang, way, strict=True) if on == at) for at in range(len(hosts))]
        of_pool = {name: sum(u for u, (pool, _) in zip(used, hosts, strict=True) if pool == name) for name in most}
        if all(u <= has for u, (_, has) in zip(used, hosts, strict=True)) and all(of_pool[n] <= most[n] for n in most):
            return True
    return False


@tried(60)
@given(hosts=nodes, most=limits, gang=st.lists(st.integers(1, 4), min_size=2, max_size=4))
def test_what_pools_allow_together_starts_and_of_other_gangs_it_is_proven(
    hosts: list[tuple[str, int]], most: dict[str, int], gang: list[int]
) -> None:
    objs = [node(f"n{at}", cpu=str(cpu), labels={"pool": pool}) for at, (pool, cpu) in enumerate(hosts)]
    shares = [{"name": name, "capability": {"cpu": str(cpu)}} for name, cpu in sorted(most.items())]
    group = pod_group("x", len(gang))
    group.metadata.annotations["stromboli.io/pools"] = "r,s"
    pods = [pod(f"x-{at}", "x", cpu=str(cpu), memory="") for at, cpu in enumerate(gang)]
    result = decide(state(objs, queue("default", pools=shares), group, pods), POLICY)
    assert bool(result.session.bound) == possible(hosts, most, gang)
    if not result.session.bound:
        why = why_job(result.session, result.session.view.jobs["default/x"])
        assert why is not None
        assert why.actionable == "user", why
