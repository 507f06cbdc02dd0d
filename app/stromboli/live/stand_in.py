"""Schedules for another shard while none of its own replicas does.

The Lease of a shard says how it schedules. Once it has not been renewed for a while, a replica of another shard takes
it and runs a second service beside its own, by its own policy and on the nodes of that shard. A replica of the shard
that finds its lease held so asks for it, and the stand-in ends its service and releases it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Self

import msgspec

from stromboli.live.api_server.client import Credentials, Kube, Object
from stromboli.live.inputs.usage_store import UsageMemory
from stromboli.live.leadership.leader import ASKED_FOR, STANDS_IN, LeaderLease, LeadershipLostError, annotations_of
from stromboli.live.leadership.node_shard import SHARD, ShardTerms
from stromboli.live.observer import Observer
from stromboli.live.process.logs import Logger
from stromboli.live.service import Decider, Service
from stromboli.live.settings import Settings
from stromboli.state.reads import Reads

log = Logger(__name__)

#: seconds before another attempt after a stand-in failed
_PAUSE = 5.0


class StandInLease(LeaderLease):
    """The lease of another shard: taken over after a while without a holder, and given back on request."""

    #: the shard's settings, as the lease said last
    terms: ShardTerms | None = None
    #: seconds for which the lease must have been free
    patience = 0.0

    @classmethod
    def of(cls, settings: Settings, kube: Kube, says: Mapping[str, str] = MappingProxyType({})) -> Self:
        """The lease that some settings name, of another shard."""
        lease = super().of(settings, kube, says)
        lease.patience = settings.stand_in_after
        return lease

    async def _ask_for(self, lease: Object | None) -> None:
        """Another stand-in is as good as this one."""

    def _metadata(self, old: Object, *, ours: bool) -> Object:
        meta = super()._metadata(old, ours=ours)
        return {**meta, "annotations": {**meta["annotations"], STANDS_IN: self.identity}}

    def _may_keep(self, lease: Object | None) -> bool:
        kept = super()._may_keep(lease)
        if ASKED_FOR in annotations_of(lease):
            raise LeadershipLostError(f"lease {self.name} is asked for by its shard")
        return kept

    def _may_take(self, lease: Object | None) -> bool:
        """Whether the lease has had no holder for `patience`; false if it does not exist or does not name a shard."""
        spec, said = (lease or {}).get("spec"), annotations_of(lease).get(SHARD)
        if not isinstance(spec, dict) or not isinstance(said, str):
            return False
        try:
            self.terms = msgspec.json.decode(said, type=ShardTerms)
        except msgspec.DecodeError as error:
            log.recurring("shard of a lease not understood", error, lease=self.name)
            return False
        if spec.get("holderIdentity") == self.identity:
            return True
        seen = (spec.get("holderIdentity"), spec.get("renewTime"))
        if seen != self._seen:
            lasts = self._length(spec) if seen[0] else 0
            self._seen, self._ends = seen, self._clock() + lasts + self.patience
        return self._clock() > self._ends


class Deputy(Service):
    """A service for another shard, in the process of one that has the signals, the pod's label and the port."""

    def __init__(
        self,
        lease: LeaderLease,
        settings: Settings,
        load: Callable[[str | None], Decider],
        observer: Observer,
        credentials: Credentials,
        reads: Reads,
        usage: UsageMemory,
    ) -> None:
        """Run like a `Service`, with a lease that it already holds."""
        self._held = lease
        super().__init__(settings, load, observer, credentials, reads, usage)

    def _make_lease(self) -> LeaderLease:
        return self._held

    @property
    def _pod_name(self) -> str:
        return ""

    @contextmanager
    def _stopped_by_signals(self) -> Iterator[None]:
        yield


class StandIn:
    """Watches the lease of one other shard, and schedules for the shard when it has to."""

    def __init__(
        self, lease: Callable[[], StandInLease], schedule: Callable[[ShardTerms, LeaderLease], Awaitable[None]]
    ) -> None:
        """`schedule` lasts until the lease that it is given is lost, and raises LeadershipLostError then."""
        self._lease = lease
        self._schedule = schedule

    async def run(self) -> None:
        """Stand in whenever that is needed, until cancelled."""
        while True:
            lease = self._lease()
            await lease.acquire()
            assert lease.terms is not None
            log.warning("standing in for a shard", shard=lease.terms.name, lease=lease.name)
            try:
                await self._schedule(lease.terms, lease)
            except LeadershipLostError as error:
                log.info("no longer standing in", shard=lease.terms.name, why=str(error))
            except Exception as error:
                # A shard without replicas must not end another one.
                log.recurring("standing in failed", error, traced=True, shard=lease.terms.name)
                await asyncio.sleep(_PAUSE)
