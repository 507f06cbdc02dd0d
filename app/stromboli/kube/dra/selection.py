"""Which devices expressions select: an expression is asked once about all devices that agree in what it reads."""

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

#: for each device NO, YES, or PROBLEMS and more for the problem of that number
Codes = npt.NDArray[np.int8]
NO, YES, PROBLEMS = 0, 1, 2
#: problems that are told apart
_MOST_PROBLEMS = 100


@dataclass(frozen=True, slots=True)
class Selected:
    """What some expressions say together."""

    #: shape (devices + 1,), the last one NO
    codes: Codes
    #: which of the expressions has no answer, and why
    problems: Sequence[tuple[int, str]]
    #: what it cost to know
    cost: int


def select(texts: Sequence[str], devices: Devices) -> Selected:
    """The devices for which all expressions are true. They may cost MAX_COST together. Raises CelError."""
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
    """What an expression reads of a device next, and what follows from each value."""

    path: Path
    #: a further question, whether the device is selected, or why there is no answer
    answers: dict[Any, _Question | bool | str] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Expression:
    """An expression that devices are asked about, at a cost that is bounded for all together."""

    program: Program
    left: int
    #: the first question, or the only answer, by None
    known: dict[Any, _Question | bool | str] = field(default_factory=dict)
    #: all that it read of any device
    paths: dict[Path, None] = field(default_factory=dict)

    def answers(self, devices: Devices, rows: Rows) -> Iterator[tuple[bool | str, Rows]]:
        """Rows by answer: whether they are selected, or why nobody knows."""
        if not len(rows):
            return
        seen = -1
        while seen < len(self.paths):
            # What is read of one device may show that others differ in it.
            seen = len(self.paths)
            groups = devices.alike(self.paths)
            # Numbers of groups depend on what was there before, and what all may cost is shared.
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
            # What it would have read next is not known.
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
