"""Claims that several pods mount, of one gang or of two: their volume is bound once, and everybody goes where it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.controlplane.cluster import eventually
from tests.e2e.conftest import Start
from tests.e2e.disks import Disks, Order, node_of, pod_with_claims
from tests.e2e.provisioner import VOLUMES, Provisioner, volume
from tests.e2e.test_volumes import WITHIN_TWO_SECONDS, why
from tests.e2e.world import World

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("refusing", [set(), {"node-0"}, {"node-1"}])
def test_a_gang_goes_whole_where_its_volume_is_made(
    world: World, disks: Disks, provisioner: Provisioner, start: Start, refusing: set[str]
) -> None:
    provisioner.refusing, provisioner.takes = refusing, 0.3
    start()
    world.group("train", 4)
    disks.claim_all([disks.claim("shared", "made")])
    with Order(disks) as order:
        world.pods([pod_with_claims(f"train-{number}", "shared", group="train") for number in range(4)])
        eventually(lambda: len(world.placed()) == 4)
        order.check({f"train-{number}": ["shared"] for number in range(4)})
    (node,) = set(world.placed().values()) - refusing
    (made,) = world.items(VOLUMES)
    assert node_of(made) == node


def test_pods_go_to_all_nodes_that_reach_the_volume(world: World, disks: Disks, start: Start) -> None:
    start()
    everywhere = volume("export", "", "local", nfs={"server": "nfs.example.com", "path": "/"})
    everywhere["spec"] |= {"accessModes": ["ReadWriteMany"], "nodeAffinity": None}
    disks.volumes([everywhere])
    claim = disks.claim("shared", "local")
    claim["spec"]["accessModes"] = ["ReadWriteMany"]
    disks.claim_all([claim])
    world.group("train", 6)
    world.pods([pod_with_claims(f"train-{number}", "shared", group="train", cpu="10") for number in range(6)])
    eventually(lambda: len(world.placed()) == 6)
    assert sorted(world.placed().values()) == ["node-0"] * 3 + ["node-1"] * 3
    assert disks.bound() == {"shared": "export"}


def test_a_gang_for_which_no_node_has_room_beside_its_volume_reserves_nothing(
    world: World, disks: Disks, provisioner: Provisioner, start: Start
) -> None:
    """A pod more than a node has room for; once one has it, all start."""
    start()
    world.group("train", 3)
    disks.volumes([volume(f"disk-{node}", f"node-{node}", "local") for node in range(2)])
    disks.claim_all([disks.claim("shared", "local")])
    world.pods([pod_with_claims(f"train-{number}", "shared", group="train", cpu="12") for number in range(3)])
    eventually(lambda: why(world, "train-0") != "")
    assert disks.reserved() == set()
    world.nodes(1, cpu="64", prefix="large")
    disks.volumes([volume("disk-large", "large-0", "local")])
    eventually(lambda: list(world.placed().values()) == ["large-0"] * 3)
    assert disks.bound() == {"shared": "disk-large"}
    assert disks.reserved() == set()


def test_a_gang_gets_the_volume_that_another_gave_up(world: World, disks: Disks, start: Start, tmp_path: Path) -> None:
    """A gang of which another claim is never provided mounts it as well."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(WITHIN_TWO_SECONDS)
    start("--policy", str(policy))
    disks.storage_class("never", "example.com/none")
    disks.volumes([volume(f"disk-{node}", f"node-{node}", "local") for node in range(2)])
    disks.claim_all([disks.claim("shared", "local"), disks.claim("own", "never")])
    world.group("stuck", 2)
    world.pods([pod_with_claims("stuck-0", "shared", "own", group="stuck")])
    world.pods([pod_with_claims("stuck-1", "shared", group="stuck")])
    eventually(lambda: "own" in disks.reserved())
    world.group("train", 2)
    world.pods([pod_with_claims(f"train-{number}", "shared", group="train") for number in range(2)])
    eventually(lambda: world.bound() == {"train": 2}, 60)
    assert disks.bound().keys() == {"shared"}


def test_a_pod_that_comes_later_joins_the_others(
    world: World, disks: Disks, provisioner: Provisioner, start: Start
) -> None:
    start()
    world.group("train", 2)
    disks.claim_all([disks.claim("shared", "made")])
    world.pods([pod_with_claims(f"train-{number}", "shared", group="train") for number in range(2)])
    eventually(lambda: len(world.placed()) == 2)
    world.pods([pod_with_claims("train-2", "shared", group="train")])
    eventually(lambda: len(world.placed()) == 3)
    assert len(set(world.placed().values())) == 1
