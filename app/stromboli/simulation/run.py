"""Running sessions on loaded objects, several in a row if asked, with a cluster's changes in between."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from stromboli.api.decisions import Bind, Evict, Nominate
from stromboli.api.errors import StromboliError
from stromboli.api.pod_state import PodState
from stromboli.api.requests import counted
from stromboli.engine import Engine, SessionResult, Successive
from stromboli.explain.rehearsal import Rehearsal, advance
from stromboli.explain.settled import asks_for_another
from stromboli.framework.cluster.environment import OFFLINE, Environment
from stromboli.framework.runtime.failures import PluginFailure
from stromboli.framework.session.session import Session
from stromboli.simulation.manifests import in_order
from stromboli.state.classes import pod_request
from stromboli.state.cluster import ClusterState
from stromboli.state.snapshot import Snapshot


class SessionFailedError(StromboliError):
    """A session that could not be ended."""


@dataclass(slots=True)
class Run:
    """The events of all cycles, and the last session."""

    session: Session
    bindings: dict[str, str] = field(default_factory=dict)
    evicted: dict[str, str] = field(default_factory=dict)
    nominated: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, dict[str, str]] = field(default_factory=dict)
    #: the job of each pod that was seen, by pod key
    jobs: dict[str, str] = field(default_factory=dict)
    #: queues with an amount of some extended resource in an earlier cycle
    named: set[str] = field(default_factory=set)
    #: plugins that raised, and where
    failures: list[PluginFailure] = field(default_factory=list)
    #: counts of each cycle
    cycles: list[dict[str, int]] = field(default_factory=list)
    #: tries changes on the state that the last session found
    rehearsal: Rehearsal | None = None


def feed(state: ClusterState, loaded: Iterable[tuple[str, Any]]) -> None:
    """Put objects into a state, kind by kind."""
    objs = in_order(loaded)
    # Figures tell by name what queues ask for; the number of names in a file is bounded.
    state.give_columns(name for kind, obj in objs if kind == "Pod" for name in pod_request(counted(obj).spec))
    with state.expecting(objs):
        for kind, obj in objs:
            state.upsert(kind, obj)


def run(
    engine: Engine,
    state: ClusterState,
    *,
    cycles: int = 1,
    now: float | None = None,
    environment: Environment = OFFLINE,
    nominating: bool = True,
) -> Run:
    """Run `cycles` sessions. In between bound pods start to run, evicted ones go, and statuses are written.

    `nominating` says whether the statuses of pods are, in which the node stands that others leave for them.
    """
    out: Run | None = None
    successive = Successive(engine.unbounded(), environment)
    cycle, last, without = 0, cycles, set[str]()
    while cycle < last:
        moment = time.time() if now is None else now
        result = _decide(successive, state.snapshot(), moment)
        if out is None:
            out = Run(result.session)
        else:
            out.named |= {name for name, gauges in out.session.report.gauges.items() if gauges.names_extended}
        out.session = result.session
        out.failures += result.session.failures
        out.jobs |= {record.key: record.job for record in result.session.view.pods.records if record is not None}
        bound = evicted = 0
        for decision in result.decisions:
            match decision:
                case Bind(node=node, annotations=annotations):
                    bound += 1
                    out.bindings[decision.key] = node
                    if annotations:
                        out.annotations[decision.key] = dict(annotations)
                case Evict(node=node):
                    evicted += 1
                    out.evicted[decision.key] = node
                case Nominate(node=node):
                    out.nominated[decision.key] = node
        pipelined = int((result.session.view.pods.state == PodState.Pipelined).sum())
        out.cycles.append({"bound": bound, "evicted": evicted, "pipelined": pipelined})
        cycle += 1
        last = max(last, cycle + asks_for_another(result.session, without))
        if cycle < last:
            advance(state, result.decisions, moment, nominating=nominating)
    assert out is not None
    out.rehearsal = Rehearsal(engine, state, out.session.view.environment, moment)
    return out


def _decide(successive: Successive, snapshot: Snapshot, now: float) -> SessionResult:
    """Run one session. Raises SessionFailedError for an error that it cannot contain."""
    try:
        return successive.decide(snapshot, now=now)
    except (Exception, SystemExit) as error:
        raise SessionFailedError(f"the session failed: {error!r}") from error
