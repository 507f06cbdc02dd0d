"""An image in a registry, signed and attested by the commands that a release prints, and verified as the page says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from tests.image.registry import registry

pytestmark = [
    pytest.mark.image,
    pytest.mark.skipif(shutil.which("cosign") is None, reason="cosign is not installed"),
]

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A line of a shell, with a key of cosign beside it and nobody's settings."""
    alone = {**os.environ, "HOME": str(tmp_path), "COSIGN_PASSWORD": "x"}

    def in_shell(line: str) -> subprocess.CompletedProcess[str]:
        words = ["bash", "-ec", f"set -o pipefail; {line}"]
        return subprocess.run(words, cwd=tmp_path, env=alone, capture_output=True, text=True, check=False)

    for line in ("cosign generate-key-pair", "cosign signing-config create --out no-log.json"):
        done = in_shell(line)
        assert done.returncode == 0, done.stderr
    return in_shell


def test_an_image_is_signed_and_attested_as_a_release_says(
    run: Run, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(repository / "deploy"))
    of_image = import_module("signing").of_image
    predicate = {"buildDefinition": {"buildType": "https://example.com/build", "externalParameters": {}}}
    (tmp_path / "provenance.json").write_text(json.dumps({"predicate": {**predicate, "runDetails": {"builder": {}}}}))
    with registry(tmp_path) as local:
        for name, value in local.environment.items():
            monkeypatch.setenv(name, value)
        pushed = local.push("stromboli", ["amd64", "arm64"], tmp_path)
        digest = local.digest("stromboli")
        told = of_image(digest, str(tmp_path / "cosign.key"), Path("provenance.json"), "no-log.json")
        verify = f"--insecure-ignore-tlog --key cosign.pub {pushed}"
        assert run(f"cosign verify {verify}").returncode != 0
        for line in told.replace("REGISTRY", local.host).splitlines()[1:]:
            done = run(line)
            assert done.returncode == 0, done.stderr
        for line in (f"cosign verify {verify}", f"cosign verify-attestation --type slsaprovenance1 {verify}"):
            done = run(line)
            assert done.returncode == 0, done.stderr
