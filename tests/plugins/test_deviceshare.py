"""deviceshare: parts of cards, and whole ones."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.api.decisions import Bind
from stromboli.api.errors import PolicyError
from stromboli.api.objects import Node
from stromboli.engine import Engine
from tests.builders import NOON, node, pod, pod_group, queue, state
from tests.plugins.sessions import decide, policy

MEMORY, NUMBER, INDEX = "volcano.sh/gpu-memory", "volcano.sh/gpu-number", "volcano.sh/gpu-index"
V_NUMBER, V_MEMORY, V_CORES = "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"
IDS = "volcano.sh/vgpu-ids-new"


def annotated(made: Node, annotations: dict[str, str]) -> Node:
    metadata = type(made.metadata)(made.metadata.name, labels=made.metadata.labels, annotations=annotations)
    return Node(metadata, made.spec, made.status)


def gpu_node(name: str, memory: int, cards: int, **annotations: str) -> Node:
    return annotated(node(name, resources={MEMORY: str(memory), NUMBER: str(cards)}), annotations)


def vgpu_node(name: str, *cards: str, mode: str = "hami-core") -> Node:
    """Cards are `SEATS,MEMORY,TYPE`."""
    register = "".join(f"{name}-{i},{card},true,{mode}:" for i, card in enumerate(cards))
    amounts = {V_NUMBER: "100", V_MEMORY: "1000000", V_CORES: "1000"}
    return annotated(node(name, resources=amounts), {"volcano.sh/node-vgpu-register": register})


def user(name: str, limits: dict[str, str], where: str = "", job: str = "job", **metadata: Any):
    """A pod whose one container has limits and the same requests."""
    return pod(
        name,
        job,
        node=where,
        containers=[{"name": "main", "resources": {"requests": {"cpu": "1", **limits}, "limits": limits}}],
        **metadata,
    )


def annotations(*objs: Any, way: str, compatibility: Any = None, **arguments: Any) -> dict[str, str]:
    """What the binding of each pod says about its cards."""
    given = {f"deviceshare.{key}": value for key, value in arguments.items()} | {f"deviceshare.{way}": True}
    result = decide(*objs, pod_group("job"), by=policy("deviceshare", given), compatibility=compatibility)
    binds = [decision for decision in result.decisions if isinstance(decision, Bind)]
    return {bind.name: bind.annotations.get(INDEX, bind.annotations.get(IDS, "")) for bind in binds}


def sharing(*objs: Any) -> dict[str, str]:
    return annotations(*objs, way="GPUSharingEnable")


def vgpu(*objs: Any, **arguments: Any) -> dict[str, str]:
    return annotations(*objs, way="VGPUEnable", **arguments)


def test_memory_comes_from_one_card_the_first_that_has_it() -> None:
    pods = [user(f"job-{i}", {MEMORY: "3000"}) for i in range(4)]
    assert sharing(gpu_node("n1", 16000, 2), *pods) == {"job-0": "0", "job-1": "0", "job-2": "1", "job-3": "1"}
    assert sharing(gpu_node("n1", 10000, 2), user("job-0", {MEMORY: "8000"})) == {}


def test_running_pods_hold_the_cards_that_they_name() -> None:
    running = user("run-0", {MEMORY: "3000"}, "n1", annotations={INDEX: "0"})
    assert sharing(gpu_node("n1", 8000, 2), running, user("job-0", {MEMORY: "2000"})) == {"job-0": "1"}
    nameless = user("run-0", {MEMORY: "3000"}, "n1")
    assert sharing(gpu_node("n1", 8000, 2), nameless, user("job-0", {MEMORY: "2000"})) == {"job-0": "0"}


def test_bindings_that_are_not_confirmed_hold_cards() -> None:
    cluster = state(
        queue("default"),
        gpu_node("n1", 8000, 1),
        pod_group("job"),
        *(user(f"job-{i}", {MEMORY: "8000"}) for i in range(2)),
    )
    engine = Engine(policy("deviceshare", {"deviceshare.GPUSharingEnable": True}))
    assert list(engine.decide(cluster.snapshot(), now=NOON).session.bound) == ["default/job-0"]
    cluster.assume("default/job-0", "n1")
    assert engine.decide(cluster.snapshot(), now=NOON).session.bound == {}


def test_broken_cards_are_not_used() -> None:
    broken = gpu_node("n1", 8000, 2, **{"volcano.sh/gpu-unhealthy-ids": "0"})
    assert sharing(broken, user("job-0", {MEMORY: "2000"})) == {"job-0": "1"}


def test_whole_cards() -> None:
    held = user("run-0", {NUMBER: "1"}, "n1", annotations={INDEX: "1"})
    wanted = [user("job-0", {NUMBER: "2"}), user("job-1", {NUMBER: "2"})]
    assert annotations(gpu_node("n1", 16000, 4), held, *wanted, way="GPUNumberEnable") == {"job-0": "0,2"}


@pytest.mark.parametrize(
    ("way", "resource", "compatibility", "placed"),
    [
        ("GPUSharingEnable", MEMORY, "strict", ["default/job-0"]),
        ("GPUSharingEnable", MEMORY, "volcano", ["default/job-0"]),
        ("VGPUEnable", V_MEMORY, "strict", ["default/job-0"]),
        ("VGPUEnable", V_MEMORY, "volcano", []),
    ],
)
def test_a_gang_that_is_taken_back_leaves_the_cards(way: str, resource: str, compatibility: Any, placed: list) -> None:
    cards = gpu_node("n1", 8000, 1) if resource == MEMORY else vgpu_node("n1", "4,8000,NVIDIA-A100")
    result = decide(
        cards,
        pod_group("two", min_member=2, created=0),
        *(user(f"two-{i}", {resource: "8000"}, job="two") for i in range(2)),
        pod_group("job", created=5),
        user("job-0", {resource: "8000"}),
        by=policy("deviceshare", {f"deviceshare.{way}": True}),
        compatibility=compatibility,
    )
    assert list(result.session.bound) == placed


@pytest.mark.parametrize(
    ("order", "expected"),
    [("", ["n1-1", "n1-1"]), ("binpack", ["n1-0", "n1-0"]), ("spread", ["n1-0", "n1-1"])],
)
def test_the_policy_orders_virtual_cards(order: str, expected: list[str]) -> None:
    card = "4,16000,NVIDIA-A100"
    pods = [user(f"job-{i}", {V_NUMBER: "1", V_MEMORY: "4000"}) for i in range(2)]
    placed = vgpu(vgpu_node("n1", card, card), *pods, SchedulePolicy=order)
    assert [placed[f"job-{i}"] for i in range(2)] == [f"{identity},NVIDIA,4000,0:" for identity in expected]


@pytest.mark.parametrize(
    "limits",
    [
        {V_NUMBER: "2"},
        {V_MEMORY: "9000"},
        {V_NUMBER: "1", V_MEMORY: "1000", V_CORES: "60"},
        {V_NUMBER: "1", V_MEMORY: "1000", V_CORES: "100"},
    ],
)
def test_a_virtual_card_without_room(limits: dict[str, str]) -> None:
    taken = user("run-0", {V_NUMBER: "1"}, "n1", annotations={IDS: "n1-0,NVIDIA,8000,50:"})
    assert vgpu(vgpu_node("n1", "4,16000,NVIDIA-A100"), taken, user("job-0", limits)) == {}
    assert vgpu(vgpu_node("n1", "4,16000,NVIDIA-A100"), taken, user("job-0", {V_MEMORY: "8000"})) != {}


def test_seats_are_counted() -> None:
    pods = [user(f"job-{i}", {V_NUMBER: "1", V_MEMORY: "10"}) for i in range(3)]
    assert len(vgpu(vgpu_node("n1", "2,16000,NVIDIA-A100"), *pods)) == 2


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        ({"nvidia.com/use-gputype": "a100"}, "n1-0"),
        ({"nvidia.com/nouse-gputype": "A100,H100"}, "n1-1"),
        ({"volcano.sh/vgpu-use-gpuuuid": "n1-0"}, "n1-0"),
        ({"volcano.sh/vgpu-nouse-gpuuuid": "n1-1"}, "n1-0"),
        ({"volcano.sh/vgpu-mode": "mig"}, ""),
    ],
)
def test_a_pod_chooses_among_virtual_cards(annotation: dict[str, str], expected: str) -> None:
    nodes = vgpu_node("n1", "4,16000,NVIDIA-A100", "4,16000,NVIDIA-V100")
    placed = vgpu(nodes, user("job-0", {V_MEMORY: "100"}, annotations=annotation))
    assert placed == ({"job-0": f"{expected},NVIDIA,100,0:"} if expected else {})


def test_pods_that_keep_apart() -> None:
    card = "4,16000,NVIDIA-A100"
    spread = {"volcano.sh/vgpu-podgroup-policy": "spread"}
    apart = [user(f"job-{i}", {V_MEMORY: "100"}, annotations=spread) for i in range(3)]
    assert len(vgpu(vgpu_node("n1", card, card), *apart)) == 2
    exclusive = [user(f"job-{i}", {V_MEMORY: "100"}, labels={"app": "x"}) for i in range(3)]
    assert len(vgpu(vgpu_node("n1", card, card), *exclusive, GPUExclusiveRules=[{"app": "x"}])) == 2
    assert len(vgpu(vgpu_node("n1", card, card), *exclusive, GPUExclusiveRules=[{"app": "y"}])) == 3


def test_memory_in_percent_is_read_by_our_rules() -> None:
    half = user("job-0", {V_NUMBER: "1", "volcano.sh/vgpu-memory-percentage": "50"})
    where = annotated(
        node("n1", resources={V_NUMBER: "9", V_MEMORY: "9", V_CORES: "9", "volcano.sh/vgpu-memory-percentage": "100"}),
        {"volcano.sh/node-vgpu-register": "c0,4,16000,NVIDIA-A100,true,hami-core:"},
    )
    assert vgpu(where, half) == {"job-0": "c0,NVIDIA,8000,0:"}
    assert vgpu(where, half, compatibility="volcano") == {"job-0": "c0,NVIDIA,16000,0:"}


def test_packing_scores_nodes() -> None:
    card = "4,16000,NVIDIA-A100"
    taken = user("run-0", {V_NUMBER: "1"}, "n2", annotations={IDS: "n2-0,NVIDIA,8000,0:"})
    wanted = user("job-0", {V_MEMORY: "100"})
    nodes = [vgpu_node("n1", card), vgpu_node("n2", card)]
    packed = vgpu(*nodes, taken, wanted, SchedulePolicy="binpack", ScheduleWeight=1)
    assert packed == {"job-0": "n2-0,NVIDIA,100,0:"}
    spread = vgpu(*reversed(nodes), taken, wanted, SchedulePolicy="spread", ScheduleWeight=1)
    assert spread == {"job-0": "n1-0,NVIDIA,100,0:"}


def test_two_ways_at_once_are_an_error() -> None:
    with pytest.raises(PolicyError, match="only one of GPUSharingEnable"):
        vgpu(GPUNumberEnable=True)


@pytest.mark.parametrize("way", ["AscendMindClusterVNPUEnable", "AscendHAMiVNPUEnable"])
def test_virtual_npus_are_refused_by_their_name(way: str) -> None:
    def load(on: bool) -> Engine:
        plugin = f"{{name: deviceshare, arguments: {{deviceshare.{way}: {str(on).lower()}}}}}"
        return Engine(f"actions: allocate\ntiers: [{{plugins: [{plugin}]}}]")

    load(False)
    with pytest.raises(PolicyError, match="virtual NPUs are not shared here"):
        load(True)
