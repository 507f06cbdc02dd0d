"""Trials over time: the jobs of a workload arrive, run and end on a cluster under a policy."""

from __future__ import annotations

import math
import sys
from functools import lru_cache
from pathlib import Path

import msgspec
import numpy as np

from stromboli.engine import Engine
from stromboli.framework.registry import Registry
from stromboli.lab.cluster import Cluster, read_cluster
from stromboli.lab.generator import Model, generate
from stromboli.lab.readers.named import Reading, read_workload
from stromboli.lab.results import Results
from stromboli.lab.simulation import Settings, simulate
from stromboli.lab.workload import Workload, WorkloadError

#: the part of the main resource that a wide job asks for at least
_WIDE = 0.25
#: figures of queues that are compared
_OF_QUEUES = ("jobs", "ended", "waiting_mean", "waiting_p95", "waiting_max", "slowdown_mean", "share", "evictions")
_PERCENT = 100


class OverTime(msgspec.Struct, frozen=True):
    """Settings of a workload's run."""

    #: as `read_cluster` takes it
    nodes: str
    #: a file with queues of the cluster, empty for none
    queues: str = ""
    period: float = 60.0
    reading: Reading = Reading()
    #: parameters of the generator, with the seed of the trial; None for a file
    model: Model | None = None

    @property
    def files(self) -> list[str]:
        """Files that the cluster is read from."""
        return [name for name in (*self.nodes.split(","), self.queues) if name and Path(name).exists()]

    @property
    def equal_nodes(self) -> str:
        """Nodes that are given by number."""
        return ",".join(part for part in self.nodes.split(",") if not Path(part).exists())

    def workload(self, path: str, seed: int) -> Workload:
        """The jobs. Raises StromboliError."""
        workload = read_once(path, self.reading) if self.model is None else generate(self.model, seed)
        if not len(workload):
            raise WorkloadError(f"{path}: has no jobs")
        return workload

    def run(
        self, path: str, policy: str, seed: int, registry: Registry | None = None
    ) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
        """Figures of the whole and of each queue. Raises StromboliError."""
        workload = self.workload(path, seed)
        cluster = read_cluster(self.nodes, sys.stdin.buffer, self.queues)
        results = simulate(workload, cluster, Engine(policy, registry=registry), Settings(period=self.period))
        return _figures(results), _of_queues(results)


@lru_cache(maxsize=4)
def read_once(path: str, reading: Reading) -> Workload:
    """The jobs of a file."""
    return read_workload(path, reading, sys.stdin.buffer)


def problems(over_time: OverTime, path: str) -> list[str]:
    """Unreadable parts of a workload and a cluster, a line each. Raises StromboliError."""
    cluster: Cluster = read_cluster(over_time.nodes, sys.stdin.buffer, over_time.queues)
    of_jobs = () if over_time.model is not None else read_once(path, over_time.reading).problems
    return [*of_jobs, *cluster.problems]


def _figures(results: Results) -> dict[str, float]:
    total, jobs = results.total, results.jobs
    capacity = float(np.max(results.samples["capacity"], initial=0.0))
    waiting = np.asarray(jobs["waiting"])[np.asarray(jobs["requested"]) >= _WIDE * capacity]
    waited = waiting[~np.isnan(waiting)]
    arriving = total["utilization_while_arriving"]
    figures = {
        # At the end the last jobs run alone; where all came at once that is all there is.
        "utilization": _PERCENT * (total["utilization"] if math.isnan(arriving) else arriving),
        "jobs": total["jobs"],
        "ended": total["ended"],
        "waiting_mean": total["waiting_mean"],
        "waiting_p95": total["waiting_p95"],
        "waiting_max": total["waiting_max"],
        "wide_jobs": float(len(waiting)),
        "wide_waiting_mean": float(waited.mean()) if len(waited) else math.nan,
        "wide_waiting_max": float(waited.max()) if len(waited) else math.nan,
        "slowdown_mean": total["slowdown_mean"],
        "slowdown_median": total["slowdown_median"],
        "evictions": total["evictions"],
        "makespan": total["makespan"],
    }
    return _known(figures)


def _of_queues(results: Results) -> dict[str, dict[str, float]]:
    queues = results.queues
    return {
        str(name): _known({figure: float(queues[figure][number]) for figure in _OF_QUEUES})
        for number, name in enumerate(queues["queue"])
    }


def _known(figures: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in figures.items() if not math.isnan(value)}
