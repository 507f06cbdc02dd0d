"""The tables of the page about workloads, written from the table of kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from stromboli.cli.references.tables import code, table
from stromboli.workloads import Kind, RoleFields, Starts, WorkloadKind, known_kinds, said


def _kinds() -> str:
    return table(("kind", "what starts together", "who makes the PodGroup", "how to say otherwise"), _rows())


def _rows() -> Iterator[tuple[str, str, str, str]]:
    for kind in sorted(known_kinds(), key=lambda each: (each.row.group, each.row.kind)):
        made_by = kind.row.made_by
        maker = "Volcano's controller" if "always" in made_by else "the service"
        if made_by and "always" not in made_by:
            maker += f", or {made_by}"
        yield code(kind.name), kind.row.gang, maker, _override(kind)


def _override(kind: Kind) -> str:
    ways = [code(kind.row.min_member)] if kind.row.min_member else []
    if kind.row.starts is not Starts.in_parts and "always" not in kind.row.made_by:
        ways.append("the annotation" if kind.row.group or kind.row.kind != "Pod" else "the annotation of the driver")
    return " or ".join(ways) or "by its parts"


def _fields(model: type[WorkloadKind] | type[RoleFields]) -> str:
    rows = (
        (code(field.alias or name), " ".join((field.description or "").split()))
        for name, field in model.model_fields.items()
        if name not in ("reader", "maker", "made_by", "gang")
    )
    return table(("field", "is"), rows)


def _keys() -> str:
    rows = (
        ("how many pods start together", said.MIN_MEMBER),
        ("the queue", said.QUEUE),
        ("the priority class", said.PRIORITY_CLASS),
        ("how long it runs at most: a duration, or seconds", said.RUN_TIME),
        ("whether it may be evicted: `true` or `false`, or KAI's words", (said.PREEMPTABLE, said.PREEMPTIBILITY)),
        ("how close together pods are", (said.TOPOLOGY_MODE, *said.TIERS, *said.TIER_NAMES)),
    )
    return table(
        ("what", "annotations and labels, the first one counts"), ((what, _listed(keys)) for what, keys in rows)
    )


def _listed(keys: tuple[str, ...]) -> str:
    return ", ".join(map(code, keys))


TABLES: Mapping[str, Callable[[], str]] = {
    "kinds of workloads": _kinds,
    "keys of workloads": _keys,
    "fields of a kind": lambda: _fields(WorkloadKind),
    "fields of a role": lambda: _fields(RoleFields),
}
