"""What a month of jobs costs: the beginning of 100,000 jobs on 1,000 nodes, over time, in CPU time and calls.

    python -m tests.perf.bench_month [--jobs N] [--load PART] [--policy FILE] [--calls] [--profile N]

The workload is a month by the model of Lublin and Feitelson, on nodes of 32 cpus, seven tenths of which it asks for;
`--jobs` is how many of its jobs are run. With `--calls` functions are counted instead of timed: on a machine that does
other work as well calls are what can be compared. The digest is that of all starts and ends, so that two versions can
be told to decide the same. The exit code is 1 when a whole month would take more than 300 s of CPU.
"""

from __future__ import annotations

import argparse
import cProfile
import hashlib
import pstats
import time
from pathlib import Path

import numpy as np

from stromboli.engine import Engine
from stromboli.lab.cluster import equal_nodes
from stromboli.lab.generator import Model, generate
from stromboli.lab.results import Results
from stromboli.lab.simulation import Settings, simulate
from stromboli.policy.document import DEFAULT_POLICY

#: CPU seconds that a month may take
_BAR = 300.0
_MONTH = Model(jobs=100_000, processors=32_000, largest=512, load=0.7)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--jobs", type=int, default=10_000, help="jobs of the month that are run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--load", type=float, default=_MONTH.load, help="part of the cluster that jobs ask for")
    parser.add_argument("--policy", type=Path, help="policy file; the default policy without it")
    parser.add_argument("--calls", action="store_true", help="count calls of functions")
    parser.add_argument("--profile", type=int, default=0, help="print so many functions")
    options = parser.parse_args()
    model = Model(jobs=_MONTH.jobs, processors=_MONTH.processors, largest=_MONTH.largest, load=options.load)
    jobs = generate(model, options.seed).select(slice(options.jobs))
    cluster = equal_nodes(1_000, {"cpu": "32", "memory": "256Gi"})
    engine = Engine(options.policy.read_text(encoding="utf-8") if options.policy else DEFAULT_POLICY)
    profile = cProfile.Profile() if options.calls or options.profile else None
    began = time.process_time()
    if profile is not None:
        profile.enable()
    results = simulate(jobs, cluster, engine, Settings(period=60.0))
    if profile is not None:
        profile.disable()
    took, sessions = time.process_time() - began, int(results.total["sessions"])
    whole = took * model.jobs / len(jobs)
    print(f"{len(jobs):,} jobs, {sessions:,} sessions, digest {_digest(results)}")
    print(f"{took:.1f} s of CPU, {1000 * took / sessions:.2f} ms a session; a month {whole:,.0f} s")
    if profile is None:
        return 0 if whole <= _BAR else 1
    stats = pstats.Stats(profile)
    print(f"{stats.total_calls:,} calls, {stats.total_calls / sessions:,.0f} a session")  # type: ignore[attr-defined]
    if options.profile:
        stats.sort_stats("tottime").print_stats(options.profile)
    return 0


def _digest(results: Results) -> str:
    """Of when jobs started and ended."""
    digest = hashlib.sha256()
    for name in ("started", "ended"):
        digest.update(np.ascontiguousarray(results.jobs[name]).tobytes())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    raise SystemExit(main())
