"""The policy file: what it means, and how each mistake in it is named."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from stromboli.api.errors import PolicyError
from stromboli.discovery import discover
from stromboli.engine import Engine
from stromboli.framework.plugin.base import POINTS
from stromboli.framework.runtime.participants import WITHOUT_SWITCH, switched
from stromboli.policy.arguments import ArgumentModels, names_of
from stromboli.policy.document import DEFAULT_POLICY, KEYS, load_policy
from stromboli.policy.model import Policy
from stromboli.policy.switches import SWITCH_OF_KEY, SWITCHES, WITHOUT_EFFECT


class Binpack(BaseModel):
    """Arguments with dotted names and keys for any resource."""

    model_config = ConfigDict(extra="forbid", strict=True)

    weight: int = Field(default=1, alias="binpack.weight", ge=0)
    cpu: float = Field(default=1, alias="binpack.cpu")
    resources: dict[str, int] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _collect(cls, data: dict[str, Any]) -> dict[str, Any]:
        prefix = "binpack.resources."
        found = {key.removeprefix(prefix): value for key, value in data.items() if str(key).startswith(prefix)}
        rest = {key: value for key, value in data.items() if not str(key).startswith(prefix)}
        return rest | ({"resources": found} if found else {})


class Strategies(BaseModel):
    """Arguments with a structure."""

    model_config = ConfigDict(extra="forbid", strict=True)

    class Strategy(BaseModel):
        model_config = ConfigDict(extra="forbid", strict=True)

        name: str

    strategies: list[Strategy] = Field(default_factory=list)


class Preempt(BaseModel):
    """Arguments of an action."""

    model_config = ConfigDict(extra="forbid", strict=True)

    cache: bool = Field(default=True, alias="predicateErrorCacheEnable")


ACTIONS: ArgumentModels = {"enqueue": None, "allocate": None, "backfill": None, "preempt": Preempt}
PLUGINS: ArgumentModels = {
    **dict.fromkeys(("priority", "gang", "conformance", "overcommit", "drf", "predicates", "proportion", "nodeorder")),
    "binpack": Binpack,
    "network-topology-aware": None,
    "rescheduling": Strategies,
}
RULES = ("veto", "readiness")
VOLCANO_ACTIONS = (
    "enqueue",
    "allocate",
    "backfill",
    "preempt",
    "reclaim",
    "gangpreempt",
    "gangreclaim",
    "shuffle",
)
ALL_ACTIONS = "allocate, backfill, enqueue, preempt"
ALL_PLUGINS = (
    "binpack, conformance, drf, gang, network-topology-aware, nodeorder, overcommit, predicates, priority, proportion, "
    "rescheduling"
)
TOP_KEYS = ", ".join(sorted(KEYS))
PLUGIN_KEYS = ", ".join(sorted(["name", "arguments", "enableHierarchy", *SWITCHES.values()]))


def load(text: str) -> Policy:
    return load_policy(text, known_actions=ACTIONS, known_plugins=PLUGINS, known_rules=RULES)


def test_levels_that_nothing_reads_are_named() -> None:
    levels = "\ntopology: {levels: [{nodeLabel: zone}]}"
    told = ("topology.levels has no effect without the plugin network-topology-aware",)
    assert load(one_plugin("{name: gang}") + levels).notes == told
    assert load(one_plugin("{name: network-topology-aware}") + levels).notes == ()


def problems(text: str) -> list[str]:
    with pytest.raises(PolicyError) as caught:
        load(text)
    return caught.value.problems


def one_plugin(lines: str) -> str:
    """A policy with a single plugin; `lines` is its item in YAML's flow style."""
    return f"actions: allocate\ntiers: [{{plugins: [{lines}]}}]"


class TestMeaning:
    def test_default(self) -> None:
        policy = load(DEFAULT_POLICY)
        assert policy.actions == ("enqueue", "allocate", "backfill")
        assert [[plugin.name for plugin in tier.plugins] for tier in policy.tiers] == [
            ["priority", "gang", "conformance"],
            ["overcommit", "drf", "predicates", "proportion", "nodeorder", "binpack", "network-topology-aware"],
        ]
        assert (policy.compatibility, policy.rules, policy.metrics) == (None, {}, {})

    def test_arguments_have_their_defaults(self) -> None:
        policy = load(DEFAULT_POLICY)
        assert policy.tiers[1].plugins[-2].arguments == Binpack()
        assert policy.tiers[0].plugins[0].arguments is None
        assert policy.action_arguments == {}
        assert load(DEFAULT_POLICY.replace("backfill", "preempt")).action_arguments == {"preempt": Preempt()}

    def test_arguments(self) -> None:
        given = "{binpack.weight: 5, binpack.cpu: 2, binpack.resources.nvidia.com/gpu: 3}"
        policy = load(one_plugin(f"{{name: binpack, arguments: {given}}}"))
        arguments = policy.tiers[0].plugins[0].arguments
        assert isinstance(arguments, Binpack)
        assert (arguments.weight, arguments.cpu, arguments.resources) == (5, 2, {"nvidia.com/gpu": 3})

    def test_arguments_of_actions(self) -> None:
        policy = load(
            "actions: preempt\nconfigurations: [{name: preempt, arguments: {predicateErrorCacheEnable: false}}]"
        )
        arguments = policy.action_arguments["preempt"]
        assert isinstance(arguments, Preempt)
        assert not arguments.cache

    def test_actions_may_repeat(self) -> None:
        assert load("actions: ' allocate ,preempt,  allocate'").actions == ("allocate", "preempt", "allocate")

    def test_a_plugin_may_stand_in_two_tiers(self) -> None:
        policy = load("actions: allocate\ntiers: [{plugins: [{name: gang}]}, {plugins: [{name: gang}]}]")
        assert [tier.plugins[0].name for tier in policy.tiers] == ["gang", "gang"]

    def test_null_is_absent(self) -> None:
        text = "actions: allocate\nconfigurations:\nmetrics:\nrules:\ncompatibility:\ntiers:\n- plugins:\n"
        policy = load(text)
        assert policy.tiers[0].plugins == ()
        assert (
            load(one_plugin("{name: gang, arguments: , enableJobReady: }")).tiers
            == load(one_plugin("{name: gang}")).tiers
        )
        assert (
            load(one_plugin("{name: binpack, arguments: {binpack.weight: , binpack.cpu: 2}}")).tiers
            == load(one_plugin("{name: binpack, arguments: {binpack.cpu: 2}}")).tiers
        )

    def test_metrics_are_text(self) -> None:
        metrics = "{type: prometheus, interval: 30, tls.insecureSkipVerify: true, address: }"
        assert load(f"actions: allocate\nmetrics: {metrics}").metrics == {
            "type": "prometheus",
            "interval": "30",
            "tls.insecureSkipVerify": "true",
            "address": "",
        }

    def test_compatibility(self) -> None:
        policy = load("actions: allocate\ncompatibility: volcano\nrules: {veto: strict}")
        assert (policy.compatibility, policy.rules) == ("volcano", {"veto": "strict"})


class TestSwitches:
    def test_everything_is_on_except_hierarchy(self) -> None:
        (plugin,) = load(one_plugin("{name: drf}")).tiers[0].plugins
        assert plugin.disabled == set()
        assert not plugin.hierarchy

    @pytest.mark.parametrize("key", SWITCH_OF_KEY)
    @pytest.mark.parametrize("value", ["true", "false", "yes", "off"])
    def test_each_in_both_spellings(self, key: str, value: str) -> None:
        (plugin,) = load(one_plugin(f"{{name: drf, {key}: {value}}}")).tiers[0].plugins
        on = value in ("true", "yes")
        switch = SWITCH_OF_KEY[key]
        if switch == "hierarchy":
            assert plugin.hierarchy is on
        else:
            assert plugin.disabled == (set() if on or switch in WITHOUT_EFFECT else {switch})

    def test_spellings(self) -> None:
        switches = [*SWITCHES, *WITHOUT_EFFECT, "hierarchy"]
        assert {(switch, key.lower()) for key, switch in SWITCH_OF_KEY.items()} >= {
            (switch, f"{prefix}{switch.replace('_', '')}") for switch in switches for prefix in ("enable", "enabled")
        }
        assert SWITCH_OF_KEY["EnabledClusterOrder"] == "cluster_order", "as Volcano reads it"
        assert SWITCH_OF_KEY["enableJobOrder"] == SWITCH_OF_KEY["enabledJobOrder"] == "job_order"
        assert SWITCH_OF_KEY["enabledVictim"] == SWITCH_OF_KEY["enableVictim"] == "victim"

    def test_each_switches_extension_points_that_there_are(self) -> None:
        """Each point that has a switch has one of these, and no switch is of nothing."""
        by_switch = {switch: switched(switch) for switch in SWITCHES}
        assert all(by_switch.values())
        assert sorted(point for points in by_switch.values() for point in points) == sorted(
            set(POINTS) - WITHOUT_SWITCH
        )

    @pytest.mark.parametrize("key", sorted(key for key in SWITCH_OF_KEY if SWITCH_OF_KEY[key] in WITHOUT_EFFECT))
    def test_one_without_effect_is_accepted_and_named(self, key: str) -> None:
        policy = load(one_plugin(f"{{name: drf, {key}: true}}"))
        assert policy.notes == (f"{PLUGIN}.{key} has no effect: it is accepted for compatibility with Volcano only",)

    def test_both_spellings_may_agree(self) -> None:
        text = one_plugin("{name: gang, enableJobReady: false, enabledJobReady: false}")
        assert "job_ready" in load(text).tiers[0].plugins[0].disabled


PLUGIN = "tiers[0].plugins[0]"
MISTAKES = {
    "empty": ("", [f"actions: names no actions (allowed: {ALL_ACTIONS})"]),
    "no actions": ("tiers: []", [f"actions: names no actions (allowed: {ALL_ACTIONS})"]),
    "empty actions": ("actions: ''", [f"actions: names no actions (allowed: {ALL_ACTIONS})"]),
    "actions in a list": (
        "actions: [allocate]",
        ["actions: should be names separated by commas, not ['allocate'], did you mean 'allocate'?"],
    ),
    "actions without commas": (
        "actions: enqueue alocate",
        [
            "actions: should be names separated by commas, not 'enqueue alocate', did you mean 'enqueue, alocate'?",
            f"actions: unknown action 'alocate', did you mean 'allocate'? (allowed: {ALL_ACTIONS})",
        ],
    ),
    "unknown actions": (
        "actions: alocate, elect, Backfill",
        [
            f"actions: unknown action 'alocate', did you mean 'allocate'? (allowed: {ALL_ACTIONS})",
            f"actions: unknown action 'elect' (allowed: {ALL_ACTIONS})",
            f"actions: unknown action 'Backfill', did you mean 'backfill'? (allowed: {ALL_ACTIONS})",
        ],
    ),
    "trailing comma": (
        "actions: allocate,",
        ["actions: should be names separated by commas, not 'allocate,', did you mean 'allocate'?"],
    ),
    "not a mapping": (
        "- actions",
        [
            f"should be a mapping, not ['actions'] (allowed: {TOP_KEYS})",
            f"actions: names no actions (allowed: {ALL_ACTIONS})",
        ],
    ),
    "unknown key": (
        "actions: allocate\ntier: []",
        [f"unknown key 'tier', did you mean 'tiers'? (allowed: {TOP_KEYS})"],
    ),
    "tiers not a list": ("actions: allocate\ntiers: {}", ["tiers: should be a list, not {}"]),
    "tier without plugins": (
        "actions: allocate\ntiers: [{name: gang}]",
        ["tiers[0]: should not be {'name': 'gang'}, did you mean 'plugins: [name: gang]'?"],
    ),
    "tier not a mapping": (
        "actions: allocate\ntiers: [gang]",
        ["tiers[0]: should not be 'gang', did you mean 'plugins: [name: gang]'?"],
    ),
    "plugin not a mapping": (
        one_plugin("gnag"),
        [
            f"{PLUGIN}: should not be 'gnag', did you mean 'name: gnag'?",
            f"{PLUGIN}.name: unknown plugin 'gnag', did you mean 'gang'? (allowed: {ALL_PLUGINS})",
        ],
    ),
    "plugins not a list": (
        "actions: allocate\ntiers: [{plugins: 'drf, gang'}]",
        ["tiers[0].plugins: should be a list, not 'drf, gang', did you mean '- name: drf', '- name: gang'?"],
    ),
    "plugin without a name": (one_plugin("{}"), [f"{PLUGIN}.name: is required (allowed: {ALL_PLUGINS})"]),
    "unknown plugin": (
        one_plugin("{name: binpak}"),
        [f"{PLUGIN}.name: unknown plugin 'binpak', did you mean 'binpack'? (allowed: {ALL_PLUGINS})"],
    ),
    "plugin in another case": (
        one_plugin("{name: DRF}"),
        [f"{PLUGIN}.name: unknown plugin 'DRF', did you mean 'drf'? (allowed: {ALL_PLUGINS})"],
    ),
    "plugin twice in a tier": (
        one_plugin("{name: gang}, {name: gang}"),
        ["tiers[0]: plugin 'gang' is listed twice in one tier"],
    ),
    "proportion beside hierarchical drf": (
        one_plugin("{name: proportion}, {name: drf, enableHierarchy: true}"),
        ["tiers[0]: 'proportion' cannot be in the same tier as 'drf' with enableHierarchy"],
    ),
    "too many actions": (
        f"actions: '{', '.join(['allocate'] * 101)}'\ntiers: []",
        ["actions: names 101 actions, more than 100"],
    ),
    "too many tiers": (
        "actions: allocate\ntiers:" + "\n- {}" * 101,
        ["tiers: has 101 entries, more than 100"],
    ),
    "evictions that are counted for ever": (
        "actions: allocate\nevictions: {window: 721h}",
        ["evictions.window: input should be less than or equal to 2592000, not 2595600.0"],
    ),
    "levels that are no labels": (
        "actions: allocate\ntopology: {levels: [{nodeLabel: a b}, {nodeLable: zone}, rack]}",
        [
            "topology.levels[0].nodeLabel: 'a b' is not the key of a label, such as 'topology.kubernetes.io/zone'",
            "topology.levels[1].nodeLabel: is required",
            "topology.levels[1].nodeLable: unknown key, did you mean 'nodeLabel'?",
            "topology.levels[2]: input should be a mapping, not 'rack'",
        ],
    ),
    "a level twice": (
        "actions: allocate\ntopology: {levels: [{nodeLabel: zone}, {nodeLabel: rack}, {nodeLabel: zone}]}",
        ["topology.levels: 'zone' is given 2 times"],
    ),
    "unknown switch": (
        one_plugin("{name: gang, enableJobOder: true}"),
        [f"{PLUGIN}: unknown key 'enableJobOder', did you mean 'enableJobOrder'? (allowed: {PLUGIN_KEYS})"],
    ),
    "a switch that is like one without effect": (
        one_plugin("{name: gang, enabledClusterOrders: true}"),
        [f"{PLUGIN}: unknown key 'enabledClusterOrders', did you mean 'enableNodeOrder'? (allowed: {PLUGIN_KEYS})"],
    ),
    "switch that is no boolean": (
        one_plugin("{name: gang, enableJobOrder: 'maybe', enableJobReady: 1}"),
        [
            f"{PLUGIN}.enableJobOrder: should be true or false, not 'maybe'",
            f"{PLUGIN}.enableJobReady: should be true or false, not 1",
        ],
    ),
    "spellings that contradict": (
        one_plugin("{name: gang, enableJobOrder: true, enabledJobOrder: false}"),
        [f"{PLUGIN}.enabledJobOrder: contradicts another spelling of the same switch"],
    ),
    "arguments not a mapping": (
        one_plugin("{name: binpack, arguments: 5}"),
        [f"{PLUGIN}.arguments: should be a mapping, not 5"],
    ),
    "arguments for a plugin without": (
        one_plugin("{name: gang, arguments: {a: 1, b: 2}}"),
        [f"{PLUGIN}.arguments: 'gang' takes no arguments, but has a, b"],
    ),
    "argument of the wrong type": (
        one_plugin("{name: binpack, arguments: {binpack.weight: heavy, binpack.cpu: 1}}"),
        [f"{PLUGIN}.arguments.binpack.weight: input should be a valid integer, not 'heavy'"],
    ),
    "argument out of range": (
        one_plugin("{name: binpack, arguments: {binpack.weight: -1}}"),
        [f"{PLUGIN}.arguments.binpack.weight: input should be greater than or equal to 0, not -1"],
    ),
    "unknown argument": (
        one_plugin("{name: binpack, arguments: {binpack.wieght: 1}}"),
        [
            f"{PLUGIN}.arguments: unknown argument 'binpack.wieght', did you mean 'binpack.weight'?"
            " (allowed: binpack.cpu, binpack.weight, resources)"
        ],
    ),
    "unknown key within an argument": (
        one_plugin("{name: rescheduling, arguments: {strategies: [{name: a, parms: {}}, {}]}}"),
        [
            f"{PLUGIN}.arguments.strategies[0].parms: unknown key, with the value {{}}",
            f"{PLUGIN}.arguments.strategies[1].name: is required",
        ],
    ),
    "configuration of an unknown action": (
        "actions: allocate\nconfigurations: [{name: preemt}, {name: preempt, argument: {}}]",
        [
            f"configurations[0].name: unknown action 'preemt', did you mean 'preempt'? (allowed: {ALL_ACTIONS})",
            "configurations[1]: unknown key 'argument', did you mean 'arguments'? (allowed: arguments, name)",
        ],
    ),
    "configuration twice": (
        "actions: allocate\nconfigurations: [{name: preempt}, {name: preempt}]",
        ["configurations[1]: action 'preempt' is listed twice"],
    ),
    "argument of an action": (
        "actions: allocate\nconfigurations: [{name: preempt, arguments: {predicateErrorCacheEnable: 1}}]",
        ["configurations[0].arguments.predicateErrorCacheEnable: input should be a valid boolean, not 1"],
    ),
    "nested metrics": (
        "actions: allocate\nmetrics: {tls: {insecureSkipVerify: true}}",
        ["metrics.tls: should be a string, not {'insecureSkipVerify': True}"],
    ),
    "compatibility": (
        "actions: allocate\ncompatibility: vulcano",
        ["compatibility: unknown choice 'vulcano', did you mean 'volcano'? (allowed: strict, volcano)"],
    ),
    "rules": (
        "actions: allocate\nrules: {vetto: strict, readiness: yes}",
        [
            "rules: unknown key 'vetto', did you mean 'veto'? (allowed: readiness, veto)",
            "rules.readiness: unknown choice True (allowed: strict, volcano)",
        ],
    ),
    "a key twice": (
        "actions: allocate\ntiers: []\nactions: backfill",
        ["line 3, column 1: duplicate key 'actions'"],
    ),
    "no YAML": (
        "actions: allocate\ntiers: [",
        ["line 3, column 1: not valid YAML: did not find expected node content"],
    ),
    "a tab": (
        "actions: allocate\ntiers:\n\t- plugins: []",
        ["line 3, column 1: not valid YAML: found character that cannot start any token"],
    ),
    "a date that does not exist": (
        "actions: 2026-02-31",
        [f"actions: unknown action '2026-02-31' (allowed: {ALL_ACTIONS})"],
    ),
    "an object": (
        "actions: !!python/object:os.system {}",
        ["line 1, column 10: actions: unknown tag 'tag:yaml.org,2002:python/object:os.system'"],
    ),
    "argument with a number for a key": (
        one_plugin("{name: rescheduling, arguments: {1: 2}}"),
        [f"{PLUGIN}.arguments: unknown argument '1' (allowed: strategies)"],
    ),
    "a control character": (
        "actions: \x07",
        [
            "not valid YAML: unacceptable character #x0007: control characters are not allowed"
            ' in "<unicode string>", position 9'
        ],
    ),
    "a nest without end": (
        f"actions: {'[' * 20_000}",
        [f"line 1, column 109: actions{'[0]' * 36}[0...: nested more than 100 deep"],
    ),
    "an alias bomb": (
        "a: &a [x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in pairwise("abcdefghijklmnopqrstuvwxyz")),
        ["line 15, column 12: o[1]: aliases expand to more than 100,000 nodes"],
    ),
    "a list that contains itself": ("actions: &a [*a]", ["line 1, column 14: actions[0]: 'a' contains itself"]),
    "a number without end": (
        f"actions: {'9' * 5000}",
        [f"line 1, column 10: actions: '{'9' * 56}... is too long for a number"],
    ),
    "broken JSON": (
        '{"actions": "allocate",\n "tiers": [}',
        ["line 2, column 12: not valid JSON: Expecting value"],
    ),
    "a ConfigMap": (
        "kind: ConfigMap\ndata: {volcano-scheduler.conf: ''}",
        ["is a Kubernetes object of kind ConfigMap, not a policy; the policy is the text in its data"],
    ),
    "a Node": ("apiVersion: v1\nkind: Node", ["is a Kubernetes object of kind Node, not a policy"]),
    "two documents": ("actions: allocate\n---\nactions: backfill", ["a policy is a single YAML document, not several"]),
}


@pytest.mark.parametrize(("text", "expected"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_named(text: str, expected: list[str]) -> None:
    assert problems(text) == expected


def test_all_mistakes_are_named_together_and_with_the_source() -> None:
    text = "actions: fly\ntiers: [{plugins: [{name: gang, enable: 1}]}]\ncompatibility: none"
    with pytest.raises(PolicyError) as caught:
        load_policy(text, known_actions=ACTIONS, known_plugins=PLUGINS, source="scheduler.conf")
    assert len(caught.value.problems) == 3
    assert all(problem.startswith("scheduler.conf: ") for problem in caught.value.problems)
    assert all("\n" not in problem for problem in caught.value.problems)


@pytest.mark.exhaustive
def test_policies_that_volcano_takes_load(conformance_data: Path) -> None:
    class Anything(BaseModel):
        model_config = ConfigDict(extra="allow")

    texts = {_config(path) for path in conformance_data.glob("*/*.yaml")}
    assert len(texts) > 100
    for text in sorted(texts):
        given = yaml.safe_load(text)
        names = [[plugin["name"] for plugin in tier["plugins"]] for tier in given["tiers"]]
        policy = load_policy(
            text,
            known_actions=dict.fromkeys(VOLCANO_ACTIONS, Anything),
            known_plugins=dict.fromkeys((name for tier in names for name in tier), Anything),
        )
        assert [[plugin.name for plugin in tier.plugins] for tier in policy.tiers] == names
        assert ", ".join(policy.actions) == given["actions"]


def _config(path: Path) -> str:
    """The configuration of a scenario, which stands before its objects."""
    head = path.read_text().partition("\nobjects:")[0]
    config: str = yaml.safe_load(head)["config"]
    return config


def test_what_is_wrong_everywhere_is_told_a_hundred_times() -> None:
    found = problems("actions: allocate\nconfigurations: [" + "1, " * 50_000 + "]")
    assert len(found) == 101
    assert found[-1] == "further errors are not shown"


@pytest.mark.parametrize("name", [name for name, model in discover().argument_models()[1].items() if model])
def test_no_mistake_in_the_arguments_of_a_plugin_hides_another(name: str) -> None:
    model = discover().argument_models()[1][name]
    assert model is not None

    def named(arguments: dict[str, object]) -> set[str]:
        tiers = [{"plugins": [{"name": name, "arguments": arguments}]}]
        try:
            Engine(yaml.safe_dump({"actions": "allocate", "tiers": tiers}))
        except PolicyError as error:
            lines = [line.partition(" (allowed")[0] for line in error.problems]
            return {key for key in arguments if any(key in line for line in lines)}
        return set()

    wrong: dict[str, object] = {key: [{}] for key in [*names_of(model), f"{name}.typo", "typo"]}
    alone = {key for key, value in wrong.items() if named({key: value})}
    assert alone >= {"typo", f"{name}.typo"}
    assert named(wrong) >= alone


def test_what_an_action_must_be_told_is_asked_for_where_it_is_used() -> None:
    class Sweep(BaseModel):
        least: int

    def load(text: str) -> Policy:
        return load_policy(text, known_actions={**ACTIONS, "sweep": Sweep}, known_plugins=PLUGINS)

    assert "sweep" not in load("actions: allocate").action_arguments
    with pytest.raises(PolicyError, match=r"configurations\[sweep\]\.arguments\.least"):
        load("actions: allocate, sweep")
    told = load("actions: sweep\nconfigurations: [{name: sweep, arguments: {least: 3}}]")
    assert told.action_arguments["sweep"] == Sweep(least=3)


@pytest.mark.parametrize(
    ("argument", "suggested"),
    [
        ("predicate.GPUSharingEnable", "'deviceshare.GPUSharingEnable' of the plugin 'deviceshare'"),
        ("predicate.GPUSharingEnabel", "'deviceshare.GPUSharingEnable' of the plugin 'deviceshare'"),
        ("predicate.PodAfinityEnable", "'predicate.PodAffinityEnable'"),
    ],
)
def test_an_argument_of_another_plugin_is_suggested_with_its_plugin(argument: str, suggested: str) -> None:
    with pytest.raises(PolicyError, match=re.escape(f"did you mean {suggested}?")):
        Engine(
            yaml.safe_dump(
                {"actions": "allocate", "tiers": [{"plugins": [{"name": "predicates", "arguments": {argument: True}}]}]}
            )
        )


def test_two_plugins_that_divide_the_cluster_are_told_of() -> None:
    both = Engine("actions: allocate\ntiers:\n- plugins: [{name: proportion}, {name: capacity}]").policy
    assert both.notes == ("tiers: capacity and proportion both divide the cluster: keep one, each has its own shares",)
