"""DeviceTaintRules: taints of devices beside those that their drivers publish."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stromboli.api.objects import Taint
from stromboli.kube.dra.objects import DeviceTaintRule, TaintRuleSpec
from stromboli.state.plain import NO_OBJECTS, PlainObjects


class TaintRules:
    """The rules of a snapshot. Not changed: the next ones are made of what is different."""

    def __init__(self, plain: PlainObjects, before: TaintRules | None = None) -> None:
        """`plain` are the DeviceTaintRules; those that are as they were `before` are not read."""
        self.plain = plain
        self._rules: dict[str, TaintRuleSpec] = before._rules.copy() if before else {}
        #: rules that came, went or say something else than before
        self.changed: list[TaintRuleSpec] = []
        for name in plain.changed_since(before.plain if before else NO_OBJECTS):
            known, found = self._rules.pop(name, None), self._read(name)
            if found is not None:
                self._rules[name] = found
            self.changed += [rule for rule in (known, found) if rule is not None]

    def _read(self, name: str) -> TaintRuleSpec | None:
        """A rule, None for one that is gone, selects nothing or cannot be read."""
        try:
            spec = self.plain.read(name, DeviceTaintRule).spec if name in self.plain else None
        except msgspec.ValidationError:
            return None
        return spec if spec is not None and spec.device_selector is not None else None

    def of_pool(self, driver: str, pool: str) -> list[TaintRuleSpec]:
        """The rules about devices of a pool, in order of their names."""
        return [rule for _, rule in sorted(self._rules.items()) if concerns(rule, driver, pool)]


def concerns(rule: TaintRuleSpec, driver: str, pool: str) -> bool:
    """Whether a rule is about devices of a pool; what it leaves out is not compared."""
    selector = rule.device_selector
    return selector is not None and selector.driver in (None, driver) and selector.pool in (None, pool)


def taints(rules: Sequence[TaintRuleSpec], device: str) -> list[Taint]:
    """The taints that rules about its pool put on a device."""
    return [rule.taint for rule in rules if rule.device_selector and rule.device_selector.device in (None, device)]
