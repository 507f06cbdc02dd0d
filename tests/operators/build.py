"""Build operators of other projects once from their Go modules, and find what of them a test needs.

`python -m tests.operators.build` prints where they lie. Each has a directory of its own, named after its version.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.controlplane.build import BUILD_FLAGS, cached, go, run
from tests.controlplane.projects import Project, project


@dataclass(frozen=True, slots=True)
class Operator:
    """A program that makes pods of what people submit."""

    project: Project
    #: the package of the program in the module, empty for its root
    package: str
    #: where in the module its webhooks are
    webhooks: str
    #: the label of its pods
    label: str
    #: its arguments where it has no file of configuration and no webhooks; {health} is the port that tells its health
    arguments: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the project."""
        return self.project.name

    def binary(self) -> Path:
        """Return the program; compile it if it is not there yet. Raises BuildError."""

        def make(directory: Path) -> None:
            source = str(self.project.source() / self.package)
            run(go(), "build", "-C", source, *BUILD_FLAGS, "-ldflags", "-s -w", "-o", str(directory / self.name), ".")

        return cached(f"{self.name}-{self.project.version}", make) / self.name

    def webhook_configurations(self, port: int, authority: bytes) -> list[dict[str, Any]]:
        """Return the configurations of its webhooks, served on a port of this machine; of pods only its own."""
        found = list(yaml.safe_load_all((self.project.source() / self.webhooks).read_text()))
        for webhook in (each for document in found for each in document["webhooks"]):
            path = webhook["clientConfig"]["service"]["path"]
            bundle = base64.b64encode(authority).decode()
            webhook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle}
            if any("pods" in rule["resources"] for rule in webhook["rules"]):
                webhook["objectSelector"] = {"matchExpressions": [{"key": self.label, "operator": "Exists"}]}
        return found


JOB_SET = Operator(project("jobset"), "", "config/components/webhook/manifests.yaml", "jobset.sigs.k8s.io/jobset-name")
LEADER_WORKER_SET = Operator(project("lws"), "cmd", "config/webhook/manifests.yaml", "leaderworkerset.sigs.k8s.io/name")
KUBERAY = Operator(
    *(project("kuberay"), "", "", "ray.io/cluster"),
    arguments=("--enable-leader-election=false", "--metrics-addr=0", "--health-probe-bind-address=127.0.0.1:{health}"),
)
OPERATORS = (JOB_SET, LEADER_WORKER_SET, KUBERAY)

if __name__ == "__main__":
    for operator in OPERATORS:
        print(operator.binary())
