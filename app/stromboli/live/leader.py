"""Leader election by a Lease: of several replicas one schedules.

A candidate judges a foreign lease by how long *it* has seen it unchanged, so clocks of different machines need not
agree. A leader that could not renew in time stops before others may begin.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from stromboli.live.client import CONNECTION_ERRORS, ApiError, Kube, Object
from stromboli.live.logs import Logger

log = Logger(__name__)


class LeadershipLostError(Exception):
    """Another replica leads now, or may do so soon."""


class LeaderLease:
    """One replica's view of the Lease. All durations are in seconds."""

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        name: str,
        identity: str,
        *,
        duration: float = 15.0,
        renew_deadline: float = 10.0,
        retry_period: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.identity = identity
        self._kube = kube
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._path = f"{self._collection}/{name}"
        self._namespace = namespace
        self._name = name
        self._duration = duration
        self._renew_deadline = renew_deadline
        self._retry_period = retry_period
        self._clock = clock
        #: when we last renewed, None while another leads
        self._renewed: float | None = None
        #: the foreign lease as last seen, and since when it is unchanged
        self._seen: tuple[Any, float] = (None, 0.0)

    @property
    def leads(self) -> bool:
        """Whether this replica may act now."""
        return self._renewed is not None and self._clock() - self._renewed < self._renew_deadline

    async def acquire(self) -> None:
        """Return when this replica leads."""
        while True:
            if await self._try():
                break
            await asyncio.sleep(self._retry_period)
        log.info("leading", lease=self._name, identity=self.identity)

    async def hold(self) -> None:
        """Renew until that fails; raises LeadershipLostError."""
        while True:
            await asyncio.sleep(self._retry_period)
            await self._try()
            if not self.leads:
                self._renewed = None
                raise LeadershipLostError(f"lease {self._namespace}/{self._name}")

    async def release(self) -> None:
        """Let another replica lead at once."""
        if not self.leads:
            return
        self._renewed = None
        try:
            lease = await self._kube.get(self._path)
            if lease.get("spec", {}).get("holderIdentity") == self.identity:
                spec = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
                await self._kube.replace(self._path, {**lease, "spec": spec})
        except (ApiError, *CONNECTION_ERRORS) as error:
            log.info("lease not released", lease=self._name, error=str(error) or repr(error))

    async def _try(self) -> bool:
        """Take or renew the lease; returns whether that succeeded."""
        started = self._clock()
        try:
            async with asyncio.timeout(self._renew_deadline):
                taken = await self._write()
        except (ApiError, *CONNECTION_ERRORS) as error:
            log.info("lease not written", lease=self._name, error=str(error) or repr(error))
            return False
        if taken:
            self._renewed = started
        elif self._renewed is not None:
            self._renewed = None
        return taken

    async def _write(self) -> bool:
        try:
            lease = await self._kube.get(self._path)
        except ApiError as error:
            if error.status != 404:
                raise
            meta = {"name": self._name, "namespace": self._namespace}
            manifest = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta}
            await self._kube.create(self._collection, {**manifest, "spec": self._spec({})})
            return True
        spec = lease.get("spec") or {}
        if not self._is_free(spec):
            return False
        await self._kube.replace(self._path, {**lease, "spec": self._spec(spec)})
        return True

    def _is_free(self, spec: Object) -> bool:
        if spec.get("holderIdentity") in (None, "", self.identity):
            return True
        observed = (spec.get("holderIdentity"), spec.get("renewTime"))
        if observed != self._seen[0]:
            self._seen = (observed, self._clock())
        return self._clock() - self._seen[1] > float(spec.get("leaseDurationSeconds") or self._duration)

    def _spec(self, old: Object) -> Object:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        ours = old.get("holderIdentity") == self.identity
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, round(self._duration)),
            "renewTime": now,
            "acquireTime": old.get("acquireTime", now) if ours else now,
            "leaseTransitions": int(old.get("leaseTransitions") or 0) + (0 if ours or not old else 1),
        }
