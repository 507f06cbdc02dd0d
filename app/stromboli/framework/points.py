"""How the answers of several plugins become one: a property of the extension point, written once.

A point is a method of `Plugin`. `Points` finds out which plugins override it and are not switched off for it, tier by
tier; the functions below combine their answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stromboli.api.reasons import Reason
from stromboli.framework.plugin import Plugin, Vote
from stromboli.framework.policy import PluginOption

Method = Callable[..., Any]

#: the switch of the policy file that turns a point off; points that are not named have none
_SWITCH = {
    "job_enqueueable": "job_enqueued",
    "job_missing": "job_ready",
    "sub_job_missing": "sub_job_ready",
    "batch_node_order": "node_order",
    "drifts": "node_order",
}
_WITHOUT_SWITCH = frozenset(("job_valid", "varies", "on_allocate", "on_deallocate", "open", "close"))


class Points:
    """The methods that take part in each extension point, tier by tier."""

    def __init__(self, tiers: Sequence[Sequence[tuple[Plugin, PluginOption]]]) -> None:
        self._tiers = tiers
        self._chains: dict[str, tuple[tuple[Method, ...], ...]] = {}
        self._flat: dict[str, tuple[Method, ...]] = {}

    def tiers(self, point: str) -> tuple[tuple[Method, ...], ...]:
        """The methods of a point, tier by tier; tiers without any are left out."""
        chain = self._chains.get(point)
        if chain is None:
            chain = tuple(
                methods
                for tier in self._tiers
                if (methods := tuple(getattr(p, point) for p, option in tier if _takes_part(p, option, point)))
            )
            self._chains[point] = chain
        return chain

    def all(self, point: str) -> tuple[Method, ...]:
        """The methods of a point in order."""
        flat = self._flat.get(point)
        if flat is None:
            flat = self._flat[point] = tuple(method for tier in self.tiers(point) for method in tier)
        return flat

    # -- combining -------------------------------------------------------------------------------------------------

    def key(self, point: str, subject: Any) -> tuple[Any, ...]:
        """Concatenate: what an earlier plugin says outweighs all later ones."""
        return tuple([method(subject) for method in self.all(point)])

    def objection(self, point: str, *subject: Any) -> Reason | None:
        """The first reason against."""
        for method in self.all(point):
            reason: Reason | None = method(*subject)
            if reason is not None:
                return reason
        return None

    def largest(self, point: str, *subject: Any) -> int:
        """The largest number, 0 when nobody names one."""
        return max([method(*subject) for method in self.all(point)], default=0)

    def vote(self, point: str, *subject: Any) -> tuple[bool, Reason | None]:
        """A rejection anywhere decides; a permit ends the question after its tier; nobody's opinion is a yes."""
        for tier in self.tiers(point):
            permitted = False
            for method in tier:
                verdict = method(*subject)
                if isinstance(verdict, Reason):
                    return False, verdict
                if verdict == Vote.Reject:
                    return False, None
                permitted = permitted or verdict == Vote.Permit
            if permitted:
                return True, None
        return True, None

    def first_tier_agrees(self, point: str, *subject: Any) -> bool:
        """Whether all plugins of the first tier that takes part say yes; False when none does."""
        for tier in self.tiers(point):
            return all(method(*subject) for method in tier)
        return False


def _takes_part(plugin: Plugin, option: PluginOption, point: str) -> bool:
    if getattr(type(plugin), point) is getattr(Plugin, point):
        return False
    return point in _WITHOUT_SWITCH or _SWITCH.get(point, point) not in option.disabled


def culprit(error: BaseException) -> str | None:
    """The name of the plugin in whose code an error arose, None when it was not a plugin's.

    Read from the traceback, so that calling a plugin costs nothing extra.
    """
    name = None
    traceback = error.__traceback__
    while traceback is not None:
        owner = traceback.tb_frame.f_locals.get("self")
        if isinstance(owner, Plugin):
            name = owner.name
        traceback = traceback.tb_next
    return name
