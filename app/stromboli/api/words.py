"""Numbers in sentences."""

from __future__ import annotations


def counted(number: float, noun: str) -> str:
    """A number of things, by the noun for one: `1 pod`, `2 pods`."""
    return f"{number:,.0f} {noun}{'' if number == 1 else 's'}"


def by_number(number: float, singular: str, plural: str) -> str:
    """The word that goes with a number of things: `is` or `are`."""
    return singular if number == 1 else plural


def measured(amount: str, resource: str) -> str:
    """An amount, as it is written, of a resource by its name: `4 cpu`, `2 pods`, `1 pod`."""
    return "1 pod" if (amount, resource) == ("1", "pods") else f"{amount} {resource}"
