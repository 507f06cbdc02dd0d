"""What is kept of devices while slices, claims and nodes change is what is found when all is read anew."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.kube.dra.holdings import holdings_of
from stromboli.kube.dra.inventory import devices_of, inventory
from stromboli.kube.dra.objects import DeviceObjects
from stromboli.kube.dra.pools import device_id
from tests import builders
from tests.fuzz import tried
from tests.kube.test_dra import DRIVER, allocation, claim, device, resource_slice, taint_rule

_NODES = ("n0", "n1", "n2")
_DEVICES = st.lists(st.tuples(st.sampled_from(("d0", "d1", "d2")), st.sampled_from(("a", "b"))), max_size=4)
#: a slice is there: its number, pool, generation, slices in the pool, and devices with their models
_SLICES = st.tuples(
    st.integers(0, 4), st.sampled_from(_NODES), st.integers(1, 2), st.integers(1, 2), st.booleans(), _DEVICES
)
_CHANGES = st.one_of(
    _SLICES,
    st.integers(0, 4),
    st.tuples(st.sampled_from(("c0", "c1")), st.sampled_from(_NODES), st.sampled_from(("d0", "d1"))),
    st.sampled_from(_NODES),
    st.tuples(st.sampled_from(("r0", "r1")), st.sampled_from((*_NODES, None))),
)


def offered(slices: dict[str, dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    """The oracle: pool, device, model and node of all devices that are offered, in order; no name comes twice."""
    pools: dict[str, list[dict[str, Any]]] = {}
    for _, each in sorted(slices.items()):
        pools.setdefault(each["spec"]["pool"]["name"], []).append(each["spec"])
    found = []
    for pool, specs in pools.items():
        newest = max(spec["pool"]["generation"] for spec in specs)
        current = [spec for spec in specs if spec["pool"]["generation"] == newest]
        names = [each["name"] for spec in current for each in spec["devices"]]
        if len(current) == current[0]["pool"]["resourceSliceCount"] and len(set(names)) == len(names):
            for spec in current:
                for each in spec["devices"]:
                    model = each["attributes"]["model"]["string"]
                    found.append((pool, each["name"], model, spec.get("nodeName", "")))
    return found


@pytest.mark.parametrize("few", [0, 16])
@tried(20)
@given(st.lists(_CHANGES, min_size=1, max_size=12))
def test_devices_go_on_where_slices_change(few: int, changes: list[Any]) -> None:
    with patch("stromboli.kube.dra.inventory._FEW_NEW", few):
        go_on(changes)


def go_on(changes: list[Any]) -> None:
    cluster = builders.state([builders.node(name) for name in _NODES])
    slices: dict[str, dict[str, Any]] = {}
    held: dict[str, tuple[str, str]] = {}
    tainted: dict[str, str] = {}
    for turn, change in enumerate(changes):
        match change:
            case (int(number), pool, generation, of, alone, listed):
                where = {} if alone else {"allNodes": True}
                made = resource_slice(pool, *[device(name, model=model) for name, model in listed], **where)
                made["metadata"]["name"] = f"slice-{number}"
                made["spec"]["pool"] |= {"generation": generation, "resourceSliceCount": of}
                slices[f"slice-{number}"] = made
                cluster.upsert("ResourceSlice", made)
            case (name, pool, of):
                held[name] = pool, of
                cluster.upsert("ResourceClaim", claim(name, status=allocation(pool, of)))
            case (name, None):
                tainted.pop(name, None)
                cluster.delete("DeviceTaintRule", name)
            case (name, pool):
                tainted[name] = pool
                cluster.upsert("DeviceTaintRule", taint_rule(name=name, pool=pool))
            case int(number):
                slices.pop(f"slice-{number}", None)
                cluster.delete("ResourceSlice", f"slice-{number}")
            case name:
                cluster.upsert("Node", builders.node(name, labels={"turn": str(turn)}))
        snapshot, expected = cluster.snapshot(), offered(slices)
        found = devices_of(snapshot)
        model = found.values("model", lambda offer: offer.attributes[DRIVER]["model"])
        seen = [(each.id.pool, each.id.device, model.value(row), each.node) for row, each in enumerate(found.offers)]
        assert seen == expected
        assert [len(each.taints) for each in found.offers] == [[*tainted.values()].count(each[0]) for each in expected]
        rows = {each[:2]: row for row, each in enumerate(expected)}
        assert all(found.row(device_id(DRIVER, *each)) == row for each, row in rows.items())
        assert found.row(device_id(DRIVER, "elsewhere", "d0")) == -1
        reach = inventory(found, snapshot.nodes.facts, snapshot)
        for at, node in enumerate(_NODES):
            own, shared = ([row for row, each in enumerate(expected) if each[3] == where] for where in (node, ""))
            assert reach.on(at).tolist() == own + shared
        in_use = holdings_of(snapshot, DeviceObjects(snapshot.objects)).held(found)
        taken = [rows[each] for each in held.values() if each in rows]
        assert np.flatnonzero(in_use).tolist() == sorted(set(taken))
