"""The source of answers: the last session, and whether newer knowledge is expected."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from stromboli.api.decisions import Bind
from stromboli.api.errors import StromboliError
from stromboli.api.objects import Pod
from stromboli.extender.published import Published
from stromboli.state.pods import PodRecord

T = TypeVar("T")


class NoAnswerError(StromboliError):
    """This replica cannot answer now."""


class Source(Protocol):
    """The sessions of a replica, as answers need them."""

    def published(self) -> Published | None:
        """The last session."""
        ...

    def trouble(self) -> str:
        """Why this replica cannot answer about our pods; empty if it can."""
        ...

    def late(self) -> str:
        """Why no news may come for long, such as a session that hangs; empty if they come."""
        ...

    def patience(self, pod: Pod, names: Sequence[str]) -> Callable[[], float]:
        """Seconds from now that a refusal of these nodes waits for news, 0 once it is up to date."""
        ...

    def fits_on(self, pod: PodRecord, node: str) -> bool:
        """Whether a pod fits on a node now, if no pods that are expected elsewhere arrive."""
        ...

    async def work_out(self, question: Callable[[], T]) -> T:
        """Ask a session, and with it plugins, which may hang. Raises NoAnswerError if that takes too long."""
        ...

    async def bind(self, bind: Bind) -> str:
        """Bind a pod; why that was not possible, empty when it has its node."""
        ...

    async def news(self) -> None:
        """Return at the next change or end of a session."""
        ...


class Standing:
    """A source where only the last session counts."""

    def __init__(self, published: Callable[[], Published | None]) -> None:
        self.published = published

    def trouble(self) -> str:
        return "" if self.published() is not None else NO_SESSION

    def late(self) -> str:
        return ""

    def patience(self, pod: Pod, names: Sequence[str]) -> Callable[[], float]:
        return lambda: 0.0

    def fits_on(self, pod: PodRecord, node: str) -> bool:
        return False

    async def work_out(self, question: Callable[[], T]) -> T:
        return question()

    async def bind(self, bind: Bind) -> str:
        return "nothing is bound here"

    async def news(self) -> None:
        raise AssertionError("nothing changes here")


#: the answer of a replica without a session
NO_SESSION = "no session has ended yet"
