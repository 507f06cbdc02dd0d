"""Gangs with claims: what has devices and nodes in some way starts, and what never has them is not told to wait."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.engine import SessionResult
from stromboli.framework.diagnosis.explain import why_job
from tests.builders import decide, node, pod_group, policy, queue, state
from tests.fuzz import tried
from tests.kube import test_dra as dra
from tests.kube.test_dra_shared import consumed

POLICY = policy("priority gang", "predicates capacity nodeorder")
#: slices of a card; its partitions are all of them, or one
_CARD = 2
_SELECTORS = {
    **{model: f'{dra.A}.model == "{model}"' for model in "ah"},
    **{str(size): f"{dra.A}.size == {size}" for size in (1, _CARD)},
}
#: in place of a node, of devices that all nodes reach
_ANYWHERE = -1
#: what a device is: a model, or the slices that a partition has
Device = str | tuple[int, ...]


class Offer(NamedTuple):
    """What a node has: CPUs, whole devices by model, and the number of its cards."""

    cpu: int
    models: str
    cards: int

    def devices(self) -> dict[str, Device]:
        """The devices by name; slices are numbered over all cards."""
        found: dict[str, Device] = {f"{model}-{number}": model for number, model in enumerate(self.models)}
        for card in range(self.cards):
            slices = range(card * _CARD, (card + 1) * _CARD)
            found |= {f"c{card}": tuple(slices)} | {f"c{card}-{each}": (each,) for each in slices}
        return found


class Wish(NamedTuple):
    """What a pod asks for: CPUs, and by a claim devices of a model, partitions of a size, or any."""

    cpu: int
    what: str
    count: int
    #: the pod whose claim it shares, if that has one
    of: int | None = None

    def suits(self, device: Device) -> bool:
        """Whether it may have a device."""
        return self.what in ("any", device if isinstance(device, str) else str(len(device)))


offers = st.builds(Offer, st.sampled_from([2, 4]), st.text("ah", max_size=2), st.sampled_from([0, 0, 1, 2]))
wishes = st.builds(
    Wish,
    st.integers(1, 2),
    st.sampled_from(["", "any", *_SELECTORS]),
    st.sampled_from([1, 1, 2]),
    st.sampled_from([None, None, None, 0, 1]),
)


class Scene:
    """A gang that waits, and pods that hold some of the whole devices."""

    def __init__(self, nodes: Sequence[Offer], gang: Sequence[Wish], held: Sequence[str], reached: int) -> None:
        self.nodes, self.gang = nodes, gang
        #: how many devices all nodes reach
        self.reached = reached
        self.held = [(at, name) for at, each in enumerate(nodes) for name in each.devices() if name in held]
        #: by pod the pod that its claim is named after, None without a claim
        self.claims = [self._claim(number) for number in range(len(gang))]

    @property
    def shared(self) -> bool:
        """Whether pods share a claim."""
        return any(claim not in (None, number) for number, claim in enumerate(self.claims))

    def _claim(self, number: int) -> int | None:
        of = self.gang[number].of
        shares = of is not None and of < number and self.gang[of].of is None and self.gang[of].what
        return of if shares else number if self.gang[number].what else None

    # -- what a session sees ------------------------------------------------------------------------------------------

    def run(self) -> SessionResult:
        """One session."""
        made = state(queue("default"), pod_group("x", len(self.gang)), dra.device_class())
        for at, offer in enumerate(self.nodes):
            made.upsert("Node", node(f"n{at}", cpu=str(offer.cpu)))
            for each in _slices(f"n{at}", offer):
                made.upsert("ResourceSlice", each)
        if self.reached:
            devices = [dra.device(f"net-{number}", model="net", size=0) for number in range(self.reached)]
            made.upsert("ResourceSlice", dra.resource_slice("net", *devices, allNodes=True))
        for number, (at, device) in enumerate(self.held):
            name = f"r{number}"
            users = [{"resource": "pods", "name": name, "uid": f"uid-{name}"}]
            made.upsert(
                "ResourceClaim", dra.claim(name, status=dra.allocation(f"n{at}", device) | {"reservedFor": users})
            )
            made.upsert("PodGroup", pod_group(name, phase="Running"))
            made.upsert("Pod", dra.pod(name, name, group=name, cpu="", memory="", node=f"n{at}"))
        for number, (wish, claim) in enumerate(zip(self.gang, self.claims, strict=True)):
            if claim == number:
                selectors = [_SELECTORS[wish.what]] if wish.what != "any" else []
                made.upsert("ResourceClaim", dra.claim(f"x-{number}", dra.request("r", *selectors, count=wish.count)))
            claims = [] if claim is None else [f"x-{claim}"]
            made.upsert("Pod", dra.pod(f"x-{number}", *claims, group="x", cpu=str(wish.cpu), memory=""))
        return decide(made, POLICY)

    # -- every way ----------------------------------------------------------------------------------------------------

    def possible(self, *, empty: bool) -> bool:
        """Whether the gang can be placed, beside no other pod if the cluster is `empty`."""
        ways = product(range(len(self.nodes)), repeat=len(self.gang))
        return any(self._fits(nodes, empty=empty) for nodes in ways)

    def _fits(self, nodes: Sequence[int], *, empty: bool) -> bool:
        """Whether the pods fit on their nodes; those on several share a claim only for devices that all nodes reach."""
        for at, offer in enumerate(self.nodes):
            if sum(wish.cpu for wish, on in zip(self.gang, nodes, strict=True) if on == at) > offer.cpu:
                return False
        places = dict[int, int]()
        for claim, on in zip(self.claims, nodes, strict=True):
            if claim is not None and places.setdefault(claim, on) != on:
                places[claim] = _ANYWHERE
        held = [] if empty else self.held
        free = [
            (at, each)
            for at, offer in enumerate(self.nodes)
            for name, each in offer.devices().items()
            if (at, name) not in held
        ]
        wanted = [(on, self.gang[claim]) for claim, on in places.items() for _ in range(self.gang[claim].count)]
        return _suffice([*free, *((_ANYWHERE, "net") for _ in range(self.reached))], wanted)


def _suffice(free: Sequence[tuple[int, Device]], wanted: Sequence[tuple[int, Wish]]) -> bool:
    """Whether each wish gets a device of its own, of which no slice is in another."""
    if not wanted:
        return True
    (on, wish), others = wanted[0], wanted[1:]
    for number, (at, device) in enumerate(free):
        rest = [each for other, each in enumerate(free) if other != number and _apart(each, (at, device))]
        if at in (on, _ANYWHERE) and wish.suits(device) and _suffice(rest, others):
            return True
    return False


def _apart(one: tuple[int, Device], other: tuple[int, Device]) -> bool:
    """Whether no slice is in both."""
    (at, mine), (on, its) = one, other
    return at != on or isinstance(mine, str) or isinstance(its, str) or not {*mine} & {*its}


def _slices(name: str, offer: Offer) -> Iterator[dict[str, Any]]:
    pool = {"name": name, "generation": 1, "resourceSliceCount": 2 if offer.cards else 1}
    devices = []
    for each, device in offer.devices().items():
        if isinstance(device, str):
            devices.append(dra.device(each, model=device, size=0))
            continue
        counters = consumed(**{f"slice-{at % _CARD}": 1 for at in device})
        draws = {"consumesCounters": [{"counterSet": f"card-{device[0] // _CARD}", "counters": counters}]}
        devices.append(dra.device(each, model="card", size=len(device), more=draws))
    yield dra.resource_slice(name, *devices, pool=pool)
    if offer.cards:
        slices = consumed(**{f"slice-{number}": 1 for number in range(_CARD)})
        sets = [{"name": f"card-{card}", "counters": slices} for card in range(offer.cards)]
        yield dra.resource_slice(f"{name}-counters", pool=pool, nodeName=name, sharedCounters=sets)


def check(nodes: Sequence[Offer], gang: Sequence[Wish], held: Sequence[str], reached: int) -> None:
    scene = Scene(nodes, gang, held, reached)
    result = scene.run()
    starts = any(key.startswith("default/x-") for key in result.session.bound)
    assert starts == scene.possible(empty=False)
    if starts:
        return
    why = why_job(result.session, result.session.view.jobs["default/x"])
    assert why is not None
    if why.reason in ("CannotBePlacedTogether", "NeverFits", "NoPlacesFound"):
        assert not scene.possible(empty=True), why
    elif not (reached or scene.shared) or scene.possible(empty=True):
        # Beside devices that all nodes reach, and of pods some of which share claims, not all is proven.
        assert (why.actionable == "wait") == scene.possible(empty=True), why


scenes = {
    "nodes": st.lists(offers, min_size=1, max_size=3),
    "gang": st.lists(wishes, min_size=2, max_size=4),
    "held": st.sampled_from([(), (), ("a-0", "h-0"), ("a-0", "a-1", "h-1")]),
    "reached": st.sampled_from([0, 0, 0, 1, 2]),
}


@tried(25)
@given(**scenes)
def test_what_finds_devices_starts_and_of_what_never_does_it_is_proven(
    nodes: list[Offer], gang: list[Wish], held: Sequence[str], reached: int
) -> None:
    check(nodes, gang, held, reached)


@pytest.mark.exhaustive
@tried(200)
@given(**scenes)
def test_many_gangs_with_devices(nodes: list[Offer], gang: list[Wish], held: Sequence[str], reached: int) -> None:
    check(nodes, gang, held, reached)
