"""Build operators of other projects once from their Go modules, and find what of them a test needs.

`python -m tests.operators.build` prints where they lie. Each has a directory of its own, named after its version.
"""

from __future__ import annotations

import base64
import shutil
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
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
    #: files of the module, and what is another text in each: one that listens everywhere does so on the loopback here
    replaced: tuple[tuple[str, str, str], ...] = ()
    #: what its file of configuration has beside what each has, as (field, value)
    configured: tuple[tuple[str, object], ...] = ()

    @property
    def name(self) -> str:
        """The name of the project."""
        return self.project.name

    def binary(self) -> Path:
        """Return the program; compile it if it is not there yet. Raises BuildError."""

        def make(directory: Path) -> None:
            with TemporaryDirectory() as scratch:
                source = self._changed(Path(scratch) / "source") if self.replaced else self.project.source()
                flags = (*BUILD_FLAGS, "-ldflags", "-s -w", "-o", str(directory / self.name))
                run(go(), "build", "-C", str(source / self.package), *flags, ".")

        return cached(f"{self.name}-{self.project.version}", make) / self.name

    def _changed(self, copy: Path) -> Path:
        """A copy of the module with what is replaced."""
        shutil.copytree(self.project.source(), copy, copy_function=shutil.copyfile)
        for name, before, after in self.replaced:
            text = (copy / name).read_text()
            assert before in text, name
            (copy / name).write_text(text.replace(before, after))
        return copy

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
    arguments=(
        *("--kubeconfig={kubeconfig}", "--enable-leader-election=false", "--metrics-addr=0"),
        "--health-probe-bind-address=127.0.0.1:{health}",
    ),
)
MPI = Operator(
    *(project("mpi-operator"), "cmd/mpi-operator", "", "training.kubeflow.org/job-name"),
    arguments=("-kubeConfig={kubeconfig}", "-lock-namespace=default"),
    replaced=(("cmd/mpi-operator/app/server.go", 'fmt.Sprintf(":%d", healthCheckPort)', '"127.0.0.1:0"'),),
)
_TRAINING_MAIN = "cmd/training-operator.v1/main.go"
# It would make its own certificates for a Service of its cluster: its webhooks, which only validate, stay out.
TRAINING = Operator(
    *(project("training-operator"), "cmd/training-operator.v1", "", "training.kubeflow.org/job-name"),
    arguments=(
        *("--kubeconfig={kubeconfig}", "--metrics-bind-address=0"),
        "--health-probe-bind-address=127.0.0.1:{health}",
        *(f"--enable-scheme={kind}" for kind in ("pytorchjob", "tfjob", "xgboostjob", "paddlejob", "jaxjob")),
    ),
    replaced=(
        (_TRAINING_MAIN, "defer close(certsReady)", "close(certsReady)"),
        (_TRAINING_MAIN, "err = cert.ManageCerts(mgr, certGenerationConfig, certsReady)", "_ = certGenerationConfig"),
        (_TRAINING_MAIN, "err := setupWebhookFunc(mgr); err", "err := error(nil); setupWebhookFunc == nil && err"),
        (_TRAINING_MAIN, "return mgr.GetWebhookServer().StartedChecker()(req)", "return nil"),
    ),
)
OPERATORS = (JOB_SET, LEADER_WORKER_SET, KUBERAY, MPI, TRAINING)

if __name__ == "__main__":
    for operator in OPERATORS:
        print(operator.binary())
