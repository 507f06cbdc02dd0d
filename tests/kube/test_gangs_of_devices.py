"""Gangs whose claims compare devices or take parts of them: what can start does, and what never can is told so.

Every choice of nodes and devices is tried beside a session.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.engine import SessionResult
from stromboli.framework.diagnosis.explain import why_job
from tests.builders import decide, node, pod_group, policy, queue, state
from tests.fuzz import tried
from tests.kube import test_dra as dra

POLICY = policy("priority gang", "predicates capacity nodeorder")


class Device(NamedTuple):
    """A device with an attribute, or none, and an amount of memory, which several claims may share."""

    root: str
    memory: int
    shared: bool


class Wish(NamedTuple):
    """What the claim of a pod asks for: devices with so much memory, whose attributes agree or differ."""

    count: int
    memory: int
    #: `matchAttribute`, `distinctAttribute` or empty
    constraint: str

    def suits(self, roots: Sequence[str]) -> bool:
        """Whether devices with these attributes do."""
        if not self.constraint:
            return True
        return "" not in roots and len(set(roots)) == (1 if self.constraint == "matchAttribute" else len(roots))


class Scene(NamedTuple):
    """The devices of nodes, those that pods hold, and a gang that waits."""

    nodes: Sequence[Sequence[Device]]
    held: frozenset[tuple[int, int]]
    gang: Sequence[Wish]

    @property
    def is_proven(self) -> bool:
        """Whether it is told in any case that the gang can never start."""
        first, alike = self.gang[0], len({*self.gang}) == 1
        if any(device.shared for devices in self.nodes for device in devices):
            return alike and not first.constraint and first.count == 1
        return alike or not any(wish.constraint for wish in self.gang)

    def run(self) -> SessionResult:
        """One session."""
        made = state(queue("default"), pod_group("x", len(self.gang)), dra.device_class())
        for at, devices in enumerate(self.nodes):
            made.upsert("Node", node(f"n{at}", cpu="64"))
            made.upsert("ResourceSlice", dra.resource_slice(f"n{at}", *map(_device, range(9), devices)))
        for at, number in sorted(self.held):
            name = f"held-{at}-{number}"
            users = [{"resource": "pods", "name": name, "uid": f"uid-{name}"}]
            part = {"shareID": name, "consumedCapacity": {"memory": str(self.nodes[at][number].memory)}}
            result = part if self.nodes[at][number].shared else {}
            status = dra.allocation(f"n{at}", f"d{number}", **result) | {"reservedFor": users}
            made.upsert("ResourceClaim", dra.claim(name, status=status))
            made.upsert("PodGroup", pod_group(name, phase="Running"))
            made.upsert("Pod", dra.pod(name, name, group=name, cpu="", memory="", node=f"n{at}"))
        for number, wish in enumerate(self.gang):
            capacity = {"capacity": {"requests": {"memory": str(wish.memory)}}}
            asked = dra.request("r", count=wish.count, **capacity)
            constraints = [{wish.constraint: f"{dra.DRIVER}/root"}] if wish.constraint else []
            claim = dra.claim(f"x-{number}", asked, devices={"constraints": constraints})
            made.upsert("ResourceClaim", claim)
            made.upsert("Pod", dra.pod(f"x-{number}", f"x-{number}", group="x", cpu="1", memory=""))
        return decide(made, POLICY)

    def possible(self, *, empty: bool) -> bool:
        """Whether the gang can be placed, beside no other pod if the cluster is `empty`."""
        held = frozenset() if empty else self.held
        left = [
            [0 if (at, number) in held else device.memory for number, device in enumerate(devices)]
            for at, devices in enumerate(self.nodes)
        ]
        return any(
            all(
                _suffice(devices, left[at], [wish for wish, on in zip(self.gang, places, strict=True) if on == at])
                for at, devices in enumerate(self.nodes)
            )
            for places in product(range(len(self.nodes)), repeat=len(self.gang))
        )


def _device(number: int, device: Device) -> dict[str, object]:
    more = {"allowMultipleAllocations": True} if device.shared else {}
    root = {"root": device.root} if device.root else {}
    return dra.device(f"d{number}", memory=str(device.memory), more=more, **root)


def _suffice(devices: Sequence[Device], left: Sequence[int], wishes: Sequence[Wish]) -> bool:
    """Whether the devices of a node, with so much memory left, are enough for all claims."""
    return not wishes or any(_suffice(devices, after, wishes[1:]) for after in _after(devices, left, wishes[0]))


def _after(devices: Sequence[Device], left: Sequence[int], wish: Wish) -> Iterator[list[int]]:
    """What can be left of the devices when a claim has some."""
    for chosen in combinations(range(len(devices)), wish.count):
        after = list(left)
        for number in chosen:
            enough = after[number] >= wish.memory
            after[number] = after[number] - wish.memory if devices[number].shared else 0
            if not enough:
                break
        else:
            if wish.suits([devices[number].root for number in chosen]):
                yield after


devices = st.builds(Device, st.sampled_from(["", "x", "x", "y"]), st.sampled_from([4, 6]), st.booleans())
wishes = st.builds(
    Wish,
    st.sampled_from([1, 2, 2, 3]),
    st.integers(1, 4),
    st.sampled_from(["", "matchAttribute", "distinctAttribute"]),
)


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """The devices of a scene are all given whole, or any."""
    whole = draw(st.booleans())
    kinds = devices.map(lambda each: each._replace(shared=False)) if whole else devices
    nodes = draw(st.lists(st.lists(kinds, max_size=4), min_size=1, max_size=2))
    every = [(at, number) for at, each in enumerate(nodes) for number in range(len(each))]
    held = frozenset(draw(st.lists(st.sampled_from(every), max_size=2))) if every else frozenset()
    gang = draw(st.lists(wishes, min_size=2, max_size=3))
    return Scene(nodes, held, [gang[0]] * len(gang) if draw(st.booleans()) else gang)


def check(scene: Scene) -> None:
    """What can start starts, and nothing that can is told that it never will."""
    result = scene.run()
    starts = any(key.startswith("default/x-") for key in result.session.bound)
    assert starts == scene.possible(empty=False)
    if starts:
        return
    why = why_job(result.session, result.session.view.jobs["default/x"])
    assert why is not None
    if scene.is_proven:
        assert (why.actionable == "wait") == scene.possible(empty=True), why
    else:
        assert why.actionable == "wait" or not scene.possible(empty=True), why


@tried(25)
@given(scenes())
def test_what_finds_devices_starts_and_what_never_does_is_told(scene: Scene) -> None:
    check(scene)


@pytest.mark.exhaustive
@tried(400)
@given(scenes())
def test_many_gangs_that_compare_devices_or_share_them(scene: Scene) -> None:
    check(scene)
