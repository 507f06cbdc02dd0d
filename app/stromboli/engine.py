"""The engine: applies a policy to snapshots. The service and offline tools all decide through this function."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial

from stromboli.api.decisions import Decision
from stromboli.api.errors import StromboliError
from stromboli.discovery import discover
from stromboli.framework.cluster.environment import OFFLINE, Environment
from stromboli.framework.cluster.levels import with_levels
from stromboli.framework.cluster.reservation import PLACE_RESERVED
from stromboli.framework.diagnosis import closing, ignored
from stromboli.framework.diagnosis.explain import why_job
from stromboli.framework.diagnosis.muted import muted
from stromboli.framework.diagnosis.pod_trace import PodTrace
from stromboli.framework.plugin.base import Plugin
from stromboli.framework.registry import Registry
from stromboli.framework.runtime.failures import PluginFailure
from stromboli.framework.runtime.node_questions import Watch
from stromboli.framework.runtime.participants import Tiers
from stromboli.framework.session.handover import environment_after
from stromboli.framework.session.own_nodes import OwnNodesOnly
from stromboli.framework.session.session import Session
from stromboli.kube.attachments import with_attachments
from stromboli.kube.dra.extended import with_device_resources
from stromboli.placement.reservations import place_reserved
from stromboli.policy.document import DEFAULT_POLICY, load_policy
from stromboli.policy.model import PluginOption, Policy
from stromboli.policy.queue_rules import QueueRule
from stromboli.policy.rules import RULES, Compatibility, rules
from stromboli.policy.sessions import SessionSettings
from stromboli.policy.topology import TopologyLevel, TopologySettings
from stromboli.state.snapshot import Snapshot

#: returns seconds; a constant clock suffices when timings are not read
Clock = Callable[[], float]


def _standing() -> float:
    return 0.0


class StateError(StromboliError):
    """The state was created for other plugins: create it with `reads=registry.reads`."""


@dataclass(slots=True)
class SessionResult:
    """The decisions of a session, and the session itself for explanations."""

    decisions: list[Decision]
    session: Session
    #: inputs of the next session: the environment of this one, and what plugins and nominations add
    environment: Environment

    @property
    def conclusive(self) -> bool:
        """Whether nothing was decided, and before `again_at` another session on the same snapshot would decide nothing.

        It never is where that is at once.
        """
        session = self.session
        if self.decisions or session.failures or self.again_at == -math.inf or self.unfinished:
            return False
        return _alike(_without_turns(self.environment), _without_turns(session.view.environment))

    @property
    def again_at(self) -> float:
        """When time alone may have another session decide differently, in seconds since the epoch: at once if it is
        minus infinity, never if infinity."""
        return self.session.view.again_at

    @property
    def unfinished(self) -> bool:
        """Whether the budget was exhausted before all jobs had their turns or were told of, which the next session
        continues."""
        return bool(self.session.budget.unfinished)

    @property
    def put_off(self) -> Collection[str]:
        """The keys of the jobs that the budget did not reach; the reasons of earlier sessions still hold."""
        trace = self.session.view.trace
        return trace.not_reached.union(trace.untold)


def _without_turns(environment: Environment) -> Environment:
    """The state that sessions hand over, without which jobs had their turns."""
    known = environment.left
    return replace(environment, left={name: left for name, left in known.items() if not name.startswith("turns of ")})


def _alike(one: Environment, other: Environment) -> bool:
    """Whether two sessions remember the same; values of plugins that cannot be compared count as different."""
    try:
        return bool(one == other)
    except Exception:
        return False


class Engine:
    """Decides by one policy. Immutable: a new policy needs a new engine."""

    def __init__(
        self,
        policy: str = DEFAULT_POLICY,
        *,
        registry: Registry | None = None,
        compatibility: Compatibility | None = None,
        source: str = "",
        recorded: bool = False,
        plain: bool = False,
    ) -> None:
        """`compatibility` overrides the policy's; the default is strict. `recorded` is for recorded scenarios, see
        `policy.rules`. `plain` places every pod by itself and keeps no answers of plugins about nodes, which takes much
        longer and decides the same.

        Raises PolicyError.
        """
        self.registry = registry or discover()
        self._watch: Watch | None = None
        self._plain = plain
        self._tells = True
        #: the policy as written, and the arguments that override it
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
        self._actions = self._runs(self.policy.actions)

    def decide(
        self,
        snapshot: Snapshot,
        *,
        now: float,
        environment: Environment = OFFLINE,
        clock: Clock = _standing,
        follow: PodTrace | None = None,
    ) -> SessionResult:
        """Run one session at `now`, in seconds since the epoch; `clock` times its parts, and `follow` traces a pod."""
        if not self.rules.volume_limits:
            snapshot = with_attachments(snapshot, local=not self.rules.local_volumes)
        snapshot = with_levels(with_device_resources(snapshot), self.policy.topology.labels)
        self._check_reads(snapshot)
        failures: list[PluginFailure] = []
        tiers = self._tiers(snapshot, environment, failures)
        session = Session(snapshot, self.policy, tiers, self.rules, now=now, environment=environment, plain=self._plain)
        session.kernel.watch = self._watch
        for failure in failures:
            session.points.failures.add(*failure.key, failure.error)
        session.report.tells = self._tells
        session.report.diagnose = partial(why_job, session)
        session.run(self._actions if follow is None else follow.follow(session, self._actions), clock)
        # The report must not keep the session alive.
        session.report.diagnose = None
        if self._tells:
            ignored.tell(session)
        closing.close(session, tells=self._tells)
        return SessionResult(session.decisions, session, environment_after(session))

    @property
    def notes(self) -> list[str]:
        """Parts of the policy that have no effect, a line each."""
        return [*self.policy.notes, *self.muted]

    @property
    def muted(self) -> list[str]:
        """Plugins in tiers where their permits have no effect, a line each."""
        tiers = [[self.registry.plugin(option.name) for option in tier.plugins] for tier in self.policy.tiers]
        return list(muted(tiers, self.rules))

    def acting(self, actions: Sequence[str]) -> Engine:
        """An engine with the same policy but other actions."""
        other = copy(self)
        other.policy = replace(self.policy, actions=tuple(actions))
        other._actions = self._runs(actions)
        return other

    def arguing(self, plugin: str, **arguments: object) -> Engine:
        """An engine with the same policy but other arguments of a plugin that has some."""

        def changed(option: PluginOption) -> PluginOption:
            if option.name != plugin or option.arguments is None:
                return option
            return replace(option, arguments=option.arguments.model_copy(update=arguments))

        other = copy(self)
        tiers = tuple(replace(tier, plugins=tuple(map(changed, tier.plugins))) for tier in self.policy.tiers)
        other.policy = replace(self.policy, tiers=tiers)
        return other

    def levelled(self, label: str) -> Engine:
        """An engine with the same policy and one more level of the topology, the narrowest."""
        other, levels = copy(self), [*self.policy.topology.levels, TopologyLevel(nodeLabel=label)]
        other.policy = replace(self.policy, topology=TopologySettings(levels=levels))
        return other

    def unbounded(self) -> Engine:
        """An engine with the same policy but without a limit on the work of a session."""
        other = copy(self)
        other.policy = replace(self.policy, session=SessionSettings(steps=0))
        return other

    def bounded(self) -> Engine:
        """An engine with the same policy, and with the usual limit on the work of a session where that has none."""
        other = copy(self)
        if not self.policy.session.steps:
            other.policy = replace(self.policy, session=SessionSettings(search=self.policy.session.search))
        return other

    def silent(self) -> Engine:
        """An engine with the same policy that decides the same, but tells no pod or PodGroup why it waits, and no
        queue what it holds."""
        other = copy(self)
        other._tells = False
        return other

    def watched(self, watch: Watch) -> Engine:
        """An engine that reports the steps of its sessions; errors of `watch` end a session."""
        other = copy(self)
        other._watch = watch
        return other

    def _runs(self, actions: Iterable[str]) -> dict[str, Callable[[Session], None]]:
        """The steps of sessions, by name: the actions, and what runs before them."""
        runs: dict[str, Callable[[Session], None]] = {PLACE_RESERVED: place_reserved}
        return runs | {name: self.registry.actions[name]().run for name in actions}

    def _check_reads(self, snapshot: Snapshot) -> None:
        """Raises StateError if the state lacks what the policy's plugins read of pods."""
        for option in (option for tier in self.policy.tiers for option in tier.plugins):
            plugin = self.registry.plugin(option.name)
            if not snapshot.reads >= plugin.reads:
                raise StateError(f"the state lacks what plugin {plugin.name!r} reads of pods: {plugin.reads}")

    def _tiers(self, snapshot: Snapshot, environment: Environment, failures: list[PluginFailure]) -> Tiers:
        """The plugins of the policy, instantiated for one session; one that raises is recorded as a failure and left
        out."""
        tiers: list[list[tuple[Plugin, PluginOption]]] = []
        for options in (*(tier.plugins for tier in self.policy.tiers), self._implied(snapshot)):
            tiers.append([])
            for option in options:
                try:
                    tiers[-1].append((self._plugin(option, environment), option))
                except KeyboardInterrupt:
                    raise
                except BaseException as error:
                    failures.append(PluginFailure(option.name, "__init__", error, "__init__"))
        if environment.sharding is not None and environment.sharding.mode == "hard":
            tiers.insert(0, [(OwnNodesOnly(), PluginOption(OwnNodesOnly.name))])
        return tiers

    def _implied(self, snapshot: Snapshot) -> Sequence[PluginOption]:
        """The plugins that strict rules add to the policy's tiers: evictions that budgets forbid are refused anyway."""
        named = {option.name for tier in self.policy.tiers for option in tier.plugins}
        if not self.rules.budgets or "pdb" in named or "pdb" not in self.registry.plugins:
            return ()
        return (PluginOption("pdb"),) if snapshot.objects.get("PodDisruptionBudget") else ()

    def _plugin(self, option: PluginOption, environment: Environment) -> Plugin:
        plugin = self.registry.plugin(option.name)(option.arguments, hierarchy=option.hierarchy)
        plugin.left = environment.left.get(option.name)
        return plugin


class Successive:
    """Consecutive sessions, each continuing from the state of the last one; `decide` must not run concurrently."""

    def __init__(self, engine: Engine, environment: Environment, clock: Clock = _standing) -> None:
        self.engine = engine
        self.environment = environment
        #: load of nodes for the next session; may be replaced at any time
        self.node_usage = environment.node_usage
        #: usage of queues for the next session; may be replaced at any time
        self.queue_usage = environment.queue_usage
        self._clock = clock

    @property
    def queue_rules(self) -> Sequence[QueueRule]:
        """The policy's rules by which workloads get their queue."""
        return self.engine.policy.queue_rules

    def decide(self, snapshot: Snapshot, *, now: float) -> SessionResult:
        """Run one session at `now`, in seconds since the epoch."""
        told = replace(self.environment, node_usage=self.node_usage, queue_usage=self.queue_usage)
        result = self._run(snapshot, now, told)
        self.environment = result.environment
        return result

    def _run(self, snapshot: Snapshot, now: float, told: Environment) -> SessionResult:
        return self.engine.decide(snapshot, now=now, environment=told, clock=self._clock)
