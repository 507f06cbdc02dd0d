"""`stromboli crds` on a cluster: ours are created and upgraded, those of others left alone until told."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from stromboli.api.crd_compare import is_ours, narrower
from stromboli.api.crd_schema import manifests
from tests.cli.conftest import stromboli
from tests.live.cluster import Cluster
from tests.live.conftest import bare_cluster, options

__all__ = ["bare_cluster", "options"]

PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
QUEUES = "queues.scheduling.volcano.sh"


def queues() -> dict[str, Any]:
    return next(each for each in manifests() if each["metadata"]["name"] == QUEUES)


def schema(definition: dict[str, Any]) -> dict[str, Any]:
    """The schema of a definition's only version."""
    found: dict[str, Any] = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    return found


def older() -> dict[str, Any]:
    """Queues as an earlier version of ours had them."""
    definition = copy.deepcopy(queues())
    del schema(definition)["spec"]["properties"]["priority"]
    return definition


def foreign() -> dict[str, Any]:
    """An older definition of queues that another project installed."""
    definition = older()
    definition["metadata"] = {"name": QUEUES, "labels": {"installed-by": "volcano"}}
    return definition


def crds(cluster: Cluster, command: str, *arguments: str) -> tuple[int, str]:
    told = stromboli("crds", command, "--kubeconfig", cluster.kubeconfig, *arguments)
    assert told.stderr == ""
    return told.exit_code, told.stdout


def test_the_definitions_are_those_of_the_chart(repository: Path) -> None:
    printed = list(yaml.safe_load_all(stromboli("crds", "print").output))
    charted = sorted((repository / "charts/stromboli/files/crds").glob("*.yaml"))
    assert {each["metadata"]["name"] for each in printed} == {
        yaml.safe_load(path.read_text())["metadata"]["name"] for path in charted
    }


def test_a_cluster_without_definitions_gets_them(bare_cluster: Cluster) -> None:
    code, told = crds(bare_cluster, "apply", "--dry-run")
    assert (code, bare_cluster.items(PATH)) == (0, [])
    assert f"{QUEUES}: would be created" in told
    assert crds(bare_cluster, "diff") == (1, told)
    assert f"{QUEUES}: created" in crds(bare_cluster, "apply")[1]
    assert {each["metadata"]["name"] for each in bare_cluster.items(PATH)} == {
        each["metadata"]["name"] for each in manifests()
    }
    assert crds(bare_cluster, "diff")[0] == 0
    assert f"{QUEUES}: unchanged" in crds(bare_cluster, "apply")[1]


def test_ours_are_upgraded_whoever_applied_them(bare_cluster: Cluster) -> None:
    definition = older()
    definition["metadata"]["annotations"]["meta.helm.sh/release-name"] = "gone"
    bare_cluster.create(PATH, definition)
    code, told = crds(bare_cluster, "diff")
    assert (code, f"{QUEUES}: would be upgraded" in told, "+              priority:" in told) == (1, True, True)
    assert "priority" not in schema(bare_cluster.get(f"{PATH}/{QUEUES}"))["spec"]["properties"]
    assert f"{QUEUES}: upgraded" in crds(bare_cluster, "apply")[1]
    assert bare_cluster.get(f"{PATH}/{QUEUES}")["spec"]["versions"] == queues()["spec"]["versions"]


def test_those_of_others_stay_until_they_are_taken_over(bare_cluster: Cluster) -> None:
    bare_cluster.create(PATH, foreign())
    before = bare_cluster.get(f"{PATH}/{QUEUES}")
    code, told = crds(bare_cluster, "apply")
    assert code == 0
    assert f"{QUEUES}: left as it is" in told
    assert "  spec.priority is dropped" in told
    assert bare_cluster.get(f"{PATH}/{QUEUES}") == before
    assert f"{QUEUES}: upgraded" in crds(bare_cluster, "apply", "--take-over")[1]
    after = bare_cluster.get(f"{PATH}/{QUEUES}")
    assert is_ours(after)
    assert after["metadata"]["labels"]["installed-by"] == "volcano"
    assert "priority" in schema(after)["spec"]["properties"]


def test_the_doctor_says_what_definitions_of_others_drop(bare_cluster: Cluster) -> None:
    bare_cluster.create(PATH, foreign())
    told = stromboli("doctor", "--kubeconfig", bare_cluster.kubeconfig).output
    assert f"crds: {QUEUES}: spec.priority is dropped" in told


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda s: s["spec"]["properties"].pop("weight"), ["spec.weight is dropped"]),
        (lambda s: s["spec"]["properties"]["weight"].update(minimum=5), ["spec.weight must be at least 5"]),
        (lambda s: s["spec"]["properties"]["weight"].update(maximum=5), ["spec.weight must be at most 5"]),
        (lambda s: s["spec"]["properties"]["parent"].update(enum=["a"]), ["spec.parent may only be a"]),
        (lambda s: s["spec"].update(required=["parent"]), ["spec.parent is required"]),
        (lambda s: s.update(spec={"type": "object", "x-kubernetes-preserve-unknown-fields": True}), []),
    ],
)
def test_what_is_narrower_is_told_by_field(change: Any, told: list[str]) -> None:
    found = copy.deepcopy(queues())
    change(schema(found))
    assert narrower(found, queues()) == told


def test_versions_and_scope_are_compared() -> None:
    other, elsewhere = copy.deepcopy(queues()), copy.deepcopy(queues())
    other["spec"]["versions"][0]["name"] = "v2"
    elsewhere["spec"]["scope"] = "Namespaced"
    assert narrower(other, queues()) == ["version v1beta1 is not served"]
    assert narrower(elsewhere, queues()) == ["its objects are Namespaced, not Cluster"]
