"""Combination of the answers of several plugins, declared on each method of `Plugin` with `combines`.

The declaration is the only source: `points` asks plugins by it, and `docs/plugins.md` prints it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from stromboli.framework.plugin.definition import public_methods

F = TypeVar("F", bound=Callable[..., Any])


class Combination(Enum):
    """The way in which several answers become one; the value is the text of the documentation."""

    Concatenated = "Keys are concatenated: what an earlier plugin says outweighs all later ones."
    FirstReason = "The first reason counts."
    Vote = (
        "Any rejection decides, unless a plugin of its tier that insists permits; a permit ends the question after its "
        "tier; no opinion is a yes."
    )
    Largest = "The largest number counts."
    Smallest = "The smallest number counts."
    LowestLimit = "The lowest limit counts, for each resource."
    EachByKey = "What each plugin says about a key counts."
    LastByKey = "The last plugin that names a key decides about it."
    AnyPlugin = "One yes is enough."
    AllPlugins = "Every plugin that the hint may be about has to say yes."
    FirstTierAgrees = "The first tier that takes part decides: all its plugins have to say yes."
    Victims = (
        "Plugins that protect pods are heard in every tier; of the others the first tier with an opinion decides, and "
        "its plugins have to agree. With the rule `veto` as Volcano has it, the first tier that leaves any candidate "
        "decides."
    )
    AllPass = "Only nodes that every plugin passes remain."
    Intersection = "Only pods that every plugin with an opinion names remain."
    VictimsAtMost = "Only what every plugin that is heard about these victims leaves remains."
    FirstTierUnion = "The first tier that names any decides: what each of its plugins names counts."
    Sum = "Scores are added."
    SumOfAll = "Scores are added; unknown when a plugin that scores cannot say."
    Columns = "What an earlier plugin says outweighs all later ones; unknown when a plugin that orders cannot say."
    FirstPlugin = "The first plugin that takes part decides."
    Joined = "What all plugins name counts."
    Alike = "Pods are alike when they agree in what each plugin answers."
    Each = "What each plugin answers holds."

    Told = "Every plugin is told."

    # Members are singletons, and the hash of Enum is a call in Python for each look into a table.
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class Declaration:
    """Properties that an extension point declares besides its signature."""

    combination: Combination
    #: the switch of a policy that turns it off, by its name in `policy.switches`; empty where none does
    switch: str
    #: whether the pods of a class share the answer, so that plugins are shown what they have in common
    of_class: bool
    #: of a hint: the points whose answers it describes
    about: tuple[str, ...]


def combines(
    combination: Combination, *, switch: str = "", of_class: bool = False, about: tuple[str, ...] = ()
) -> Callable[[F], F]:
    """Declare a method of `Plugin` an extension point."""

    def declare(method: F) -> F:
        method.declaration = Declaration(combination, switch, of_class, about)  # type: ignore[attr-defined]
        return method

    return declare


def declarations(base: type) -> Iterator[tuple[str, Declaration]]:
    """The extension points that a class declares, by name, in their order."""
    for name, method in public_methods(base):
        declared = getattr(method, "declaration", None)
        if declared is not None:
            yield name, declared
