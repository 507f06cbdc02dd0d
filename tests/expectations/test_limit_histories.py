"""What holds in any history where users have limits, and jobs a time to wait and a maximum run time.

`STROMBOLI_HISTORIES` and the rest as for the other histories.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pytest
import yaml
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test
from msgspec.structs import replace as with_fields

from stromboli.api import duration, objects
from stromboli.api.decisions import Bind
from stromboli.engine import Engine, SessionResult
from stromboli.policy.document import DEFAULT_POLICY
from stromboli.state.pods import USER_ANNOTATION
from tests.expectations.test_histories import (
    HISTORIES,
    PHASES,
    SHAPES,
    Histories,
    begins_with,
    few_jobs,
    jobs,
)
from tests.expectations.world import Job, World

#: when PodGroups are created, and so many seconds later a history begins
CREATED, BEGINS = 1_704_067_200.0, 20
WAITS, RUNS = "sla-waiting-time", "stromboli.io/max-run-time"
#: what a user may hold in a queue
MOST = {"cpu": 4, "pods": 3}


def policy(order: tuple[str, ...], shares: str) -> Any:
    """A policy with limits of users and of run times, whose overdue jobs keep free places."""
    text = DEFAULT_POLICY.replace("allocate, backfill", ", ".join(("timeouts", *order)))
    text = text.replace("name: proportion", SHAPES[shares])
    made = yaml.safe_load(text.replace("  - name: drf\n", "") if shares.startswith("fairshare") else text)
    first, second = made["tiers"]
    limits = [{"users": ["limited"], "maxPods": MOST["pods"], "resources": {"cpu": str(MOST["cpu"])}}]
    users = {"name": "userlimits", "arguments": {"limits": limits}}
    made["tiers"] = [{"plugins": [*first["plugins"], {"name": "sla"}]}, {"plugins": [users, *second["plugins"]]}]
    return made


@cache
def engine(order: tuple[str, ...], shares: str) -> Engine:
    """An engine of that policy."""
    return Engine(yaml.safe_dump(policy(order, shares)))


@dataclass
class LimitWorld(World):
    """When pods started is known."""

    now: float = CREATED + BEGINS
    since: dict[str, float] = field(default_factory=dict)

    def objects(self) -> list[Any]:
        return [self._told(each) for each in super().objects()]

    def _told(self, each: Any) -> Any:
        if isinstance(each, objects.Pod) and (at := self.since.get(each.metadata.name)):
            written = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            return with_fields(each, status=with_fields(each.status, start_time=written))
        return each

    def session(self) -> tuple[Counter[str], SessionResult]:
        now, before = self.now, self._held_by_user(now=True)
        changes, result = super().session()
        for job in self.jobs:
            self.since.update({name: now for name, node in job.pods.items() if node and name not in self.since})
        started = {each.name for each in result.decisions if isinstance(each, Bind)}
        for queue, after in self._held_by_user(of=started).items():
            for name, most in MOST.items():
                used = before.get(queue, Counter())[name] + after[name]
                assert not after[name] or used <= most, f"the user started too much in {queue}"
        return changes, result

    def _held_by_user(self, *, now: bool = False, of: set[str] | None = None) -> Mapping[str, Counter[str]]:
        """What the limited user holds in each queue, with pods that terminate or only certain pods."""
        pods = [(job, name) for job in self.jobs for name, node in job.pods.items() if node]
        pods += [(job, name) for name, (job, _, _) in self.leaving.items()] if now else []
        held: dict[str, Counter[str]] = {}
        for job, name in pods:
            if job.notes.get(USER_ANNOTATION) and (of is None or name in of):
                held.setdefault(job.queue, Counter()).update({"pods": 1, **job.asked(name)})
        return held

    def has_run_too_long(self, job: Job) -> bool:
        return any(each.type == "TimedOut" for each in job.status.conditions) if job.status else False


def _noted(drawn: tuple[dict[str, Any], bool, int, int]) -> dict[str, Any]:
    job, limited, waits, runs = drawn
    notes = {USER_ANNOTATION: "limited"} if limited else {}
    notes |= {WAITS: f"{waits}s"} if waits else {}
    return job | {"notes": notes | ({RUNS: f"{runs}s"} if runs else {})}


limited_jobs = st.tuples(
    jobs, st.booleans(), st.sampled_from([0, 0, 0, 1, 25, 35]), st.sampled_from([0, 0, 0, 0, 8, 20])
).map(_noted)


class LimitHistories(Histories):
    """A cluster with limits that changes."""

    make_engine = staticmethod(engine)
    make_world = LimitWorld
    world: LimitWorld

    @begins_with(limited_jobs, most_nodes=2)
    def begin(self, order: Sequence[str], **drawn: Any) -> None:
        super().begin(order=order, **drawn)

    @few_jobs
    @rule(drawn=limited_jobs)
    def a_job_comes(self, drawn: dict[str, Any]) -> None:
        super().a_job_comes(drawn)

    def may_keep(self, job: str) -> bool:
        """Overdue jobs do."""
        of = next(each for each in self.world.jobs if each.name == job)
        return WAITS in of.notes and CREATED + of.created + duration.parse(of.notes[WAITS]) <= self.world.now

    def _placed_next(self, beneficiaries: set[str], moved: set[str], running: dict[str, int]) -> None:
        """What ran for too long in the meantime starts no more."""
        over = {job.name for job in self.world.jobs if RUNS in job.notes}
        super()._placed_next(beneficiaries - over, moved - over, running)


@pytest.mark.exhaustive
def test_histories_of_limits() -> None:
    """Those of `test_restless_histories.py` are these with more changes."""
    run_state_machine_as_test(
        LimitHistories,
        settings=settings(max_examples=HISTORIES, stateful_step_count=8, phases=PHASES, deadline=None),
    )
