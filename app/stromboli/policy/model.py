"""A policy as it was read: actions, plugins in tiers, and their arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel

from stromboli.api import duration
from stromboli.policy.evictions import EvictionSettings
from stromboli.policy.provisioning import ProvisioningSettings
from stromboli.policy.queue_rules import QueueRule
from stromboli.policy.rules import Compatibility
from stromboli.policy.sessions import SessionSettings
from stromboli.policy.topology import TopologySettings

_EVICTIONS, _PROVISIONING, _SESSION = EvictionSettings(), ProvisioningSettings(), SessionSettings()
_TOPOLOGY = TopologySettings()
#: seconds between two readings of the load of nodes, by default
_METRICS_INTERVAL = 30.0


@dataclass(frozen=True, slots=True)
class PluginOption:
    """A plugin as the policy configures it."""

    name: str
    #: the plugin's arguments with defaults filled in; None for a plugin without arguments
    arguments: BaseModel | None = None
    #: extension points that are switched off for the plugin
    disabled: frozenset[str] = frozenset()
    #: extension points that the policy switches on explicitly
    enabled: frozenset[str] = frozenset()
    #: whether the plugin considers the hierarchy of queues
    hierarchy: bool = False


@dataclass(frozen=True, slots=True)
class Tier:
    """Plugins whose answers are combined before the next tier is asked."""

    plugins: tuple[PluginOption, ...]


@dataclass(frozen=True, slots=True)
class Policy:
    """A valid policy."""

    #: names of actions in the order in which they run, possibly repeated
    actions: tuple[str, ...]
    tiers: tuple[Tier, ...]
    #: action -> its arguments, for actions that take any
    action_arguments: Mapping[str, BaseModel] = field(default_factory=dict)
    #: source of the load of nodes, as written in the file
    metrics: Mapping[str, str] = field(default_factory=dict)
    #: `volcano` or `strict`; None when the file leaves it to the command line
    compatibility: Compatibility | None = None
    #: rule -> `volcano` or `strict`, where it differs from `compatibility`
    rules: Mapping[str, Compatibility] = field(default_factory=dict)
    #: limits on repeated evictions, and the time for which freed resources are reserved
    evictions: EvictionSettings = _EVICTIONS
    #: whether cluster autoscalers are asked for the nodes of whole gangs
    provisioning: ProvisioningSettings = _PROVISIONING
    #: limits on the work of a session
    session: SessionSettings = _SESSION
    #: labels of nodes with their place in the network
    topology: TopologySettings = _TOPOLOGY
    #: by which workloads get their queue; without any they are where they say
    queue_rules: tuple[QueueRule, ...] = ()
    #: keys of the file that have no effect, one line each
    notes: tuple[str, ...] = ()

    @property
    def metrics_interval(self) -> float:
        """Seconds between two readings of the load of nodes, at least 1; an invalid interval gives the default."""
        try:
            seconds = duration.parse(self.metrics.get("interval", ""))
        except ValueError:
            return _METRICS_INTERVAL
        return max(seconds, 1.0) if seconds > 0 else _METRICS_INTERVAL
