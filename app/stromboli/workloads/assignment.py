"""The queue that a policy's rules assign to a workload, and the user who created it.

The creator of an object is recorded on it by a mutating admission policy of the chart, which users cannot forge.
Objects created by controllers belong to the user for whom these act, so the nearest user up the owner chain counts: a
reference to another user's object grants no rights.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stromboli.api.patterns import any_matches
from stromboli.policy.queue_rules import PLACEHOLDER, QueueRule
from stromboli.state.pods import USER_ANNOTATION, USER_GROUPS_ANNOTATION
from stromboli.workloads import said
from stromboli.workloads.paths import Object, notes, text

_NOT_IN_NAMES = re.compile(r"[^a-z0-9-]+")
_PART = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = re.compile(rf"{_PART}(\.{_PART})*")
#: where no rule is for a workload
_OTHERWISE = "default"


@dataclass(frozen=True, slots=True)
class Assigned:
    """A queue, and the one above it if it is to be made."""

    queue: str
    create: bool = False
    parent: str = ""


def made_by(upwards: Iterable[Object]) -> tuple[str, str]:
    """The user who made a workload, and the groups, one a line; `upwards` are a pod, what manages it, and so on."""
    for obj in upwards:
        user = notes(obj).get(USER_ANNOTATION)
        if isinstance(user, str) and user:
            groups = notes(obj).get(USER_GROUPS_ANNOTATION)
            return user, groups if isinstance(groups, str) else ""
    return "", ""


def assigned(
    rules: Sequence[QueueRule], everyone: Sequence[Object], made_by: tuple[str, str], namespace: Object, provided: str
) -> Assigned:
    """The queue of a workload by the first rule that is for it.

    `everyone` has what speaks for it, in that order; `provided` is the queue that it or its namespace names, or empty.
    """
    user, groups = made_by
    inside = text(everyone[0], "metadata.namespace") or "default"
    asked = _Asked(
        [*everyone, namespace], {"provided": provided, "namespace": _as_name(inside), "user": _as_name(user)}
    )
    for rule in rules:
        meant = (
            _among(rule.namespaces, [inside])
            and _among(rule.users, [user])
            and _among(rule.groups, groups.split("\n"))
            and all(asked.label(key) == value for key, value in rule.labels.items())
        )
        queue = asked.filled(rule.queue) if meant else ""
        if queue:
            return Assigned(queue, rule.create, rule.parent)
    return Assigned(_OTHERWISE)


@dataclass(frozen=True, slots=True)
class _Asked:
    everyone: Sequence[Object]
    known: dict[str, str]

    def label(self, key: str) -> str:
        """The value of a label or annotation; empty for none."""
        return said.first(self.everyone, (key,))

    def filled(self, queue: str) -> str:
        """A queue's name with its placeholders filled in; empty if one is not known."""
        named = PLACEHOLDER.findall(queue)
        values = [self.known.get(name) or _as_name(self.label(name.partition(":")[2])) for name in named]
        if not all(values):
            return ""
        remaining = iter(values)
        return PLACEHOLDER.sub(lambda _: next(remaining), queue)


def _among(patterns: Sequence[str], names: Iterable[str]) -> bool:
    """Whether a name matches one of some patterns, or there are none."""
    return not patterns or any_matches(patterns, [*filter(None, names)])


def _as_name(value: str) -> str:
    """A value as a part of an object's name."""
    value = value.lower()
    return value if _NAME.fullmatch(value) else _NOT_IN_NAMES.sub("-", value).strip("-")
