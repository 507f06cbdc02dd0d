"""The CRDs that the chart ships are those that the models say."""

from __future__ import annotations

from pathlib import Path

from stromboli.api import crd_schema


def test_the_charts_crds_are_up_to_date(repository: Path) -> None:
    directory = repository / "charts" / "stromboli" / "files" / "crds"
    shipped = {path.name: path.read_text(encoding="utf-8") for path in directory.glob("*.yaml")}
    assert shipped == crd_schema.files(), "run `make crds`"
