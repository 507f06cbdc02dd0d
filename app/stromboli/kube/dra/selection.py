"""Device selection by expressions: an expression is evaluated once for all devices with equal values of what it
reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from stromboli.api.resources import Rows
from stromboli.kube.dra.cel import CelError, CostError, Program, Run, compiled
from stromboli.kube.dra.cel.device import DeviceView, Path, value_at
from stromboli.kube.dra.cel.run import MAX_COST
from stromboli.kube.dra.inventory import Devices
from stromboli.kube.dra.pools import Offer

#: for each device NO, YES, or PROBLEMS plus the number of its problem
Codes = npt.NDArray[np.int8]
NO, YES, PROBLEMS = 0, 1, 2
#: limit on distinct problems
_MOST_PROBLEMS = 100


@dataclass(frozen=True, slots=True)
class Selected:
    """The combined result of some expressions."""

    #: shape (devices + 1,), the last one NO
    codes: Codes
    #: the expression without a value, and why
    problems: Sequence[tuple[int, str]]
    #: the cost of the evaluation
    cost: int


def select(texts: Sequence[str], devices: Devices) -> Selected:
    """The devices for which all expressions are true, evaluated at a joint cost of at most MAX_COST. Raises
    CelError."""
    return devices.kept(("selected", *texts), lambda: _select([compiled(text) for text in texts], devices))


def _select(programs: Sequence[Program], devices: Devices) -> Selected:
    codes: Codes = np.ones(len(devices) + 1, np.int8)
    codes[-1] = NO
    problems: dict[tuple[int, str], int] = {}
    left = MAX_COST
    for position, program in enumerate(programs):
        expression = _Expression(program, left)
        for answer, rows in expression.answers(devices, np.flatnonzero(codes == YES)):
            code = int(answer is True)
            if isinstance(answer, str):
                number = problems.setdefault((position, answer), min(len(problems), _MOST_PROBLEMS - 1))
                code = PROBLEMS + number
            codes[rows] = code
        left = expression.left
    named = {number: problem for problem, number in reversed(problems.items())}
    return Selected(codes, [named[number] for number in sorted(named)], MAX_COST - max(0, left))


@dataclass(frozen=True, slots=True)
class _Question:
    """The next path that an expression reads of a device, and what follows from each value."""

    path: Path
    #: a further read, whether the device is selected, or why there is no value
    answers: dict[Any, _Question | bool | str] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Expression:
    """An expression evaluated for devices, at a bounded joint cost."""

    program: Program
    left: int
    #: the first read, or the only result by None
    known: dict[Any, _Question | bool | str] = field(default_factory=dict)
    #: all paths that it read of any device
    paths: dict[Path, None] = field(default_factory=dict)

    def answers(self, devices: Devices, rows: Rows) -> Iterator[tuple[bool | str, Rows]]:
        """Rows by result: whether they are selected, or why that is unknown."""
        if not len(rows):
            return
        seen = -1
        while seen < len(self.paths):
            # Reading one device may reveal differences among others.
            seen = len(self.paths)
            groups = devices.alike(self.paths)
            # Sorted, since numbers of groups depend on earlier sessions and the cost is shared.
            first = np.sort(groups.first(rows))
            answers = [self._of(devices.offers[row]) for row in first.tolist()]
        numbers: dict[bool | str, int] = {}
        of_group = np.zeros(groups.count, np.int64)
        of_group[groups.of[first]] = [numbers.setdefault(answer, len(numbers)) for answer in answers]
        of_row = of_group[groups.of[rows]]
        for answer, number in numbers.items():
            yield answer, rows[of_row == number]

    def _of(self, offer: Offer) -> bool | str:
        device = offer.device
        answers, key = self.known, None
        while isinstance(found := answers.get(key), _Question):
            answers, key = found.answers, value_at(device, found.path)
        return self._evaluate(device) if found is None else found

    def _evaluate(self, device: Mapping[str, Any]) -> bool | str:
        notes: dict[Path, None] = {}
        run = Run({"device": DeviceView(device, notes)}, self.left)
        answer: bool | str
        try:
            run.spend(0)
            answer = self.program.evaluate(run) is True
        except CelError as error:
            answer = str(error)
        except CostError as error:
            # The evaluation ended here, so the next read is unknown.
            return str(error)
        finally:
            self.left = run.left
        self.paths.update(notes)
        answers: dict[Any, _Question | bool | str] = self.known
        key = None
        for path in notes:
            question = answers.setdefault(key, _Question(path))
            assert isinstance(question, _Question)
            answers, key = question.answers, value_at(device, path)
        answers[key] = answer
        return answer
