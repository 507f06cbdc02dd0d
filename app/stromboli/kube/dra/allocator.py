"""Picking devices: the first ones of a node, in order, that satisfy all requests of some claims together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from stromboli.api.objects import Toleration
from stromboli.kube.dra.cel import CelError, CostError, Program, Run, compiled
from stromboli.kube.dra.cel.device import DeviceView, Path, value_at
from stromboli.kube.dra.cel.run import MAX_COST
from stromboli.kube.dra.cel.values import shown
from stromboli.kube.dra.inventory import DeviceId, Offer
from stromboli.kube.dra.objects import (
    ClaimError,
    Constraint,
    DeviceObjects,
    DeviceRequest,
    DeviceSelector,
    Request,
    ResourceClaim,
)
from stromboli.kube.taints import first_untolerated

#: devices that a claim can hold, by the API's validation
_MOST = 32
#: devices that are tried on one node before it counts as unsuitable
_TRIES = 10_000


class SelectorError(Exception):
    """A selector that has no answer for a device."""

    def __init__(self, claim: int, problem: str) -> None:
        super().__init__(problem)
        #: which of the claims that were asked about together
        self.claim = claim


@dataclass(frozen=True, slots=True)
class _Question:
    """What an expression reads of a device next, and what follows from each value."""

    path: Path
    #: a further question, whether the device is selected, or why there is no answer
    answers: dict[Any, _Question | bool | str] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Selector:
    """An expression that devices are asked about, at a cost that is bounded for all together.

    What it read of a device decides: it is evaluated once for all devices that agree in that.
    """

    #: for messages: which of the claims that are asked about together, and where in it
    claim: int
    where: str
    program: Program
    left: int = MAX_COST
    #: the first question, or the only answer, by None
    known: dict[Any, _Question | bool | str] = field(default_factory=dict)

    def selects(self, offer: Offer) -> bool:
        """Whether it is true for a device. Raises SelectorError."""
        device = offer.variables["device"]
        answers, key = self.known, None
        while isinstance(found := answers.get(key), _Question):
            answers, key = found.answers, value_at(device, found.path)
        answer = self._evaluate(device) if found is None else found
        if isinstance(answer, str):
            raise SelectorError(self.claim, f"{self} has no answer: {answer}")
        return answer

    def _evaluate(self, device: Mapping[str, Any]) -> bool | str:
        notes: dict[Path, None] = {}
        run = Run({"device": DeviceView(device, notes)}, self.left)
        answer: bool | str
        try:
            answer = self.program.evaluate(run) is True
        except CelError as error:
            answer = str(error)
        except CostError as error:
            # What it would have read next is not known.
            return str(error)
        finally:
            self.left = run.left
        answers: dict[Any, _Question | bool | str] = self.known
        key = None
        for path in notes:
            question = answers.setdefault(key, _Question(path))
            assert isinstance(question, _Question)
            answers, key = question.answers, value_at(device, path)
        answers[key] = answer
        return answer

    def __str__(self) -> str:
        return f"{self.where}: the selector {shown(self.program.text)}"


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to satisfy a request."""

    #: REQUEST, or REQUEST/NAME for an alternative
    name: str
    selectors: list[Selector]
    #: how many devices; None for all that match
    count: int | None
    #: looks at devices that others hold, and holds none
    admin: bool
    tolerations: Sequence[Toleration]
    #: the least that a device must have, by the name of the capacity
    capacity: dict[str, Fraction]

    def suits(self, offer: Offer) -> bool:
        """Whether a device is of the kind. Raises SelectorError."""
        if first_untolerated(self.tolerations, offer.taints) is not None:
            return False
        if not all(selector.selects(offer) for selector in self.selectors):
            return False
        for name, least in self.capacity.items():
            has = offer.value("capacity", name)
            if has is None or has.value < least:
                return False
        return True


@dataclass(frozen=True, slots=True)
class Wish:
    """One request of a claim."""

    claim: str
    request: str
    #: to be tried in order
    choices: list[Choice]
    #: what must hold between the devices of the claim
    constraints: list[Constraint]


@dataclass(frozen=True, slots=True)
class Taken:
    """A device that was picked."""

    wish: Wish
    choice: Choice
    offer: Offer


def wishes(claims: Sequence[ResourceClaim], objects: DeviceObjects) -> list[Wish]:
    """What claims ask for. Raises ClaimError when it makes no sense, or no sense to us."""
    return [
        Wish(claim.key, request.name, _choices(i, claim, request, objects), claim.spec.devices.constraints or [])
        for i, claim in enumerate(claims)
        for request in claim.spec.devices.requests or ()
    ]


def allocate(wanted: Sequence[Wish], offers: Sequence[Offer], in_use: Set[DeviceId]) -> list[Taken] | None:
    """Devices for all wishes; None when the offers do not suffice. Raises SelectorError."""
    attempt = _Attempt(wanted, offers, in_use)
    return attempt.taken if attempt.run(0) else None


class _Attempt:
    """Depth first, so that what an early wish can do without is left to a later one."""

    def __init__(self, wanted: Sequence[Wish], offers: Sequence[Offer], in_use: Set[DeviceId]) -> None:
        self._wishes = wanted
        self._offers = offers
        self._in_use = in_use
        self._tries = 0
        self.taken: list[Taken] = []

    def run(self, at: int) -> bool:
        """Satisfy the wishes from a number on."""
        return at == len(self._wishes) or any(self._choose(at, choice) for choice in self._wishes[at].choices)

    def _choose(self, at: int, choice: Choice) -> bool:
        suitable = [offer for offer in self._offers if choice.suits(offer)]
        free = suitable if choice.admin else [offer for offer in suitable if offer.id not in self._in_use]
        if choice.count is not None:
            return self._pick(at, choice, free, choice.count)
        return 0 < len(free) <= _MOST and len(free) == len(suitable) and self._pick(at, choice, free, len(free))

    def _pick(self, at: int, choice: Choice, candidates: Sequence[Offer], count: int) -> bool:
        if count == 0:
            return self.run(at + 1)
        for index in range(len(candidates) - count + 1):
            self._tries += 1
            if self._tries > _TRIES:
                return False
            taken = Taken(self._wishes[at], choice, candidates[index])
            if self._is_free(taken) and all(map(self._constraint(taken), taken.wish.constraints)):
                self.taken.append(taken)
                if self._pick(at, choice, candidates[index + 1 :], count - 1):
                    return True
                self.taken.pop()
        return False

    def _is_free(self, new: Taken) -> bool:
        return new.choice.admin or all(each.offer.id != new.offer.id or each.choice.admin for each in self.taken)

    def _constraint(self, new: Taken) -> Callable[[Constraint], bool]:
        """Whether a constraint holds between one more device and those that were picked for the same claim."""

        def holds(constraint: Constraint) -> bool:
            if not _concerns(constraint, new):
                return True
            name = constraint.match_attribute or constraint.distinct_attribute or ""
            value = new.offer.value("attributes", name)
            others = [
                each.offer.value("attributes", name)
                for each in self.taken
                if each.wish.claim == new.wish.claim and _concerns(constraint, each)
            ]
            equal = [type(other) is type(value) and other == value for other in others]
            return value is not None and (all(equal) if constraint.match_attribute else not any(equal))

        return holds


def _concerns(constraint: Constraint, taken: Taken) -> bool:
    return not constraint.requests or bool({taken.wish.request, taken.choice.name} & set(constraint.requests))


def _choices(number: int, claim: ResourceClaim, request: Request, objects: DeviceObjects) -> list[Choice]:
    try:
        if request.exactly is not None:
            return [_choice(number, request.name, request.exactly, objects)]
        if request.first_available:
            return [_choice(number, f"{request.name}/{sub.name}", sub, objects) for sub in request.first_available]
        raise ClaimError(f"request {request.name} asks for nothing that is supported")
    except ClaimError as error:
        raise ClaimError(f'resourceclaim "{claim.metadata.name}", {error}') from None


def _choice(claim: int, name: str, request: DeviceRequest, objects: DeviceObjects) -> Choice:
    device_class = objects.device_class(request.device_class_name)
    if device_class is None:
        raise ClaimError(f'request {name}: device class "{request.device_class_name}" not found')
    if request.exact_count > _MOST:
        raise ClaimError(f"request {name}: a claim can hold {_MOST} devices, not {request.exact_count}")
    of_class = device_class.spec.selectors or ()
    return Choice(
        name=name,
        selectors=[
            *(
                _selector(claim, f'request {name}, device class "{device_class.metadata.name}"', each)
                for each in of_class
            ),
            *(_selector(claim, f"request {name}", each) for each in request.selectors or ()),
        ],
        count=None if request.all_devices else request.exact_count,
        admin=bool(request.admin_access),
        tolerations=request.tolerations or (),
        capacity=request.amounts,
    )


def _selector(claim: int, where: str, selector: DeviceSelector) -> Selector:
    text = selector.cel.expression if selector.cel is not None else ""
    try:
        return Selector(claim, where, compiled(text))
    except CelError as error:
        raise ClaimError(f"{where}: the selector {shown(text)} is not supported: {error}") from None
