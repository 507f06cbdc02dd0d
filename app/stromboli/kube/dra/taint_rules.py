"""DeviceTaintRules: taints of devices in addition to those in slices."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stromboli.api.objects import Taint
from stromboli.kube.dra.objects import DeviceTaintRule, TaintRuleSpec
from stromboli.state.plain import NO_OBJECTS, PlainObjects


class TaintRules:
    """The rules of a snapshot. Immutable: updated copies replace it."""

    def __init__(self, plain: PlainObjects, before: TaintRules | None = None) -> None:
        """`plain` are the DeviceTaintRules; those that are unchanged since `before` are not read again."""
        self.plain = plain
        self._rules: dict[str, TaintRuleSpec] = before._rules.copy() if before else {}
        #: rules that were added, removed or changed
        self.changed: list[TaintRuleSpec] = []
        for name in plain.changed_since(before.plain if before else NO_OBJECTS):
            known, found = self._rules.pop(name, None), self._read(name)
            if found is not None:
                self._rules[name] = found
            self.changed += [rule for rule in (known, found) if rule is not None]

    def _read(self, name: str) -> TaintRuleSpec | None:
        """A rule; None if it was deleted, selects nothing or cannot be read."""
        try:
            spec = self.plain.read(name, DeviceTaintRule).spec if name in self.plain else None
        except msgspec.ValidationError:
            return None
        return spec if spec is not None and spec.device_selector is not None else None

    def of_pool(self, driver: str, pool: str) -> list[TaintRuleSpec]:
        """The rules for devices of a pool, by name."""
        return [rule for _, rule in sorted(self._rules.items()) if concerns(rule, driver, pool)]


def concerns(rule: TaintRuleSpec, driver: str, pool: str) -> bool:
    """Whether a rule applies to devices of a pool; absent fields match everything."""
    selector = rule.device_selector
    return selector is not None and selector.driver in (None, driver) and selector.pool in (None, pool)


def taints(rules: Sequence[TaintRuleSpec], device: str) -> list[Taint]:
    """The taints that rules put on a device."""
    return [rule.taint for rule in rules if rule.device_selector and rule.device_selector.device in (None, device)]
