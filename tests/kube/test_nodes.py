"""Node selectors, taints and images on a few nodes."""

from __future__ import annotations

import math
import random
from typing import Any

import msgspec
import numpy as np
import pytest

from stromboli.api import objects
from stromboli.kube import node_affinity, taints
from stromboli.kube.images import image_locality, normalized
from stromboli.state.nodes import NodeFacts
from tests import builders

LABELS: list[dict[str, str]] = [{"disk": "ssd", "rank": "3"}, {"disk": "hdd", "rank": "10"}, {"rank": "x"}]


def facts(*nodes: objects.Node) -> NodeFacts:
    return builders.state(list(nodes)).snapshot().nodes.facts


def three() -> NodeFacts:
    return facts(*(builders.node(f"n{i}", labels=labels) for i, labels in enumerate(LABELS)))


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def selected(*terms: dict[str, Any]) -> list[int]:
    selector = msgspec.convert({"nodeSelectorTerms": list(terms)}, objects.NodeSelector)
    mask = node_affinity.selected_nodes(selector, three())
    return [i for i, passes in enumerate(mask.tolist()) if passes]


@pytest.mark.parametrize(
    ("requirement", "nodes"),
    [
        (expression("disk", "In", "ssd", "nvme"), [0]),
        (expression("disk", "In", "ssd", "hdd"), [0, 1]),
        (expression("disk", "In", "nvme"), []),
        (expression("disk", "NotIn", "ssd"), [1, 2]),
        (expression("disk", "NotIn", "nvme"), [0, 1, 2]),
        (expression("disk", "Exists"), [0, 1]),
        (expression("disk", "DoesNotExist"), [2]),
        (expression("rank", "Gt", "3"), [1]),
        (expression("rank", "Lt", "10"), [0]),
        (expression("absent", "Lt", "10"), []),
    ],
)
def test_operators(requirement: dict[str, Any], nodes: list[int]) -> None:
    assert selected({"matchExpressions": [requirement]}) == nodes


@pytest.mark.parametrize(
    "requirement",
    [
        expression("disk", "In"),
        expression("disk", "Exists", "ssd"),
        expression("rank", "Gt", "three"),
        expression("rank", "Gt", "1", "2"),
        expression("disk", "Like", "ssd"),
    ],
)
def test_a_term_with_an_invalid_requirement_selects_nothing_and_leaves_other_terms_alone(
    requirement: dict[str, Any],
) -> None:
    valid = {"matchExpressions": [expression("disk", "In", "hdd")]}
    assert selected({"matchExpressions": [requirement]}) == []
    assert selected({"matchExpressions": [requirement]}, valid) == [1]


def test_fields_select_by_name() -> None:
    named = {"matchFields": [expression("metadata.name", "In", "n1")]}
    others = {"matchFields": [expression("metadata.name", "NotIn", "n1")]}
    assert selected(named) == [1]
    assert selected(others) == [0, 2]
    assert selected({**others, "matchExpressions": [expression("disk", "Exists")]}) == [0]
    assert selected({"matchFields": [expression("metadata.name", "In", "n1", "n2")]}) == []
    assert selected({"matchFields": [expression("metadata.uid", "In", "n1")]}) == []


def test_empty_terms_select_nothing() -> None:
    assert selected() == []
    assert selected({}) == []


def tolerations(*raw: dict[str, str]) -> list[objects.Toleration]:
    return msgspec.convert(list(raw), list[objects.Toleration])


@pytest.mark.parametrize(
    ("toleration", "covers"),
    [
        ({"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}, True),
        ({"key": "k", "value": "v"}, True),
        ({"key": "k", "value": "w"}, False),
        ({"key": "k", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "l", "operator": "Exists"}, False),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "k", "operator": "Gt", "value": "v"}, False),
    ],
)
def test_tolerations(toleration: dict[str, str], covers: bool) -> None:
    taint = objects.Taint(key="k", value="v", effect="NoSchedule")
    assert taints.tolerated(tolerations(toleration), taint) is covers


def test_each_node_is_counted_for_the_first_taint_that_repels() -> None:
    first, second = {"key": "a", "value": "1", "effect": "NoSchedule"}, {"key": "b", "effect": "NoExecute"}
    soft = {"key": "c", "effect": "PreferNoSchedule"}
    nodes = facts(
        builders.node("n0", taints=[first, second]),
        builders.node("n1", taints=[soft, second]),
        builders.node("n2", taints=[soft]),
        builders.node("n3"),
    )
    found = {taint.key: mask.tolist() for taint, mask in taints.untolerated([], nodes) if taint is not None}
    assert found == {"a": [True, False, False, False], "b": [False, True, False, False]}
    unwanted = taints.unwanted([], nodes)
    assert unwanted is not None
    assert unwanted.tolist() == [0, 1, 1, 0]
    assert taints.unwanted(tolerations({"operator": "Exists"}), nodes) is None


def test_many_taints_are_one_cause() -> None:
    nodes = facts(*(builders.node(f"n{i}", taints=[{"key": f"k{i}", "effect": "NoSchedule"}]) for i in range(30)))
    ((taint, mask),) = taints.untolerated(tolerations({"key": "k7", "operator": "Exists"}), nodes)
    assert taint is None
    assert np.flatnonzero(~mask).tolist() == [7]


def test_all_taints_at_once_are_compared_as_each_by_itself() -> None:
    chance = random.Random(1)

    def some(texts: str) -> str:
        return chance.choice(texts.split(" "))

    effects = "NoSchedule NoExecute PreferNoSchedule"
    for _ in range(30):
        made = [
            [{"key": some("a b c"), "value": some(" x y"), "effect": some(effects)} for _ in range(chance.randrange(4))]
            for _ in range(12)
        ]
        covers = [
            {"key": some(" a b"), "operator": some(" Exists Equal"), "value": some(" x"), "effect": some(f" {effects}")}
            for _ in range(chance.randrange(3))
        ]
        nodes, tolerated = (
            facts(*(builders.node(f"n{i}", taints=each) for i, each in enumerate(made))),
            tolerations(*covers),
        )
        first = [taints.first_untolerated(tolerated, record.taints) for record in nodes.records]
        found: list[objects.Taint | None] = [None] * len(made)
        for taint, mask in taints.untolerated(tolerated, nodes):
            for row in np.flatnonzero(mask).tolist():
                found[row] = taint
        assert found == first
        assert taints.keeping_away(tolerated, nodes).tolist() == [taint is not None for taint in first]
        soft = [[t for t in record.taints if t.effect == "PreferNoSchedule"] for record in nodes.records]
        unwanted = [sum(not taints.tolerated(tolerated, taint) for taint in each) for each in soft]
        counts = taints.unwanted(tolerated, nodes)
        assert (counts.tolist() if counts is not None else [0] * len(made)) == unwanted


def test_images_weigh_by_size_and_by_how_many_nodes_have_them() -> None:
    mb = 1024 * 1024

    def with_images(name: str, **sizes: int) -> objects.Node:
        node = builders.node(name)
        images = [objects.ContainerImage(names=[f"{k}:latest"], size_bytes=v * mb) for k, v in sizes.items()]
        return msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, images=images))

    nodes = facts(with_images("n0", app=800, tool=40), with_images("n1", app=800), with_images("n2"))
    spec = objects.PodSpec(containers=[objects.Container(image="app"), objects.Container(image="tool")])
    # 800 MB on two of three nodes count 533 MB, 40 MB on one of three 13 MB; of 23 to 2000 MB
    scores = image_locality(spec, nodes)
    assert scores is not None
    assert scores.tolist() == [(800 * 2 // 3 + 40 // 3 - 23) * 100 // 1977, (800 * 2 // 3 - 23) * 100 // 1977, 0]
    assert image_locality(objects.PodSpec(containers=[objects.Container(image="other")]), nodes) is None


def test_images_are_counted_on_while_nodes_change() -> None:
    chance, mb = random.Random(2), 1024 * 1024
    cluster, kept = builders.state(), dict[str, dict[str, int]]()
    spec = objects.PodSpec(containers=[objects.Container(image="app"), objects.Container(image="app")])
    for _ in range(25):
        name = f"n{chance.randrange(6)}"
        kept[name] = {f"{image}:latest": chance.randrange(3000) * mb for image in chance.sample(("app", "other"), 1)}
        images = [objects.ContainerImage(names=[image], size_bytes=size) for image, size in kept[name].items()]
        node = builders.node(name)
        status = msgspec.structs.replace(node.status, images=images)
        cluster.upsert("Node", msgspec.structs.replace(node, status=status))
        facts = cluster.snapshot().nodes.facts
        sizes = [kept[record.name].get("app:latest") for record in facts.records]
        spread = sum(size is not None for size in sizes) / len(sizes)
        counted = [2 * math.floor((size or 0) * spread) for size in sizes]
        plain = [math.floor(100 * (min(max(each, 23 * mb), 2000 * mb) - 23 * mb) / (1977 * mb)) for each in counted]
        scores = image_locality(spec, facts)
        assert (scores.tolist() if scores is not None else [0] * len(plain)) == plain


def test_images_of_volumes_count_beside_those_of_containers() -> None:
    mb = 1024 * 1024
    node = builders.node("n0")
    images = [objects.ContainerImage(names=["models:v1"], size_bytes=700 * mb)]
    with_model = msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, images=images))
    nodes = facts(with_model, builders.node("n1"))
    model = objects.Volume(name="model", image=objects.ImageVolume("models:v1"))
    spec = objects.PodSpec(containers=[objects.Container(image="app")], volumes=[model])
    # 700 MB on one of two nodes, of 23 to 1000 MB for the one container
    scores = image_locality(spec, nodes)
    assert scores is not None
    assert scores.tolist() == [(350 - 23) * 100 // 977, 0]
    mounted = [[], *([{"name": "model", "image": {"reference": name}}] for name in ("models:v1", "models:v2"))]
    pods = builders.state([builders.pod(f"p{at}", "g", volumes=volumes) for at, volumes in enumerate(mounted)])
    assert len({record.pod_class.id for record in pods.snapshot().pods.records if record is not None}) == 3


@pytest.mark.parametrize(
    ("name", "full"),
    [("app", "app:latest"), ("app:1", "app:1"), ("host:5000/app", "host:5000/app:latest"), ("h/app:2", "h/app:2")],
)
def test_image_names_have_a_tag(name: str, full: str) -> None:
    assert normalized(name) == full
