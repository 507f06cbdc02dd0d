"""What a sweep tries, read from a file.

```yaml
trace: traces                  # a folder of lists of pods, from the folder of the plan
workloads: [default]           # all lists when left out
policies: [fgd, bestfit, mine.yaml]
seeds: 42..51
ratio: 1.3
sample: {trials: 20, seed: 7}  # so many of all combinations, drawn by a seed; all when left out
```

Instead of all combinations `trials` may list some: `trials: [{workload: default, policy: fgd, seed: 42}]`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stromboli.api.documents import read_yaml
from stromboli.api.errors import DocumentError, MistakesError, StromboliError
from stromboli.api.validation import did_you_mean, field_path, problem_of_key
from stromboli.lab.policies import find_policy
from stromboli.lab.trials import Policy, Trial, find_lists
from stromboli.simulation.files import LARGEST_POLICY, read_text

#: trials of one plan, and seeds of one range
_MOST, _MOST_SEEDS = 1_000_000, 10_000


class PlanError(MistakesError):
    """A plan that cannot be used."""


class SeedsError(StromboliError, ValueError):
    """A range of seeds that is none."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Sample(_Model):
    """So many of all combinations."""

    trials: int = Field(ge=1)
    seed: int = 0


class Chosen(_Model):
    """One trial."""

    workload: str
    policy: str
    seed: int = Field(ge=0)


class Plan(_Model):
    """A plan as it is written."""

    trace: str
    workloads: list[str] = []
    policies: list[str] = []
    seeds: str | int = "42..51"
    ratio: float = Field(default=1.3, gt=0, le=10)
    sample: Sample | None = None
    trials: list[Chosen] = []

    def expand(self, folder: Path) -> list[Trial]:
        """The trials; files are looked for from a folder. Raises StromboliError."""
        lists = find_lists(folder / self.trace)
        chosen = self.trials or [
            Chosen(workload=workload, policy=policy, seed=seed)
            for workload in self.workloads or lists
            for policy in self.policies
            for seed in seeds(str(self.seeds))
        ]
        if not 0 < len(chosen) <= _MOST:
            raise PlanError([f"the plan has {len(chosen):,} trials; it should name policies"])
        if self.sample is not None and self.sample.trials < len(chosen):
            draws = random.Random(self.sample.seed)
            chosen = [chosen[at] for at in sorted(draws.sample(range(len(chosen)), self.sample.trials))]
        policies = {name: _policy(folder, name) for name in dict.fromkeys(each.policy for each in chosen)}
        return [
            Trial(each.workload, _list(lists, each.workload), policies[each.policy], each.seed, self.ratio)
            for each in chosen
        ]


def read_plan(path: Path) -> list[Trial]:
    """The trials of a plan's file. Raises PlanError and what else can be wrong with files."""
    try:
        documents: list[Any] = list(read_yaml(read_text(path, LARGEST_POLICY)))
    except DocumentError as error:
        raise PlanError([f"{path}: {error}"]) from None
    written = documents[0] if len(documents) == 1 else None
    if not isinstance(written, dict):
        raise PlanError([f"{path}: should be one mapping, with a trace and policies"])
    try:
        plan = Plan.model_validate(written)
    except ValidationError as error:
        problems = [
            f"{path}: {field_path(each['loc'])}: {problem_of_key(each, Plan.model_fields)}" for each in error.errors()
        ]
        raise PlanError(problems) from None
    return plan.expand(path.parent)


def seeds(text: str) -> list[int]:
    """The seeds of a range such as `42..51`. Raises SeedsError."""
    first, dots, last = text.partition("..")
    number = len(first) < 19 and len(last) < 19 and first.isdecimal() and (last.isdecimal() or not dots)
    if not number or not 0 <= int(last or first) - int(first) < _MOST_SEEDS:
        raise SeedsError(f"seeds should be such as 7 or 42..51, {_MOST_SEEDS:,} at most, not {text[:40]!r}")
    return list(range(int(first), int(last or first) + 1))


def _policy(folder: Path, name: str) -> Policy:
    beside = folder / name
    return find_policy(str(beside) if beside.is_file() else name)


def _list(lists: Mapping[str, Path], name: str) -> str:
    if name not in lists:
        raise PlanError([f"no list {name!r} in the trace{did_you_mean(name, lists)}"])
    return str(lists[name].resolve())
