"""Victims: which plugins have a say about them, and which candidates may be evicted by what they say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from stromboli.api.resources import Mask
from stromboli.framework.cluster.job import Job
from stromboli.framework.plugin.base import Plugin
from stromboli.framework.plugin.hints import holds
from stromboli.framework.runtime import checks
from stromboli.framework.runtime.asked import Method, asked, plugin_of
from stromboli.framework.runtime.participants import Participants
from stromboli.state.pods import PodRecord

#: the pod or job that victims are looked for
Beneficiary: TypeAlias = PodRecord | Job


@dataclass(frozen=True, slots=True)
class VictimPlugins:
    """The plugins that are heard about victims where vetoes are final."""

    #: those that protect pods from any eviction, of all tiers
    protecting: tuple[Method, ...]
    #: all others, tier by tier; last those about shares that the policy does not ask to decide
    deciding: tuple[tuple[Method, ...], ...]


class VictimQuestions:
    """Asks about victims in one session."""

    def __init__(self, participants: Participants) -> None:
        self._participants = participants
        self._heard: dict[str, VictimPlugins] = {}

    def forget(self) -> None:
        """Other plugins take part from here on."""
        self._heard.clear()

    # -- which may be evicted ------------------------------------------------------------------------------------

    def allowed(
        self, point: str, beneficiary: Beneficiary, candidates: Sequence[PodRecord], *, veto: bool
    ) -> list[PodRecord]:
        """The candidates that may be evicted, in their order; none if no plugin has an opinion.

        With `veto`, plugins that protect pods are asked in every tier, and of the others the first tier with an opinion
        decides. Without it the first tier that leaves any candidate decides, and an empty intersection within a tier is
        ignored. If a plugin that protects pods failed, there are none.
        """
        if point in self._participants.protected:
            return []
        if veto:
            return self._agreed(point, beneficiary, candidates)
        allowed = self._decided(point, beneficiary, candidates)
        return [pod for pod in candidates if pod.row in allowed]

    def _agreed(self, point: str, beneficiary: Beneficiary, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        """The candidates that all protecting plugins leave, and the first tier with an opinion allows."""
        heard, left, has_opinion = self.heard(point), list(candidates), False
        for tier in (heard.protecting, *heard.deciding):
            decided = False
            for method in tier:
                rows = self._named(point, method, beneficiary, left) if left else set()
                if rows is not None:
                    left, decided = [pod for pod in left if pod.row in rows], True
            has_opinion = has_opinion or decided
            if decided and tier is not heard.protecting:
                break
        return left if has_opinion else []

    def _decided(self, point: str, beneficiary: Beneficiary, candidates: Sequence[PodRecord]) -> set[int]:
        """Rows as Volcano finds them: what a tier vetoes, the next one may allow."""
        for tier in self._participants.tiers(point):
            allowed: set[int] = set()
            for method in tier:
                rows = self._named(point, method, beneficiary, candidates)
                if rows is None:
                    continue
                if not rows:
                    allowed = set()
                    break
                allowed = allowed & rows if allowed else rows
            if allowed:
                return allowed
        return set()

    def intersection(self, point: str, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        """The candidates to whose eviction no plugin objects."""
        if point in self._participants.protected:
            return []
        for method in self._participants.all[point]:
            rows = self._named(point, method, candidates)
            candidates = candidates if rows is None else [pod for pod in candidates if pod.row in rows]
        return list(candidates)

    def first_tier_union(self, point: str, running: Sequence[PodRecord]) -> list[PodRecord]:
        """The pods to evict according to the plugins of the first tier that names any."""
        for tier in self._participants.tiers(point):
            named: set[int] = set()
            for method in tier:
                named |= self._named(point, method, running) or set()
            if named:
                return [pod for pod in running if pod.row in named]
        return []

    def at_most(self, hint: str, point: str, size: int, *subject: Any) -> list[Mask]:
        """Masks of the most that `point` may name according to a hint, if vetoes are final, each of shape (size,).

        Only plugins with the last word are asked: those that protect pods, or those of the first tier that decides.
        """
        heard = self.heard(point)
        tiers = (heard.protecting,) if hint == "evictable_pods" else (heard.protecting, *heard.deciding[:1])
        plugins = [plugin_of(method) for tier in tiers for method in tier]
        found = []
        for method in self._participants.all[hint]:
            if plugin_of(method) in plugins:
                try:
                    mask = checks.mask(method, method(*subject), size)
                except BaseException as error:
                    self._participants.leave_out(hint, method, error)
                    continue
                if mask is not None:
                    found.append(mask)
        return found

    def counted(self, point: str, *subject: Any) -> Iterator[tuple[str, int | None]]:
        """Each plugin with an opinion about victims, and the number that it names; None for a failing one."""
        for method in self._participants.all[point]:
            plugin = plugin_of(method).name
            try:
                rows = checks.pods(method, method(*subject))
            except BaseException as error:
                self._participants.tell(point, method, error)
                yield plugin, None
                continue
            if rows is not None:
                yield plugin, len(rows)

    def _named(self, point: str, method: Method, *subject: Any) -> set[int] | None:
        """The rows of the pods that a plugin names; None for no opinion, and where it fails after all actions."""
        try:
            return checks.pods(method, method(*subject))
        except BaseException as error:
            self._participants.leave_out(point, method, error)
        return None

    # -- which plugins are heard ---------------------------------------------------------------------------------

    def heard(self, point: str) -> VictimPlugins:
        """The plugins that have a say where vetoes are final."""
        heard = self._heard.get(point)
        if heard is None:
            heard = self._heard[point] = self._find_heard(point)
        return heard

    def _find_heard(self, point: str) -> VictimPlugins:
        protecting: list[Method] = []
        deciding: list[tuple[Method, ...]] = []
        by_share: list[Method] = []
        for tier in self._participants.of_tiers(point):
            here: list[Method] = []
            for plugin, option in tier:
                if plugin.protects:
                    protecting.append(asked(plugin, point))
                elif plugin.by_share and point == "preemptable" and point not in option.enabled:
                    by_share.append(asked(plugin, point))
                else:
                    here.append(asked(plugin, point))
            deciding += [tuple(here)] if here else []
        deciding += [tuple(by_share)] if by_share else []
        return VictimPlugins(tuple(protecting), tuple(deciding))

    def steady(self, point: str) -> bool:
        """Whether all plugins that are heard, where vetoes are final, are `steady`."""
        heard = self.heard(point)
        for tier in (heard.protecting, *heard.deciding):
            plugins = list(map(plugin_of, tier))
            if not all(_hints("steady", plugin, point) for plugin in plugins):
                return False
            if tier is not heard.protecting and _always_decides(plugins, point):
                return True
        return True

    def by_share(self, point: str) -> bool:
        """Whether a plugin about shares is heard."""
        for tier in self.heard(point).deciding:
            plugins = list(map(plugin_of, tier))
            if any(plugin.by_share for plugin in plugins):
                return True
            if _always_decides(plugins, point):
                return False
        return False


def _always_decides(plugins: Sequence[Plugin], point: str) -> bool:
    """Whether a plugin of a tier has an opinion whatever the pods, so that no lower tier is asked."""
    return point == "preemptable" and any(_hints("always_decides", plugin, point) for plugin in plugins)


def _hints(flag: str, plugin: Plugin, point: str) -> bool:
    """Whether a plugin gives a hint about its answers at a point."""
    return bool(getattr(plugin, flag)) and holds(type(plugin), flag, point)
