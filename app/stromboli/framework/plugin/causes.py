"""Why nodes do not take a pod: causes that predicates give, as words whose type says what would end them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from stromboli.api.reasons import Passage
from stromboli.api.resources import Mask


class Passing(str):
    """A cause that ends when pods are gone, such as a host port in use: an eviction may help."""

    __slots__ = ()


class Elsewhere(str):
    """A cause that ends when certain pods are gone, wherever they are: no eviction on the node itself helps."""

    __slots__ = ("pods",)
    pods: Callable[[], Passage]

    def __new__(cls, cause: str, pods: Callable[[], Passage]) -> Elsewhere:
        """`pods` names them."""
        new = super().__new__(cls, cause)
        new.pods = pods
        return new


class Anywhere(str):
    """A cause in what the pod names, such as a claim that does not exist: a new node would be ruled out as well."""

    __slots__ = ()


class Administrative(str):
    """A cause in the cluster that its administrators end, such as a cordon: nothing has to change in the pod."""

    __slots__ = ()


class Unprovided(Anywhere, Administrative):
    """A cause in what the pod names and administrators have to provide, such as a storage class."""

    __slots__ = ()


class Failed(str):
    """A cause that is none: the plugin could not say, so no node passes."""

    __slots__ = ()


#: nodes that pass, by the cause that excludes the others
Filters: TypeAlias = Iterable[tuple[str, Mask]]
