"""Scenario files: a policy, objects, a number of cycles, in one YAML document."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from stromboli.api.errors import InvalidObjectError
from stromboli.api.validation import describe, field_path, problem_of_key, readable, shown
from stromboli.engine import Engine
from stromboli.framework.cluster.environment import Environment, NodeUsage, Sharding
from stromboli.framework.registry import Registry
from stromboli.policy.rules import Compatibility
from stromboli.simulation.manifests import decode
from stromboli.simulation.run import Run, feed, run
from stromboli.simulation.scripted_extender import ScriptedExtender
from stromboli.state.cluster import ClusterState

#: the scheduler name of recorded scenarios
SCENARIO_SCHEDULER = "volcano"
#: sessions in a row
MOST_CYCLES = 1_000


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)


class _Load(_Model):
    """The load of a node, in percent, measured `ageSeconds` before the scenario's time."""

    cpu: float = 0.0
    memory: float = 0.0
    age_seconds: float = 0.0
    period: str = "10m"


class _Sharding(_Model):
    """Division of the nodes among schedulers."""

    mode: Literal["hard", "soft"]
    name: str = "volcano"


class _Document(_Model):
    """A scenario as it is written."""

    name: str = ""
    origin: str = ""
    note: str = ""
    config: str
    cycles: int = Field(default=1, ge=1, le=MOST_CYCLES)
    objects: list[Any] | None = None
    now: str | None = None
    node_usage: dict[str, _Load] | None = None
    extender: Any = None
    sharding: _Sharding | None = None
    last_reschedule_age_seconds: float | None = None
    write_back_nominated: bool = False
    panic_on_error: bool | None = None
    expect: Any = None
    #: the file that it was read from
    source: str = "scenario"


@dataclass(frozen=True, slots=True)
class Prepared:
    """Inputs of a scenario's sessions."""

    engine: Engine
    state: ClusterState
    environment: Environment
    now: float

    def run(self, cycles: int, *, nominating: bool) -> Run:
        """A number of sessions; the state is then as the last of them found it."""
        return run(
            self.engine,
            self.state,
            cycles=cycles,
            now=self.now,
            environment=self.environment,
            nominating=nominating,
        )


@dataclass(slots=True)
class Scenario:
    """A scenario, decoded."""

    name: str
    config: str
    cycles: int
    objects: list[tuple[str, Any]] = field(default_factory=list)
    #: the scenario's clock, seconds since the epoch
    now: float | None = None
    #: load by node
    node_usage: Mapping[str, _Load] = field(default_factory=dict)
    sharding: Sharding | None = None
    #: transport of the extender plugin; None where the scenario has no extender
    extender: ScriptedExtender | None = None
    #: seconds since rescheduling last looked for victims; None for never
    rescheduled_ago: float | None = None
    #: whether pods keep the nodes that were nominated for them from one cycle to the next
    writes_nominated: bool = False

    @classmethod
    def parse(cls, document: dict[str, Any], *, lenient: bool = False) -> Scenario:
        """Decode a scenario document. Raises InvalidObjectError."""
        where = str(document.get("source", "scenario"))
        if isinstance(document.get("name"), str) and document["name"]:
            where = f"{where}: {readable(document['name'])}"
        try:
            written = _Document.model_validate(document)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise InvalidObjectError(where, field_path(first["loc"]), _problem(first)) from None
        sharding = written.sharding
        return cls(
            name=written.name,
            config=written.config,
            cycles=written.cycles,
            objects=[_decoded(each, where, number, lenient) for number, each in enumerate(written.objects or (), 1)],
            now=_moment(written.now, where),
            node_usage=written.node_usage or {},
            sharding=Sharding(sharding.mode, sharding.name) if sharding else None,
            extender=None if written.extender is None else ScriptedExtender.parse(written.extender, where),
            rescheduled_ago=written.last_reschedule_age_seconds,
            writes_nominated=written.write_back_nominated,
        )

    def run(
        self,
        compatibility: Compatibility | None = None,
        cycles: int | None = None,
        registry: Registry | None = None,
    ) -> Run:
        """Run the scenario. Raises PolicyError for a policy that cannot be used."""
        return self.prepared(compatibility, registry).run(cycles or self.cycles, nominating=self.writes_nominated)

    def prepared(self, compatibility: Compatibility | None = None, registry: Registry | None = None) -> Prepared:
        """The scenario before its first session. Raises PolicyError for a policy that cannot be used."""
        engine = Engine(self.config, registry=registry, compatibility=compatibility, source=self.name, recorded=True)
        state = ClusterState((SCENARIO_SCHEDULER,), reads=engine.registry.reads)
        feed(state, self.objects)
        now = time.time() if self.now is None else self.now
        return Prepared(engine, state, self._environment(now), now)

    def _environment(self, now: float) -> Environment:
        usage = {
            node: NodeUsage(
                cpu=sample.cpu,
                memory=sample.memory,
                measured=now - sample.age_seconds,
                period=sample.period,
            )
            for node, sample in self.node_usage.items()
        }
        ago = self.rescheduled_ago
        return Environment(
            node_usage=usage,
            extender=self.extender,
            sharding=self.sharding,
            left={} if ago is None else {"rescheduling": now - ago},
        )


def _decoded(manifest: Any, where: str, number: int, lenient: bool) -> tuple[str, Any]:
    kind = manifest.get("kind") if isinstance(manifest, dict) else None
    if not isinstance(kind, str) or not kind:
        raise InvalidObjectError(f"{where}: object {number}", "kind", f"is needed, not {shown(manifest)}")
    return kind, decode(kind, manifest, f"{where}: {describe(kind, manifest)}", lenient=lenient)


def _problem(error: ErrorDetails) -> str:
    return problem_of_key(error, [info.alias or name for name, info in _Document.model_fields.items()])


def _moment(value: str | None, where: str) -> float | None:
    if value is None:
        return None
    try:
        return datetime.fromisoformat(value).timestamp()
    except (ValueError, OverflowError, OSError):
        raise InvalidObjectError(where, "now", f"should be an RFC 3339 time, not {shown(value)}") from None
