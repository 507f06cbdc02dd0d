"""Numbers in sentences."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: float, noun: str) -> str:
    """A number of things, by the noun for one: `1 pod`, `2 pods`."""
    return f"{number:,.0f} {noun}{'' if number == 1 else 's'}"


def by_number(number: float, singular: str, plural: str) -> str:
    """The word that goes with a number of things: `is` or `are`."""
    return singular if number == 1 else plural


def first_few(names: Sequence[str], most: int) -> str:
    """The first names, and how many others there are: `a, b and 3 more`."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def measured(amount: str, resource: str) -> str:
    """An amount, as it is written, of a resource by its name: `4 cpu`, `2 pods`, `1 pod`."""
    return "1 pod" if (amount, resource) == ("1", "pods") else f"{amount} {resource}"
