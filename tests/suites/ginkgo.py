"""Suites of Ginkgo: run one, and say what became of its specs."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Spec = dict[str, Any]
_NOT_RUN = ("skipped", "pending")


def arguments(what: str | None) -> argparse.ArgumentParser:
    """Options that all suites have."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--logs", type=Path, default=Path(tempfile.gettempdir()) / "stromboli-suites")
    parser.add_argument("--focus", help="run only specs that match this expression")
    return parser


def play(suite: Path, logs: Path, flags: Sequence[str], environment: Mapping[str, str]) -> list[Spec]:
    """Run a suite, and leave what it says in `logs`."""
    report = logs / f"{suite.stem}.json"
    command = [str(suite), "--ginkgo.v", f"--ginkgo.json-report={report}", "--ginkgo.timeout=3h", *flags]
    with (logs / f"{suite.stem}.log").open("w") as log:
        subprocess.run(command, env={**os.environ, **environment}, cwd=logs, stdout=log, stderr=log, check=False)
    (found,) = json.loads(report.read_text())
    return [each for each in found["SpecReports"] if each["LeafNodeType"] == "It" and each["State"] not in _NOT_RUN]


def tell(suite: str, specs: Sequence[Spec]) -> int:
    """Print the specs that failed, and how many passed; return how many did not."""
    failed = [each for each in specs if each["State"] != "passed"]
    for spec in failed:
        name = " ".join([*(spec["ContainerHierarchyTexts"] or ()), spec["LeafNodeText"]])
        why = " ".join(spec["Failure"]["Message"].split())[:200]
        print(f"{suite}: {name}: {why}", flush=True)
    print(f"{suite}: {len(specs) - len(failed)} of {len(specs)} pass", flush=True)
    return len(failed)
