"""What the API server would refuse of our custom resources: values out of bounds, and fields that do not go together.

The models read what is there, also in clusters with other definitions; a manifest that nobody has admitted yet is held
to the generated CustomResourceDefinitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from stromboli.api import crd_schema, crds
from stromboli.api.errors import InvalidObjectError
from stromboli.api.patterns import compiled
from stromboli.api.resources import ResourceAmounts, amount, told_quantity
from stromboli.api.structural import Schema, problems
from stromboli.api.validation import field_path

_ROOT = "root"


def check(kind: str, manifest: dict[str, Any], obj: Any, where: str) -> None:
    """Raise InvalidObjectError for the first thing that the API server would refuse of a manifest that was read."""
    if kind not in crds.KINDS:
        return
    for path, problem in problems(_present(manifest), _schema(kind)):
        raise InvalidObjectError(where, path, problem.replace(f"{path} in body ", ""))
    for path, problem in _RULES.get(kind, _no_rules)(obj):
        raise InvalidObjectError(where, path, problem)


@cache
def _schema(kind: str) -> Schema:
    return crd_schema.open_api_schema(crds.KINDS[kind])


def _present(value: Any) -> Any:
    """A manifest without nulls, which mean absence."""
    if isinstance(value, dict):
        return {key: _present(item) for key, item in value.items() if item is not None}
    return [_present(item) for item in value] if isinstance(value, list) else value


def _no_rules(_: Any) -> Iterator[tuple[str, str]]:
    return iter(())


def _of_queue(queue: crds.Queue) -> Iterator[tuple[str, str]]:
    spec = queue.spec
    if spec.parent == queue.metadata.name:
        yield "spec.parent", "a queue cannot be its own parent"
    if spec.parent and queue.metadata.name == _ROOT:
        yield "spec.parent", f"the root queue has no parent, not {spec.parent!r}"
    guarantee = spec.guarantee.resource
    yield from _above("spec.deserved", spec.deserved, "capability", spec.capability)
    yield from _above("spec.guarantee.resource", guarantee, "deserved", spec.deserved)
    yield from _above("spec.guarantee.resource", guarantee, "capability", spec.capability)


def _above(
    path: str, amounts: ResourceAmounts | None, limit: str, limits: ResourceAmounts | None
) -> Iterator[tuple[str, str]]:
    """Amounts that are above the limit of the same resource, where there is one."""
    for name, value in (amounts or {}).items():
        most = (limits or {}).get(name)
        if most is not None and amount(name, value) > amount(name, most):
            told = told_quantity(name, value), told_quantity(name, most)
            yield field_path((name,), path), f"must not be above {limit}, but {told[0]} is above {told[1]}"


def _of_pod_group(group: crds.PodGroup) -> Iterator[tuple[str, str]]:
    spec = group.spec
    topologies = [("spec.networkTopology", spec.network_topology)]
    for number, policy in enumerate(spec.sub_group_policy):
        topologies.append((f"spec.subGroupPolicy[{number}].networkTopology", policy.network_topology))
    for path, topology in topologies:
        if topology is not None and topology.highest_tier_allowed is not None and topology.highest_tier_name:
            yield path, "only one of highestTierAllowed and highestTierName may be given"


def _of_hyper_node(hyper_node: crds.HyperNode) -> Iterator[tuple[str, str]]:
    for number, member in enumerate(hyper_node.spec.members):
        match = member.selector.regex_match
        if match is None:
            continue
        try:
            compiled(match.pattern)
        except ValueError as error:
            yield f"spec.members[{number}].selector.regexMatch.pattern", str(error)


_RULES: Mapping[str, Callable[[Any], Iterator[tuple[str, str]]]] = {
    "Queue": _of_queue,
    "PodGroup": _of_pod_group,
    "HyperNode": _of_hyper_node,
}
