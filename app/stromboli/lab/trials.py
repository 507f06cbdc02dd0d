"""A trial: one workload under one policy with one seed, and its outcome."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import msgspec
import numpy as np

from stromboli.api.errors import StromboliError
from stromboli.api.version import version
from stromboli.discovery import discover
from stromboli.framework.registry import Registry
from stromboli.lab import over_time
from stromboli.lab.inflation import inflate
from stromboli.lab.over_time import OverTime
from stromboli.lab.readers.openb import TraceNode, TracePod, read_nodes, read_pods
from stromboli.simulation.files import read_text

#: the nodes of every list of pods in a folder of openb traces
NODES = "openb_node_list_gpu_node.csv"
#: percent of the cards that are arrived at at most
_PERCENT = 100
#: bytes that a list may have
_LARGEST = 200 << 20


class TrialError(StromboliError):
    """A workload that cannot be tried."""


class Policy(msgspec.Struct, frozen=True):
    """A policy by the name that reports give it."""

    name: str
    text: str


class Trial(msgspec.Struct, frozen=True):
    """A trial. Its files need the same path on all machines that take part."""

    workload: str
    #: the list of pods
    path: str
    policy: Policy
    seed: int
    #: request of all arrivals, as a part of all cards
    ratio: float = 1.3
    #: settings of a run over time; None for an openb trace, whose pods only arrive
    over_time: OverTime | None = None
    #: the folder of more plugins, if there is one
    plugins: str = ""

    def key(self) -> str:
        """Equal for trials with the same outcome: a digest of all inputs, files by content."""
        more = sorted(map(str, Path(self.plugins).glob("*.py"))) if self.plugins else []
        timed = self.over_time
        if timed is not None:
            files = [_digest(name) for name in (*([] if timed.model else [self.path]), *timed.files, *more)]
            # Of a file nothing depends on the seed.
            drawn = (repr(timed.model), self.seed) if timed.model else (timed.reading,)
            how = (timed.equal_nodes, timed.period, drawn)
            written = msgspec.json.encode((files, self.policy.text, how, version()))
            return hashlib.sha256(written).hexdigest()[:20]
        digests = [_digest(path) for path in (self.path, str(Path(self.path).parent / NODES), *more)]
        written = msgspec.json.encode((digests, self.policy.text, self.seed, self.ratio, version()))
        return hashlib.sha256(written).hexdigest()[:20]


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of a trial."""

    key: str
    workload: str
    policy: str
    seed: int
    #: of the whole, by name
    figures: dict[str, float]
    #: by name; of `allocation` the percent of all cards that are allocated, by the percent that was asked for
    series: dict[str, list[float | None]] = {}
    #: figures of each queue, or of each kind of pods
    queues: dict[str, dict[str, float]] = {}


def find_lists(path: Path) -> dict[str, Path]:
    """The lists of pods at a path, a list or a folder of them, by name. Raises TrialError."""
    lists = [path] if path.suffix == ".csv" else sorted([*path.glob("*pod_list*.csv"), *path.glob("*/*pod_list*.csv")])
    if not lists:
        raise TrialError(f"{path}: has no openb_pod_list_*.csv")
    return {each.stem.removeprefix("openb_pod_list_"): each for each in lists}


def distinct(trials: Iterable[Trial]) -> list[Trial]:
    """The trials, each once: a mean that counts one twice would seem surer than it is.

    Raises TrialError where policies that differ have one name, as no report could tell them apart.
    """
    texts: dict[str, str] = {}
    found: dict[tuple[str, str, str], Trial] = {}
    for trial in trials:
        policy = trial.policy
        if texts.setdefault(policy.name, policy.text) != policy.text:
            raise TrialError(
                f"policies that differ have the name {policy.name!r}: files should have names of their own"
            )
        found.setdefault((trial.workload, policy.name, trial.key()), trial)
    return list(found.values())


def run_trial(trial: Trial) -> Outcome:
    """Try it. Raises TrialError, also for mistakes in the policy: it can be sent from process to process."""
    try:
        return _tried(trial)
    except StromboliError as error:
        raise failed(trial, error) from None


def failed(trial: Trial, why: object) -> TrialError:
    """The error of a trial that is named in it."""
    return TrialError(f"{trial.workload}, {trial.policy.name}, seed {trial.seed}: {why}")


def outcome_or_error(trial: Trial) -> Outcome | TrialError:
    """Its outcome, or its error, which must not stop other trials."""
    try:
        return run_trial(trial)
    except TrialError as error:
        return error


def with_plugins(trials: Sequence[Trial], folder: Path | None) -> list[Trial]:
    """The trials with the plugins of a folder. Raises PolicyError when these cannot be loaded."""
    if folder is None:
        return list(trials)
    place = str(folder.resolve())
    _registry(place)
    return [msgspec.structs.replace(trial, plugins=place) for trial in trials]


def problems(trial: Trial) -> list[str]:
    """Unreadable parts of a trial's files, a line each. Raises StromboliError."""
    return _read(trial.path)[2] if trial.over_time is None else over_time.problems(trial.over_time, trial.path)


def _tried(trial: Trial) -> Outcome:
    if trial.over_time is None:
        return _inflated(trial)
    began = time.process_time()
    figures, queues = trial.over_time.run(trial.path, trial.policy.text, trial.seed, _registry(trial.plugins))
    figures["cpu_seconds"] = round(time.process_time() - began, 2)
    return Outcome(trial.key(), trial.workload, trial.policy.name, trial.seed, figures, queues=queues)


def _inflated(trial: Trial) -> Outcome:
    nodes, pods, _ = _read(trial.path)
    began = time.process_time()
    registry = _registry(trial.plugins)
    inflated = inflate(nodes, pods, trial.policy.text, trial.seed, ratio=trial.ratio, registry=registry)
    allocation = inflated.allocation(round(trial.ratio * _PERCENT))
    kinds = inflated.placed_by_kind()
    figures = {
        "allocation": float(inflated.asked[inflated.placed].sum()) / inflated.capacity * _PERCENT,
        "pods": float(len(inflated.placed)),
        "placed": float(inflated.placed.sum()),
        "worst_off": min(each["placed"] for each in kinds.values()),
        "cpu_seconds": round(time.process_time() - began, 2),
    }
    series: list[float | None] = [None if np.isnan(each) else each for each in allocation.tolist()]
    return Outcome(trial.key(), trial.workload, trial.policy.name, trial.seed, figures, {"allocation": series}, kinds)


@lru_cache(maxsize=8)
def _registry(folder: str) -> Registry:
    return discover(Path(folder) if folder else None)


@lru_cache(maxsize=8)
def _read(path: str) -> tuple[Sequence[TraceNode], Sequence[TracePod], list[str]]:
    """The nodes and pods of a list, and its mistakes."""
    beside = Path(path).parent / NODES
    nodes, of_nodes = read_nodes(_lines(beside), str(beside))
    pods, of_pods = read_pods(_lines(Path(path)), path)
    return nodes, pods, [*of_nodes, *of_pods]


def _lines(path: Path) -> list[str]:
    return read_text(path, _LARGEST).split("\n")


@lru_cache(maxsize=256)
def _digest(path: str) -> str:
    """Digest of a file, or of all files in a folder."""
    files = sorted(each for each in Path(path).rglob("*") if each.is_file()) if Path(path).is_dir() else [Path(path)]
    digest = hashlib.sha256()
    for each in files:
        digest.update(each.read_bytes())
    return digest.hexdigest()
