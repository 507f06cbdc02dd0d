"""Build the image with docker, podman or buildah, whichever is at hand, on a base that is named by its digest.

For several platforms it is one image, a list with one for each.  What the base for another machine has is run by qemu,
which has to be there: `qemu-user-static` in Debian.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import uuid
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


def named(program: str, tag: str) -> str:
    """A tag as kubelets and docker read it; podman and buildah take a name without a registry for one of localhost."""
    first, slash, _ = tag.partition("/")
    if program == "docker" or first == "localhost" or (slash and any(each in first for each in ".:")):
        return tag
    return f"docker.io/{tag}" if slash else f"docker.io/library/{tag}"


def save(program: str, tag: str, archive: Path, *, several: bool = False) -> None:
    """Write an image, or the list of several, as an archive of OCI's layout."""
    archive.unlink(missing_ok=True)
    words = {
        "docker": ["docker", "save", "--output", str(archive), tag],
        "podman": ["podman", "save", "--quiet", "--format", "oci-archive", "--output", str(archive), tag],
        "buildah": ["buildah", "push", "--quiet", tag, f"oci-archive:{archive}:{tag}"],
    }
    if several and program != "docker":
        words[program] = [program, "manifest", "push", "--all", "--quiet", tag, f"oci-archive:{archive}:{tag}"]
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


def by_digest(program: str, base: str, platform: str = "") -> str:
    """The base with the digest that its tag has now, for podman and buildah that of the image for a platform."""
    if "@sha256:" in base:
        return base
    if not base.startswith("localhost/"):
        of = ["--platform", platform] if platform else []
        subprocess.run([program, "pull", *of, base], stdout=sys.stderr, check=True)
    formats = {
        "docker": ["docker", "image", "inspect", "--format", "{{index .RepoDigests 0}}", base],
        "podman": ["podman", "image", "inspect", "--format", "{{.Digest}}", base],
        "buildah": ["buildah", "inspect", "--type", "image", "--format", "{{.FromImageDigest}}", base],
    }
    told = subprocess.run(formats[program], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    # A name may have a port: what follows its last slash has the tag.
    folder, slash, name = base.rpartition("/")
    return f"{folder}{slash}{name.partition(':')[0]}@{told.rpartition('@')[2]}"


def of_head(*words: str) -> str:
    """What git says of the commit, empty where there is none."""
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def build(program: str, base: str, platform: str, name: list[str], more: list[str]) -> None:
    """Build for one platform, or several where the program builds for these together; a failure ends all."""
    at = by_digest(program, base, platform if program != "docker" else "")
    arguments = {
        "BASE": at,
        "BASE_NAME": base.partition("@")[0],
        "BASE_DIGEST": at.partition("@")[2],
        "VERSION": version(),
        "REVISION": of_head("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*") or "unknown",
        "CREATED": of_head("log", "-1", "--format=%cI") or "unknown",
    }
    command = [*ENGINES[program][1], *name, *(f"--build-arg={key}={value}" for key, value in arguments.items())]
    command += ["--platform", platform] if platform else []
    print(f"{program}: {name[-1]} on {at}", file=sys.stderr, flush=True)
    done = subprocess.run([*command, *more, str(ROOT)], check=False).returncode
    if done:
        sys.exit(done)


def build_list(program: str, base: str, platforms: list[str], tag: str, more: list[str]) -> None:
    """Build for each platform, on the base for it, and give the list of these images the tag."""
    made = []
    with tempfile.TemporaryDirectory() as folder:
        for platform in platforms:
            written = Path(folder) / platform.replace("/", "-")
            build(program, base, platform, ["--iidfile", str(written)], more)
            made.append(f"containers-storage:{written.read_text().strip().removeprefix('sha256:')}")
    # An image or a list that has the tag loses it, and no list can be made by a name that is taken.
    unnamed = f"localhost/{uuid.uuid4()}:list"
    for words in (("manifest", "create", unnamed, *made), ("tag", unnamed, tag), ("manifest", "rm", unnamed)):
        subprocess.run([program, *words], stdout=sys.stderr, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", default=BASE, help="an image with Python 3.11 or newer, by tag or digest")
    parser.add_argument("--tag", default=f"stromboli:{version()}", help="the name of the image")
    parser.add_argument("--archive", type=Path, help="a file to which the image is written, as an OCI archive")
    parser.add_argument(
        "--platform", default="", help="such as linux/amd64 or linux/amd64,linux/arm64; by default this machine's"
    )
    options, more = parser.parse_known_args()
    program = engine()
    if program is None:
        sys.exit(f"none of {', '.join(ENGINES)} can build here")
    platforms, tag = options.platform.split(","), named(program, options.tag)
    # docker names a base by the digest that it has for all platforms, and makes the list by itself.
    together = len(platforms) == 1 or program == "docker"
    if together:
        build(program, options.base, options.platform, ["--tag", tag], more)
    else:
        build_list(program, options.base, platforms, tag, more)
    if options.archive is not None:
        save(program, tag, options.archive, several=not together)
        print(f"{options.archive}: sha256:{digest(options.archive)}", file=sys.stderr)


if __name__ == "__main__":
    main()
