"""Asking all plugins that take part in an extension point, and making one answer of theirs.

Their combination is declared on each method of `Plugin` and found there; a caller names the point and the type
of the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from stromboli.api.decisions import ClaimUse, VolumeUse
from stromboli.api.reasons import Reason
from stromboli.api.resources import Mask, Rows, Vector
from stromboli.framework.plugin.base import DECLARED, Plugin
from stromboli.framework.plugin.combination import Combination
from stromboli.framework.plugin.relations import Relation
from stromboli.framework.runtime.asked import Method, plugin_of
from stromboli.framework.runtime.combiners import COMBINERS
from stromboli.framework.runtime.culprit import culprit
from stromboli.framework.runtime.keys import Keys
from stromboli.framework.runtime.participants import ByPoint, Participants, Tiers
from stromboli.framework.runtime.victims import Beneficiary, VictimQuestions
from stromboli.state.pods import PodRecord

Use = TypeVar("Use", ClaimUse, VolumeUse, Relation)


class Points(Participants):
    """The extension points of a session."""

    def __init__(self, tiers: Tiers) -> None:
        super().__init__(tiers)
        self._keys = Keys(self)
        self._victims = VictimQuestions(self)
        #: the combinations that keep something between questions
        self._own: Mapping[Combination, Callable[..., Any]] = {
            Combination.Concatenated: self._keys.one,
            Combination.Victims: self._victims.allowed,
            Combination.Intersection: self._victims.intersection,
            Combination.FirstTierUnion: self._victims.first_tier_union,
            Combination.VictimsAtMost: self._victims.at_most,
        }
        self._ask = ByPoint(self._find_asking)

    def _find_asking(self, point: str) -> Callable[..., Any]:
        """The function that asks at a point."""
        combination = DECLARED[point].combination
        own = self._own.get(combination)
        return partial(own, point) if own else partial(COMBINERS[combination], self, point)

    def forget(self) -> None:
        """Determine again which plugins take part in which points."""
        super().forget()
        self._keys.forget()
        self._victims.forget()

    def culprit(self, error: BaseException) -> Plugin | None:
        """The plugin in whose code an error arose, the innermost of them; None when none had a part in it."""
        return culprit(error, self.plugins)

    def asking(self, point: str) -> Callable[..., Any]:
        """The function that asks at a point, for questions about every pod."""
        return self._ask[point]

    # -- answers by their types --------------------------------------------------------------------------------------

    def key(self, point: str, *subject: Any) -> tuple[Any, ...]:
        """The sort key of a subject."""
        key: tuple[Any, ...] = self._ask[point](*subject)
        return key

    def keys(self, point: str, subjects: Sequence[Any]) -> list[tuple[Any, ...]]:
        """The sort keys of several subjects."""
        return self._keys.many(point, subjects)

    def columns(self, point: str, size: int, *subject: Any) -> list[Vector] | None:
        """The sort keys of all subjects at once, a column of shape (size,) for each plugin; None if not known."""
        columns: list[Vector] | None = self._ask[point](size, *subject)
        return columns

    def reason(self, point: str, *subject: Any) -> Reason | None:
        """Why not; None for no reason."""
        reason: Reason | None = self._ask[point](*subject)
        return reason

    def verdict(self, point: str, *subject: Any, unanimous: bool = False) -> tuple[bool, Reason | None]:
        """Whether plugins let something pass, all of them if it has to be `unanimous`, and why not."""
        verdict: tuple[bool, Reason | None] = self._ask[point](*subject, unanimous=unanimous)
        return verdict

    def flag(self, point: str, *subject: Any) -> bool:
        """Yes or no."""
        flag: bool = self._ask[point](*subject)
        return flag

    def number(self, point: str, *subject: Any) -> int:
        """A whole number, 0 when no plugin names one."""
        number: int = self._ask[point](*subject)
        return number

    def allowed(self, point: str, subject: Sequence[Any], most: int, *, unless: str = "") -> tuple[int, Reason | None]:
        """Number of pods allowed, `most` at most, and why not all. Plugins that take part in `unless` are not asked."""
        allowed: tuple[int, Reason | None] = self._ask[point](subject, most, unless)
        return allowed

    def limit(self, point: str, dimensions: int, *subject: Any) -> Vector | None:
        """The most that something may hold, shape (dimensions,); None when nothing limits it."""
        limit: Vector | None = self._ask[point](dimensions, *subject)
        return limit

    def limits(self, point: str, dimensions: int, *subject: Any) -> Mapping[str, Sequence[tuple[Vector, str]]]:
        """The most that each of some things may hold, shape (dimensions,), with words about it, by key."""
        limits: Mapping[str, Sequence[tuple[Vector, str]]] = self._ask[point](dimensions, *subject)
        return limits

    def texts(self, point: str, *subject: Any) -> Mapping[str, str]:
        """Texts by key."""
        texts: Mapping[str, str] = self._ask[point](*subject)
        return texts

    def uses(self, point: str, kind: type[Use], *subject: Any) -> list[Use]:
        """Objects that plugins name, all of one type, such as claims that a pod uses or relations between pods."""
        uses: list[Use] = self._ask[point](kind, *subject)
        return uses

    def notify(self, point: str, *subject: Any) -> Iterator[tuple[Plugin, BaseException]]:
        """Tell every plugin something; each plugin that fails, with its error. To be read to the end."""
        told: Iterator[tuple[Method, BaseException]] = self._ask[point](*subject)
        return ((plugin_of(method), error) for method, error in told)

    def of_filters(self, point: str) -> list[Method]:
        """The methods at a point of those plugins that filter nodes."""
        filters = [plugin_of(method) for method in self.all["predicate"]]
        return [method for method in self.all[point] if plugin_of(method) in filters]

    # -- nodes and HyperNodes ----------------------------------------------------------------------------------------

    def filters(self, point: str, nodes: int, *subject: Any) -> Iterator[tuple[str, Mask]]:
        """Each cause with the mask of nodes, shape (nodes,), that do not have it."""
        found: Iterator[tuple[str, Mask]] = self._ask[point](nodes, *subject)
        return found

    def scores(self, point: str, size: int, *subject: Any) -> Vector | None:
        """Scores, shape (size,); None when all are equal or, of a hint, when they are not known."""
        scores: Vector | None = self._ask[point](size, *subject)
        return scores

    def identity(self, point: str, pod: PodRecord) -> tuple[Hashable, ...]:
        """Keys that distinguish a pod from others of its class."""
        identity: tuple[Hashable, ...] = self._ask[point](pod)
        return identity

    def numbers(self, point: str, size: int, *subject: Any) -> Iterator[Rows]:
        """Numbers from each plugin that has them, one for each object, shape (size,)."""
        numbers: Iterator[Rows] = self._ask[point](size, *subject)
        return numbers

    def gradients(self, point: str, number: int, *subject: Any) -> list[Rows] | None:
        """Groups of `number` HyperNodes, the best in front; None when no plugin has any."""
        gradients: list[Rows] | None = self._ask[point](number, *subject)
        return gradients

    # -- victims -----------------------------------------------------------------------------------------------------

    def victims(
        self, point: str, beneficiary: Beneficiary, candidates: Sequence[PodRecord], *, veto: bool
    ) -> list[PodRecord]:
        """The candidates that may be evicted for a pod or job, in their order; `veto` is the rule of that name."""
        victims: list[PodRecord] = self._ask[point](beneficiary, candidates, veto=veto)
        return victims

    def pods(self, point: str, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        """The pods that plugins name, of some."""
        pods: list[PodRecord] = self._ask[point](candidates)
        return pods

    def masks(self, hint: str, point: str, size: int, *subject: Any) -> list[Mask]:
        """Masks, each of shape (size,), of the most that a point may name according to a hint."""
        masks: list[Mask] = self._ask[hint](point, size, *subject)
        return masks

    def named(self, point: str, *subject: Any) -> Iterator[tuple[str, int | None]]:
        """Each plugin with an opinion about victims, and the number that it names; None for a failing one."""
        return self._victims.counted(point, *subject)

    def steady(self, point: str) -> bool:
        """Whether verdicts about a victim, if vetoes are final, hold for the whole session."""
        return self._victims.steady(point)

    def by_share(self, point: str) -> bool:
        """Whether a plugin about shares has a say about victims."""
        return self._victims.by_share(point)

    def fills_shares(self) -> bool:
        """Whether a plugin lets queues reclaim their whole share."""
        return any(plugin_of(method).fills_shares for method in self.all["preemptive"])

    def gives_back_in_order(self) -> bool:
        """Whether a plugin has shares given back in its order of victims even if more pods are evicted."""
        return any(plugin_of(method).gives_back_in_order for method in self.all["preemptive"])
