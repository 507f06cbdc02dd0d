"""The image as the pods of the chart run it: their users, accounts, files and words, on a root that is read-only."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.controlplane.cluster import Cluster, eventually, free_port
from tests.image.conftest import Image, Volumes

pytestmark = pytest.mark.image

NAMESPACE = "stromboli-system"
#: where a pod has its token; /var/run is a link to it
_ACCOUNT = "/run/secrets/kubernetes.io/serviceaccount"
Object = dict[str, Any]


@dataclass
class Release:
    """A release of the chart on a cluster that has no kubelets: what helm would have run is run by the image."""

    cluster: Cluster
    image: Image
    helm: Callable[..., str]
    folder: Path

    def hooks(self) -> Iterator[Object]:
        """What comes before the release, the first one first."""
        hooks = [each for each in yaml.safe_load_all(self.helm("get", "hooks", "stromboli")) if each]
        before = [each for each in hooks if "pre-install" in each["metadata"]["annotations"]["helm.sh/hook"]]
        yield from sorted(before, key=lambda each: int(each["metadata"]["annotations"].get("helm.sh/hook-weight", 0)))

    def apply(self, obj: Object) -> None:
        words = ["kubectl", "--kubeconfig", str(self.cluster.kubeconfig()), "apply", "--filename", "-"]
        done = subprocess.run(words, input=json.dumps(obj), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def config(self, name: str) -> dict[str, str]:
        with self.cluster.client() as api:
            path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{name}"
            data: dict[str, str] = api.get(path).raise_for_status().json()["data"]
        return data

    def container(self, template: Object) -> tuple[list[str], Volumes, dict[str, str]]:
        """The words, the volumes and the environment of the one container of a pod."""
        spec = template["spec"]
        (container,) = spec["containers"]
        assert (container["securityContext"]["readOnlyRootFilesystem"], spec["securityContext"]["runAsNonRoot"]) == (
            True,
            True,
        )
        user = f"{spec['securityContext']['runAsUser']}:{spec['securityContext']['runAsGroup']}"
        assert user == self.image.config["User"]
        volumes: dict[str, Path | None] = {}
        of = {each["name"]: each for each in spec.get("volumes", ())}
        for mount in container.get("volumeMounts", ()):
            volume = of[mount["name"]]
            files = self.config(volume["configMap"]["name"]) if "configMap" in volume else None
            volumes[mount["mountPath"]] = None if files is None else self.files(mount["name"], files)
        env = {each["name"]: each.get("value", "pod-0") for each in container.get("env", ())} | {"HOME": "/"}
        if spec.get("automountServiceAccountToken", True):
            volumes[_ACCOUNT] = self.files("account", self.account(spec["serviceAccountName"]))
            host, _, port = self.cluster.url.removeprefix("https://").partition(":")
            env |= {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, "POD_NAMESPACE": NAMESPACE}
        return [*self.image.config["Entrypoint"], *container["args"]], volumes, env

    def account(self, name: str) -> dict[str, str]:
        kubeconfig = json.loads(self.cluster.service_account_kubeconfig(NAMESPACE, name).read_text())
        token = kubeconfig["users"][0]["user"]["token"]
        return {"token": token, "ca.crt": self.cluster.ca_file.read_text(), "namespace": NAMESPACE}

    def files(self, name: str, content: dict[str, str]) -> Path:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        for file, text in content.items():
            (folder / file).write_text(text)
        return folder


@pytest.fixture
def release(
    new_cluster: Callable[..., Cluster], image: Image, helm_binary: Path, repository: Path, tmp_path: Path
) -> Release:
    cluster = new_cluster()

    def helm(*words: str) -> str:
        command = [str(helm_binary), *words, "--namespace", NAMESPACE, "--kubeconfig", str(cluster.kubeconfig())]
        home = {"HOME": str(tmp_path), "PATH": ""}
        done = subprocess.run(command, cwd=repository, env=home, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    helm("install", "stromboli", "charts/stromboli", "--create-namespace", "--no-hooks")
    # The user of the image reads what is mounted.
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    return Release(cluster, image, helm, tmp_path)


def test_what_comes_before_a_release_and_the_service_run_as_their_pods_say(release: Release) -> None:
    ran = {}
    for hook in release.hooks():
        if hook["kind"] != "Job":
            release.apply(hook)
            continue
        words, volumes, env = release.container(hook["spec"]["template"])
        done = release.image.run(*words, volumes=volumes, env=env)
        assert done.returncode == 0, done.stdout + done.stderr
        ran[hook["metadata"]["name"]] = done.stdout
    assert set(ran) == {"stromboli-policy-check", "stromboli-crds"}

    with release.cluster.client() as api:
        deployment = api.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/stromboli").raise_for_status().json()
    words, volumes, env = release.container(deployment["spec"]["template"])
    port = free_port()
    words = [f"127.0.0.1:{port}" if word == ":8080" else word for word in words]
    command = release.image.command(*words, volumes=volumes, env=env)
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        eventually(lambda: process.poll() is not None or _answers(port) == httpx.codes.OK, 60)
        assert process.poll() is None, process.communicate()[1]
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert "Uid:\t65532\t65532" in status
        assert "Gid:\t65532\t65532" in status
    finally:
        process.terminate()
        _, log = process.communicate(timeout=30)
    assert process.returncode == 0, log
    assert "Read-only file system" not in log


def test_a_policy_with_mistakes_ends_what_comes_before_a_release(release: Release) -> None:
    values = release.folder / "values.yaml"
    values.write_text(yaml.safe_dump({"policy": "actions: alocate"}))
    release.helm("upgrade", "stromboli", "charts/stromboli", "--no-hooks", "--values", str(values))
    hooks = list(release.hooks())
    release.apply(next(each for each in hooks if each["kind"] == "ConfigMap"))
    job = next(each for each in hooks if each["kind"] == "Job" and "policy" in each["metadata"]["name"])
    words, volumes, env = release.container(job["spec"]["template"])
    done = release.image.run(*words, volumes=volumes, env=env)
    assert done.returncode != 0
    assert "did you mean 'allocate'" in done.stderr


def _answers(port: int) -> int:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False).status_code
    except httpx.TransportError:
        return 0
