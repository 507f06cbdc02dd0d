"""What people see of jobs that wait in a tree of queues, on a real API server: what all say of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stromboli.cli import make_app
from tests.controlplane.build import Binaries
from tests.controlplane.cluster import Cluster, eventually
from tests.e2e.situations.site import Site
from tests.e2e.situations.telling import Batch, Told, batches, check, each, explained, telling
from tests.e2e.situations.tree import POLICY, TREES, team
from tests.e2e.world import SCHEDULING, Object, define

pytestmark = pytest.mark.e2e

WEIGHED = "weighed"


def weighed(site: Site) -> None:
    """A queue with a field that the policy does not read."""
    team(site, {"a": {"weight": 5, "deserved": {"cpu": "2"}}})
    site.runs("runs", 3, site.node(), group={"queue": f"{site.name}-a"})


WAITING = batches(TREES, 3)
BATCHES: list[Batch] = [*WAITING[:-1], (*WAITING[-1], WEIGHED)]


@pytest.fixture(scope="module")
def told(
    request: pytest.FixtureRequest,
    binaries: Binaries,
    definitions: list[Object],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Told]:
    """The situations of a batch at once, in one tree."""
    batch: Batch = request.param
    makers = {name: TREES[name].make if name in TREES else weighed for name in batch}
    waiting = {name: TREES[name] for name in batch if name in TREES}
    with Cluster(binaries) as cluster:
        cluster.start_controller_manager()
        with cluster.client() as api:
            define(api, definitions)
        with telling(cluster, tmp_path_factory.mktemp("told"), POLICY, makers, waiting) as service:
            yield service


@each(TREES, BATCHES)
def test_all_say_the_same_of_a_job_that_waits(told: Told, name: str) -> None:
    check(told, name, TREES[name])


@pytest.mark.parametrize("told", BATCHES, indirect=True, ids=lambda batch: batch[0])
def test_a_dump_of_the_cluster_says_the_same(told: Told, tmp_path: Path) -> None:
    explaining = explained(told, POLICY, tmp_path)
    waiting = {name: TREES[name].reason for name in told.sites if name in TREES}
    said = {
        name: {pod["reason"] for key, pod in explaining["pods"].items() if key.startswith(f"{name}/")}
        for name in waiting
    }
    # A dump has the statuses of pods that were evicted.
    assert {name: reasons for name, reasons in said.items() if waiting[name] not in reasons} == {}
    if WEIGHED in told.sites:
        assert "spec.weight has no effect" in explaining["warnings"][f"Queue {WEIGHED}-a"]["FieldIgnored"]
    files = [str(tmp_path / "dump.json"), "--policy", str(tmp_path / "policy.conf"), "--lenient", "--explain"]
    text = CliRunner().invoke(make_app(), ["simulate", *files]).output
    assert "What would help" in text


@each([WEIGHED], BATCHES)
def test_all_say_which_field_of_a_queue_is_ignored(told: Told, name: str) -> None:
    name, site = f"{name}-a", told.sites[name]
    says = "spec.weight has no effect under this policy"

    def condition() -> str:
        queue = site.api.get(f"{SCHEDULING}/queues/{name}").json()
        conditions = queue.get("status", {}).get("conditions", ())
        return next((each["message"] for each in conditions if each["type"] == "FieldIgnored"), "")

    eventually(lambda: says in condition(), 60)
    assert says in told.described(site, "queue.scheduling.volcano.sh", name)
    assert says in told.why("queue", name)
    assert says in told.shown(f"/queues/{name}")
    assert told.api(f"explain/queue/{name}")["ignored"]["weight"] in condition()


#: how a queue of a tree stands: what is said, and what is not
STANDS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    WEIGHED: ("a", ("deserves what its spec says: 2 cpu", "beyond that is borrowed"), ("gets nothing more",)),
    "kept": (
        "dev",
        ("gets no more than 0 cpu", "queue kept-prod keeps 4", "kept-dev cpu: holds 0"),
        ("may have 4,",),
    ),
    "poor": ("a", ("deserves nothing, so that its share counts as 1",), ("nothing is placed in it",)),
    "borrows": ("dev", ("borrows no more than 1 cpu", "may have 3"), ()),
}


@each(STANDS, BATCHES)
def test_a_queue_of_a_tree_says_how_it_stands(told: Told, name: str) -> None:
    child, says, silent = STANDS[name]
    queue = f"{name}-{child}"
    text = told.why("queue", queue)
    assert [words for words in says if words not in text] == [], text
    assert [words for words in silent if words in text] == [], text
    share, row = told.api(f"explain/queue/{queue}")["share"], told.api(f"queues/{queue}")
    assert share == row["share"]
