"""Combiners: a function for each `Combination` that makes one answer of several and needs nothing but the answers.

Each asks the plugins in order, checks what they answer, and says what a failure costs. Keys are in `keys`, victims in
`voices`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np

from stromboli.api.reasons import Reason
from stromboli.api.resources import Mask, Rows, Vector
from stromboli.framework.plugin.base import DECLARED, Vote
from stromboli.framework.plugin.causes import Failed
from stromboli.framework.plugin.combination import Combination
from stromboli.framework.runtime import checks
from stromboli.framework.runtime.asked import Method, plugin_of
from stromboli.framework.runtime.checks import AnswerError
from stromboli.framework.runtime.failures import PASSED_ON
from stromboli.framework.runtime.participants import Participants
from stromboli.state.pods import PodRecord

_FLOAT = np.dtype(np.float64)
#: part of the identity of a pod for which a plugin failed to give one
_ALONE = "alone"


def first_reason(taking_part: Participants, point: str, *subject: Any) -> Reason | None:
    """The first reason against."""
    for method in taking_part.all[point]:
        try:
            answer = method(*subject)
            if answer is not None:
                return checks.reason(method, answer)
        except BaseException as error:
            return taking_part.refusal(point, method, error, subject)
    return None


def vote(taking_part: Participants, point: str, *subject: Any, unanimous: bool = False) -> tuple[bool, Reason | None]:
    """A rejection anywhere decides, unless a plugin of its tier that insists permits; a permit decides after its tier;
    without any opinion the answer is yes. If the vote must be `unanimous`, any rejection decides.

    Within a tier, a reason that more nodes cannot remove takes precedence over the first one.
    """
    for tier in taking_part.tiers(point):
        permitted = False
        rejections: list[Reason | None] = []
        for method in tier:
            try:
                verdict = checks.verdict(method, method(*subject))
            except BaseException as error:
                if point != "job_enqueueable":
                    taking_part.hold(point, method, error, subject)
                verdict = taking_part.refusal(point, method, error, subject)
            if isinstance(verdict, Reason) or verdict is Vote.Reject:
                rejections.append(verdict if isinstance(verdict, Reason) else None)
                if rejections[-1] is None or not rejections[-1].scalable:
                    break
            permitted = permitted or verdict is Vote.Permit
        if rejections:
            if not unanimous and any(plugin_of(each).insists and each(*subject) is Vote.Permit for each in tier):
                return True, None
            return False, rejections[-1] if _outlasts(rejections[-1], rejections[0]) else rejections[0]
        if permitted and not unanimous:
            return True, None
    return True, None


def largest(taking_part: Participants, point: str, *subject: Any) -> int:
    """The largest number, 0 if no plugin names one. If a plugin fails for a job, the job lacks one pod."""
    most: int | None = None
    for method in taking_part.all[point]:
        try:
            answer = method(*subject)
            number = answer if type(answer) is int else checks.count(method, answer)
        except BaseException as error:
            taking_part.hold(point, method, error, subject)
            number = 1
        if most is None or number > most:
            most = number
    return most or 0


def smallest(
    taking_part: Participants, point: str, subject: Sequence[Any], most: int, unless: str = ""
) -> tuple[int, Reason | None]:
    """The smallest number of pods, `most` at most, and whose reason it is.

    The reason of a number below `most` that more nodes do not help against goes before that of the smallest. Plugins
    that take part in the point `unless` are not asked.
    """
    least, why = most, None
    methods = taking_part.all[point]
    if unless:
        silent = set(map(plugin_of, taking_part.all[unless]))
        methods = tuple(method for method in methods if plugin_of(method) not in silent)
    for method in methods:
        asked = most if why is not None and why.scalable else least
        try:
            allowed, reason = checks.allowed(method, method(*subject, asked), asked)
        except BaseException as error:
            return 0, taking_part.refusal(point, method, error, subject)
        if allowed < asked:
            if (allowed < least and not _outlasts(why, reason)) or _outlasts(reason, why):
                why = reason
            least = min(least, allowed)
    return least, why


def _outlasts(reason: Reason | None, other: Reason | None) -> bool:
    """Whether more nodes would remove only the other reason."""
    return reason is not None and other is not None and other.scalable and not reason.scalable


def lowest_limit(taking_part: Participants, point: str, dimensions: int, *subject: Any) -> Vector | None:
    """The lowest limit of each dimension, shape (dimensions,); None when no plugin has one."""
    found = None
    for method in taking_part.all[point]:
        try:
            amounts = checks.amounts(method, method(*subject), dimensions)
        except BaseException as error:
            taking_part.leave_out(point, method, error)
            continue
        if amounts is not None:
            found = amounts if found is None else np.minimum(found, amounts)
    return found


def each_by_key(
    taking_part: Participants, point: str, dimensions: int, *subject: Any
) -> Mapping[str, Sequence[tuple[Vector, str]]]:
    """Limits with words about them, by key: those of each plugin that names it."""
    found: dict[str, list[tuple[Vector, str]]] = {}
    for method in taking_part.all[point]:
        try:
            for key, bound in checks.bounds(method, method(*subject), dimensions).items():
                found.setdefault(key, []).append(bound)
        except BaseException as error:
            taking_part.leave_out(point, method, error)
    return found


def last_by_key(taking_part: Participants, point: str, *subject: Any) -> Mapping[str, str]:
    """Texts by key: those of the last plugin that names it."""
    out: dict[str, str] = {}
    for method in taking_part.all[point]:
        try:
            out.update(checks.texts(method, method(*subject)))
        except BaseException as error:
            taking_part.hold(point, method, error, subject)
    return out


def any_plugin(taking_part: Participants, point: str, *subject: Any) -> bool:
    """Whether any plugin says yes. A failure counts as yes: the hint warns, so plugins are only asked more often."""
    for method in taking_part.all[point]:
        try:
            answer = method(*subject)
            # Asked for every pod, and nearly always a plain no.
            if answer is not False and checks.flag(method, answer):
                return True
        except BaseException as error:
            taking_part.tell(point, method, error)
            return True
    return False


def all_plugins(taking_part: Participants, point: str, *subject: Any) -> bool:
    """Whether all plugins at the points that a hint is about give the hint; a failing plugin does not."""
    methods = taking_part.all[point]
    if any(len(methods) != len(taking_part.all[about]) for about in DECLARED[point].about):
        return False
    for method in methods:
        try:
            if not checks.flag(method, method(*subject)):
                return False
        except BaseException as error:
            taking_part.tell(point, method, error)
            return False
    return True


def first_tier_agrees(taking_part: Participants, point: str, *subject: Any) -> bool:
    """Whether all plugins of the first tier that takes part say yes; False when none does."""
    for tier in taking_part.tiers(point):
        for method in tier:
            try:
                if not checks.flag(method, method(*subject)):
                    return False
            except BaseException as error:
                taking_part.hold(point, method, error, subject)
                return False
        return True
    return False


def first_plugin(taking_part: Participants, point: str, number: int, *subject: Any) -> list[Rows] | None:
    """Groups of `number` HyperNodes as the first plugin that takes part has them; None when there is none."""
    for method in taking_part.all[point]:
        try:
            return checks.gradients(method, method(*subject), number)
        except BaseException as error:
            taking_part.hold(point, method, error, subject)
            return []
    return None


def joined(taking_part: Participants, point: str, kind: type[Any], *subject: Any) -> list[Any]:
    """Everything that plugins name, all of one type."""
    found: list[Any] = []
    for method in taking_part.all[point]:
        try:
            found += checks.uses(method, method(*subject), kind)
        except BaseException as error:
            taking_part.hold(point, method, error, subject)
    return found


def all_pass(taking_part: Participants, point: str, size: int, *subject: Any) -> Iterator[tuple[str, Mask]]:
    """Each cause with the mask of nodes, shape (size,), that do not have it; where a plugin fails no node passes."""
    for method in taking_part.all[point]:
        try:
            # At once: what is raised where the pairs are read is not the plugin's.
            pairs = list(checks.filters(method, method(*subject), size))
        except BaseException as error:
            refusal = taking_part.refusal(point, method, error, subject[:1])
            pairs = [(Failed(refusal.message), np.zeros(size, np.bool_))]
        yield from pairs


def alike(taking_part: Participants, point: str, pod: PodRecord) -> tuple[Hashable, ...]:
    """Keys that distinguish a pod from others, one of each plugin; if one fails, the pod shares nothing."""
    methods = taking_part.all[point]
    try:
        return tuple([checks.hashable(method, method(pod)) for method in methods])
    except BaseException:
        return tuple([_told_apart(taking_part, point, method, pod) for method in methods])


def _told_apart(taking_part: Participants, point: str, method: Method, pod: PodRecord) -> Hashable:
    try:
        return cast(Hashable, checks.hashable(method, method(pod)))
    except BaseException as error:
        taking_part.tell(point, method, error)
        return _ALONE, pod.uid


def each(taking_part: Participants, point: str, size: int, *subject: Any) -> Iterator[Rows]:
    """A number for each of some things, shape (size,), from each plugin that has them."""
    for method in taking_part.all[point]:
        try:
            found = checks.rows(method, method(*subject), size)
        except BaseException as error:
            taking_part.leave_out(point, method, error)
            continue
        if found is not None:
            yield found


def total(taking_part: Participants, point: str, size: int, *subject: Any) -> Vector | None:
    """The sum of the scores of all plugins, shape (size,); None when no plugin prefers any."""
    found: Vector | None = None
    own, shape = False, (size,)
    for method in taking_part.all[point]:
        try:
            scores = method(*subject)
            if scores is None:
                continue
            if type(scores) is not np.ndarray or scores.dtype is not _FLOAT or scores.shape != shape:
                scores = checks.scores(method, scores, size)
        except BaseException as error:
            taking_part.leave_out(point, method, error)
            continue
        if found is None:
            found = scores
        else:
            found, own = np.add(found, scores, out=found if own else None), True
    if found is not None and not checks.numbers(found):
        _leave_out_what_is_no_number(taking_part, point, subject)
        return total(taking_part, point, size, *subject)
    # The only one may belong to the plugin.
    return found if found is None or own else found.copy()


def _leave_out_what_is_no_number(taking_part: Participants, point: str, subject: Sequence[Any]) -> None:
    """Leave out the plugins whose scores are no numbers, or all where only the sum is none."""
    methods = taking_part.all[point]
    for method in methods:
        try:
            scores = method(*subject)
            if scores is not None:
                checks.finite(method, scores)
        except BaseException as error:
            taking_part.leave_out(point, method, error)
    if methods == taking_part.all[point]:
        for method in methods:
            taking_part.leave_out(point, method, AnswerError(method, "scores whose sum is a number", None))


def total_of_all(taking_part: Participants, point: str, size: int, *subject: Any) -> Vector | None:
    """The sum of all scoring plugins' answers to a hint, shape (size,); None if one has no answer."""
    methods = taking_part.all[point]
    if any(len(methods) < len(taking_part.all[about]) for about in DECLARED[point].about):
        return None
    found = np.zeros(size)
    for method in methods:
        try:
            scores = checks.scores(method, method(*subject), size)
            if scores is None:
                return None
            found += checks.finite(method, scores)
        except BaseException as error:
            taking_part.leave_out(point, method, error)
            return None
    return found


def columns(taking_part: Participants, point: str, size: int, *subject: Any) -> list[Vector] | None:
    """Answers of all ordering plugins to a hint for all objects, each of shape (size,); None when one has none."""
    methods = taking_part.all[point]
    plugins = list(map(plugin_of, methods))
    if any(plugins != list(map(plugin_of, taking_part.all[about])) for about in DECLARED[point].about):
        return None
    found = []
    for method in methods:
        try:
            column = checks.scores(method, method(*subject), size)
        except BaseException as error:
            taking_part.leave_out(point, method, error)
            return None
        if column is None:
            return None
        found.append(column)
    return found


def told(taking_part: Participants, point: str, *subject: Any) -> Iterator[tuple[Method, BaseException]]:
    """Notify every plugin, and yield each failing one with its error. Must be consumed to the end."""
    for method in taking_part.all[point]:
        try:
            method(*subject)
        except PASSED_ON:
            raise
        except BaseException as error:
            yield method, error


#: the functions that combine answers into one and need nothing but the answers
COMBINERS: Mapping[Combination, Callable[..., Any]] = {
    Combination.FirstReason: first_reason,
    Combination.Vote: vote,
    Combination.Largest: largest,
    Combination.Smallest: smallest,
    Combination.LowestLimit: lowest_limit,
    Combination.EachByKey: each_by_key,
    Combination.LastByKey: last_by_key,
    Combination.AnyPlugin: any_plugin,
    Combination.AllPlugins: all_plugins,
    Combination.FirstTierAgrees: first_tier_agrees,
    Combination.FirstPlugin: first_plugin,
    Combination.AllPass: all_pass,
    Combination.Alike: alike,
    Combination.Each: each,
    Combination.Joined: joined,
    Combination.Sum: total,
    Combination.SumOfAll: total_of_all,
    Combination.Columns: columns,
    Combination.Told: told,
}
