"""Device quotas of queues.

A queue's capability has `deviceclass/CLASS: N`, a number of devices, and `DIMENSION.deviceclass/CLASS: Q`, an amount of
a capacity that claims consume. A class that is not listed is unlimited, and so is the number of devices if it is 0.
Requests for all devices and requests with alternatives do not count, since their number is unknown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from stromboli.api import quantity
from stromboli.api.errors import InvalidQuantityError
from stromboli.api.resources import ResourceAmounts, in_bytes
from stromboli.kube.dra.objects import DeviceRequest, ResourceClaim
from stromboli.kube.dra.pod_claims import ClaimsOfPods
from stromboli.state.plain import PlainObjects
from stromboli.state.pods import PodRecord

_CLASS = "deviceclass/"


@dataclass(slots=True)
class Amount:
    """An amount of one device class."""

    count: int = 0
    #: by dimension
    capacity: dict[str, Fraction] = field(default_factory=dict)

    def add(self, other: Amount, sign: int = 1) -> None:
        """Add another amount, or subtract it with sign -1."""
        self.count += sign * other.count
        for dimension, value in other.capacity.items():
            self.capacity[dimension] = self.capacity.get(dimension, Fraction(0)) + sign * value


_Number: TypeAlias = int | Fraction
#: by device class
Amounts = dict[str, Amount]
#: the request of each claim of a pod, by the claim's key
ByClaim = Mapping[str, Amounts]


class ClaimedDevices:
    """The requests of pods' claims, looked up once per claim and session."""

    def __init__(self, plain: Mapping[str, PlainObjects], *, capacity: bool) -> None:
        """`capacity` says whether consumed capacity counts besides devices."""
        self._claims = ClaimsOfPods(plain)
        self._capacity = capacity
        self._known: dict[str, Amounts] = {}

    def of(self, pod: PodRecord) -> ByClaim:
        """The requests of a pod's claims; missing claims request nothing."""
        out = {}
        for claim in self._claims.existing(pod):
            if claim.key not in self._known:
                self._known[claim.key] = self._amounts(claim)
            if self._known[claim.key]:
                out[claim.key] = self._known[claim.key]
        return out

    def least(self, pods: Sequence[PodRecord], min_member: int, by_role: Mapping[str, int]) -> Amounts:
        """The minimum request of a job: that of the first pods by name that it needs to start.

        With a minimum by role, the request of each role's first pod times the minimum.
        """
        with_claims = sorted((pod for pod in pods if self.of(pod)), key=lambda pod: (pod.namespace, pod.name, pod.uid))
        if not by_role:
            return total(amounts for pod in with_claims[: max(0, min_member)] for amounts in self.of(pod).values())
        first: dict[str, PodRecord] = {}
        for pod in with_claims:
            first.setdefault(pod.role, pod)
        return total(
            amounts
            for role, pod in first.items()
            for amounts in self.of(pod).values()
            for _ in range(by_role.get(role, 0))
        )

    def _amounts(self, claim: ResourceClaim) -> Amounts:
        out: Amounts = {}
        for request in claim.spec.devices.requests or ():
            asked = request.asked
            if asked is not None and asked.device_class_name and not asked.all_devices:
                out.setdefault(asked.device_class_name, Amount()).add(self._amount(asked))
        return out

    def _amount(self, asked: DeviceRequest) -> Amount:
        count = asked.exact_count
        try:
            amounts = _capacity(asked) if self._capacity else {}
        except InvalidQuantityError:
            # It is refused where devices are picked.
            amounts = {}
        return Amount(count, {dimension: value * count for dimension, value in amounts.items()})


def _capacity(asked: DeviceRequest) -> dict[str, Fraction]:
    """The required capacity of each device. Raises InvalidQuantityError."""
    requests = (asked.capacity.requests if asked.capacity else None) or {}
    return {name: quantity.parse(value) for name, value in requests.items()}


class Shortage(NamedTuple):
    """The quota that would be exceeded, and the compared numbers."""

    resource: str
    detail: str


class DeviceQuota:
    """The usage of one queue. A claim that several of its pods share counts once."""

    def __init__(self, capability: ResourceAmounts | None) -> None:
        self._limits: Amounts = {}
        for name, value in (capability or {}).items():
            dimension, found, device_class = name.partition(_CLASS)
            if found and device_class and not dimension:
                self._limits.setdefault(device_class, Amount()).count = quantity.units(value)
            elif found and device_class and len(dimension) > 1 and dimension.endswith("."):
                limit = self._limits.setdefault(device_class, Amount())
                limit.capacity[dimension.removesuffix(".")] = quantity.parse(value)
        self._held: Amounts = {}
        self._admitted: Amounts = {}
        self._users: defaultdict[str, int] = defaultdict(int)

    def __bool__(self) -> bool:
        """Whether the queue has device quotas."""
        return bool(self._limits)

    def over(self, wanted: ByClaim) -> Shortage | None:
        """The quota that the claims of a pod would exceed, beyond claims that pods of the queue use already."""
        return self._over(total(amounts for claim, amounts in wanted.items() if not self._users[claim]), {})

    def over_admission(self, wanted: Amounts) -> Shortage | None:
        """The quota that a whole job would exceed, after the jobs admitted in this session."""
        return self._over(wanted, self._admitted)

    def add(self, wanted: ByClaim) -> None:
        """A pod with these claims was placed."""
        for claim, amounts in wanted.items():
            if not self._users[claim]:
                _add(self._held, amounts)
            self._users[claim] += 1

    def remove(self, wanted: ByClaim) -> None:
        """A pod with these claims lost its node."""
        for claim, amounts in wanted.items():
            self._users[claim] -= 1
            if not self._users[claim]:
                _add(self._held, amounts, -1)

    def admit(self, wanted: Amounts) -> None:
        """A job with this request was admitted."""
        _add(self._admitted, wanted)

    def _over(self, wanted: Amounts, admitted: Amounts) -> Shortage | None:
        for device_class, asked in wanted.items():
            limit = self._limits.get(device_class)
            if limit is None:
                continue
            used = total({device_class: each.get(device_class, _NOTHING)} for each in (self._held, admitted))
            used[device_class].add(asked)
            after = used[device_class]
            if limit.count > 0 and after.count > limit.count:
                return _exceeded("", device_class, limit.count, after.count - asked.count, asked.count)
            for dimension, more in asked.capacity.items():
                # A dimension that is not listed along with others of its class has a limit of zero.
                most, then = limit.capacity.get(dimension, Fraction(0)), after.capacity[dimension]
                if then > most:
                    return _exceeded(dimension, device_class, most, then - more, more)
        return None


_NOTHING = Amount()


def total(parts: Iterable[Amounts]) -> Amounts:
    """The sum of some amounts."""
    out: Amounts = {}
    for amounts in parts:
        _add(out, amounts)
    return out


def _add(to: Amounts, amounts: Amounts, sign: int = 1) -> None:
    for device_class, amount in amounts.items():
        to.setdefault(device_class, Amount()).add(amount, sign)


def _exceeded(dimension: str, device_class: str, limit: _Number, held: _Number, asked: _Number) -> Shortage:
    """The name of a quota: of a dimension of a class's devices, or of the devices."""
    name = f"{dimension}.{_CLASS}{device_class}".lstrip(".")
    words = (quantity.in_words(float(each), binary=in_bytes(dimension)) for each in (held, limit, asked))
    return Shortage(name, "{}: uses {}, limit {}, {} more requested".format(name, *words))
