"""The engine: a policy applied to snapshots. Every shell, live or offline, decides through this one function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace

from stromboli.api.decisions import Decision
from stromboli.api.errors import StromboliError
from stromboli.discovery import discover
from stromboli.framework import closing, ignored
from stromboli.framework.environment import OFFLINE, Environment
from stromboli.framework.failures import PluginFailure
from stromboli.framework.own_nodes import OwnNodesOnly
from stromboli.framework.plugin import Plugin
from stromboli.framework.points import Tiers
from stromboli.framework.registry import Registry
from stromboli.framework.session import Session
from stromboli.kube.attachments import with_attachments
from stromboli.kube.dra.extended import with_device_resources
from stromboli.policy.document import DEFAULT_POLICY, PluginOption, Policy, load_policy
from stromboli.policy.rules import RULES, Compatibility, rules
from stromboli.policy.sessions import SessionSettings
from stromboli.state.snapshot import Snapshot

#: seconds from any moment on; for timings that nobody reads it may stand still
Clock = Callable[[], float]


def _standing() -> float:
    return 0.0


class StateError(StromboliError):
    """The state was made for other plugins than those of the policy: give it `reads=registry.reads`."""


@dataclass(slots=True)
class SessionResult:
    """What one session decided, and the session itself for whoever wants to know why."""

    decisions: list[Decision]
    session: Session
    #: what the next session has to know: this one's environment, and what plugins and nominations add
    environment: Environment

    @property
    def conclusive(self) -> bool:
        """Whether there was nothing to decide, and would not be in a further session on the same snapshot."""
        session = self.session
        if self.decisions or session.failures or session.view.volatile or self.unfinished:
            return False
        return _alike(_without_turns(self.environment), _without_turns(session.view.environment))

    @property
    def unfinished(self) -> bool:
        """Whether the budget ended before all jobs had their turns: the next session goes on with them."""
        return bool(self.session.unfinished)


def _without_turns(environment: Environment) -> Environment:
    """What sessions know beside which jobs had their turns."""
    known = environment.left
    return replace(environment, left={name: left for name, left in known.items() if not name.startswith("turns of ")})


def _alike(one: Environment, other: Environment) -> bool:
    """Whether two sessions know the same; what plugins leave need not compare well."""
    try:
        return bool(one == other)
    except Exception:
        return False


class Engine:
    """Decides by one policy. Immutable: a new policy is a new engine."""

    def __init__(
        self,
        policy: str = DEFAULT_POLICY,
        *,
        registry: Registry | None = None,
        compatibility: Compatibility | None = None,
        source: str = "",
        recorded: bool = False,
    ) -> None:
        """`compatibility` outweighs what the policy says; without either the rules are strict.

        `recorded` is for scenarios that were recorded, see `policy.rules`.

        Raises PolicyError.
        """
        self.registry = registry or discover()
        #: the policy as it is written, and what outweighs what it says
        self.text, self.compatibility = policy, compatibility
        known_actions, known_plugins = self.registry.argument_models()
        self.policy: Policy = load_policy(
            policy,
            known_actions=known_actions,
            known_plugins=known_plugins,
            known_rules=RULES,
            spellings=self.registry.spellings,
            source=source,
        )
        self.rules = rules(compatibility or self.policy.compatibility or "strict", self.policy.rules, recorded=recorded)
        self._actions = {name: self.registry.actions[name]().run for name in self.policy.actions}

    def decide(
        self, snapshot: Snapshot, *, now: float, environment: Environment = OFFLINE, clock: Clock = _standing
    ) -> SessionResult:
        """Run one session at `now`, in seconds since the epoch; `clock` times its parts."""
        if not self.rules.volume_limits:
            snapshot = with_attachments(snapshot, local=not self.rules.local_volumes)
        snapshot = with_device_resources(snapshot)
        self._check_reads(snapshot)
        failures: list[PluginFailure] = []
        tiers = self._tiers(environment, failures)
        session = Session(snapshot, self.policy, tiers, self.rules, now=now, environment=environment)
        for failure in failures:
            session.points.failures.add(*failure.key, failure.error)
        session.run(self._actions, clock)
        ignored.tell(session)
        closing.close(session)
        left = replace(
            environment,
            nominated_hyper_nodes=session.nominated_hyper_nodes(),
            admitted=session.admissions.after_session() if session.admissions is not None else environment.admitted,
            kept=session.keeper.kept,
            room=session.kept_room(),
            churn=session.churn.after_session(),
            left=session.left(),
        )
        return SessionResult(session.decisions, session, left)

    def acting(self, actions: Sequence[str]) -> Engine:
        """The same engine with other actions."""
        other = copy(self)
        other.policy = replace(self.policy, actions=tuple(actions))
        other._actions = {name: self.registry.actions[name]().run for name in actions}
        return other

    def unbounded(self) -> Engine:
        """The same engine with no bound on the work of a session."""
        other = copy(self)
        other.policy = replace(self.policy, session=SessionSettings(steps=0))
        return other

    def _check_reads(self, snapshot: Snapshot) -> None:
        """Raises StateError when the state does not hold what the policy's plugins read of pods."""
        for option in (option for tier in self.policy.tiers for option in tier.plugins):
            plugin = self.registry.plugin(option.name)
            if not snapshot.reads >= plugin.reads:
                raise StateError(f"the state does not hold what plugin {plugin.name!r} reads of pods: {plugin.reads}")

    def _tiers(self, environment: Environment, failures: list[PluginFailure]) -> Tiers:
        """The plugins of the policy, made for one session; one that cannot be made is a failure and left out."""
        tiers: list[list[tuple[Plugin, PluginOption]]] = []
        for tier in self.policy.tiers:
            tiers.append([])
            for option in tier.plugins:
                try:
                    tiers[-1].append((self._plugin(option, environment), option))
                except KeyboardInterrupt:
                    raise
                except BaseException as error:
                    failures.append(PluginFailure(option.name, "__init__", error, "__init__"))
        if environment.sharding is not None and environment.sharding.mode == "hard":
            tiers.insert(0, [(OwnNodesOnly(), PluginOption(OwnNodesOnly.name))])
        return tiers

    def _plugin(self, option: PluginOption, environment: Environment) -> Plugin:
        plugin = self.registry.plugin(option.name)(option.arguments, hierarchy=option.hierarchy)
        plugin.left = environment.left.get(option.name)
        return plugin


class Successive:
    """Sessions one after the other, each knowing what the one before left; `decide` may not run twice at once."""

    def __init__(self, engine: Engine, environment: Environment, clock: Clock = _standing) -> None:
        self.engine = engine
        self.environment = environment
        #: what the next session is told of the load of nodes; may be replaced at any time
        self.node_usage = environment.node_usage
        #: the same of what queues held over time
        self.queue_usage = environment.queue_usage
        self._clock = clock

    def decide(self, snapshot: Snapshot, *, now: float) -> SessionResult:
        """Run one session at `now`, in seconds since the epoch."""
        told = replace(self.environment, node_usage=self.node_usage, queue_usage=self.queue_usage)
        result = self._run(snapshot, now, told)
        self.environment = result.environment
        return result

    def _run(self, snapshot: Snapshot, now: float, told: Environment) -> SessionResult:
        return self.engine.decide(snapshot, now=now, environment=told, clock=self._clock)
