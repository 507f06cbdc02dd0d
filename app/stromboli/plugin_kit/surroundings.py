"""The environment of a checked plugin or action: the built-in ones, a policy that uses them all, and objects."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from stromboli.api.errors import InvalidObjectError
from stromboli.discovery import discover
from stromboli.engine import Engine, SessionResult
from stromboli.framework.action import Action
from stromboli.framework.plugin.base import Plugin
from stromboli.framework.registry import Registry
from stromboli.policy.rules import Compatibility
from stromboli.simulation.admission import admit
from stromboli.simulation.manifests import load
from stromboli.simulation.run import feed
from stromboli.state.cluster import ClusterState
from stromboli.state.reads import Reads

#: schedulerName of the pods to place
SCHEDULER = "stromboli"
_ACTIONS = (
    "enqueue",
    "allocate",
    "backfill",
    "consolidation",
    "gangpreempt",
    "gangreclaim",
    "preempt",
    "reclaim",
    "shuffle",
    "stalegangeviction",
    "timeouts",
)
_TIERS = (
    ("priority", "gang", "conformance"),
    ("predicates", "proportion", "nodeorder", "network-topology-aware"),
)
#: plugins that divide the cluster among queues, which replace proportion
_INSTEAD = frozenset(("capacity", "fairshare"))


def registry_with(*tried: type[Plugin] | type[Action], known: Registry | None = None) -> Registry:
    """The actions and plugins that a policy can name, with the checked one."""
    known = known or discover()
    return Registry(
        known.actions | {each.name: each for each in tried if issubclass(each, Action)},
        known.plugins | {each.name: each for each in tried if issubclass(each, Plugin)},
    )


def policy_with(plugin: str = "", action: str = "", arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A policy with the usual plugins and actions and one more plugin, or with one action alone.

    The plugin is in the first tier, so that it is asked before others decide.
    """
    names = [[name for name in tier if name != "proportion" or plugin not in _INSTEAD] for tier in _TIERS]
    if plugin and not any(plugin in tier for tier in names):
        names[0].append(plugin)
    tiers: list[list[dict[str, Any]]] = [[{"name": name} for name in tier] for tier in names]
    for option in (option for tier in tiers for option in tier if option["name"] == plugin and arguments):
        option["arguments"] = dict(arguments or {})
    document: dict[str, Any] = {
        "actions": action or ", ".join(_ACTIONS),
        "tiers": [{"plugins": tier} for tier in tiers],
    }
    if action and arguments:
        document["configurations"] = [{"name": action, "arguments": dict(arguments)}]
    return document


def engine(policy: Mapping[str, Any], registry: Registry, compatibility: Compatibility | None = None) -> Engine:
    """The engine of a policy document. Raises PolicyError."""
    return Engine(yaml.safe_dump(dict(policy)), registry=registry, compatibility=compatibility)


def state(objects: Iterable[tuple[str, Any]], reads: Reads) -> ClusterState:
    """A state with objects, given as (kind, object)."""
    out = ClusterState((SCHEDULER,), reads=reads)
    feed(out, objects)
    return out


def decide(
    tried: type[Plugin] | type[Action],
    manifests: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    now: float = 0.0,
) -> SessionResult:
    """One session on YAML documents, with a plugin or an action among the usual ones, as in `stromboli simulate`.

    Raises PolicyError for invalid arguments, InvalidObjectError for an invalid manifest.
    """
    loaded = load(["-"], io.BytesIO(manifests.encode()))
    objects = admit(loaded, (SCHEDULER,))
    if loaded.problems:
        raise InvalidObjectError("manifests", "", "; ".join(loaded.problems))
    registry = registry_with(tried)
    which = {"plugin" if issubclass(tried, Plugin) else "action": tried.name}
    by = engine(policy_with(**which, arguments=arguments), registry)
    return by.decide(state(objects, registry.reads).snapshot(), now=now)
