"""The measured load of nodes, from a Prometheus that scrapes their exporters under the nodes' names.

The `metrics` of the policy say where it is, as for Volcano: `type: prometheus`, `address`, `interval`, and
`tls.insecureSkipVerify`. The series are node_exporter's; their label `instance` has to be the name of the node.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

import aiohttp
import msgspec

from stromboli.framework.environment import NodeUsage
from stromboli.live.logs import Logger
from stromboli.policy.document import Policy

log = Logger(__name__)

_TIMEOUT = 60.0
#: percent, over the last 10 minutes
_CPU = 'avg_over_time((100 - 100 * avg by (instance) (rate(node_cpu_seconds_total{mode="idle"}[5m])))[10m:30s])'
_MEMORY = (
    "avg_over_time((100 - 100 * avg by (instance) "
    "(node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes))[10m:30s])"
)

Loads = Mapping[str, NodeUsage]


class _Series(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, str]


class _Data(msgspec.Struct):
    result: list[_Series]


class _Answer(msgspec.Struct):
    data: _Data


async def follow(policy: Callable[[], Policy], tell: Callable[[Loads], None]) -> None:
    """Until cancelled, read the loads each interval, as the policy says that is in force then."""
    last = ""
    while True:
        current = policy()
        try:
            if current.metrics:
                tell(await read(current.metrics))
            problem = ""
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            problem = str(error) or type(error).__name__
        if problem and problem != last:
            log.warning("load of nodes not read", error=problem, **current.metrics)
        last = problem
        await asyncio.sleep(current.metrics_interval)


async def read(metrics: Mapping[str, str]) -> Loads:
    """The load of each node that has both series.

    Raises ValueError when the settings or the answer make no sense, aiohttp's errors and TimeoutError when there is no
    answer.
    """
    kind, address = metrics.get("type", ""), metrics.get("address", "")
    if kind != "prometheus":
        raise ValueError(f"metrics.type: {kind!r} is not supported (allowed: prometheus)")
    if not address:
        raise ValueError("metrics.address: is required")
    secure = metrics.get("tls.insecureSkipVerify") != "true"
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=secure), timeout=timeout) as http:
        cpu, memory = [await _query(http, address, expression) for expression in (_CPU, _MEMORY)]
    now = time.time()
    return {
        name: NodeUsage(max(0.0, cpu[name]), max(0.0, memory[name]), now) for name in sorted(cpu.keys() & memory.keys())
    }


async def _query(http: aiohttp.ClientSession, address: str, expression: str) -> dict[str, float]:
    url = f"{address.rstrip('/')}/api/v1/query"
    async with http.get(url, params={"query": expression}, raise_for_status=True) as response:
        answer = msgspec.json.decode(await response.read(), type=_Answer)
    return {series.metric.get("instance", ""): float(series.value[1]) for series in answer.data.result}
