"""How the answers of several plugins become one: a property of the extension point, written once.

A point is a method of `Plugin`. `Points` finds out which plugins override it and are not switched off for it, tier by
tier; the functions below combine their answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import ne
from types import MethodType, TracebackType
from typing import Any, TypeAlias, cast

from stromboli.api.reasons import Reason
from stromboli.api.resources import Mask
from stromboli.framework import answers, reasons
from stromboli.framework.answers import AnswerError, Method
from stromboli.framework.class_member import ClassMember
from stromboli.framework.failures import PASSED_ON, Failures, JobHeldError, PluginLeftError, asked_about
from stromboli.framework.job import Job, Queue
from stromboli.framework.plugin import POINTS, Plugin, Vote
from stromboli.policy.document import PluginOption
from stromboli.state.pods import PodRecord

#: the plugins of a session with how the policy uses them, tier by tier
Tiers: TypeAlias = Sequence[Sequence[tuple[Plugin, PluginOption]]]
#: for whom victims are looked for
Beneficiary: TypeAlias = PodRecord | Job

#: the switch of the policy file that turns a point off; points that are not named have none
_SWITCH = {
    "job_enqueueable": "job_enqueued",
    "job_missing": "job_ready",
    "lendable": "allocatable",
    "startable": "allocatable",
    "sub_job_missing": "sub_job_ready",
    "batch_node_order": "node_order",
    "one_by_one": "node_order",
    "by_amounts": "node_order",
    "victim_tasks": "victim",
    "neighbourhoods": "node_order",
    "hyper_node_order_with": "hyper_node_order",
}
#: points that no switch turns off
WITHOUT_SWITCH = frozenset(
    (
        "evictable",
        "preemptable_jobs",
        "evictable_pods",
        "reclaimable_queues",
        "gang_preemptable",
        "gang_reclaimable",
        "victim_queue_order",
        "ceiling",
        "job_ceilings",
        "job_valid",
        "varies",
        "varies_on_node",
        "identity",
        "bind_annotations",
        "bind_claims",
        "bind_volumes",
        "refusal",
        "on_allocate",
        "on_deallocate",
    )
)


def switched(switch: str) -> list[str]:
    """The extension points that a switch of the policy file turns off, in the order of `Plugin`."""
    return [name for name in POINTS if name not in WITHOUT_SWITCH and _SWITCH.get(name, name) == switch]


#: points that say which pods may be evicted
_VICTIMS = frozenset(("preemptable", "reclaimable", "gang_preemptable", "gang_reclaimable", "evictable"))
#: points whose answers the pods of a class share
_OF_CLASSES = frozenset(("predicate", "node_order", "batch_node_order", "neighbourhoods", "one_by_one", "by_amounts"))


class _Equal:
    """A key that is the same as any other: that of a plugin that was left out when some keys were known."""

    def __eq__(self, other: object) -> bool:
        return True

    def __lt__(self, other: object) -> bool:
        return False

    __gt__ = __lt__

    def __hash__(self) -> int:
        return 0


_EQUAL = _Equal()


@dataclass(frozen=True, slots=True)
class Voices:
    """Who has a say about victims where vetoes are final."""

    #: those that protect pods from any eviction, of all tiers
    protecting: tuple[Method, ...]
    #: all others, tier by tier; last those about shares that the policy does not ask to decide
    deciding: tuple[tuple[Method, ...], ...]


class _Flat(dict[str, tuple[Method, ...]]):
    """The methods of each point in order, found when somebody first asks."""

    def __init__(self, tiers: Callable[[str], tuple[tuple[Method, ...], ...]]) -> None:
        super().__init__()
        self._tiers = tiers

    def __missing__(self, point: str) -> tuple[Method, ...]:
        self[point] = methods = tuple(method for tier in self._tiers(point) for method in tier)
        return methods


class Points:
    """The methods that take part in each extension point, tier by tier."""

    def __init__(self, tiers: Tiers) -> None:
        self._tiers = tiers
        self._chains: dict[str, tuple[tuple[Method, ...], ...]] = {}
        self._flat = _Flat(self.tiers)
        self._voices: dict[str, Voices] = {}
        #: by point, the family of the keys of each method: those of one must compare with each other
        self._families: dict[str, list[object]] = {}
        #: by point, the types of its last keys, where all of them were plain numbers
        self._numbers: dict[str, list[type]] = {}
        self.failures = Failures()
        #: whether no action runs any more: then nothing is begun anew, and questions are answered as far as may be
        self.closed = False
        #: called when what was worked out by answers is void
        self.when_left: Callable[[], None] = lambda: None
        #: points of plugins that are asked nothing more
        self._left: set[tuple[Plugin, str]] = set()
        #: points at which nobody is a victim, since who protects pods cannot say whom
        self._nobody: set[str] = set()
        #: points and jobs that are held for them
        self._held: set[tuple[str, str]] = set()

    def __contains__(self, plugin: Plugin) -> bool:
        return any(p is plugin for tier in self._tiers for p, _ in tier)

    def disable(self, plugin: Plugin) -> None:
        """Ask a plugin nothing any more."""
        self._tiers = [[(p, option) for p, option in tier if p is not plugin] for tier in self._tiers]
        self.forget()

    def leave_out(self, point: str, method: Method, error: BaseException) -> None:
        """Ask a plugin nothing more at the point of a method that failed. Raises PluginLeftError while actions run."""
        if isinstance(error, PASSED_ON):
            raise error
        plugin = _plugin(method)
        self.failures.add(plugin.name, point, point, error)
        self._left.add((plugin, point))
        if plugin.protects and point in _VICTIMS:
            self._nobody.add(point)
        self.forget()
        self.when_left()
        if not self.closed:
            raise PluginLeftError from error

    def tell(self, point: str, method: Method, error: BaseException, subject: Sequence[Any] = ()) -> str:
        """Keep the failure of a method that was asked about something; the name of its plugin."""
        if isinstance(error, PASSED_ON):
            raise error
        plugin = _plugin(method).name
        self.failures.add(plugin, point, asked_about(subject) or point, error)
        return plugin

    def refusal(self, point: str, method: Method, error: BaseException, subject: Sequence[Any]) -> Reason:
        """The no of a gate that failed, for what it was asked about."""
        return reasons.plugin_failed(self.tell(point, method, error, subject), error)

    def hold(self, point: str, method: Method, error: BaseException, subject: Sequence[Any]) -> None:
        """Have the job set aside that a method was asked about in vain. Raises JobHeldError, once for each."""
        plugin, job = self.tell(point, method, error, subject), asked_about(subject)
        held = point, job
        if not self.closed and job and held not in self._held:
            self._held.add(held)
            raise JobHeldError(job, plugin, error) from error

    def forget(self) -> None:
        """Find out anew who takes part in what."""
        self._chains.clear()
        self._flat.clear()
        self._voices.clear()
        self._families.clear()
        self._numbers.clear()

    @property
    def plugins(self) -> list[Plugin]:
        """All plugins that take part."""
        return [plugin for tier in self._tiers for plugin, _ in tier]

    def tiers(self, point: str) -> tuple[tuple[Method, ...], ...]:
        """The methods of a point, tier by tier; tiers without any are left out."""
        chain = self._chains.get(point)
        if chain is None:
            chain = tuple(
                methods
                for tier in self._tiers
                if (methods := tuple(_method(p, point) for p, option in tier if self._takes_part(p, option, point)))
            )
            self._chains[point] = chain
        return chain

    def _takes_part(self, plugin: Plugin, option: PluginOption, point: str) -> bool:
        return (plugin, point) not in self._left and _takes_part(plugin, option, point)

    def all(self, point: str) -> tuple[Method, ...]:
        """The methods of a point in order."""
        return self._flat[point]

    def culprit(self, error: BaseException) -> Plugin | None:
        """The plugin in whose code an error arose, the innermost of them; None when none had a part in it.

        Read from the traceback, so that calling a plugin costs nothing extra.
        """
        if isinstance(error, KeyboardInterrupt):
            return None
        if isinstance(error, AnswerError):
            return error.plugin if isinstance(error.plugin, Plugin) else None
        by_module = {type(p).__module__: p for tier in self._tiers for p, _ in tier}
        found, traceback = None, error.__traceback__
        while traceback is not None:
            owner = _owner(traceback, by_module)
            # An exception that was raised before remembers the plugins of earlier sessions.
            found = owner if owner is not None and owner in self else found
            traceback = traceback.tb_next
        # What a generator makes of a StopIteration says whose it was in its cause.
        return found or (self.culprit(error.__cause__) if error.__cause__ else None)

    # -- combining -------------------------------------------------------------------------------------------------

    def key(self, point: str, *subject: Any) -> tuple[Any, ...]:
        """Concatenate: what an earlier plugin says outweighs all later ones."""
        methods = self._flat[point]
        try:
            return self._checked(point, methods, [method(*subject) for method in methods])
        except BaseException as error:
            return self._key_without(point, subject, error)

    def _key_without(self, point: str, subject: Sequence[Any], error: BaseException) -> tuple[Any, ...]:
        """A key when a plugin failed. While actions run its order is left out and they begin anew.

        Afterwards it says of what follows that all is equal: keys from before have its part.
        """
        if not self.closed:
            self.leave_out(point, self._failed(point, subject, error), error)
        out: list[Any] = []
        for method in self._flat[point]:
            try:
                out.append(answers.key(method, method(*subject)))
            except BaseException as again:
                self.tell(point, method, again)
                out.append(_EQUAL)
        return tuple(out)

    def _failed(self, point: str, subject: Sequence[Any], error: BaseException) -> Method:
        """The method of a point that failed. Raises the error when it is no plugin's."""
        plugin = None if isinstance(error, PASSED_ON) else self.culprit(error)
        for method in self._flat[point]:
            if _plugin(method) is plugin:
                return method
        if not isinstance(error, PASSED_ON):
            # No frame of its own tells: built-in functions have none.
            for method in self._flat[point]:
                try:
                    method(*subject)
                except BaseException:
                    return method
        raise error

    def keys(self, point: str, subjects: Sequence[Any]) -> list[tuple[Any, ...]]:
        """The keys of several subjects; that all are whole numbers, as most are, is seen at one glance."""
        methods = self.all(point)
        if not methods:
            return [()] * len(subjects)
        try:
            columns = [[method(subject) for subject in subjects] for method in methods]
        except BaseException:
            return [self.key(point, subject) for subject in subjects]
        rows = list(zip(*columns, strict=True))
        known = self._families.get(point, ("unknown",))
        if set(known) == {float} and all(answers.WHOLE.issuperset(map(type, column)) for column in columns):
            return rows
        try:
            return [self._checked(point, methods, row) for row in rows]
        except BaseException:
            return [self.key(point, subject) for subject in subjects]

    def _checked(self, point: str, methods: Sequence[Method], keys: Sequence[Any]) -> tuple[Any, ...]:
        """What the methods of a point answered, once it is known to compare with what they answered before."""
        types = [*map(type, keys)]
        # Plain numbers, which most keys are, are seen at one glance; NaN is not what it is.
        if types != self._numbers.get(point) or any(map(ne, keys, keys)):
            families = self._families.get(point)
            if families is None or not all(map(answers.belongs, keys, families)):
                keys = self._comparable(point, methods, keys)
            elif answers.NUMBERS.issuperset(types):
                self._numbers[point] = types
        return tuple(keys)

    def _comparable(self, point: str, methods: Sequence[Method], found: Sequence[Any]) -> list[Any]:
        """Keys that compare with those that the same methods gave before."""
        keys = [answers.key(method, key) for method, key in zip(methods, found, strict=True)]
        families = [answers.family(key) for key in keys]
        known = self._families.setdefault(point, families)
        for method, key, family, before in zip(methods, keys, families, known, strict=True):
            if family != before:
                raise AnswerError(method, "keys that compare with each other, as it did before", key)
        return keys

    def objection(self, point: str, *subject: Any) -> Reason | None:
        """The first reason against."""
        for method in self._flat[point]:
            try:
                answer = method(*subject)
                if answer is not None:
                    return answers.reason(method, answer)
            except BaseException as error:
                return self.refusal(point, method, error, subject)
        return None

    def largest(self, point: str, *subject: Any) -> int:
        """The largest number, 0 when nobody names one. A job of which a plugin cannot say it lacks one."""
        largest: int | None = None
        for method in self._flat[point]:
            try:
                answer = method(*subject)
                number = answer if type(answer) is int else answers.count(method, answer)
            except BaseException as error:
                self.hold(point, method, error, subject)
                number = 1
            if largest is None or number > largest:
                largest = number
        return largest or 0

    def room(
        self, point: str, queue: Queue, pod: PodRecord, most: int, *, unless: str = ""
    ) -> tuple[int, Reason | None]:
        """The smallest number of pods, `most` at most, and whose reason it is.

        Plugins that take part in the point `unless` are not asked.
        """
        least, why = most, None
        methods = self.all(point)
        if unless:
            silent = set(map(_plugin, self.all(unless)))
            methods = tuple(method for method in methods if _plugin(method) not in silent)
        for method in methods:
            try:
                room, reason = answers.room(method, method(queue, pod, least), least)
            except BaseException as error:
                return 0, self.refusal(point, method, error, (queue, pod))
            if room < least:
                least, why = room, reason
        return least, why

    def vote(self, point: str, *subject: Any) -> tuple[bool, Reason | None]:
        """A rejection anywhere decides; a permit ends the question after its tier; nobody's opinion is a yes."""
        for tier in self.tiers(point):
            permitted = False
            for method in tier:
                try:
                    verdict = answers.verdict(method, method(*subject))
                except BaseException as error:
                    if point != "job_enqueueable":
                        self.hold(point, method, error, subject)
                    verdict = self.refusal(point, method, error, subject)
                if isinstance(verdict, Reason):
                    return False, verdict
                if verdict is Vote.Reject:
                    return False, None
                permitted = permitted or verdict is Vote.Permit
            if permitted:
                return True, None
        return True, None

    def anybody(self, point: str, *subject: Any) -> bool:
        """Whether any plugin says yes."""
        for method in self._flat[point]:
            try:
                answer = method(*subject)
                # Asked for every pod, and nearly always a plain no.
                if answer is not False and answers.flag(method, answer):
                    return True
            except BaseException as error:
                # Who is placed one at a time, with everything asked anew, gets what he should in any case.
                self.tell(point, method, error)
                return True
        return False

    def everybody(self, point: str, of: str, *subject: Any) -> bool:
        """Whether all plugins that take part in the point `of` say yes at this one."""
        methods = self.all(point)
        if len(methods) != len(self.all(of)):
            return False
        for method in methods:
            try:
                if not answers.flag(method, method(*subject)):
                    return False
            except BaseException as error:
                self.tell(point, method, error)
                return False
        return True

    def first_tier_agrees(self, point: str, *subject: Any) -> bool:
        """Whether all plugins of the first tier that takes part say yes; False when none does."""
        for tier in self.tiers(point):
            for method in tier:
                try:
                    if not answers.flag(method, method(*subject)):
                        return False
                except BaseException as error:
                    self.hold(point, method, error, subject)
                    return False
            return True
        return False

    def merged(self, point: str, *subject: Any) -> Mapping[str, str]:
        """What all plugins say, by key; the last one counts."""
        out: dict[str, str] = {}
        for method in self.all(point):
            try:
                out.update(answers.texts(method, method(*subject)))
            except BaseException as error:
                self.hold(point, method, error, subject)
        return out

    def victims(
        self, point: str, beneficiary: Beneficiary, candidates: Sequence[PodRecord], *, veto: bool
    ) -> list[PodRecord]:
        """The candidates that may be evicted, in their order; none when no plugin has an opinion.

        With `veto` whoever protects pods is heard in every tier, and of the others the first tier with an opinion
        decides. Without, the first tier that leaves somebody decides, and within a tier an empty intersection is
        forgotten. Where a plugin that protects pods failed, there are none.
        """
        if point in self._nobody:
            return []
        if veto:
            return self._agreed(point, beneficiary, candidates)
        allowed = self._decided(point, beneficiary, candidates)
        return [pod for pod in candidates if pod.row in allowed]

    def _agreed(self, point: str, beneficiary: Beneficiary, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        """The candidates that those who protect pods leave, and the first tier with an opinion allows."""
        voices, left, asked = self.voices(point), list(candidates), False
        for tier in (voices.protecting, *voices.deciding):
            decided = False
            for method in tier:
                rows = self._named(point, method, beneficiary, left) if left else set()
                if rows is not None:
                    left, decided = [pod for pod in left if pod.row in rows], True
            asked = asked or decided
            if decided and tier is not voices.protecting:
                break
        return left if asked else []

    def voices(self, point: str) -> Voices:
        """Who has a say about victims where vetoes are final."""
        voices = self._voices.get(point)
        if voices is None:
            voices = self._voices[point] = self._find_voices(point)
        return voices

    def _find_voices(self, point: str) -> Voices:
        protecting: list[Method] = []
        deciding: list[tuple[Method, ...]] = []
        by_share: list[Method] = []
        for tier in self._tiers:
            here: list[Method] = []
            for plugin, option in tier:
                if not self._takes_part(plugin, option, point):
                    continue
                if plugin.protects:
                    protecting.append(_method(plugin, point))
                elif plugin.by_share and point == "preemptable" and point not in option.enabled:
                    by_share.append(_method(plugin, point))
                else:
                    here.append(_method(plugin, point))
            deciding += [tuple(here)] if here else []
        deciding += [tuple(by_share)] if by_share else []
        return Voices(tuple(protecting), tuple(deciding))

    def in_turn(self, point: str) -> bool:
        """Whether all who have a say about victims judge them one after the other."""
        return all(_plugin(method).in_turn for method in self.all(point))

    def steady(self, point: str) -> bool:
        """Whether all who are heard about victims, where vetoes are final, are `steady`."""
        voices = self.voices(point)
        for tier in (voices.protecting, *voices.deciding):
            plugins = list(map(_plugin, tier))
            if not all(plugin.steady for plugin in plugins):
                return False
            if point == "preemptable" and _always_decides(plugins):
                return True
        return True

    def fills_shares(self) -> bool:
        """Whether a plugin lets queues take back all that they deserve."""
        return any(_plugin(method).fills_shares for method in self.all("preemptive"))

    def gives_back_in_order(self) -> bool:
        """Whether a plugin has those who give it back go in their order."""
        return any(_plugin(method).gives_back_in_order for method in self.all("preemptive"))

    def by_share(self, point: str) -> bool:
        """Whether a plugin about shares has a say about victims."""
        for tier in self.voices(point).deciding:
            plugins = list(map(_plugin, tier))
            if any(plugin.by_share for plugin in plugins):
                return True
            if point == "preemptable" and _always_decides(plugins):
                return False
        return False

    def at_most(self, point: str, of: str, size: int, *subject: Any) -> Sequence[Mask]:
        """Masks of whose pods the point `of` may name at most, as `point` has it, where vetoes are final.

        They have the shape (size,).
        """
        voices = self.voices(of)
        tiers = (voices.protecting,) if point == "evictable_pods" else voices.deciding[:1]
        plugins = [_plugin(method) for tier in tiers for method in tier]
        found = []
        for method in self.all(point):
            if _plugin(method) in plugins:
                try:
                    mask = answers.mask(method, method(*subject), size)
                except BaseException as error:
                    self.leave_out(point, method, error)
                    continue
                if mask is not None:
                    found.append(mask)
        return found

    def named(self, point: str, *subject: Any) -> Iterator[tuple[str, int | None]]:
        """Each plugin that has an opinion about victims, and how many it names; None for one that fails."""
        for method in self.all(point):
            plugin = _plugin(method).name
            try:
                rows = answers.pods(method, method(*subject))
            except BaseException as error:
                self.tell(point, method, error)
                yield plugin, None
                continue
            if rows is not None:
                yield plugin, len(rows)

    def _named(self, point: str, method: Method, *subject: Any) -> set[int] | None:
        """The rows of the pods that a plugin names; None for no opinion, and where it fails after all actions."""
        try:
            return answers.pods(method, method(*subject))
        except BaseException as error:
            self.leave_out(point, method, error)
        return None

    def _decided(self, point: str, beneficiary: Beneficiary, candidates: Sequence[PodRecord]) -> set[int]:
        """Rows as Volcano finds them: what a tier vetoes, the next one may allow."""
        for tier in self.tiers(point):
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

    def evictable(self, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        """The candidates to whose eviction no plugin objects."""
        if "evictable" in self._nobody:
            return []
        for method in self.all("evictable"):
            rows = self._named("evictable", method, candidates)
            candidates = candidates if rows is None else [pod for pod in candidates if pod.row in rows]
        return list(candidates)

    def victim_tasks(self, running: Sequence[PodRecord]) -> list[PodRecord]:
        """What the plugins of the first tier that names somebody want to see evicted."""
        for tier in self.tiers("victim_tasks"):
            named: set[int] = set()
            for method in tier:
                named |= self._named("victim_tasks", method, running) or set()
            if named:
                return [pod for pod in running if pod.row in named]
        return []


def _always_decides(plugins: Sequence[Plugin]) -> bool:
    """Whether one of a tier has an opinion whatever the pods, so that no lower tier is asked: who can say which jobs
    are preemptable in advance.
    """
    return any("preemptable_jobs" in vars(type(plugin)) for plugin in plugins)


def _plugin(method: Method) -> Plugin:
    """Whose method one of a point is; see `_method`."""
    plugin: Plugin = cast(MethodType, method).__self__  # type: ignore[assignment]
    return plugin


def _takes_part(plugin: Plugin, option: PluginOption, point: str) -> bool:
    if getattr(type(plugin), point) is getattr(Plugin, point) or point in plugin.silent:
        return False
    return point in WITHOUT_SWITCH or _SWITCH.get(point, point) not in option.disabled


def _method(plugin: Plugin, point: str) -> Method:
    """What is called at a point; where pods share the answer, it is shown what they have in common."""
    method: Method = getattr(plugin, point)
    if point not in _OF_CLASSES or plugin.reads.whole or type(plugin).identity is not Plugin.identity:
        return method if getattr(method, "__self__", None) is plugin else MethodType(_unbound(method), plugin)
    related = [
        getattr(plugin, name)
        for name in ("varies", "varies_on_node")
        if getattr(type(plugin), name) is not getattr(Plugin, name)
    ]
    members: dict[int, ClassMember] = {}

    def ask(self: Plugin, pod: PodRecord, *rest: Any) -> Any:
        if related and _any(related, pod):
            return method(pod, *rest)
        member = members.get(pod.pod_class.id)
        if member is None:
            member = members[pod.pod_class.id] = ClassMember(pod, self)
        return method(member, *rest)

    ask.__name__ = point
    return MethodType(ask, plugin)


def _any(related: Sequence[Method], pod: PodRecord) -> bool:
    """Whether what is said of a pod depends on others; so it does where that cannot be said. `Points.anybody` tells."""
    try:
        return any(depends(pod) for depends in related)
    except Exception:
        return True


def _unbound(function: Method) -> Method:
    """A static method or the like as a method, so that it is known whose it is."""

    def call(self: Plugin, *subject: Any) -> Any:
        return function(*subject)

    call.__name__ = getattr(function, "__name__", "?")
    return call


def _owner(traceback: TracebackType, by_module: Mapping[str, Plugin]) -> Plugin | None:
    """Whose code a frame runs: a method of a plugin, the call of one, or what its module defines besides."""
    frame = traceback.tb_frame
    owner = frame.f_locals.get("self")
    if not isinstance(owner, Plugin) and traceback.tb_next is None:
        # The call itself failed: whoever calls a plugin calls it `method`.
        owner = getattr(frame.f_locals.get("method"), "__self__", None)
    return owner if isinstance(owner, Plugin) else by_module.get(frame.f_globals.get("__name__", ""))
