"""Queries to the Prometheus server of the policy's `metrics`: `type: prometheus`, `address`, `interval`, and
`tls.insecureSkipVerify`."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias, TypeVar

import aiohttp
import msgspec

from stromboli.live.process.logs import Logger
from stromboli.policy.model import Policy

log = Logger(__name__)

_TIMEOUT = 60.0
#: seconds between two looks at whether another policy is in force
_LOOK = 1.0

T = TypeVar("T")
#: labels of a series and its value
Sample: TypeAlias = tuple[Mapping[str, str], float]


class _Series(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, str]


class _Data(msgspec.Struct):
    result: list[_Series]


class _Answer(msgspec.Struct):
    data: _Data


async def follow(
    what: str, policy: Callable[[], Policy], read: Callable[[Policy], Awaitable[T] | None], tell: Callable[[T], None]
) -> None:
    """Read and report at the interval of the policy in force, and when another takes its place, until cancelled.

    `read` returns None while the policy does not ask for it; `what` names the measurement in the log.
    """
    while True:
        current = policy()
        try:
            answer = read(current)
            if answer is not None:
                tell(await answer)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, RecursionError, msgspec.DecodeError) as error:
            # Only the type, since other settings may be passwords.
            log.recurring(f"{what} not read", error, address=current.metrics.get("address", ""))
        left = current.metrics_interval
        while left > 0 and policy() is current:
            await asyncio.sleep(min(left, _LOOK))
            left -= _LOOK


async def query(metrics: Mapping[str, str], *expressions: str) -> list[Sequence[Sample]]:
    """The current series of each expression.

    Raises ValueError for invalid settings or answers, and aiohttp's errors or TimeoutError without an answer.
    """
    kind, address = metrics.get("type", ""), metrics.get("address", "")
    if kind != "prometheus":
        raise ValueError(f"metrics.type: {kind!r} is not supported (allowed: prometheus)")
    if not address:
        raise ValueError("metrics.address: is required")
    secure = metrics.get("tls.insecureSkipVerify") != "true"
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=secure), timeout=timeout) as http:
        return [await _query(http, address, expression) for expression in expressions]


async def _query(http: aiohttp.ClientSession, address: str, expression: str) -> list[Sample]:
    url = f"{address.rstrip('/')}/api/v1/query"
    async with http.get(url, params={"query": expression}, raise_for_status=True) as response:
        answer = msgspec.json.decode(await response.read(), type=_Answer)
    samples: list[Sample] = [(series.metric, float(series.value[1])) for series in answer.data.result]
    numbers = [sample for sample in samples if math.isfinite(sample[1])]
    if len(numbers) < len(samples):
        strange = next(sample for sample in samples if not math.isfinite(sample[1]))
        log.recurring("measurements ignored", f"{strange[1]} is not a number", count=len(samples) - len(numbers))
    return numbers
