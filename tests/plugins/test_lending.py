"""Limits on borrowing and lending: what queues may hold beyond what they deserve, and keep of it while it is idle."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from stromboli.api.crds import Queue
from stromboli.api.errors import InvalidObjectError
from stromboli.engine import SessionResult
from stromboli.explain.queues import explain_queue
from tests.builders import decide, node, queue, state
from tests.fuzz import tried
from tests.plugins.queues import bound, evicted, holds, wants, why

SIZE = 8


def schedule(*objects: Any, actions: str = "allocate", hierarchy: bool = False) -> SessionResult:
    """One session under capacity, on a node of 8 CPUs."""
    plugins = [{"name": "gang"}, {"name": "predicates"}, {"name": "capacity", "enableHierarchy": hierarchy}]
    return decide(
        state(node("n", cpu=str(SIZE)), *objects), yaml.safe_dump({"actions": actions, "tiers": [{"plugins": plugins}]})
    )


def of(name: str, deserved: int, borrows: int | None = None, lends: int | None = None, **spec: Any) -> Queue:
    """A queue with its limits in CPUs."""
    limits = {"borrowingLimit": borrows, "lendingLimit": lends}
    given = {field: {"cpu": str(amount)} for field, amount in limits.items() if amount is not None}
    return queue(name, deserved={"cpu": str(deserved)}, **given, **spec)


def test_a_queue_borrows_up_to_its_limit() -> None:
    result = schedule(of("a", 2, borrows=3), *wants("a"))
    assert bound(result) == {"a": 5}
    assert why(result, "a-5").detail == "cpu: holds 5, may have 5, of which it borrows 3, 1 more requested"


def test_a_queue_lends_up_to_its_limit() -> None:
    assert bound(schedule(of("a", 2), of("b", 4, lends=1), *wants("a"))) == {"a": SIZE - 3}
    assert bound(schedule(of("a", 2), of("b", 4, lends=0), *wants("a"))) == {"a": SIZE - 4}
    assert bound(schedule(of("a", 2), of("b", 4), *wants("a"))) == {"a": SIZE}


@pytest.mark.parametrize("deserved", [None, 0, 2])
def test_a_guarantee_beyond_what_is_deserved_is_not_borrowed(deserved: int | None) -> None:
    said: dict[str, Any] = {} if deserved is None else {"deserved": {"cpu": str(deserved)}}
    kept = queue("b", guarantee={"resource": {"cpu": "3"}}, borrowingLimit={"cpu": "1"}, **said)
    assert len(schedule(queue("a"), kept, wants("a", 8)).session.bound) == 5
    assert len(schedule(queue("a"), kept, wants("b", 8)).session.bound) == 4


def test_what_is_not_listed_is_unlimited() -> None:
    loose = queue("a", deserved={"cpu": "2"}, borrowingLimit={"memory": "1Gi"}, lendingLimit={"memory": "1Gi"})
    assert bound(schedule(loose, *wants("a"))) == {"a": SIZE}
    assert bound(schedule(loose, of("b", 2), *wants("b"))) == {"b": SIZE}


def test_a_borrower_gives_back_what_a_lender_wants() -> None:
    """What was lent comes back by reclaim; what was kept is there at once."""
    lender, borrower = of("b", 4, lends=2), of("a", 2, borrows=4)
    result = schedule(lender, borrower, holds("a", 6), *wants("b"), actions="allocate, reclaim")
    assert bound(result) == {"b": 2}
    assert evicted(result) == {"a-uses": 2}


def test_a_job_larger_than_may_be_borrowed_never_fits() -> None:
    result = schedule(of("a", 2, borrows=1), *wants("a", 1, cpu="4"))
    assert (why(result, "a-0").reason, why(result, "a-0").actionable) == ("NeverFits", "user")


AMOUNT = st.integers(0, SIZE)
SPEC = st.tuples(st.integers(0, 5), st.none() | AMOUNT, st.none() | AMOUNT, st.none() | AMOUNT)
PARENTS = {"a": "", "b": "", "c": "b", "d": "b"}


@pytest.mark.exhaustive
@given(st.tuples(SPEC, SPEC, SPEC, SPEC), st.tuples(AMOUNT, AMOUNT, AMOUNT), st.booleans())
@tried(100)
def test_limits_are_capabilities_and_guarantees_of_what_is_deserved(
    specs: tuple[tuple[int, int | None, int | None, int | None], ...], wanted: tuple[int, ...], hierarchy: bool
) -> None:
    """A queue decides as one that may have what it deserves and borrows, and is guaranteed what it does not lend."""
    limited, plain = [], []
    for (name, parent), (deserved, borrows, lends, most) in zip(PARENTS.items(), specs, strict=True):
        lends = None if lends is None else min(lends, deserved)
        above = {"parent": parent} if hierarchy else {}
        capability = {} if not most else {"capability": {"cpu": str(most)}}
        limited.append(of(name, deserved, borrows, lends, **above, **capability))
        ceilings = [
            amount for amount in (most or None, None if borrows is None else deserved + borrows) if amount is not None
        ]
        if ceilings == [0] or (borrows == 0 and not deserved):
            # A capability of nothing is none.
            return
        given = {"capability": {"cpu": str(min(ceilings))}} if ceilings else {}
        guarantee = {"guarantee": {"resource": {"cpu": str(deserved - lends)}}} if lends is not None else {}
        plain.append(queue(name, deserved={"cpu": str(deserved)}, **above, **given, **guarantee))
    jobs = [job for name, count in zip("acd", wanted, strict=True) for job in wants(name, count)]
    jobs += holds("a", 2)
    one, other = (
        schedule(of, jobs, actions="allocate, reclaim", hierarchy=hierarchy).session for of in (limited, plain)
    )
    assert (one.bound, one.evicted) == (other.bound, other.evicted)
    assert {key: reason.reason for key, reason in one.view.trace.jobs.items()} == {
        key: reason.reason for key, reason in other.view.trace.jobs.items()
    }


def test_it_is_said_of_a_queue() -> None:
    session = schedule(of("a", 4, borrows=2, lends=1), *wants("a", 1)).session
    found = explain_queue(session, "a")
    assert found is not None
    assert {"borrows no more than 2 cpu", "lends no more than 1 cpu"} <= set(found.words)


@pytest.mark.parametrize("field", ["borrowingLimit", "lendingLimit"])
def test_what_is_no_quantity_is_refused(field: str) -> None:
    with pytest.raises(InvalidObjectError, match=rf"spec\.{field}\.cpu: .lots. is not"):
        Queue.parse({"metadata": {"name": "q"}, "spec": {field: {"cpu": "lots"}}})
