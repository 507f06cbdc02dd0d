"""Build the image with docker, podman or buildah, whichever is at hand, on a base that is named by its digest."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
BASE = "docker.io/library/python:3.13-slim"
#: what each program answers only when it can build, and how it builds
ENGINES = {
    "docker": (["docker", "info"], ["docker", "build"]),
    "podman": (["podman", "info"], ["podman", "build", "--format", "oci"]),
    "buildah": (["buildah", "info"], ["buildah", "build", "--format", "oci"]),
}


def version() -> str:
    """The version of the package, which is that of the image."""
    text: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return text


def engine() -> str | None:
    """The first program that can build here, None without one."""
    wanted = os.environ.get("ENGINE")
    for name, (works, _) in ENGINES.items():
        if wanted not in (None, "", name):
            continue
        if shutil.which(name) and subprocess.run(works, capture_output=True, check=False).returncode == 0:
            return name
    return None


def save(program: str, tag: str, archive: Path) -> None:
    """Write an image as an archive of OCI's layout."""
    archive.unlink(missing_ok=True)
    words = {
        "docker": ["docker", "save", "--output", str(archive), tag],
        "podman": ["podman", "save", "--quiet", "--format", "oci-archive", "--output", str(archive), tag],
        "buildah": ["buildah", "push", "--quiet", tag, f"oci-archive:{archive}:{tag}"],
    }
    subprocess.run(words[program], stdout=sys.stderr, check=True)


def digest(archive: Path) -> str:
    """The digest, without `sha256:`, of the manifest of an image in an archive: its name in any registry."""
    with tarfile.open(archive) as layout:
        if "index.json" not in layout.getnames():
            sys.exit(f"{archive.name} has no OCI layout: docker writes one from version 25 on")
        index = layout.extractfile("index.json")
        assert index is not None
        (manifest,) = json.load(index)["manifests"]
    return str(manifest["digest"]).removeprefix("sha256:")


def by_digest(program: str, base: str) -> str:
    """The base with the digest that its tag has now."""
    if "@sha256:" in base:
        return base
    local = base.startswith("localhost/")
    if not local:
        subprocess.run([program, "pull", base], stdout=sys.stderr, check=True)
    formats = {
        "docker": ["docker", "image", "inspect", "--format", "{{index .RepoDigests 0}}", base],
        "podman": ["podman", "image", "inspect", "--format", "{{.Digest}}", base],
        "buildah": ["buildah", "inspect", "--type", "image", "--format", "{{.FromImageDigest}}", base],
    }
    told = subprocess.run(formats[program], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    return f"{base.rpartition(':')[0]}@{told.rpartition('@')[2]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", default=BASE, help="an image with Python 3.11 or newer, by tag or digest")
    parser.add_argument("--tag", default=f"stromboli:{version()}", help="the name of the image")
    parser.add_argument("--archive", type=Path, help="a file to which the image is written, as an OCI archive")
    parser.add_argument("--platform", help="such as linux/amd64 or linux/arm64; by default this machine's")
    options, more = parser.parse_known_args()
    program = engine()
    if program is None:
        sys.exit(f"none of {', '.join(ENGINES)} can build here")
    head = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    revision = subprocess.run(head, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    arguments = {"BASE": by_digest(program, options.base), "VERSION": version(), "REVISION": revision}
    command = [*ENGINES[program][1], "--tag", options.tag]
    command += [f"--build-arg={name}={value}" for name, value in arguments.items()]
    command += ["--platform", options.platform] if options.platform else []
    print(f"{program}: {options.tag} on {arguments['BASE']}", file=sys.stderr, flush=True)
    done = subprocess.run([*command, *more, str(ROOT)], check=False).returncode
    if done == 0 and options.archive is not None:
        save(program, options.tag, options.archive)
        print(f"{options.archive}: sha256:{digest(options.archive)}", file=sys.stderr)
    sys.exit(done)


if __name__ == "__main__":
    main()
