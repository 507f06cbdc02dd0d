"""What is counted on from session to session is what counting anew gives."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stromboli.api.pod_state import ALLOCATED_STATES, STATES, PodState
from stromboli.framework.cluster.membership import Membership
from stromboli.simulation.synthetic import Shape, cluster
from stromboli.state.cluster import ClusterState
from stromboli.state.snapshot import Snapshot
from tests.builders import node, pod, pod_group, state
from tests.fuzz import tried

_GROUPS = ("a", "b", "c")
#: an amount for which float64 has no room beside others
_VAST = "7Ei"

pods = st.builds(
    pod,
    st.sampled_from([f"p{number}" for number in range(6)]),
    st.sampled_from(["", *_GROUPS]),
    cpu=st.sampled_from(["", "1", "2500m"]),
    memory=st.sampled_from(["", "1Gi", "3", _VAST]),
    node=st.sampled_from(["", "n", "elsewhere"]),
    phase=st.sampled_from(["", "Running", "Succeeded", "Unknown"]),
    resources=st.sampled_from([{}, {"example.com/gpu": "1"}]),
    deleted=st.booleans(),
)
events = st.one_of(
    pods,
    pods,
    st.builds(pod_group, st.sampled_from(_GROUPS)),
    st.builds(node, st.just("n"), resources=st.sampled_from([{}, {"example.com/gpu": "8"}])),
    st.tuples(st.sampled_from(["Pod"]), st.sampled_from([f"default/p{number}" for number in range(6)])),
    st.tuples(st.sampled_from(["PodGroup"]), st.sampled_from([f"default/{name}" for name in _GROUPS])),
    st.none(),
)


def jobs_of(snapshot: Snapshot) -> Any:
    return np.array([row for row, group in enumerate(snapshot.pod_groups) if group is not None], np.intp)


def counted_one_by_one(snapshot: Snapshot) -> tuple[list[list[int]], list[list[float]]]:
    counts: list[list[int]] = []
    allocated: list[list[float]] = []
    for group in jobs_of(snapshot).tolist():
        held, states = [0.0] * len(snapshot.dimensions), [0] * STATES
        for row, record in enumerate(snapshot.pods.records):
            if record is None or snapshot.pods.job[row] != group:
                continue
            states[snapshot.pods.state[row]] += 1
            if snapshot.pods.state[row] in ALLOCATED_STATES:
                asked = snapshot.requests[record.pod_class.id].tolist()
                held = [a + b for a, b in zip(held, asked, strict=False)]
        counts.append(states)
        allocated.append(held)
    return counts, allocated


@tried(20)
@given(st.lists(events, max_size=30))
def test_counting_on_gives_what_counting_anew_gives(happened: list[Any]) -> None:
    known = state(node("n"), [pod_group(name) for name in _GROUPS])
    for event in [*happened, None]:
        if isinstance(event, tuple):
            known.delete(*event)
        elif event is not None:
            known.upsert(type(event).__name__, event)
        else:
            snapshot = known.snapshot()
            counts, allocated = counted_one_by_one(snapshot)
            found = Membership(snapshot, jobs_of(snapshot))
            assert found.counts.T.tolist() == counts
            np.testing.assert_allclose(found.allocated, np.array(allocated).reshape(found.allocated.shape), rtol=1e-12)
            # A session changes the states that it was given.
            snapshot.pods.state[:] = PodState.Failed


def test_only_pods_that_changed_are_counted() -> None:
    many = cluster(20, 400, 10, Shape.idle)
    assert _looked_at(many) == 0
    many.upsert("Pod", pod("late"))
    assert _looked_at(many) == 1
    assert _looked_at(many) == 0
    many.delete("Pod", "default/late")
    many.delete("Pod", "default/gang-0003-7")
    assert _looked_at(many) <= 2


def _looked_at(known: ClusterState) -> int:
    snapshot = known.snapshot()
    return Membership(snapshot, jobs_of(snapshot)).looked_at
