"""What questions delay: other requests, quiet and while four people ask what would be with thousands of odd pods.

    python -m tests.tenants.questions [--nodes 500] [--pods 3000] [--seconds 30]

runs the service on a real control plane, and prints for each request its median and 99th percentile. It ends with 1
when one waits more than 0.1 s longer than on the quiet service at the 99th percentile.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path

import httpx

from tests.e2e.service import Service
from tests.e2e.world import Object, pod
from tests.tenants.__main__ import cluster_of
from tests.tenants.bystander import quantile

#: seconds that a request may take longer, and between two of them
_MORE, _PAUSE = 0.1, 0.05
#: people who ask at the same time
_ASKERS = 4


def main() -> int:
    """Measure requests, quiet and beside what-ifs; the exit code says whether all stay within the bar."""
    parser = argparse.ArgumentParser(prog="tests.tenants.questions", description=__doc__)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--pods", type=int, default=3_000, help="in each change that is tried")
    parser.add_argument("--seconds", type=float, default=30.0)
    arguments = parser.parse_args()
    with cluster_of(arguments.nodes) as (cluster, _, _), tempfile.TemporaryDirectory() as folder:
        service = Service(cluster.kubeconfig(), Path(folder) / "log").wait_ready()
        try:
            asked = {"metadata": {"name": "asked", "namespace": "default"}, "spec": {"containers": [{"name": "main"}]}}
            names = [f"node-{at}" for at in range(arguments.nodes)]
            requests: Mapping[str, Callable[[httpx.Client], object]] = {
                "/readyz": lambda http: http.get("/readyz"),
                "/metrics": lambda http: http.get("/metrics"),
                "/filter": lambda http: http.post("/filter", json={"Pod": asked, "NodeNames": names}),
            }
            measured = []
            for load in (nullcontext(), _asking(service.url, arguments.pods)):
                with load, httpx.Client(base_url=service.url, trust_env=False, timeout=60) as http:
                    measured.append({name: _times(http, ask, arguments.seconds) for name, ask in requests.items()})
        finally:
            service.end()
    quiet, beside = measured
    print("| request | quiet p50, p99 | beside what-ifs p50, p99 |")
    print("|---|---|---|")
    for name in requests:
        cells = (f"{quantile(each[name], 0.5):.3f}, {quantile(each[name], 0.99):.3f} s" for each in measured)
        print(f"| {name} | {' | '.join(cells)} |")
    return int(any(quantile(beside[name], 0.99) > quantile(quiet[name], 0.99) + _MORE for name in requests))


@contextmanager
def _asking(url: str, pods: int) -> Iterator[None]:
    """People who ask over and over; it says how many answers they got of each status."""
    body = {"apiVersion": "v1", "kind": "List", "items": [_odd(number) for number in range(pods)]}
    stop, answers = threading.Event(), Counter[int]()

    def ask() -> None:
        with httpx.Client(base_url=url, trust_env=False, timeout=120) as http:
            while not stop.is_set():
                answers[http.post("/api/v1/whatif", json=body).status_code] += 1

    askers = [threading.Thread(target=ask, daemon=True) for _ in range(_ASKERS)]
    for each in askers:
        each.start()
    try:
        yield
    finally:
        stop.set()
        print(f"what-ifs were answered with {dict(answers)}", file=sys.stderr)


def _odd(number: int) -> Object:
    return pod(f"odd-{number}", cpu=f"{number + 1}m") | {"kind": "Pod"}


def _times(http: httpx.Client, ask: Callable[[httpx.Client], object], seconds: float) -> list[float]:
    """How long a request took, each time that it was made."""
    found, end = list[float](), time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.perf_counter()
        ask(http)
        found.append(time.perf_counter() - began)
        time.sleep(_PAUSE)
    return found


if __name__ == "__main__":
    sys.exit(main())
