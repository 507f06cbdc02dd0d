"""Sessions with one plugin: a policy text with its arguments, a clock, and facts from outside."""

from __future__ import annotations

from typing import Any

import yaml

from stromboli.engine import Engine, SessionResult
from stromboli.framework.cluster.environment import Environment
from tests import builders


def policy(plugin: str, arguments: dict[str, Any] | None = None, *, actions: str = "allocate", **switches: bool) -> str:
    """A policy of priority and gang, and below them predicates and the plugin."""
    above, below = [{"name": "priority"}, {"name": "gang"}], [{"name": "predicates"}]
    below.append({"name": plugin, **({"arguments": arguments} if arguments else {}), **switches})
    return yaml.safe_dump({"actions": actions, "tiers": [{"plugins": above}, {"plugins": below}]})


def decide(
    *objs: Any,
    by: str,
    now: float = builders.NOON,
    environment: Environment | None = None,
    compatibility: Any = None,
    objects: dict[str, list[dict[str, Any]]] | None = None,
) -> SessionResult:
    """One session on a queue `default` and these objects; `objects` are of kinds that are plain data."""
    cluster = builders.state(builders.queue("default"), *objs)
    for kind, manifests in (objects or {}).items():
        for manifest in manifests:
            cluster.upsert(kind, manifest)
    engine = Engine(by, compatibility=compatibility)
    return engine.decide(cluster.snapshot(), now=now, environment=environment or Environment())


def bound(*objs: Any, **options: Any) -> dict[str, str]:
    """The node of each pod that was bound, by the pod's name."""
    return {key.partition("/")[2]: node for key, node in decide(*objs, **options).session.bound.items()}
