"""Build the image with docker, podman or buildah, whichever is at hand, on a base that is named by its digest."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
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


def engine() -> str:
    """The first program that can build here."""
    wanted = os.environ.get("ENGINE")
    for name, (works, _) in ENGINES.items():
        if wanted not in (None, "", name):
            continue
        if shutil.which(name) and subprocess.run(works, capture_output=True, check=False).returncode == 0:
            return name
    sys.exit(f"none of {', '.join(ENGINES)} can build here")


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
    parser.add_argument("--platform", help="such as linux/amd64 or linux/arm64; by default this machine's")
    options, more = parser.parse_known_args()
    program = engine()
    head = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    revision = subprocess.run(head, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    arguments = {"BASE": by_digest(program, options.base), "VERSION": version(), "REVISION": revision}
    command = [*ENGINES[program][1], "--tag", options.tag]
    command += [f"--build-arg={name}={value}" for name, value in arguments.items()]
    command += ["--platform", options.platform] if options.platform else []
    print(f"{program}: {options.tag} on {arguments['BASE']}", file=sys.stderr, flush=True)
    sys.exit(subprocess.run([*command, *more, str(ROOT)], check=False).returncode)


if __name__ == "__main__":
    main()
