"""Which requests go wrong, and how: the same for the same seed, whatever order they come in."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

#: answered instead of the API server
REFUSALS = {"409": 409, "429": 429, "500": 500, "503": 503}
_ANY = ("429", "500", "503", "lost answer", "reset", "hang", "truncated body")
_WRITES = (*_ANY, "409")
_LISTS = (*_ANY, "stale list")
_WATCHES = ("429", "500", "503", "reset", "hang", "410")
_LINES = ("cut", "half a line", "duplicate", "reorder", "410")


@dataclass(slots=True)
class Plan:
    """Draws a fault for each request and each line of a watch by what it is, and by how often it was asked before."""

    seed: int
    #: the part of requests, and of lines of watches, that go wrong
    requests: float = 0.03
    lines: float = 0.003
    active: bool = True
    #: how often each fault was injected
    injected: Counter[str] = field(default_factory=Counter)
    _asked: Counter[str] = field(default_factory=Counter)

    def request(self, method: str, path: str, *, watch: bool) -> str:
        """The fault of a request, empty for none. A binding's path is enough to tell it from all others."""
        kinds = _WATCHES if watch else _LISTS if method == "GET" else _WRITES
        if path.endswith("/leases") or (method == "POST" and not path.endswith("/binding")):
            # That something exists already is not said of what does not.
            kinds = _ANY
        return self._draw(f"{method} {path}", self.requests, kinds)

    def line(self, path: str) -> str:
        """The fault of the next line of a watch, empty for none."""
        return self._draw(f"line {path}", self.lines, _LINES)

    def _draw(self, what: str, rate: float, kinds: tuple[str, ...]) -> str:
        if not self.active:
            return ""
        self._asked[what] += 1
        chance = random.Random(f"{self.seed} {what} {self._asked[what]}")
        if chance.random() >= rate:
            return ""
        fault = chance.choice(kinds)
        self.injected[fault] += 1
        return fault
