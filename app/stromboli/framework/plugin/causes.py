"""Why nodes do not take a pod: causes that predicates give, as words whose type says what would end them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Self, TypeAlias

from stromboli.api.reasons import Passage
from stromboli.api.resources import Mask


class Passing(str):
    """A cause that ends when pods are gone, such as a host port in use: an eviction may help."""

    __slots__ = ()


class Detailed(str):
    """A cause whose names or numbers change over time, so they are read when the cause is shown."""

    __slots__ = ("detail",)
    detail: Callable[[], Passage]

    def __new__(cls, cause: str, detail: Callable[[], Passage]) -> Self:
        """`detail` finds them; a passage without words is left out."""
        new = super().__new__(cls, cause)
        new.detail = detail
        return new


class Elsewhere(Detailed):
    """A cause that ends when certain pods are gone, wherever they are: no eviction on the node itself helps."""

    __slots__ = ()


class Anywhere(str):
    """A cause in what the pod names, such as a claim that does not exist: a new node would be ruled out as well."""

    __slots__ = ()


class Administrative(str):
    """A cause in the cluster that its administrators end, such as a cordon: nothing has to change in the pod."""

    __slots__ = ()


class Occupied(Passing, Detailed):
    """A cause that ends when pods give back what there is enough of, with its numbers."""

    __slots__ = ()


class Lacking(Administrative, Detailed):
    """A cause in what there is too little of, even if no pod held any, with its numbers."""

    __slots__ = ()


class Unprovided(Anywhere, Administrative):
    """A cause in what the pod names and administrators have to provide, such as a storage class."""

    __slots__ = ()


class Failed(str):
    """A cause that is none: the plugin could not say, so no node passes."""

    __slots__ = ()


#: nodes that pass, by the cause that excludes the others
Filters: TypeAlias = Iterable[tuple[str, Mask]]
