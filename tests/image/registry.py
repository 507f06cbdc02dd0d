"""A registry on loopback, and images of nothing but a file in it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.controlplane.cluster import eventually, free_port
from tests.image.conftest import buildah

_SETTINGS = """
version: 0.1
log: {{level: error}}
storage: {{filesystem: {{rootdirectory: {folder}/data}}}}
http: {{addr: "{host}"}}
"""
_REGISTRIES = """
[[registry]]
location = "{host}"
insecure = true
"""
_STORAGE = """
[storage]
driver = "vfs"
graphroot = "{folder}/images"
runroot = "{folder}/run"
"""


@dataclass(frozen=True, slots=True)
class Registry:
    """A registry that speaks HTTP, and what tells buildah and podman so and where to keep images meanwhile."""

    host: str
    environment: dict[str, str]

    def digest(self, name: str) -> str:
        """The digest, without `sha256:`, of what was pushed by a name."""
        path, kind = f"http://{self.host}/v2/{name}/manifests/1", "application/vnd.oci.image.index.v1+json"
        answer = httpx.head(path, headers={"Accept": kind}, trust_env=False).raise_for_status()
        return answer.headers["Docker-Content-Digest"].removeprefix("sha256:")

    def push(self, name: str, architectures: list[str], folder: Path) -> str:
        """An image for each architecture, of one file that names it, as one image; its name is returned."""
        made, several = f"{self.host}/{name}:1", "localhost/pushed:1"
        buildah("manifest", "create", several)
        for architecture in architectures:
            (folder / "architecture").write_text(architecture)
            container = buildah("from", "--arch", architecture, "scratch")
            buildah("add", "--quiet", container, str(folder / "architecture"), "/architecture")
            buildah("config", "--arch", architecture, "--os", "linux", container)
            buildah("manifest", "add", several, buildah("commit", "--quiet", "--rm", container))
        buildah("manifest", "push", "--all", "--tls-verify=false", several, f"docker://{made}")
        # Who pulls them has them from the registry, with the digests that they have there.
        buildah("rmi", "--all", "--force")
        return made


@contextmanager
def registry(folder: Path) -> Iterator[Registry]:
    """A registry that lives as long as the context, of Debian's package `docker-registry`."""
    host = f"127.0.0.1:{free_port()}"
    settings, registries, storage = (folder / name for name in ("registry.yml", "registries.conf", "storage.conf"))
    settings.write_text(_SETTINGS.format(folder=folder, host=host))
    registries.write_text(_REGISTRIES.format(host=host))
    storage.write_text(_STORAGE.format(folder=folder))
    environment = {"CONTAINERS_REGISTRIES_CONF": str(registries), "CONTAINERS_STORAGE_CONF": str(storage)}
    words = ["docker-registry", "serve", str(settings)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: _answers(host))
        yield Registry(host, environment)
    finally:
        process.terminate()
        process.wait()


def _answers(host: str) -> bool:
    try:
        return httpx.get(f"http://{host}/v2/", trust_env=False).is_success
    except httpx.TransportError:
        return False
