"""Scenario files: a policy, objects, a number of cycles, in one YAML document."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from stromboli.api.errors import InvalidObjectError
from stromboli.engine import Engine
from stromboli.framework.environment import Environment, NodeUsage, Sharding
from stromboli.framework.registry import Registry
from stromboli.policy.rules import Compatibility
from stromboli.simulation.manifests import decode, describe
from stromboli.simulation.run import Run, feed, run
from stromboli.simulation.scripted_extender import ScriptedExtender
from stromboli.state.cluster import ClusterState

#: the scheduler name of recorded scenarios
SCENARIO_SCHEDULER = "volcano"


@dataclass(slots=True)
class Scenario:
    """A scenario, decoded."""

    name: str
    config: str
    cycles: int
    objects: list[tuple[str, Any]] = field(default_factory=list)
    #: the scenario's clock, seconds since the epoch
    now: float | None = None
    #: load by node: cpu and memory in percent, ageSeconds, period
    node_usage: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    sharding: Sharding | None = None
    #: what answers the extender plugin; None where the scenario has no extender
    extender: ScriptedExtender | None = None
    #: seconds since rescheduling last looked for victims; None for never
    rescheduled_ago: float | None = None
    #: whether pods keep the nodes that were nominated for them from one cycle to the next
    writes_nominated: bool = False

    @classmethod
    def parse(cls, document: dict[str, Any]) -> Scenario:
        """Decode a scenario document. Raises InvalidObjectError."""
        where = f"{document.get('source', 'scenario')}: {document.get('name', '')}".rstrip(": ")
        cycles = document.get("cycles", 1)
        if not isinstance(cycles, int) or cycles < 1:
            raise InvalidObjectError(where, "cycles", f"should be a positive number, not {cycles!r}")
        objects = []
        for number, manifest in enumerate(document["objects"] or (), 1):
            kind = manifest.get("kind", "") if isinstance(manifest, dict) else ""
            if not kind:
                raise InvalidObjectError(f"{where}: object {number}", "kind", "is missing")
            objects.append((kind, decode(kind, manifest, f"{where}: {describe(kind, manifest)}")))
        return cls(
            name=str(document.get("name", "")),
            config=document["config"],
            cycles=cycles,
            objects=objects,
            now=_moment(document.get("now"), where),
            node_usage=document.get("nodeUsage") or {},
            sharding=Sharding(**document["sharding"]) if document.get("sharding") else None,
            extender=ScriptedExtender.parse(document["extender"], where) if "extender" in document else None,
            rescheduled_ago=document.get("lastRescheduleAgeSeconds"),
            writes_nominated=bool(document.get("writeBackNominated")),
        )

    def run(
        self,
        compatibility: Compatibility | None = None,
        cycles: int | None = None,
        registry: Registry | None = None,
    ) -> Run:
        """Run the scenario. Raises PolicyError for a policy that cannot be used."""
        engine = Engine(self.config, registry=registry, compatibility=compatibility, source=self.name)
        state = ClusterState((SCENARIO_SCHEDULER,))
        feed(state, self.objects)
        now = time.time() if self.now is None else self.now
        return run(
            engine,
            state,
            cycles=cycles or self.cycles,
            now=now,
            environment=self._environment(now),
            nominating=self.writes_nominated,
        )

    def _environment(self, now: float) -> Environment:
        usage = {
            node: NodeUsage(
                cpu=sample.get("cpu", 0.0),
                memory=sample.get("memory", 0.0),
                measured=now - sample.get("ageSeconds", 0),
                period=sample.get("period", "10m"),
            )
            for node, sample in self.node_usage.items()
        }
        ago = self.rescheduled_ago
        return Environment(
            node_usage=usage,
            extender=self.extender,
            sharding=self.sharding,
            rescheduled=None if ago is None else now - ago,
        )


def _moment(value: object, where: str) -> float | None:
    if value is None:
        return None
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        return moment.timestamp()
    except ValueError:
        raise InvalidObjectError(where, "now", f"should be an RFC 3339 time, not {value!r}") from None
