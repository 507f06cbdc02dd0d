"""The tables of the page about policies, written from the models that read one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pydantic import BaseModel

from stromboli.cli.plugins import arguments, summary
from stromboli.cli.references.tables import code, table
from stromboli.discovery import discover
from stromboli.framework.runtime.participants import switched
from stromboli.policy.document import KEYS, METRICS_KEYS
from stromboli.policy.evictions import EvictionSettings
from stromboli.policy.provisioning import ProvisioningSettings
from stromboli.policy.queue_rules import QueueRule
from stromboli.policy.rules import SIDES
from stromboli.policy.sessions import SessionSettings
from stromboli.policy.switches import SWITCHES, WITHOUT_EFFECT
from stromboli.policy.topology import TopologySettings


def _keys() -> str:
    return table(("key", "is"), ((code(key), text) for key, text in KEYS.items()))


def _actions() -> str:
    actions = discover().actions
    return table(("action", "what it does"), ((_linked(name), summary(actions[name])) for name in sorted(actions)))


def _plugins() -> str:
    plugins = discover().plugins
    return table(("plugin", "what it does"), ((_linked(name), summary(plugins[name])) for name in sorted(plugins)))


def _linked(name: str) -> str:
    return f"[{code(name)}](plugins.md#{name})"


def _configurations() -> str:
    actions = discover().actions
    rows = [
        (code(name), *cells)
        for name in sorted(actions)
        if (model := actions[name].Arguments) is not None
        for cells in arguments(model)
    ]
    return table(("action", "argument", "type", "default", ""), rows)


def _metrics() -> str:
    return table(("key", "is"), ((code(key), text) for key, text in METRICS_KEYS.items()))


def _evictions() -> str:
    return _settings(EvictionSettings)


def _provisioning() -> str:
    return _settings(ProvisioningSettings)


def _queue_rules() -> str:
    return _settings(QueueRule)


def _session() -> str:
    return _settings(SessionSettings)


def _topology() -> str:
    return _settings(TopologySettings)


def _settings(model: type[BaseModel]) -> str:
    return table(("key", "type", "default", ""), arguments(model))


def _switches() -> str:
    rows = [(code("enableHierarchy"), "follow the tree of queues", code("false"))]
    rows += [(code(key), ", ".join(map(code, switched(switch))), code("true")) for switch, key in SWITCHES.items()]
    rows += [(code(key), "none: accepted, without effect", "") for key in WITHOUT_EFFECT.values()]
    return table(("switch", "extension points", "default"), rows)


def _rules() -> str:
    return table(
        ("rule", "`volcano`", "`strict`"), ((code(name), volcano, strict) for name, (volcano, strict) in SIDES.items())
    )


TABLES: Mapping[str, Callable[[], str]] = {
    "keys": _keys,
    "actions": _actions,
    "configurations": _configurations,
    "plugins": _plugins,
    "switches": _switches,
    "metrics": _metrics,
    "evictions": _evictions,
    "provisioning": _provisioning,
    "session": _session,
    "topology": _topology,
    "queueRules": _queue_rules,
    "rules": _rules,
}
