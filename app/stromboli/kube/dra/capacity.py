"""Consumable capacity: the part of a device's capacity that a request consumes, under the device's request policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from stromboli.api import quantity
from stromboli.api.errors import InvalidQuantityError
from stromboli.kube.dra.objects import Capacity

#: amounts are compared in thousandths
_UNIT = 1000
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


@dataclass(frozen=True, slots=True)
class Amount:
    """A quantity with its spelling."""

    value: Fraction
    text: str

    @property
    def consumed(self) -> int:
        """The amount in thousandths, rounded up."""
        return ceil(self.value * _UNIT)

    @property
    def limit(self) -> int:
        """The amount in thousandths, rounded down."""
        return int(self.value * _UNIT // 1)


def amount(written: str | int | float) -> Amount:
    """Reads a quantity. Raises InvalidQuantityError."""
    return Amount(quantity.parse(written), str(written))


@dataclass(frozen=True, slots=True, eq=False)
class Policy:
    """The request policy of a capacity."""

    default: Amount | None = None
    #: ascending
    values: tuple[Amount, ...] = ()
    least: Amount | None = None
    most: Amount | None = None
    step: Amount | None = None

    def raised(self, asked: Amount) -> Amount:
        """The next valid amount; the request itself if there is none or all amounts are valid."""
        if self.least is not None:
            return self._in_range(asked, self.least)
        return next((value for value in self.values if asked.value <= value.value), asked)

    def allows(self, consumed: Amount) -> bool:
        """Whether an amount is valid."""
        if self.default is not None and consumed.value == self.default.value:
            return True
        if self.least is None:
            return not self.values or any(consumed.value == value.value for value in self.values)
        if self.most is not None and consumed.value > self.most.value:
            return False
        return self.step is None or _steps(consumed, self.least, self.step).denominator == 1

    def _in_range(self, asked: Amount, least: Amount) -> Amount:
        if asked.value <= least.value or self.step is None:
            return least if asked.value < least.value else asked
        value = least.value + ceil(_steps(asked, least, self.step)) * self.step.value
        return Amount(value, _written(value))


def _steps(amount: Amount, least: Amount, step: Amount) -> Fraction:
    return (amount.value - least.value) / step.value


def _written(value: Fraction) -> str:
    """A number with the largest binary suffix that keeps it whole, or in thousandths."""
    if value.denominator != 1:
        return f"{ceil(value * _UNIT)}m"
    whole, power = int(value), 0
    while whole and whole % 1024 == 0 and power < len(_BINARY) - 1:
        whole, power = whole // 1024, power + 1
    return f"{whole}{_BINARY[power]}"


class Capacities:
    """The capacities of devices with equal ones, by the names in the slice."""

    __slots__ = ("amounts", "policies")

    def __init__(self, written: Mapping[str, Capacity]) -> None:
        """Invalid quantities are ignored."""
        self.amounts: dict[str, Amount] = {}
        self.policies: dict[str, Policy] = {}
        for name, each in written.items():
            try:
                self.amounts[name] = amount(each.value)
                self.policies[name] = _policy(each)
            except InvalidQuantityError:
                self.amounts.pop(name, None)

    def consumed(self, requested: Mapping[str, Amount]) -> dict[str, Amount] | None:
        """Amounts that a request consumes of an unused device, by capacity; None if the device cannot satisfy it."""
        if not requested.keys() <= self.amounts.keys():
            return None
        out = {}
        for name, whole in self.amounts.items():
            asked, policy = requested.get(name), self.policies[name]
            taken = policy.raised(asked) if asked is not None else policy.default or whole
            if taken.value > whole.value or not policy.allows(taken):
                return None
            out[name] = taken
        return out


def _policy(capacity: Capacity) -> Policy:
    policy = capacity.request_policy
    if policy is None:
        return Policy()
    default = None if policy.default is None else amount(policy.default)
    if policy.valid_range is None or policy.valid_range.min is None:
        return Policy(default, tuple(map(amount, policy.valid_values or ())))
    bounds = policy.valid_range
    least, most, step = (None if each is None else amount(each) for each in (bounds.min, bounds.max, bounds.step))
    return Policy(default, (), least, most, step if step is not None and step.value > 0 else None)
