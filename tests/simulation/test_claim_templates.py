"""Claims are made of templates for pods that are new, as a cluster's controller does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.conftest import stromboli

NODE = {
    "kind": "Node",
    "metadata": {"name": "n"},
    "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10"}},
}
CLASS = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}}
SLICE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "n-gpu"},
    "spec": {
        "driver": "gpu.example.com",
        "nodeName": "n",
        "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"gpu-{number}", "capacity": {"memory": {"value": "80Gi"}}} for number in range(2)],
    },
}


def template(device_class: str = "gpu", memory: str = "40Gi") -> dict[str, Any]:
    large = f"device.capacity['gpu.example.com'].memory.compareTo(quantity('{memory}')) >= 0"
    exactly = {"deviceClassName": device_class, "selectors": [{"cel": {"expression": large}}]}
    spec = {"spec": {"devices": {"requests": [{"name": "card", "exactly": exactly}]}}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "card"},
        "spec": spec,
    }


def job(pods: int) -> dict[str, Any]:
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "1"}, "claims": [{"name": "card"}]}}
    claims = [{"name": "card", "resourceClaimTemplateName": "card"}]
    spec = {"schedulerName": "stromboli", "restartPolicy": "Never", "containers": [container], "resourceClaims": claims}
    each = {"parallelism": pods, "completions": pods, "template": {"spec": spec}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": each}


def why(folder: Path, *manifests: dict[str, Any]) -> str:
    file = folder / "cluster.yaml"
    file.write_text(yaml.safe_dump_all([NODE, CLASS, SLICE, *manifests]))
    return stromboli("why", "job", "train", "-f", file).output


@pytest.mark.parametrize("templates", [[template(), job(2)], [job(2), template()]], ids=["before", "after"])
def test_pods_get_devices_by_templates_wherever_those_stand_in_the_files(
    tmp_path: Path, templates: list[dict[str, Any]]
) -> None:
    assert "2 of 2 pods have a place" in why(tmp_path, *templates)


def test_a_gang_gets_no_more_devices_than_there_are(tmp_path: Path) -> None:
    assert "0 of 3 pods placed" in why(tmp_path, template(), job(3))


@pytest.mark.parametrize(
    ("of", "says"),
    [
        (template(memory="94Gi"), "user: have the selector of ResourceClaimTemplate default/card choose devices that"),
        (template("gpus"), "user: set deviceClassName: gpu in ResourceClaimTemplate default/card -> 2 pods bound"),
        (template("fpga"), "admin: create DeviceClass fpga, and devices of it -> 2 pods bound"),
    ],
)
def test_what_would_help_is_told_of_the_template(tmp_path: Path, of: dict[str, Any], says: str) -> None:
    assert says in why(tmp_path, of, job(2))


def test_without_the_template_it_is_to_be_created(tmp_path: Path) -> None:
    assert "user: create ResourceClaimTemplate default/card" in why(tmp_path, job(2))
