"""What people see when something does not run, on a real API server: what all say of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.controlplane.build import Binaries
from tests.controlplane.cluster import Cluster, eventually
from tests.e2e.situations.bound import BOUND, SUBMITTED
from tests.e2e.situations.site import Site
from tests.e2e.situations.telling import Batch, Told, batches, check, each, explained, missing, telling
from tests.e2e.situations.waiting import POOLS
from tests.e2e.world import Object, define

pytestmark = pytest.mark.e2e

POLICY = """
actions: "enqueue, allocate, preempt, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}, {name: pdb}]
- plugins: [{name: predicates}, {name: proportion}, {name: resourcequota}, {name: nodeorder},
    {name: network-topology-aware}]
"""


WAITING = batches(POOLS, 12)
BATCHES: list[Batch] = [*WAITING, (*BOUND, *SUBMITTED)]


@pytest.fixture(scope="module")
def told(
    request: pytest.FixtureRequest,
    binaries: Binaries,
    definitions: list[Object],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Told]:
    """The situations of a batch at once, and the service after its first sessions.

    Nodes and pods are what the tests say: no kwok brings them to life.
    """
    batch: Batch = request.param
    makers = {name: situation.make for name, situation in (POOLS | SUBMITTED).items()}
    makers |= {name: make for name, (make, _) in BOUND.items()}
    queued = {name: partial(_with_a_queue, make=makers[name]) for name in batch}
    waiting = {name: POOLS[name] for name in batch if name in POOLS}
    with Cluster(binaries) as cluster:
        cluster.start_controller_manager()
        with cluster.client() as api:
            define(api, definitions)
        with telling(cluster, tmp_path_factory.mktemp("told"), POLICY, queued, waiting) as service:
            yield service


def _with_a_queue(site: Site, make: Callable[[Site], None]) -> None:
    site.queue(site.name)
    make(site)


@each(POOLS, BATCHES)
def test_all_say_the_same_of_a_job_that_waits(told: Told, name: str) -> None:
    check(told, name, POOLS[name])


@pytest.mark.parametrize("told", WAITING, indirect=True, ids=lambda batch: batch[0])
def test_a_dump_of_the_cluster_says_the_same(told: Told, tmp_path: Path) -> None:
    said = explained(told, POLICY, tmp_path)["pods"]
    pods = {f"{name}/train-0": name for name in told.sites if name != "quota"}
    answers = {key: told.api(f"explain/pod/{key}?remedies=false") for key in pods}
    live = {key: (each["reason"], each["message"], each["who"]) for key, each in answers.items()}
    offline = {key: (said[key]["reason"], said[key]["message"], said[key]["actionable"]) for key in pods if key in said}
    assert {key: (said, offline.get(key)) for key, said in live.items() if offline.get(key) != said} == {}


@each(BOUND, BATCHES)
def test_what_has_a_node_and_does_not_run_is_told(told: Told, name: str) -> None:
    says = BOUND[name][1]
    job, one_pod = told.why("job", f"{name}/train"), told.why("pod", f"{name}/train-0")
    assert says in job
    assert says in one_pod
    assert says in told.shown(f"/jobs/{name}/train")
    assert says in told.api(f"explain/job/{name}/train")["message"]


@each(SUBMITTED, BATCHES)
def test_what_was_submitted_is_answered_by_its_name(told: Told, name: str) -> None:
    submitted, site = SUBMITTED[name], told.sites[name]
    kind, asked = submitted.question
    text = told.tried(kind, f"{name}/{asked}", code=submitted.code)
    assert missing(submitted.says, name, text) == [], text
    about, reason = submitted.event
    if about:
        eventually(lambda: any(each["reason"] == reason for each in site.events()), 60)
        notes = told.noted(site, *about.split("/"))
        assert any(missing(submitted.says, name, note) == [] for note in notes), notes
        assert reason in told.described(site, *about.lower().split("/"))
