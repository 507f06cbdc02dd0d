"""How the answers of several plugins become one: a property of the extension point, written once.

A point is a method of `Plugin`. `Points` finds out which plugins override it and are not switched off for it, tier by
tier; the functions below combine their answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from stromboli.api.reasons import Reason
from stromboli.framework.plugin import Plugin, Vote
from stromboli.policy.document import PluginOption
from stromboli.state.pods import PodRecord

if TYPE_CHECKING:
    from stromboli.framework.job import Job

Method = Callable[..., Any]
#: for whom victims are looked for
Beneficiary: TypeAlias = "PodRecord | Job"

#: the switch of the policy file that turns a point off; points that are not named have none
_SWITCH = {
    "job_enqueueable": "job_enqueued",
    "job_missing": "job_ready",
    "sub_job_missing": "sub_job_ready",
    "batch_node_order": "node_order",
    "one_by_one": "node_order",
    "victim_tasks": "victim",
    "neighbourhoods": "node_order",
}
_WITHOUT_SWITCH = frozenset(
    (
        "evictable",
        "gang_preemptable",
        "gang_reclaimable",
        "victim_queue_order",
        "job_valid",
        "varies",
        "identity",
        "bind_annotations",
        "refusal",
        "on_allocate",
        "on_deallocate",
        "open",
        "close",
    )
)


def culprit(error: BaseException) -> Plugin | None:
    """The plugin in whose code an error arose, the innermost of them; None when none had a part in it.

    Read from the traceback, so that calling a plugin costs nothing extra.
    """
    found, traceback = None, error.__traceback__
    while traceback is not None:
        owner = traceback.tb_frame.f_locals.get("self")
        if isinstance(owner, Plugin):
            found = owner
        traceback = traceback.tb_next
    return found


class Points:
    """The methods that take part in each extension point, tier by tier."""

    def __init__(self, tiers: Sequence[Sequence[tuple[Plugin, PluginOption]]]) -> None:
        self._tiers = tiers
        self._chains: dict[str, tuple[tuple[Method, ...], ...]] = {}
        self._flat: dict[str, tuple[Method, ...]] = {}

    @property
    def count(self) -> int:
        """How many plugins are asked."""
        return sum(map(len, self._tiers))

    def __contains__(self, plugin: Plugin) -> bool:
        return any(p is plugin for tier in self._tiers for p, _ in tier)

    def disable(self, plugin: Plugin) -> None:
        """Ask a plugin nothing any more."""
        self._tiers = [[(p, option) for p, option in tier if p is not plugin] for tier in self._tiers]
        self._chains.clear()
        self._flat.clear()

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

    def key(self, point: str, *subject: Any) -> tuple[Any, ...]:
        """Concatenate: what an earlier plugin says outweighs all later ones."""
        return tuple([method(*subject) for method in self.all(point)])

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

    def victims(
        self, point: str, beneficiary: Beneficiary, candidates: Sequence[PodRecord], *, veto: bool
    ) -> list[PodRecord]:
        """The candidates that may be evicted, in their order; none when no plugin has an opinion.

        With `veto` all plugins must agree. Without, the first tier that leaves somebody decides, and within a tier an
        empty intersection is forgotten.
        """
        allowed = (
            self._agreed(point, beneficiary, candidates) if veto else self._decided(point, beneficiary, candidates)
        )
        return [pod for pod in candidates if pod.row in allowed]

    def _agreed(self, point: str, beneficiary: Beneficiary, candidates: Sequence[PodRecord]) -> set[int]:
        """Rows that every opinion contains."""
        allowed: set[int] | None = None
        for method in self.all(point):
            opinion = method(beneficiary, candidates)
            if opinion is not None:
                rows = {pod.row for pod in opinion}
                allowed = rows if allowed is None else allowed & rows
                if not allowed:
                    break
        return allowed or set()

    def _decided(self, point: str, beneficiary: Beneficiary, candidates: Sequence[PodRecord]) -> set[int]:
        """Rows as Volcano finds them: what a tier vetoes, the next one may allow."""
        for tier in self.tiers(point):
            allowed: set[int] = set()
            for method in tier:
                opinion = method(beneficiary, candidates)
                if opinion is None:
                    continue
                rows = {pod.row for pod in opinion}
                if not rows:
                    allowed = set()
                    break
                allowed = allowed & rows if allowed else rows
            if allowed:
                return allowed
        return set()

    def evictable(self, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        """The candidates to whose eviction no plugin objects."""
        for method in self.all("evictable"):
            opinion = method(candidates)
            candidates = candidates if opinion is None else opinion
        return list(candidates)

    def victim_tasks(self, running: Sequence[PodRecord]) -> list[PodRecord]:
        """What the plugins of the first tier that names somebody want to see evicted."""
        for tier in self.tiers("victim_tasks"):
            named = {pod.row for method in tier for pod in method(running)}
            if named:
                return [pod for pod in running if pod.row in named]
        return []


def _takes_part(plugin: Plugin, option: PluginOption, point: str) -> bool:
    if getattr(type(plugin), point) is getattr(Plugin, point):
        return False
    return point in _WITHOUT_SWITCH or _SWITCH.get(point, point) not in option.disabled
