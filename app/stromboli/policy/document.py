"""The scheduling policy: which actions run, with which plugins, in which tiers.

The file has the format of Volcano's `volcano-scheduler.conf` and is read strictly: a key or value that Volcano ignores
silently is an error here, reported with its path, the value and the allowed values. All errors are reported together.
The keys from `compatibility` on, as `KEYS` has them, are Stromboli's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from stromboli.api.documents import read_either
from stromboli.api.errors import DocumentError, PolicyError
from stromboli.api.validation import did_you_mean, field_path, listed, problem, readable, shown
from stromboli.policy import shorthand
from stromboli.policy.action_order import remarks
from stromboli.policy.arguments import ArgumentModels, argument_of, checked, names_at, names_of, of_another_plugin
from stromboli.policy.evictions import EvictionSettings
from stromboli.policy.model import PluginOption, Policy, Tier
from stromboli.policy.provisioning import ProvisioningSettings
from stromboli.policy.queue_rules import QueueRule
from stromboli.policy.rules import Compatibility
from stromboli.policy.scalars import boolean
from stromboli.policy.sessions import SessionSettings
from stromboli.policy.shorthand import Shorthand
from stromboli.policy.switches import (
    HIERARCHY,
    OFF_BY_DEFAULT,
    OTHER_SPELLINGS,
    SWITCH_OF_KEY,
    SWITCHES,
    WITHOUT_EFFECT,
)
from stromboli.policy.topology import TopologySettings

#: the built-in policy
DEFAULT_POLICY = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack
  - name: network-topology-aware
"""

_EVICTIONS, _PROVISIONING, _SESSION = EvictionSettings(), ProvisioningSettings(), SessionSettings()
_TOPOLOGY = TopologySettings()

_NO_RULE = QueueRule(queue="default")
_Settings = TypeVar("_Settings", bound=BaseModel)

_COMPATIBILITY: tuple[Compatibility, ...] = get_args(Compatibility)
_MOST_PROBLEMS = 100
#: limit on actions and on tiers
_MOST = 100
#: the keys of a policy and their descriptions
KEYS: Mapping[str, str] = {
    "actions": "Names of actions separated by commas, in the order in which they run; required.",
    "tiers": "Lists of plugins in order of precedence: a tier that decides a question outweighs those below.",
    "configurations": "Arguments of actions, by `name`.",
    "metrics": "Source of the load of nodes and of past usage.",
    "compatibility": "Which [rules](#rules) apply: `volcano` or `strict` (default). `--compatibility` overrides it.",
    "rules": "Single rules that differ from `compatibility`.",
    "evictions": "Limits on repeated evictions, and how long the freed resources are reserved.",
    "provisioning": "Whether cluster autoscalers are asked for the nodes of whole gangs.",
    "session": "Limits on the work of one session.",
    "topology": "Labels of nodes that say where they are in the network.",
    "queueRules": "Which [queue](#queue-rules) a workload gets; the first matching rule counts.",
}
#: the supported keys of `metrics` and their descriptions
METRICS_KEYS: Mapping[str, str] = {
    "type": "`prometheus`; without it no metrics are read.",
    "address": "URL of the Prometheus server; required.",
    "interval": "Time between two readings, as a duration; 30s when absent.",
    "tls.insecureSkipVerify": "`true` accepts any certificate.",
}
#: plugins that cannot share a policy with fairshare
_OTHER_SHARES = frozenset(("capacity", "proportion"))
#: the plugin that reads the topology
_TOPOLOGY_READER = "network-topology-aware"
_PLUGIN_KEYS = ("name", "arguments", *SWITCH_OF_KEY)


def load_policy(
    text: str,
    *,
    known_actions: ArgumentModels,
    known_plugins: ArgumentModels,
    known_rules: Collection[str] = (),
    spellings: Mapping[str, str] | None = None,
    source: str = "",
) -> Policy:
    """Read a policy. `source` prefixes errors, for example with the file's name.

    `spellings` maps alternative spellings of plugins to their names. Argument models must forbid unknown keys.
    Raises PolicyError with all errors, one line each.
    """
    reader = _Reader(known_actions, known_plugins, known_rules, spellings or {})
    policy = reader.read(text)
    if policy is None or reader.problems:
        raise PolicyError([f"{source}: {line}" if source else line for line in reader.problems])
    return policy


class _Reader:
    """Reads one policy and collects its errors; each method returns the part that is valid."""

    def __init__(
        self, actions: ArgumentModels, plugins: ArgumentModels, rules: Collection[str], spellings: Mapping[str, str]
    ) -> None:
        self.known_actions = actions
        self.known_plugins = plugins
        self.known_rules = rules
        self.spellings = spellings
        self.problems: list[str] = []
        self.notes: list[str] = []

    def read(self, text: str) -> Policy | None:
        try:
            documents = list(islice(read_either(text), 2))
        except DocumentError as error:
            self.problems.append(str(error))
            return None
        if len(documents) > 1:
            self._wrong("", "a policy is a single YAML document, not several")
        if documents and (kind := _kind(documents[0])):
            where = "; the policy is the text in its data" if kind == "ConfigMap" else ""
            self._wrong("", f"is a Kubernetes object of kind {readable(kind)}, not a policy{where}")
            return None
        top = self._mapping("", documents[0] if documents else None, KEYS)
        actions = self._actions(top.get("actions"))
        tiers = self._tiers(top.get("tiers"))
        topology = self._settings("topology", top.get("topology"), _TOPOLOGY)
        if topology.levels and not any(option.name == _TOPOLOGY_READER for tier in tiers for option in tier.plugins):
            self.notes.append(f"topology.levels has no effect without the plugin {_TOPOLOGY_READER}")
        return Policy(
            actions=actions,
            tiers=tiers,
            action_arguments=self._configurations(top.get("configurations"), actions),
            metrics=self._metrics(top.get("metrics")),
            compatibility=self._compatibility("compatibility", top.get("compatibility")),
            rules=self._rules(top.get("rules")),
            evictions=self._settings("evictions", top.get("evictions"), _EVICTIONS),
            provisioning=self._settings("provisioning", top.get("provisioning"), _PROVISIONING),
            session=self._settings("session", top.get("session"), _SESSION),
            topology=topology,
            queue_rules=self._queue_rules(top.get("queueRules")),
            notes=tuple(self.notes),
        )

    def _actions(self, value: object) -> tuple[str, ...]:
        if value is None or value == "":
            self._wrong("actions", "names no actions", self.known_actions)
            return ()
        names = shorthand.action_names(value)
        if names is None:
            self._wrong("actions", f"should be names separated by commas, not {shown(value)}", self.known_actions)
            return ()
        if not (isinstance(value, str) and names == tuple(name.strip() for name in value.split(","))):
            meant = shown(", ".join(names))
            self._wrong("actions", f"should be names separated by commas, not {shown(value)}, did you mean {meant}?")
        if len(names) > _MOST:
            self._wrong("actions", f"names {len(names):,} actions, more than {_MOST}")
            return ()
        for name in names:
            self._known("actions", "action", name, self.known_actions)
        self.notes += remarks(names)
        return names

    def _tiers(self, value: object) -> tuple[Tier, ...]:
        if isinstance(value, list) and len(value) > _MOST:
            self._wrong("tiers", f"has {len(value):,} entries, more than {_MOST}")
            return ()
        tiers = tuple(
            self._tier(path, tier) for path, tier in self._entries("tiers", value, ("plugins",), shorthand.tier)
        )
        names = {option.name for tier in tiers for option in tier.plugins}
        if "fairshare" in names:
            for other in sorted(names & _OTHER_SHARES):
                self._wrong("tiers", f"'fairshare' and {other!r} both divide the cluster among queues: use one of them")
        elif names >= _OTHER_SHARES:
            both = " and ".join(sorted(_OTHER_SHARES))
            self.notes.append(f"tiers: {both} both divide the cluster: keep one, each has its own shares")
        return tiers

    def _tier(self, path: str, tier: Mapping[str, Any]) -> Tier:
        plugins = self._entries(f"{path}.plugins", tier.get("plugins"), _PLUGIN_KEYS, shorthand.named)
        options = [self._plugin(where, item) for where, item in plugins]
        names = [option.name for option in options if option.name]
        for name in sorted(name for name, count in Counter(names).items() if count > 1):
            self._wrong(path, f"plugin {shown(name)} is listed twice in one tier")
        if "proportion" in names and any(option.name == "drf" and option.hierarchy for option in options):
            self._wrong(path, "'proportion' cannot be in the same tier as 'drf' with enableHierarchy")
        return Tier(tuple(options))

    def _plugin(self, path: str, item: Mapping[str, Any]) -> PluginOption:
        switches = self._switches(path, item)
        written = item.get("name")
        if isinstance(written, str) and written in self.spellings:
            item = {**item, "name": self.spellings[written]}
        name = self._name(path, "plugin", item, self.known_plugins)
        return PluginOption(
            name=name,
            arguments=self._arguments(path, name, item.get("arguments"), self.known_plugins),
            disabled=frozenset(point for point in SWITCHES if not switches.get(point, _default(point))),
            enabled=frozenset(point for point in SWITCHES if switches.get(point, False)),
            hierarchy=switches.get(HIERARCHY, _default(HIERARCHY)),
        )

    def _switches(self, path: str, item: Mapping[str, object]) -> dict[str, bool]:
        switches: dict[str, bool] = {}
        for key, value in item.items():
            switch = SWITCH_OF_KEY.get(key)
            if switch is None or value is None:
                continue
            on = boolean(value) if isinstance(value, str) else value
            if not isinstance(on, bool):
                self._wrong(f"{path}.{key}", f"should be true or false, not {shown(value)}")
            elif switches.setdefault(switch, on) != on:
                self._wrong(f"{path}.{key}", "contradicts another spelling of the same switch")
            if switch in WITHOUT_EFFECT:
                self.notes.append(f"{path}.{key} has no effect: it is accepted for compatibility with Volcano only")
        return switches

    def _configurations(self, value: object, actions: Iterable[str]) -> dict[str, BaseModel]:
        arguments: dict[str, BaseModel] = {}
        given = set()
        for path, item in self._entries("configurations", value, ("name", "arguments"), shorthand.named):
            name = self._name(path, "action", item, self.known_actions)
            if name and name in given:
                self._wrong(path, f"action {name!r} is listed twice")
            given.add(name)
            model = self._arguments(path, name, item.get("arguments"), self.known_actions)
            if model is not None:
                arguments[name] = model
        for name in dict.fromkeys(actions):
            model = (
                None if name in given else self._arguments(f"configurations[{name}]", name, None, self.known_actions)
            )
            if model is not None:
                arguments[name] = model
        return arguments

    def _arguments(self, path: str, name: str, value: object, known: ArgumentModels) -> BaseModel | None:
        path = f"{path}.arguments"
        arguments = self._mapping(path, value)
        model = known.get(name)
        if model is None:
            if name in known and arguments:
                self._wrong(path, f"{name!r} takes no arguments, but has {listed(arguments)}")
            return None
        checked_arguments, errors = checked(model, arguments)
        for error in errors:
            self._argument(path, error, model)
        return checked_arguments

    def _argument(self, path: str, error: ErrorDetails, model: type[BaseModel]) -> None:
        first, rest = argument_of(error), error["loc"][1:]
        where = field_path(rest, f"{path}.{first}") if first else path
        if error["type"] != "extra_forbidden":
            self._wrong(where, problem(error))
        elif rest:
            hint = did_you_mean(rest[-1], names_at(model, error["loc"][:-1]))
            self._wrong(where, "unknown key" + (hint or f", with the value {shown(error['input'])}"))
        else:
            allowed = names_of(model)
            of_plugin = of_another_plugin(first, allowed, self.known_plugins)
            if of_plugin:
                self._wrong(path, f"unknown argument {shown(first)}, did you mean {of_plugin}?", allowed)
            else:
                self._known(path, "argument", first, allowed)

    def _metrics(self, value: object) -> dict[str, str]:
        metrics = {}
        for key, item in self._mapping("metrics", value).items():
            if isinstance(item, dict | list):
                self._wrong(f"metrics.{key}", f"should be a string, not {shown(item)}")
            else:
                text = "" if item is None else str(item)
                metrics[str(key)] = text.lower() if isinstance(item, bool) else text
        return metrics

    def _compatibility(self, path: str, value: object) -> Compatibility | None:
        if value is not None:
            self._known(path, "choice", value, _COMPATIBILITY)
        return next((choice for choice in _COMPATIBILITY if choice == value), None)

    def _settings(self, key: str, value: object, default: _Settings) -> _Settings:
        """The settings under a key; the defaults if they are invalid."""
        settings, errors = checked(type(default), self._mapping(key, value))
        for error in errors:
            self._argument(key, error, type(default))
        return settings or default

    def _queue_rules(self, value: object) -> tuple[QueueRule, ...]:
        entries = self._entries("queueRules", value, names_of(QueueRule))
        return tuple(self._settings(path, entry, _NO_RULE) for path, entry in entries)

    def _rules(self, value: object) -> dict[str, Compatibility]:
        choices = {
            rule: self._compatibility(f"rules.{rule}", choice)
            for rule, choice in self._mapping("rules", value, self.known_rules).items()
        }
        return {rule: choice for rule, choice in choices.items() if choice is not None}

    def _name(self, path: str, what: str, item: Mapping[str, object], known: Collection[str]) -> str:
        name = item.get("name")
        if name is None:
            self._wrong(f"{path}.name", "is required", known)
            return ""
        self._known(f"{path}.name", what, name, known)
        return name if isinstance(name, str) else ""

    def _mapping(self, path: str, value: object, keys: Collection[str] | None = None) -> dict[str, Any]:
        """A mapping without unknown keys; `keys` of None allow all."""
        if value is None:
            return {}
        if not isinstance(value, dict):
            self._wrong(path, f"should be a mapping, not {shown(value)}", keys or ())
            return {}
        if keys is None:
            return value
        for key in value:
            self._known(path, "key", key, keys)
        return {key: item for key, item in value.items() if key in keys}

    def _entries(
        self, path: str, value: object, keys: Collection[str], meaning: Shorthand = shorthand.nothing
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """The mappings in a list, with their paths; `meaning` reads shorter forms, which are errors."""
        if not isinstance(value, list | None):
            written, meant = shorthand.entries(value, meaning)
            hint = f", did you mean {written}?" if written else ""
            self._wrong(path, f"should be a list, not {shown(value)}{hint}")
            value = meant
        for index, item in enumerate(value or []):
            where = f"{path}[{index}]"
            longer = meaning(item)
            if longer:
                self._wrong(where, f"should not be {shown(item)}, did you mean '{longer[0]}'?")
                item = longer[1]
            if isinstance(item, dict):
                yield where, self._mapping(where, item, keys)
            else:
                self._wrong(where, f"should be a mapping, not {shown(item)}", keys)

    def _known(self, path: str, what: str, found: object, known: Collection[str]) -> None:
        """Report an unknown name, with the known name that is most similar."""
        if not (isinstance(found, str) and found in known) and not self._full():
            self._wrong(path, f"unknown {what} {shown(found)}{did_you_mean(found, _shown(known))}", known)

    def _wrong(self, path: str, what: str, allowed: Iterable[str] = ()) -> None:
        if self._full():
            return
        names = ", ".join(sorted(_shown(allowed)))
        line = f"{what} (allowed: {names})" if names else what
        self.problems.append(f"{path}: {line}" if path else line)
        if self._full():
            self.problems.append("further errors are not shown")

    def _full(self) -> bool:
        """Whether the limit on reported errors is reached."""
        return len(self.problems) >= _MOST_PROBLEMS


def _shown(allowed: Iterable[str]) -> set[str]:
    """The names that are reported: one of several spellings, and none without effect."""
    return set(allowed) - OTHER_SPELLINGS.keys() - set(WITHOUT_EFFECT.values())


def _default(switch: str) -> bool:
    return switch not in OFF_BY_DEFAULT


def _kind(document: object) -> str:
    """The kind of a Kubernetes object, which has none of a policy's keys; empty if the document is not one."""
    known = isinstance(document, dict) and not document.keys() & KEYS.keys()
    kind = document.get("kind") if known and isinstance(document, dict) else None
    return kind if isinstance(kind, str) else ""
