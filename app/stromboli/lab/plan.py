"""Plan of a sweep, read from a file.

```yaml
trace: traces                  # a folder of lists of pods, from the folder of the plan
workloads: [default]           # all lists when left out
policies: [fgd, bestfit, mine.yaml]
seeds: 42..51
ratio: 1.3
sample: {trials: 20, seed: 7}  # a sample of all combinations, drawn by a seed; all when left out
```

Instead of all combinations `trials` may list some: `trials: [{workload: default, policy: fgd, seed: 42}]`.

With `nodes` instead of a `trace` workloads run over time: files that `read_workload` knows, and what is generated.

```yaml
nodes: "8*cpu=32,memory=256Gi"   # or files of manifests
queues: queues.yaml              # manifests of queues for such nodes
period: 60                       # seconds between two sessions at least
queueBy: user                    # of logs; perPod and runTime as the options of `lab simulate`
workloads: [monday.swf, {name: eight, jobs: 2000, processors: 256, load: 0.8, users: 8}]
policies: [drf.yaml, proportion.yaml]
seeds: 1..3                      # of what is generated; a file runs once
```
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stromboli.api import duration
from stromboli.api.documents import read_yaml
from stromboli.api.errors import DocumentError, MistakesError, StromboliError
from stromboli.api.validation import did_you_mean, field_path, problem_of_key
from stromboli.lab.generator import Model
from stromboli.lab.over_time import OverTime
from stromboli.lab.policies import find_policy
from stromboli.lab.processors import Processors
from stromboli.lab.readers.named import Reading
from stromboli.lab.readers.swf import QueueBy
from stromboli.lab.trials import Policy, Trial, distinct, find_lists
from stromboli.simulation.files import LARGEST_POLICY, read_text

#: trials of one plan, and seeds of one range
_MOST, _MOST_SEEDS = 1_000_000, 10_000
_MODEL = Model()


class PlanError(MistakesError):
    """A plan that cannot be used."""


class SeedsError(StromboliError, ValueError):
    """A range of seeds that is none."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Source(NamedTuple):
    """Where a workload comes from."""

    path: str
    over_time: OverTime | None = None


class Sample(_Model):
    """A sample of all combinations."""

    trials: int = Field(ge=1)
    seed: int = 0


class Chosen(_Model):
    """One trial."""

    workload: str
    policy: str
    seed: int = Field(ge=0)


class Generated(_Model):
    """A workload that the generator makes, see `Model`."""

    name: str
    jobs: int = Field(default=_MODEL.jobs, ge=1, le=1_000_000)
    processors: int = Field(default=_MODEL.processors, ge=2, le=10_000_000)
    largest: int = Field(default=_MODEL.largest, ge=0)
    load: float = Field(default=_MODEL.load, ge=0.01, le=10)
    users: int = Field(default=_MODEL.users, ge=1, le=1_000)
    weekend: float = Field(default=_MODEL.weekend, gt=0, le=10)
    declared: float = Field(default=_MODEL.declared, ge=0, le=1)
    exact: float = Field(default=_MODEL.exact, ge=0, le=1)

    def model(self, per_pod: int) -> Model:
        """Parameters of the generator."""
        return Model(**self.model_dump(exclude={"name"}), shape=Processors(per_pod))


class Plan(_Model):
    """A plan as it is written."""

    trace: str = ""
    nodes: str = ""
    queues: str = ""
    period: float = Field(default=60.0, ge=0.001)
    queue_by: QueueBy = Field(default="user", alias="queueBy")
    per_pod: int = Field(default=32, alias="perPod", ge=1, le=1_000)
    run_time: str = Field(default="", alias="runTime")
    workloads: list[str | Generated] = []
    policies: list[str] = []
    seeds: str | int = "42..51"
    ratio: float = Field(default=1.3, gt=0, le=10)
    sample: Sample | None = None
    trials: list[Chosen] = []

    def expand(self, folder: Path) -> list[Trial]:
        """The trials; files are looked for from a folder. Raises StromboliError."""
        if bool(self.trace) == bool(self.nodes):
            raise PlanError(["the plan should have either a trace or nodes"])
        known = self._lists(folder) if self.trace else self._over_time(folder)
        chosen = self.trials or [
            Chosen(workload=workload, policy=policy, seed=seed)
            for workload in [each if isinstance(each, str) else each.name for each in self.workloads] or known
            for policy in self.policies
            for seed in self._seeds(known.get(workload))
        ]
        if not 0 < len(chosen) <= _MOST:
            raise PlanError([f"the plan has {len(chosen):,} trials; it should name policies"])
        if self.sample is not None and self.sample.trials < len(chosen):
            draws = random.Random(self.sample.seed)
            chosen = [chosen[at] for at in sorted(draws.sample(range(len(chosen)), self.sample.trials))]
        policies = {name: _policy(folder, name) for name in dict.fromkeys(each.policy for each in chosen)}
        return distinct(_trial(known, each, policies[each.policy], self) for each in chosen)

    def _lists(self, folder: Path) -> dict[str, Source]:
        """The lists of pods of a trace."""
        return {name: Source(str(path.resolve())) for name, path in find_lists(folder / self.trace).items()}

    def _over_time(self, folder: Path) -> dict[str, Source]:
        """The workloads that run over time."""
        try:
            run_time = duration.parse(self.run_time) if self.run_time else None
        except ValueError as error:
            raise PlanError([f"runTime: {error}"]) from None
        reading = Reading(self.queue_by, self.per_pod, run_time)
        nodes = ",".join(_beside(folder, name) for name in self.nodes.split(","))
        queues = _there(folder, self.queues) if self.queues else ""
        found: dict[str, Source] = {}
        for each in self.workloads:
            model = None if isinstance(each, str) else each.model(self.per_pod)
            path = _there(folder, each) if isinstance(each, str) else ""
            name = each if isinstance(each, str) else each.name
            source = Source(path, OverTime(nodes, queues, self.period, reading, model))
            if found.setdefault(name, source) != source:
                raise PlanError([f"workloads: several are named {name!r}"])
        if not found:
            raise PlanError(["the plan should name workloads, files or what is to be generated"])
        return found

    def _seeds(self, source: Source | None) -> list[int]:
        """The seeds that make a difference to a workload."""
        found = seeds(str(self.seeds))
        fixed = source is not None and source.over_time is not None and source.over_time.model is None
        return found[:1] if fixed else found


def read_plan(path: Path) -> list[Trial]:
    """The trials of a plan's file. Raises PlanError and errors of files."""
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
        raise PlanError([f"{path}: {each}" for each in _problems(error)]) from None
    return plan.expand(path.parent)


def _problems(error: ValidationError) -> Iterator[str]:
    """The mistakes in a plan; of a workload that is a mapping only its own."""
    for each in error.errors():
        *place, last = each["loc"]
        if last == "str" and isinstance(each["input"], dict):
            continue
        fields = Generated.model_fields if Generated.__name__ in place else Plan.model_fields
        named = [part for part in each["loc"] if part != Generated.__name__]
        yield f"{field_path(named)}: {problem_of_key(each, fields)}"


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


def _trial(known: Mapping[str, Source], chosen: Chosen, policy: Policy, plan: Plan) -> Trial:
    source = known.get(chosen.workload)
    if source is None:
        what = "list" if plan.trace else "workload"
        where = "the trace" if plan.trace else "the plan"
        raise PlanError([f"no {what} {chosen.workload!r} in {where}{did_you_mean(chosen.workload, known)}"])
    return Trial(chosen.workload, source.path, policy, chosen.seed, plan.ratio, source.over_time)


def _beside(folder: Path, name: str) -> str:
    """A file of the plan's folder, if it is one."""
    path = folder / name
    return str(path.resolve()) if name and path.exists() else name


def _there(folder: Path, name: str) -> str:
    if not (folder / name).exists():
        raise PlanError([f"{folder / name}: does not exist"])
    return _beside(folder, name)
