"""Checks of the answers of plugin methods.

A check compares types or shapes once for each answer, never for each node. An error names the plugin, the method,
what was expected and what was returned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import GeneratorType
from typing import Any, TypeVar

import numpy as np

from stromboli.api.errors import StromboliError
from stromboli.api.reasons import Reason, Stage
from stromboli.api.resources import Mask, Rows, Vector
from stromboli.api.validation import shown
from stromboli.framework.plugin.base import Vote

Method = Callable[..., Any]
T = TypeVar("T")

_BOOL = np.dtype(np.bool_)
_REAL = frozenset("fiu")
_WHOLE = frozenset("iu")
#: the types of plain numbers
NUMBERS = frozenset((float, int, bool))
#: those of them that are whole, and so never NaN
WHOLE = frozenset((int, bool))
_PLAIN_KEYS = frozenset((int, bool, str))


class AnswerError(StromboliError):
    """A plugin's method gave an answer that is none."""

    def __init__(self, method: Method, expected: str, answer: object) -> None:
        self.plugin = getattr(method, "__self__", None)
        self.method = getattr(method, "__name__", "?")
        super().__init__(f"{self.method}() should return {expected}, but returned {described(answer)}")


def described(answer: object) -> str:
    """An answer in a few words, however large it is."""
    if isinstance(answer, np.ndarray):
        return f"an array of shape {answer.shape} and type {answer.dtype}"
    return shown(answer) if answer is None else f"{type(answer).__name__} {shown(answer)}"


def reason(method: Method, answer: Any) -> Reason | None:
    """The reason for a no, None for none."""
    if answer is None:
        return None
    if isinstance(answer, Reason) and (type(answer.stage), type(answer.message)) == (Stage, str):
        return answer
    raise AnswerError(method, "a Reason or None", answer)


def verdict(method: Method, answer: Any) -> Vote | Reason:
    """A vote, or a rejection with its reason."""
    if isinstance(answer, Vote):
        return answer
    if isinstance(answer, Reason):
        reason(method, answer)
        return answer
    raise AnswerError(method, "a Vote or a Reason", answer)


def count(method: Method, answer: Any) -> int:
    """A whole number."""
    if type(answer) is int:
        return answer
    if isinstance(answer, int | np.integer):
        return int(answer)
    raise AnswerError(method, "a whole number", answer)


def allowed(method: Method, answer: Any, most: int) -> tuple[int, Reason | None]:
    """The allowed number of pods, and why not all of `most`, from a plugin's checked answer."""
    if type(answer) is not tuple or len(answer) != 2:
        raise AnswerError(method, "a number of pods and a Reason or None", answer)
    number, why = answer
    if type(number) is not int:
        number = count(method, number)
    if number == most and why is None:
        return number, None
    return min(max(number, 0), most), reason(method, why)


def flag(method: Method, answer: Any) -> bool:
    """Yes or no."""
    if answer is True or answer is False:
        return answer
    if isinstance(answer, np.bool_):
        return bool(answer)
    raise AnswerError(method, "True or False", answer)


def key(method: Method, answer: Any) -> Any:
    """A sort key: a number, a string, a tuple of these, or an object with an order of its own."""
    kind = type(answer)
    if kind in _PLAIN_KEYS:
        return answer
    if kind is float:
        if answer == answer:
            return answer
    elif kind is tuple:
        for part in answer:
            key(method, part)
        return answer
    elif isinstance(answer, np.generic):
        return key(method, answer.item())
    elif isinstance(answer, tuple | str | int | float) or _ordered(kind):
        return answer
    raise AnswerError(method, "a number, a text, a tuple of them or an object that compares with its like", answer)


def _ordered(kind: type) -> bool:
    """Whether objects of a class say themselves which of them is smaller."""
    return kind.__module__ not in ("builtins", "numpy") and any("__lt__" in vars(c) for c in kind.__mro__[:-1])


def family(answer: Any) -> object:
    """The type structure that sort keys must share to be comparable."""
    kind = type(answer)
    if kind in NUMBERS:
        return float
    return tuple([family(part) for part in answer]) if kind is tuple else kind


def belongs(answer: Any, family: object) -> bool:
    """Whether something is a key of a family that was seen before."""
    kind = type(answer)
    if family is float:
        return kind in NUMBERS and answer == answer
    if type(family) is tuple:
        return kind is tuple and len(answer) == len(family) and all(map(belongs, answer, family))
    return kind is family


def pods(method: Method, answer: Any) -> set[int] | None:
    """The rows of some pods; None for no opinion."""
    if answer is None:
        return None
    # Most answer with a list, and asking what is iterable takes as long as reading it.
    if type(answer) is list or (isinstance(answer, Iterable) and not isinstance(answer, str | bytes | Mapping)):
        try:
            return {pod.row for pod in answer}
        except AttributeError:
            pass
    raise AnswerError(method, "some of the pods that it was given, or None", answer)


def mask(method: Method, answer: Any, size: int) -> Mask | None:
    """A plugin's mask, shape (size,); None for all."""
    if answer is None:
        return None
    if isinstance(answer, np.ndarray) and answer.shape == (size,) and answer.dtype == _BOOL:
        return answer
    raise AnswerError(method, f"a mask of shape ({size},) and type bool, or None", answer)


def filters(method: Method, answer: Any, nodes: int) -> Iterator[tuple[str, Mask]]:
    """Pairs of a cause and the mask of nodes that do not have it; `nodes` is the number that it was shown."""
    if type(answer) is not GeneratorType and (
        isinstance(answer, np.ndarray | str | Mapping) or not isinstance(answer, Iterable)
    ):
        raise AnswerError(method, f"pairs of a cause and a mask of shape ({nodes},), one by one with yield", answer)
    for pair in answer:
        if type(pair) is not tuple or len(pair) != 2 or not isinstance(pair[0], str):
            raise AnswerError(method, f"pairs of a cause and a mask of shape ({nodes},)", pair)
        mask = pair[1]
        if not isinstance(mask, np.ndarray) or mask.shape != (nodes,) or mask.dtype != _BOOL:
            raise AnswerError(method, f"a mask of shape ({nodes},) and type bool with each cause", mask)
        yield pair


def scores(method: Method, answer: Any, nodes: int) -> Vector | None:
    """A score for each node; None when all are equal. Whether they are numbers is seen on their sum, see `numbers`."""
    if answer is None:
        return None
    if isinstance(answer, np.ndarray) and answer.shape == (nodes,) and answer.dtype.kind in _REAL:
        return answer.astype(np.float64, copy=False)
    raise AnswerError(method, f"scores of shape ({nodes},) or None", answer)


def amounts(method: Method, answer: Any, dimensions: int) -> Vector | None:
    """An amount of each dimension, infinite where it does not matter; None for no opinion."""
    if answer is None:
        return None
    if isinstance(answer, np.ndarray) and answer.shape == (dimensions,) and answer.dtype.kind in _REAL:
        found: Vector = answer.astype(np.float64, copy=False)
        if not np.isnan(found).any():
            return found
    raise AnswerError(method, f"amounts of shape ({dimensions},) or None", answer)


def bounds(method: Method, answer: Any, dimensions: int) -> Mapping[str, tuple[Vector, str]]:
    """Amounts of each dimension with words about them, by key."""
    expected = f"amounts of shape ({dimensions},) with a text, by key"
    if not isinstance(answer, Mapping):
        raise AnswerError(method, expected, answer)
    found = {}
    for key, bound in answer.items():
        if not (isinstance(bound, tuple) and len(bound) == 2 and isinstance(bound[1], str)):
            raise AnswerError(method, expected, bound)
        most = amounts(method, bound[0], dimensions)
        if most is None:
            raise AnswerError(method, expected, bound)
        found[key] = most, bound[1]
    return found


def numbers(total: Vector) -> bool:
    """Whether no score is NaN or plus infinity; minus infinity says that a node cannot be scored."""
    # NaN counts as the highest of all, and is sooner found by its place than with np.maximum.reduce.
    return not len(total) or bool(total.item(total.argmax()) < math.inf)


def finite(method: Method, found: Vector) -> Vector:
    """Scores that are numbers."""
    if numbers(found):
        return found
    raise AnswerError(method, "scores that are numbers, not NaN or infinite", found)


def rows(method: Method, answer: Any, nodes: int) -> Rows | None:
    """A number for each node, or None."""
    if answer is None:
        return None
    if isinstance(answer, np.ndarray) and answer.shape == (nodes,) and answer.dtype.kind in _WHOLE:
        return answer
    raise AnswerError(method, f"whole numbers of shape ({nodes},) or None", answer)


def gradients(method: Method, answer: Any, hyper_nodes: int) -> list[Rows]:
    """Groups of HyperNodes, the best group first."""
    if isinstance(answer, Sequence) and all(_indices(group, hyper_nodes) for group in answer):
        return list(answer)
    raise AnswerError(method, f"a list of arrays of HyperNodes, from 0 to {hyper_nodes - 1}", answer)


def _indices(group: Any, size: int) -> bool:
    if not isinstance(group, np.ndarray) or group.ndim != 1 or group.dtype.kind not in _WHOLE:
        return False
    return not len(group) or bool(group.min() >= 0 and group.max() < size)


def texts(method: Method, answer: Any) -> Mapping[str, str]:
    """Texts by key."""
    if isinstance(answer, Mapping) and all(isinstance(t, str) for pair in answer.items() for t in pair):
        return answer
    raise AnswerError(method, "a mapping of texts", answer)


def uses(method: Method, answer: Any, kind: type[T]) -> Sequence[T]:
    """Things of one kind, such as claims that pods use."""
    if isinstance(answer, Sequence) and all(isinstance(each, kind) for each in answer):
        return answer
    raise AnswerError(method, f"a list of {kind.__name__}", answer)


def hashable(method: Method, answer: Any) -> Any:
    """Something to tell pods apart by."""
    try:
        hash(answer)
    except TypeError:
        raise AnswerError(method, "something hashable", answer) from None
    if not (answer is None or answer == answer):
        raise AnswerError(method, "something that equals itself", answer)
    return answer
