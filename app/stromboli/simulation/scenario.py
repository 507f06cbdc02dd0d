"""Scenario files: a policy, objects, a number of cycles, in one YAML document."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from stromboli.api.errors import InvalidObjectError
from stromboli.engine import Engine
from stromboli.framework.rules import Compatibility
from stromboli.simulation.manifests import decode, describe
from stromboli.simulation.run import Run, feed, run
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
        )

    def run(self, compatibility: Compatibility | None = None, cycles: int | None = None) -> Run:
        """Run the scenario. Raises PolicyError for a policy that cannot be used."""
        engine = Engine(self.config, compatibility=compatibility, source=self.name)
        state = ClusterState((SCENARIO_SCHEDULER,))
        feed(state, self.objects)
        return run(engine, state, cycles=cycles or self.cycles, now=self.now)


def _moment(value: object, where: str) -> float | None:
    if value is None:
        return None
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        return moment.timestamp()
    except ValueError:
        raise InvalidObjectError(where, "now", f"should be an RFC 3339 time, not {value!r}") from None
