"""Orders of actions that make sessions waste work, or do something a session later than they could."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

#: actions that take places from pods so that allocate gives them to others
_EVICTING = ("preempt", "reclaim", "gangpreempt", "gangreclaim", "consolidation")


def remarks(actions: Sequence[str]) -> Iterator[str]:
    """The problem with an order of actions, if there is one."""
    evicting = [name for name in dict.fromkeys(actions) if name in _EVICTING]
    if "allocate" not in actions:
        yield "actions: without allocate no pod gets a node unless it requests nothing"
        if evicting:
            yield f"actions: without allocate {_listed(evicting)} would evict pods for others that are never bound"
        return
    first = actions.index("allocate")
    if "enqueue" in actions[first:] and "enqueue" not in actions[:first]:
        yield "actions: enqueue comes after allocate, so what it admits gets its place a session later"
    if "timeouts" in actions and first < actions.index("timeouts"):
        yield "actions: timeouts comes after allocate, which places what it should hold back"
    for name in evicting:
        admitted = actions.index("enqueue") if "enqueue" in actions else -1
        if actions.index(name) < admitted:
            yield f"actions: {name} comes before enqueue, so it does nothing for jobs that the session admits"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
