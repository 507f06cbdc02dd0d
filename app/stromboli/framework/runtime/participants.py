"""Which plugins take part in which extension point, and what it costs when one fails there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain
from typing import Any, TypeAlias, TypeVar

from stromboli.api.reasons import Reason
from stromboli.framework import reasons
from stromboli.framework.plugin.base import DECLARED, POINTS, Plugin
from stromboli.framework.plugin.combination import Combination
from stromboli.framework.runtime.asked import Method, asked, plugin_of
from stromboli.framework.runtime.failures import PASSED_ON, Failures, JobHeldError, PluginLeftError, asked_about
from stromboli.policy.model import PluginOption

T = TypeVar("T")

#: the plugins of a session with how the policy uses them, tier by tier
Tiers: TypeAlias = Sequence[Sequence[tuple[Plugin, PluginOption]]]

#: points that no switch turns off
WITHOUT_SWITCH = frozenset(point for point, declared in DECLARED.items() if not declared.switch)
#: points that say which pods may be evicted
_VICTIMS = frozenset(point for point, declared in DECLARED.items() if declared.combination is Combination.Victims) | {
    "evictable"
}


def switched(switch: str) -> list[str]:
    """The extension points that a switch of the policy file turns off, in the order of `Plugin`."""
    return [name for name in POINTS if DECLARED[name].switch == switch]


@cache
def _switched_on(points: frozenset[str], disabled: frozenset[str]) -> frozenset[str]:
    """The points of a plugin that no switch disables."""
    return frozenset(point for point in points if DECLARED[point].switch not in disabled)


class ByPoint(dict[str, T]):
    """Something for each extension point, made when it is first asked for."""

    def __init__(self, make: Callable[[str], T]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, point: str) -> T:
        self[point] = made = self._make(point)
        return made


class Participants:
    """The methods that take part in each extension point, tier by tier, without those that failed."""

    def __init__(self, tiers: Tiers) -> None:
        self._tiers = tiers
        self._chains = ByPoint(self._find_tiers)
        #: the methods of each point in order
        self.all = ByPoint(self._in_order)
        self.failures = Failures()
        #: whether all actions are over: then nothing is restarted, and questions are answered as well as possible
        self.closed = False
        #: called when results derived from answers are void
        self.when_left: Callable[[], None] = lambda: None
        #: the plugins with the points that they take part in, found when a point is first asked
        self._taking_part: list[list[tuple[Plugin, PluginOption, frozenset[str]]]] = []
        #: points of plugins that are asked nothing more
        self._left: set[tuple[Plugin, str]] = set()
        #: points at which no pod is a victim, since a plugin that protects pods cannot say which
        self.protected: set[str] = set()
        #: points and jobs that are held for them
        self._held: set[tuple[str, str]] = set()

    # -- participants --------------------------------------------------------------------------------------------

    def __contains__(self, plugin: Plugin) -> bool:
        return any(p is plugin for tier in self._tiers for p, _ in tier)

    @property
    def plugins(self) -> list[Plugin]:
        """All plugins that take part."""
        return [plugin for tier in self._tiers for plugin, _ in tier]

    def of_tiers(self, point: str) -> list[list[tuple[Plugin, PluginOption]]]:
        """The plugins that take part in a point, tier by tier; tiers without any are left out."""
        found = [[(p, option) for p, option, points in tier if point in points] for tier in self._known()]
        return [tier for tier in found if tier]

    def _known(self) -> list[list[tuple[Plugin, PluginOption, frozenset[str]]]]:
        if not self._taking_part:
            self._taking_part = [
                [(p, option, self._points_of(p, option)) for p, option in tier] for tier in self._tiers
            ]
        return self._taking_part

    def _points_of(self, plugin: Plugin, option: PluginOption) -> frozenset[str]:
        points = _switched_on(plugin.taking_part, option.disabled)
        if plugin.silent:
            points -= plugin.silent
        return points - {point for p, point in self._left if p is plugin} if self._left else points

    def tiers(self, point: str) -> tuple[tuple[Method, ...], ...]:
        """The methods of a point, tier by tier; tiers without any are left out."""
        return self._chains[point]

    def _find_tiers(self, point: str) -> tuple[tuple[Method, ...], ...]:
        found = [[asked(p, point) for p, _, points in tier if point in points] for tier in self._known()]
        return tuple([tuple(tier) for tier in found if tier])

    def _in_order(self, point: str) -> tuple[Method, ...]:
        return tuple(chain.from_iterable(self._chains[point]))

    def forget(self) -> None:
        """Determine again which plugins take part in which points."""
        self._taking_part.clear()
        self._chains.clear()
        self.all.clear()

    # -- failures --------------------------------------------------------------------------------------------------

    def disable(self, plugin: Plugin) -> None:
        """Ask a plugin nothing any more."""
        self._tiers = [[(p, option) for p, option in tier if p is not plugin] for tier in self._tiers]
        self.forget()

    def leave_out(self, point: str, method: Method, error: BaseException) -> None:
        """Ask a plugin nothing more at the point of a method that failed. Raises PluginLeftError while actions run."""
        if isinstance(error, PASSED_ON):
            raise error
        plugin = plugin_of(method)
        self.failures.add(plugin.name, point, point, error)
        self._left.add((plugin, point))
        if plugin.protects and point in _VICTIMS:
            self.protected.add(point)
        self.forget()
        self.when_left()
        if not self.closed:
            raise PluginLeftError from error

    def tell(self, point: str, method: Method, error: BaseException, subject: Sequence[Any] = ()) -> str:
        """Keep the failure of a method that was asked about something; the name of its plugin."""
        if isinstance(error, PASSED_ON):
            raise error
        plugin = plugin_of(method).name
        self.failures.add(plugin, point, asked_about(subject) or point, error)
        return plugin

    def refusal(self, point: str, method: Method, error: BaseException, subject: Sequence[Any]) -> Reason:
        """The refusal by a gate that failed, for the job or pod it was asked about."""
        return reasons.plugin_failed(self.tell(point, method, error, subject), error)

    def hold(self, point: str, method: Method, error: BaseException, subject: Sequence[Any]) -> None:
        """Set aside the job for which a plugin's method failed. Raises JobHeldError, once for each."""
        plugin, job = self.tell(point, method, error, subject), asked_about(subject)
        held = point, job
        if not self.closed and job and held not in self._held:
            self._held.add(held)
            raise JobHeldError(job, plugin, error) from error
