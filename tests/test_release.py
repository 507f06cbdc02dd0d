"""`make release`: one version everywhere, and packages that say where they come from."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib import import_module
from pathlib import Path

import pytest
import yaml

_SSH = shutil.which("ssh-keygen") is not None


@pytest.fixture
def told(repository: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Where the version is told, by what pattern."""
    monkeypatch.syspath_prepend(str(repository / "deploy"))
    patterns: dict[str, str] = import_module("release").TOLD
    return patterns


def test_every_file_tells_the_version_of_pyproject(repository: Path, told: dict[str, str]) -> None:
    def versions(name: str) -> set[str]:
        return {found[1] for found in re.findall(told[name], (repository / name).read_text(), re.MULTILINE)}

    (version,) = versions("pyproject.toml")
    assert {name: versions(name) for name in told} == {name: {version} for name in told}


@pytest.fixture
def checkout(repository: Path, tmp_path: Path) -> Path:
    """A clone with what is committed, and what has changed in the files that a release is made by."""
    return clone(repository, tmp_path / "checkout")


def clone(repository: Path, place: Path) -> Path:
    git(place.parent, "clone", "--quiet", "--no-tags", str(repository), str(place))
    for name in ("deploy/release.py", "deploy/signing.py", "deploy/image/build.py", "Dockerfile", "Makefile"):
        (place / name).write_text((repository / name).read_text())
    for name, value in (("user.name", "Somebody"), ("user.email", "somebody@example.com"), ("user.signingKey", "")):
        git(place, "config", name, value)
    git(place, "add", "--all")
    git(place, "commit", "--quiet", "--allow-empty", "--message", "What is tried")
    return place


def git(place: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=place, capture_output=True, text=True, check=True).stdout.strip()


def release(checkout: Path, *words: str, engine: str = "none") -> subprocess.CompletedProcess[str]:
    command = ["make", "release", f"PYTHON={sys.executable}", *words]
    # Images are made in tests/image.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"ENGINE": engine}
    return subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("version", "says"),
    [("1.0", "MAJOR.MINOR.PATCH"), ("0.0.1", "is older than"), ("9.8.7", "has been released")],
)
def test_a_version_that_cannot_be_released_is_refused(checkout: Path, version: str, says: str) -> None:
    git(checkout, "tag", "v9.8.7")
    done = release(checkout, f"VERSION={version}")
    assert done.returncode != 0
    assert says in done.stderr


def test_what_is_not_committed_is_not_released(checkout: Path) -> None:
    (checkout / "README.md").write_text("changed")
    assert "commit or stash" in release(checkout, "VERSION=9.8.7").stderr


def test_a_changelog_with_nothing_new_is_no_release(checkout: Path) -> None:
    (checkout / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n\n## [0.1.0] - 2026-01-01\n\n- All.\n")
    git(checkout, "commit", "--quiet", "--all", "--message", "Nothing new")
    assert "nothing that is unreleased" in release(checkout, "VERSION=9.8.7").stderr


@pytest.mark.exhaustive
def test_a_dry_run_makes_the_packages_and_changes_nothing_and_publishing_tags_them(checkout: Path) -> None:
    before = git(checkout, "rev-parse", "HEAD")
    done = release(checkout, "VERSION=9.8.7")
    assert done.returncode == 0, done.stderr
    assert "dry run" in done.stdout
    assert (git(checkout, "rev-parse", "HEAD"), git(checkout, "tag", "--list")) == (before, "")
    assert git(checkout, "status", "--porcelain") == ""
    assert "No image is made, for none of docker, podman, buildah can build here" in done.stdout
    assert "Nothing is signed, for there is no key" in done.stdout
    is_whole(checkout / "dist/9.8.7")

    key = ssh_key(checkout.parent) if _SSH else None
    done = release(checkout, "VERSION=9.8.7", "PUBLISH=yes", *([f"SIGNING_KEY={key}"] if key else []))
    assert done.returncode == 0, done.stderr
    assert git(checkout, "log", "-1", "--format=%s") == "Release 9.8.7"
    assert git(checkout, "rev-parse", "v9.8.7^{commit}") == git(checkout, "rev-parse", "HEAD")
    assert "### Added" in git(checkout, "tag", "--list", "--format=%(contents)", "v9.8.7")
    changelog = (checkout / "CHANGELOG.md").read_text()
    assert re.search(r"^## \[Unreleased\]\n\n## \[9\.8\.7\] - \d{4}-\d\d-\d\d\n\n### Added$", changelog, re.MULTILINE)
    chart = yaml.safe_load((checkout / "charts/stromboli/Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == ("9.8.7", "9.8.7")
    statement = json.loads((checkout / "dist/9.8.7/provenance.json").read_text())
    (source,) = [each for each in statement["predicate"]["buildDefinition"]["resolvedDependencies"] if "uri" in each]
    assert source["digest"] == {"gitCommit": git(checkout, "rev-parse", "HEAD")}
    if key is not None:
        is_signed(checkout / "dist/9.8.7", key)


def ssh_key(folder: Path) -> Path:
    key = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    return key


def is_signed(made: Path, key: Path) -> None:
    """What docs/operations.md says to verify a release holds, and does not for what was changed."""
    signers = key.with_name("allowed_signers")
    signers.write_text(f"releases@example.com {key.with_suffix('.pub').read_text()}")
    verify = f"ssh-keygen -Y verify -f {signers} -I releases@example.com -n file -s SHA256SUMS.sig < SHA256SUMS"
    for words in (verify, "sha256sum --check --strict SHA256SUMS"):
        done = subprocess.run(words, shell=True, cwd=made, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    named = {line.split()[1] for line in (made / "SHA256SUMS").read_text().splitlines()}
    assert named == {each.name for each in made.iterdir()} - {"SHA256SUMS", "SHA256SUMS.sig"}
    (made / "SHA256SUMS").write_text("changed")
    assert subprocess.run(verify, shell=True, cwd=made, capture_output=True, check=False).returncode != 0


def signing(
    repository: Path, key: str, path: Path, config: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Sign a file by a key."""
    program = "import sys, pathlib, signing; print(signing.sign(pathlib.Path(sys.argv[1]), *sys.argv[2:]))"
    words = [sys.executable, "-c", program, str(path), key, config]
    set_up = {**os.environ, "PYTHONPATH": str(repository / "deploy"), **environment}
    return subprocess.run(words, env=set_up, capture_output=True, text=True, check=False)


@pytest.mark.skipif(not _SSH, reason="ssh-keygen is not installed")
def test_files_are_signed_by_a_key_of_ssh_again_and_again(repository: Path, tmp_path: Path) -> None:
    key, made = ssh_key(tmp_path), tmp_path / "made"
    made.mkdir()
    for content in ("first", "second"):
        (made / "package").write_text(content)
        (made / "SHA256SUMS").write_text(f"{digest(made / 'package')}  package\n")
        done = signing(repository, str(key), made / "SHA256SUMS")
        assert done.stdout == f"{made / 'SHA256SUMS.sig'}\n", done.stderr
    is_signed(made, key)


@pytest.mark.skipif(shutil.which("gpg") is None, reason="gpg is not installed")
def test_files_are_signed_by_a_key_of_gpg(repository: Path, tmp_path: Path) -> None:
    home, sums = tmp_path / "gnupg", tmp_path / "SHA256SUMS"
    home.mkdir(mode=0o700)
    sums.write_text("sums")
    gpg = ["gpg", "--homedir", str(home), "--batch", "--quiet"]
    new = ["--passphrase", "", "--quick-generate-key", "releases@example.com", "ed25519", "sign", "never"]
    subprocess.run([*gpg, *new], check=True, capture_output=True)
    try:
        done = signing(repository, "releases@example.com", sums, GNUPGHOME=str(home))
        assert done.stdout == f"{sums}.asc\n", done.stderr
        assert subprocess.run([*gpg, "--verify", f"{sums}.asc", str(sums)], check=False).returncode == 0
        done = signing(repository, "nobody@example.com", sums, GNUPGHOME=str(home))
        assert "SHA256SUMS is not signed by nobody@example.com" in done.stderr
    finally:
        subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False)


#: in the place of cosign, which is not at hand: it keeps what it is asked for
_COSIGN = """#!/bin/sh
while [ "$#" -gt 0 ]; do
  if [ "$1" = --bundle ]; then bundle=$2; fi
  echo "$1" >> "$ASKED"; shift
done
echo '{}' > "$bundle"
"""


@pytest.mark.parametrize("key", ["cosign.key", "hashivault://release", "keyless"])
def test_files_are_signed_by_cosign(repository: Path, tmp_path: Path, key: str) -> None:
    tools, sums, asked = tmp_path / "bin", tmp_path / "SHA256SUMS", tmp_path / "asked"
    tools.mkdir()
    (tools / "cosign").write_text(_COSIGN)
    (tools / "cosign").chmod(0o755)
    sums.write_text("sums")
    named = str(tmp_path / key) if key.endswith(".key") else key
    if key.endswith(".key"):
        (tmp_path / key).write_text("-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\n")
    done = signing(repository, named, sums, PATH=f"{tools}:{os.environ['PATH']}", ASKED=str(asked))
    assert done.stdout == f"{sums}.sigstore.json\n", done.stderr
    own = [] if key == "keyless" else ["--key", named]
    assert asked.read_text().split() == ["sign-blob", "--yes", *own, "--bundle", f"{sums}.sigstore.json", str(sums)]
    missing = signing(repository, named, sums, PATH=str(tmp_path))
    assert f"cosign is not installed, and {named} cannot sign without it" in missing.stderr


@pytest.mark.skipif(shutil.which("cosign") is None, reason="cosign is not installed")
def test_files_are_signed_by_a_key_of_cosign_and_no_log_is_told(repository: Path, tmp_path: Path) -> None:
    alone, key, sums = {"HOME": str(tmp_path), "COSIGN_PASSWORD": "x"}, tmp_path / "cosign.key", tmp_path / "SHA256SUMS"

    def cosign(*words: str) -> int:
        set_up = {**os.environ, **alone}
        return subprocess.run(["cosign", *words], cwd=tmp_path, env=set_up, capture_output=True, check=False).returncode

    assert cosign("generate-key-pair") == cosign("signing-config", "create", "--out", "no-log.json") == 0
    sums.write_text("sums")
    done = signing(repository, str(key), sums, str(tmp_path / "no-log.json"), **alone)
    assert done.stdout == f"{sums}.sigstore.json\n", done.stderr
    verify = ("verify-blob", "--insecure-ignore-tlog", "--key", "cosign.pub", "--bundle", f"{sums}.sigstore.json")
    assert cosign(*verify, str(sums)) == 0
    sums.write_text("changed")
    assert cosign(*verify, str(sums)) != 0


def test_how_an_image_is_signed_in_a_registry_is_told(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(repository / "deploy"))
    of_image, statement = import_module("signing").of_image, Path("dist/9.8.7/provenance.json")
    image = "REGISTRY/stromboli@sha256:abc"
    assert of_image("abc", "keyless", statement).splitlines()[1:] == [
        f"  cosign sign --yes {image}",
        f"  jq .predicate {statement} | cosign attest --yes --type slsaprovenance1 --predicate - {image}",
    ]
    with_config = "cosign sign --yes --key awskms://k --signing-config c.json"
    assert f"{with_config} {image}" in of_image("abc", "awskms://k", statement, "c.json")
    assert "No signature goes with the image" in of_image("abc", "releases@example.com", statement)


def is_whole(made: Path) -> None:
    """The packages are there, are of their version, and are those that the statement vouches for."""
    wheel, source, chart, bill = (
        made / name
        for name in (
            "stromboli-9.8.7-py3-none-any.whl",
            "stromboli-9.8.7.tar.gz",
            "stromboli-chart-9.8.7.tgz",
            "stromboli-9.8.7.cdx.json",
        )
    )
    with zipfile.ZipFile(wheel) as archive:
        assert "stromboli/engine.py" in archive.namelist()
    with tarfile.open(source) as archive_of_source:
        assert "stromboli-9.8.7/pyproject.toml" in archive_of_source.getnames()
    with tarfile.open(chart) as archive_of_chart:
        member = archive_of_chart.extractfile("stromboli/Chart.yaml")
        assert member is not None
        assert yaml.safe_load(member)["appVersion"] == "9.8.7"
    assert json.loads(bill.read_text())["metadata"]["component"]["version"] == "9.8.7"

    statement = json.loads((made / "provenance.json").read_text())
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    vouched = {each["name"]: each["digest"]["sha256"] for each in statement["subject"]}
    assert vouched == {path.name: digest(path) for path in (wheel, source, chart, bill)}
    assert "### Added" in (made / "notes.md").read_text()


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
