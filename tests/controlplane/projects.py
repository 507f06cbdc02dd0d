"""Other projects' released Go modules, and the definitions of custom resources that are in them.

`python -m tests.controlplane.projects` fetches what tests need, once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.controlplane.build import cached, go, run

_FILE = "definitions.json"


@dataclass(frozen=True, slots=True)
class Project:
    """A project whose custom resources tests use as it releases them."""

    name: str
    module: str
    version: str
    #: where in the module the definitions of its custom resources are
    definitions: str

    def resources(self) -> list[dict[str, Any]]:
        """Return the definitions of its custom resources; read them from its module the first time.

        Raises BuildError.
        """

        def make(directory: Path) -> None:
            files = sorted((self.source() / self.definitions).glob("*.yaml"))
            documents = [each for path in files for each in yaml.load_all(path.read_text(), yaml.CSafeLoader)]
            found = [each for each in documents if each and each.get("kind") == "CustomResourceDefinition"]
            (directory / _FILE).write_text(json.dumps(_undescribed(found)))

        definitions = cached(f"{self.name}-{self.version}-definitions", make) / _FILE
        found: list[dict[str, Any]] = json.loads(definitions.read_text())
        return found

    def source(self) -> Path:
        """Return where the module's files are. Raises BuildError."""
        return Path(json.loads(run(go(), "mod", "download", "-json", f"{self.module}@{self.version}"))["Dir"])


def _undescribed(value: Any) -> Any:
    """A definition without what it says for people, which is most of it and takes the API server its time."""
    if isinstance(value, dict):
        kept = {key: each for key, each in value.items() if not (key == "description" and isinstance(each, str))}
        return {key: _undescribed(each) for key, each in kept.items()}
    return [_undescribed(each) for each in value] if isinstance(value, list) else value


PROJECTS = (
    Project("jobset", "sigs.k8s.io/jobset", "v0.12.0", "config/components/crd/bases"),
    Project("lws", "sigs.k8s.io/lws", "v0.9.0", "config/crd/bases"),
    Project("kuberay", "github.com/ray-project/kuberay/ray-operator", "v1.6.0", "config/crd/bases"),
    # MPIJobs are defined here and by the training operator: those of the first are the later version.
    Project("mpi-operator", "github.com/kubeflow/mpi-operator", "v0.6.0", "manifests/base"),
    Project("training-operator", "github.com/kubeflow/training-operator", "v1.9.3", "manifests/base/crds"),
    Project("trainer", "github.com/kubeflow/trainer/v2", "v2.0.0", "manifests/base/crds"),
    Project("spark-operator", "github.com/kubeflow/spark-operator/v2", "v2.4.0", "config/crd/bases"),
    Project("appwrapper", "github.com/project-codeflare/appwrapper", "v1.1.2", "config/crd/bases"),
    Project("argo-workflows", "github.com/argoproj/argo-workflows/v3", "v3.7.0", "manifests/base/crds/full"),
    Project("scheduler-plugins", "sigs.k8s.io/scheduler-plugins", "v0.32.7", "config/crd/bases"),
)


def project(name: str) -> Project:
    """The project of a name."""
    return next(each for each in PROJECTS if each.name == name)


def released(kinds: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    """The definitions of kinds by group and name, as far as a project defines them. Raises BuildError."""
    wanted, found = set(kinds), {}
    for definition in (each for project in PROJECTS for each in project.resources()):
        spec = definition["spec"]
        if (spec["group"], spec["names"]["kind"]) in wanted:
            found.setdefault(definition["metadata"]["name"], definition)
    return list(found.values())


if __name__ == "__main__":
    for each in PROJECTS:
        print(each.name, each.version, len(each.resources()))
