"""Policies of the laboratory by name: those that pack cards, each by a score of the plugin fgd."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from stromboli.api.errors import StromboliError
from stromboli.api.validation import did_you_mean
from stromboli.lab.trials import Policy
from stromboli.simulation.files import LARGEST_POLICY, read_text

_PACKING = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: gang
  - name: predicates
  - name: fgd
    arguments:
      fgd.score: {score}
"""
#: the names of scores, as the comparison of Weng et al. has them
SCORES: Mapping[str, str] = {
    "random": "01-Random",
    "dotprod": "02-DotProd",
    "clustering": "03-GpuClustering",
    "packing": "04-GpuPacking",
    "bestfit": "05-BestFit",
    "fgd": "06-FGD",
}


class UnknownPolicyError(StromboliError):
    """Neither a policy by name nor a file."""


def find_policy(name: str) -> Policy:
    """A policy by its name, or that of a file. Raises UnknownPolicyError, UnreadableFileError."""
    if name in SCORES:
        return Policy(name, _PACKING.format(score=name))
    path = Path(name)
    if not path.is_file():
        raise UnknownPolicyError(f"{name}: neither a file nor one of {', '.join(SCORES)}{did_you_mean(name, SCORES)}")
    return Policy(path.stem, read_text(path, LARGEST_POLICY))
