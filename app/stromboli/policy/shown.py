"""The policy in force as a document, with all defaults written out."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pydantic import BaseModel

from stromboli.policy.model import PluginOption, Policy
from stromboli.policy.rules import Rules
from stromboli.policy.switches import OFF_BY_DEFAULT, SWITCHES


def document(policy: Policy, rules: Rules) -> dict[str, Any]:
    """The document of an equivalent policy without defaults."""
    configured = policy.action_arguments.items()
    return {
        "actions": ", ".join(policy.actions),
        "tiers": [{"plugins": [_plugin(option) for option in tier.plugins]} for tier in policy.tiers],
        "configurations": [{"name": name, "arguments": _arguments(model)} for name, model in configured],
        "metrics": dict(policy.metrics),
        "rules": {name: "strict" if strict else "volcano" for name, strict in asdict(rules).items()},
        "evictions": _arguments(policy.evictions),
        "provisioning": _arguments(policy.provisioning),
        "session": _arguments(policy.session),
        "topology": _arguments(policy.topology),
        "queueRules": [_arguments(rule) for rule in policy.queue_rules],
    }


def _plugin(option: PluginOption) -> dict[str, Any]:
    switched = {SWITCHES[point]: False for point in sorted(option.disabled - OFF_BY_DEFAULT)}
    switched |= {SWITCHES[point]: True for point in sorted(option.enabled)}
    out: dict[str, Any] = {"name": option.name, **switched}
    if option.hierarchy:
        out["enableHierarchy"] = True
    if option.arguments is not None:
        out["arguments"] = _arguments(option.arguments)
    return out


def _arguments(model: BaseModel) -> dict[str, Any]:
    return model.model_dump(mode="json", by_alias=True)
