"""Make a release: the version where it is told, its section of the changelog, packages, the image, and what vouches for
them: provenance and, where there is a key, a signature.

All of it happens in a clone, from the last commit.  A dry run leaves the packages in dist; `--publish` takes over the
commit and its tag from the clone as well.  What is pushed anywhere is up to the person who releases.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from image.build import ENGINES, ROOT, engine, version
from image.build import digest as image_digest
from signing import key_of, of_image, sign

#: pyproject.toml has the version; what else tells it, each by a pattern of what is around it
TOLD = {
    "pyproject.toml": r'^(version = ")(.+?)(?=")',
    "charts/stromboli/Chart.yaml": r'^(version: |appVersion: ")([^"\n]+)',
    "deploy/kustomize/stromboli.yaml": (
        r'(app\.kubernetes\.io/version: "?|helm\.sh/chart: stromboli-|image: "stromboli:)([^"\n]+)'
    ),
    "docs/start.md": r"(\bstromboli:)(\d+\.\d+\.\d+)",
    "docs/operations.md": r"(\bimage\.tag=|/stromboli:)(\d+\.\d+\.\d+)",
}
#: the file that is signed
SUMS = "SHA256SUMS"
_UNRELEASED = "## [Unreleased]\n"
_BUILD = "from setuptools import build_meta; build_meta.build_{}('dist')"


def run(*words: str | Path, cwd: Path = ROOT) -> str:
    """What a command prints; its errors end the release."""
    done = subprocess.run(list(map(str, words)), cwd=cwd, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"release: {' '.join(map(str, words))} ended with {done.returncode}")
    return done.stdout.strip()


def check(new: str) -> None:
    """End unless this can be released from this checkout."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", new):
        sys.exit(f"release: {new!r} is not of the form MAJOR.MINOR.PATCH")
    if _parts(new) < _parts(version()):
        sys.exit(f"release: {new} is older than {version()}")
    if run("git", "tag", "--list", f"v{new}"):
        sys.exit(f"release: v{new} has been released")
    if run("git", "status", "--porcelain"):
        sys.exit("release: commit or stash what has changed first")


def _parts(text: str) -> list[int]:
    return [int(part) for part in text.split(".")]


def write_version(tree: Path, new: str) -> None:
    for name, pattern in TOLD.items():
        text, times = re.subn(pattern, rf"\g<1>{new}", (tree / name).read_text(), flags=re.MULTILINE)
        assert times, f"{name} does not tell the version"
        (tree / name).write_text(text)


def close_section(changelog: Path, new: str, day: str) -> str:
    """Give what was unreleased the name of this release, and return it."""
    before, found, rest = changelog.read_text().partition(_UNRELEASED)
    notes = re.split(r"^## ", rest, maxsplit=1, flags=re.MULTILINE)[0].strip()
    if not found or not notes:
        sys.exit("release: the changelog has nothing that is unreleased")
    changelog.write_text(f"{before}{_UNRELEASED}\n## [{new}] - {day}\n{rest}")
    return notes


def commit(tree: Path, new: str, notes: str) -> None:
    run("git", "commit", "--quiet", "--all", "--message", f"Release {new}", cwd=tree)
    # Headings begin as comments of git do.
    words = ("--cleanup=verbatim", "--message", f"Stromboli {new}\n\n{notes}\n")
    run("git", "tag", "--annotate", *words, f"v{new}", cwd=tree)


def build(tree: Path, new: str, made: Path) -> None:
    """The packages, by the tools and from the packages that are pinned by hash."""
    tools, installed = (_environment(tree, name) for name in ("build", "runtime"))
    run(tools, "-c", _BUILD.format("sdist"), cwd=tree)
    (source,) = (tree / "dist").glob("*.tar.gz")
    run("tar", "-xzf", source, "-C", tree / "dist")
    # The wheel is made of what the source distribution has, so that this lacks nothing.
    run(tools, "-c", _BUILD.format("wheel"), cwd=tree / "dist" / source.name.removesuffix(".tar.gz"))
    (wheel,) = (tree / "dist").glob("*/dist/*.whl")
    run(installed, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", wheel)
    if run(installed.with_name("stromboli"), "--version") != f"stromboli {new}":
        sys.exit(f"release: the wheel is not that of {new}")
    run(installed, "-m", "pip", "uninstall", "--quiet", "--yes", "pip")
    (made / f"stromboli-{new}.cdx.json").write_text(run(installed, tree / "deploy/image/sbom.py") + "\n")
    for package in (source, wheel):
        package.rename(made / package.name)
    chart = made / f"stromboli-chart-{new}.tgz"
    run("git", "archive", "--prefix=stromboli/", "--output", chart, "HEAD:charts/stromboli", cwd=tree)


def _environment(tree: Path, requirements: str) -> Path:
    """The interpreter of a new environment that has what is pinned for the image."""
    place = tree.with_name(requirements)
    run(sys.executable, "-m", "venv", place)
    pip = (place / "bin/python", "-m", "pip", "install", "--quiet", "--no-compile", "--require-hashes")
    run(*pip, "--requirement", tree / f"deploy/image/{requirements}.txt")
    return place / "bin/python"


def build_image(tree: Path, new: str, made: Path, options: list[str]) -> dict[str, str]:
    """The image as an archive, by what builds images here: its digest by its name, empty where nothing does."""
    if engine() is None:
        print(f"No image is made, for none of {', '.join(ENGINES)} can build here; `make image` of the tag makes it.")
        return {}
    archive, tag = made / f"stromboli-image-{new}.tar", f"stromboli:{new}"
    run(sys.executable, tree / "deploy/image/build.py", "--tag", tag, "--archive", archive, *options, cwd=tree)
    return {tag: image_digest(archive)}


def statement(tree: Path, new: str, made: Path, images: dict[str, str], started: datetime) -> dict[str, Any]:
    """Where the packages come from: provenance of SLSA as a statement of in-toto, which the releaser may sign."""
    commit_id = run("git", "rev-parse", "HEAD", cwd=tree)
    pinned = [tree / f"deploy/image/{name}.txt" for name in ("build", "runtime")]
    source = {"uri": f"git+https://stromboli.io/stromboli@refs/tags/v{new}", "digest": {"gitCommit": commit_id}}
    finished = datetime.now(UTC)
    digests = {path.name: digest(path) for path in sorted(made.iterdir())} | images
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": value}} for name, value in digests.items()],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "https://stromboli.io/build/make-release",
                "externalParameters": {"version": new},
                "internalParameters": {"python": sys.version.split()[0]},
                "resolvedDependencies": [
                    source,
                    *({"name": f"deploy/image/{path.name}", "digest": {"sha256": digest(path)}} for path in pinned),
                ],
            },
            "runDetails": {
                "builder": {"id": "https://stromboli.io/builder/checkout"},
                "metadata": {
                    "invocationId": f"{commit_id}/{started:%Y%m%dT%H%M%SZ}",
                    "startedOn": f"{started:%Y-%m-%dT%H:%M:%SZ}",
                    "finishedOn": f"{finished:%Y-%m-%dT%H:%M:%SZ}",
                },
            },
        },
    }


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", nargs="?", default=version(), help="by default that of pyproject.toml")
    parser.add_argument("--publish", action="store_true", help="take the commit and the tag over into this checkout")
    parser.add_argument("--no-image", action="store_true", help="do not build the image")
    parser.add_argument(
        "--key",
        default=key_of(ROOT),
        help="a file with a key of SSH or cosign, one of gpg or a key management service, or keyless; else git's",
    )
    parser.add_argument(
        "--signing-config", default="", help="cosign's signing config; by default Sigstore's public one"
    )
    # What is left are options of image/build.py.
    options, for_image = parser.parse_known_args()
    new, started = options.version, datetime.now(UTC)
    check(new)
    made = ROOT / "dist" / new
    made.mkdir(parents=True, exist_ok=True)
    for path in made.iterdir():
        path.unlink()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "stromboli"
        run("git", "clone", "--quiet", ROOT, tree)
        for name in ("user.name", "user.email"):
            run("git", "config", name, run("git", "config", name), cwd=tree)
        write_version(tree, new)
        notes = close_section(tree / "CHANGELOG.md", new, f"{started:%Y-%m-%d}")
        commit(tree, new, notes)
        build(tree, new, made)
        images = {} if options.no_image else build_image(tree, new, made, for_image)
        vouched = statement(tree, new, made, images, started)
        (made / "provenance.json").write_text(json.dumps(vouched, indent=2) + "\n")
        (made / "notes.md").write_text(f"{notes}\n")
        if options.publish:
            run("git", "fetch", "--quiet", tree, f"refs/tags/v{new}:refs/tags/v{new}")
            run("git", "merge", "--quiet", "--ff-only", f"v{new}")
    sums = "".join(f"{digest(path)}  {path.name}\n" for path in sorted(made.iterdir()))
    (made / SUMS).write_text(sums)
    print(f"In {made.relative_to(ROOT)}:\n{sums}", end="")
    for tag, value in images.items():
        print(f"{tag} is sha256:{value}")
    if options.key:
        print(f"{sign(made / SUMS, options.key, options.signing_config).name} signs {SUMS}, which names all of them.")
        for value in images.values():
            statement_path = (made / "provenance.json").relative_to(ROOT)
            print(of_image(value, options.key, statement_path, options.signing_config))
    else:
        print("Nothing is signed, for there is no key: SIGNING_KEY names one, or git's user.signingKey.")
    if options.publish:
        print(f"v{new} is tagged here. Push it, and what is in {made.relative_to(ROOT)}.")
    else:
        print("This was a dry run: no commit, no tag. PUBLISH=yes makes them.")


if __name__ == "__main__":
    main()
