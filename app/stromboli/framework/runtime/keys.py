"""Keys to sort by, of all plugins that order something: concatenated, and checked to compare with each other."""

from __future__ import annotations

from collections.abc import Sequence
from operator import ne
from typing import Any

from stromboli.framework.runtime import checks
from stromboli.framework.runtime.asked import Method
from stromboli.framework.runtime.checks import AnswerError
from stromboli.framework.runtime.failures import PASSED_ON
from stromboli.framework.runtime.participants import Participants


class _Equal:
    """A key that equals any other, for a plugin that was left out after some keys had been computed."""

    def __eq__(self, other: object) -> bool:
        return True

    def __lt__(self, other: object) -> bool:
        return False

    __gt__ = __lt__

    def __hash__(self) -> int:
        return 0


_EQUAL = _Equal()


class Keys:
    """The keys of a session; those of one point have to compare with each other."""

    def __init__(self, participants: Participants) -> None:
        self._participants = participants
        #: by point, the family of the keys of each method
        self._families: dict[str, list[object]] = {}
        #: by point, the types of its last keys, where all of them were plain numbers
        self._numbers: dict[str, list[type]] = {}

    def forget(self) -> None:
        """Other plugins take part from here on."""
        self._families.clear()
        self._numbers.clear()

    def one(self, point: str, *subject: Any) -> tuple[Any, ...]:
        """The key of one subject: what each plugin answers, the first plugin's first."""
        # How many answers there are says which method failed.
        methods, found = self._participants.all[point], []
        try:
            for method in methods:
                found.append(method(*subject))  # noqa: PERF401
        except BaseException as error:
            return self._without(point, subject, methods[len(found)], error)
        return self._checked(point, methods, found, subject)

    def many(self, point: str, subjects: Sequence[Any]) -> list[tuple[Any, ...]]:
        """The keys of several subjects; that all are whole numbers, as most are, is seen at one glance."""
        methods = self._participants.all[point]
        if not methods:
            return [()] * len(subjects)
        try:
            columns = [[method(subject) for subject in subjects] for method in methods]
        except BaseException:
            return [self.one(point, subject) for subject in subjects]
        rows = list(zip(*columns, strict=True))
        known = self._families.get(point, ("unknown",))
        if set(known) == {float} and all(checks.WHOLE.issuperset(map(type, column)) for column in columns):
            return rows
        return [self._checked(point, methods, row, (s,)) for row, s in zip(rows, subjects, strict=True)]

    def _checked(
        self, point: str, methods: Sequence[Method], keys: Sequence[Any], subject: Sequence[Any]
    ) -> tuple[Any, ...]:
        """The answers of a point's methods, checked to be comparable with their earlier answers."""
        types = [*map(type, keys)]
        # Plain numbers, which most keys are, are seen at one glance; NaN is not what it is.
        if types != self._numbers.get(point) or any(map(ne, keys, keys)):
            families = self._families.get(point)
            if families is None or not all(map(checks.belongs, keys, families)):
                return self._compared(point, methods, keys, subject)
            if checks.NUMBERS.issuperset(types):
                self._numbers[point] = types
        return tuple(keys)

    def _compared(
        self, point: str, methods: Sequence[Method], found: Sequence[Any], subject: Sequence[Any]
    ) -> tuple[Any, ...]:
        """Keys that were looked at one by one: whose key is none, or does not compare with its own, failed."""
        keys: list[Any] = []
        families: list[object] = []
        known = self._families.get(point)
        for method, answer in zip(methods, found, strict=True):
            try:
                key = checks.key(method, answer)
                family = checks.family(key)
                if known is not None and family != known[len(keys)]:
                    raise AnswerError(method, "keys that compare with each other, as it did before", key)
            except BaseException as error:
                return self._without(point, subject, method, error)
            keys.append(key)
            families.append(family)
        self._families.setdefault(point, families)
        return tuple(keys)

    def _without(self, point: str, subject: Sequence[Any], failed: Method, error: BaseException) -> tuple[Any, ...]:
        """A key when a plugin failed. While actions run its order is left out and they begin anew.

        Afterwards it says of what follows that all is equal: keys from before have its part.
        """
        if isinstance(error, PASSED_ON):
            raise error
        if not self._participants.closed:
            self._participants.leave_out(point, failed, error)
        out: list[Any] = []
        for method in self._participants.all[point]:
            try:
                out.append(checks.key(method, method(*subject)))
            except BaseException as again:
                self._participants.tell(point, method, again)
                out.append(_EQUAL)
        return tuple(out)
