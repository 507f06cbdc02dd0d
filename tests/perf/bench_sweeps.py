"""How much sooner a sweep is done on a Dask cluster of two workers than on one of one, on the cores of this machine.

    python -m tests.perf.bench_sweeps [--jobs N] [--trials N]

The trials are alike: jobs of one model under the default policy, with a seed each. Wall time counts from the first
trial that is given to the workers to the last outcome; what else the machine does meanwhile counts, too. Needs the
extra `dask`. The exit code is 1 when two workers take more than 0.6 of the time of one.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from distributed import LocalCluster

from stromboli.lab.generator import Model
from stromboli.lab.over_time import OverTime
from stromboli.lab.sweep import on_dask
from stromboli.lab.trials import Policy, Trial
from stromboli.policy.document import DEFAULT_POLICY

#: what two workers may take of the time of one
_BAR = 0.6


def seconds(workers: int, trials: list[Trial]) -> float:
    """How long a cluster of so many processes takes for trials, after one that warms each up."""
    with LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        protocol="tcp",
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
    ) as cluster:
        address = cluster.scheduler_address
        list(on_dask(trials[:1] * workers, address))
        began = time.perf_counter()
        outcomes = list(on_dask(trials, address))
        took = time.perf_counter() - began
    assert len(outcomes) == len(trials)
    return took


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--jobs", type=int, default=300, help="jobs of each trial")
    parser.add_argument("--trials", type=int, default=12)
    options = parser.parse_args()
    over_time = OverTime("16*cpu=32,memory=256Gi", model=Model(jobs=options.jobs, processors=512))
    policy = Policy("default", DEFAULT_POLICY)
    trials = [Trial("made", "", policy, seed, over_time=over_time) for seed in range(options.trials)]
    one, two = seconds(1, trials), seconds(2, trials)
    print(f"{options.trials} trials of {options.jobs} jobs: {one:.1f} s with one worker, {two:.1f} s with two")
    print(f"ratio {two / one:.2f}, {_BAR} at most; load of the machine {os.getloadavg()[0]:.1f}")
    return 0 if two <= _BAR * one else 1


if __name__ == "__main__":
    sys.exit(main())
