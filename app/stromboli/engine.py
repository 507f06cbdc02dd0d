"""The engine: a policy applied to snapshots. Every shell, live or offline, decides through this one function."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from stromboli.api.decisions import Decision
from stromboli.discovery import discover
from stromboli.framework import closing
from stromboli.framework.environment import Environment
from stromboli.framework.registry import Registry
from stromboli.framework.session import Session
from stromboli.kube.attachments import with_attachments
from stromboli.policy.document import DEFAULT_POLICY, Policy, load_policy
from stromboli.policy.rules import RULES, Compatibility, rules
from stromboli.state.snapshot import Snapshot

_NOWHERE = Environment()


@dataclass(slots=True)
class SessionResult:
    """What one session decided, and the session itself for whoever wants to know why."""

    decisions: list[Decision]
    session: Session

    @property
    def environment(self) -> Environment:
        """What the next session has to know: this one's environment, and what plugins and nominations add."""
        nominated = self.session.nominated_hyper_nodes()
        return replace(self.session.afterwards, nominated_hyper_nodes=nominated)

    @property
    def settled(self) -> bool:
        """Whether there was nothing to decide, and would not be in a further session on the same snapshot."""
        session = self.session
        if self.decisions or session.failures or session.volatile:
            return False
        return self.environment == session.environment


class Engine:
    """Decides by one policy. Immutable: a new policy is a new engine."""

    def __init__(
        self,
        policy: str = DEFAULT_POLICY,
        *,
        registry: Registry | None = None,
        compatibility: Compatibility | None = None,
        source: str = "",
    ) -> None:
        """`compatibility` outweighs what the policy says; without either the rules are strict.

        Raises PolicyError.
        """
        self.registry = registry or discover()
        known_actions, known_plugins = self.registry.argument_models()
        self.policy: Policy = load_policy(
            policy,
            known_actions=known_actions,
            known_plugins=known_plugins,
            known_rules=RULES,
            source=source,
        )
        self.rules = rules(compatibility or self.policy.compatibility or "strict", self.policy.rules)
        self._actions = {name: action().run for name, action in self.registry.actions.items()}

    def decide(self, snapshot: Snapshot, *, now: float, environment: Environment = _NOWHERE) -> SessionResult:
        """Run one session at `now`, in seconds since the epoch."""
        if not self.rules.volume_limits:
            snapshot = with_attachments(snapshot)
        session = Session(snapshot, self.policy, self.registry, self.rules, now=now, environment=environment)
        session.run(self._actions, time.perf_counter)
        closing.close(session)
        return SessionResult(session.decisions, session)


class Successive:
    """Sessions one after the other, each knowing what the one before left; `decide` may not run twice at once."""

    def __init__(self, engine: Engine, environment: Environment) -> None:
        self.engine = engine
        self.environment = environment
        #: what the next session is told of the load of nodes; may be replaced at any time
        self.node_usage = environment.node_usage

    def decide(self, snapshot: Snapshot, *, now: float) -> SessionResult:
        """Run one session at `now`, in seconds since the epoch."""
        result = self.engine.decide(
            snapshot, now=now, environment=replace(self.environment, node_usage=self.node_usage)
        )
        self.environment = result.environment
        return result
