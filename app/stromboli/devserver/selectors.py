"""Label and field selectors, as lists and watches take them in their query and budgets in their spec."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from .errors import bad_request
from .events import core_path
from .resources import EVENTS_V1, Object, Resource

Matcher: TypeAlias = Callable[[Object], bool]
Requirement: TypeAlias = Callable[[Mapping[str, str]], bool]

_SET_BASED = re.compile(r"^\s*(\S+)\s+(in|notin)\s*\(([^()]*)\)\s*$")
_EQUALITY = re.compile(r"^\s*([^\s=!]+)\s*(==|=|!=)\s*(\S*)\s*$")
_EXISTENCE = re.compile(r"^\s*(!?)\s*([^\s=!(),<>]+)\s*$")
_OUTSIDE_PARENTHESES = re.compile(r",(?![^()]*\))")


def query_matcher(resource: Resource, labels: str, fields: str) -> Matcher | None:
    """Matcher of a request's `labelSelector` and `fieldSelector` together, None if both are empty."""
    label_requirements = [_parse_label(term) for term in _OUTSIDE_PARENTHESES.split(labels)] if labels else []
    field_requirements = [_parse_field(resource, term) for term in fields.split(",")] if fields else []
    if not label_requirements and not field_requirements:
        return None

    def matches(body: Object) -> bool:
        present = body["metadata"].get("labels") or {}
        return all(r(present) for r in label_requirements) and all(r(body) for r in field_requirements)

    return matches


def label_selector_matches(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Whether a `meta/v1 LabelSelector` selects `labels`: an empty selector all, a missing one none."""
    if selector is None:
        return False
    wanted = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    for expression in selector.get("matchExpressions") or ():
        values = tuple(expression.get("values") or ())
        if not _requirement(expression["operator"].lower(), expression["key"], values)(labels):
            return False
    return True


def field_value(body: Object, path: str) -> str:
    """The value at a dotted path as field selectors compare it: "" when missing, "true" for True."""
    value: Any = body
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    if path == "source" and isinstance(value, dict):
        value = value.get("component")
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def _parse_label(term: str) -> Requirement:
    if match := _SET_BASED.match(term):
        values = tuple(value.strip() for value in match[3].split(","))
        return _requirement(match[2], match[1], values)
    if match := _EQUALITY.match(term):
        return _requirement("notin" if match[2] == "!=" else "in", match[1], (match[3],))
    if match := _EXISTENCE.match(term):
        return _requirement("doesnotexist" if match[1] else "exists", match[2], ())
    raise bad_request(f'unable to parse requirement: "{term}"')


def _requirement(operator: str, key: str, values: tuple[str, ...]) -> Requirement:
    match operator:
        case "in":
            return lambda labels: key in labels and labels[key] in values
        case "notin":
            return lambda labels: key not in labels or labels[key] not in values
        case "exists":
            return lambda labels: key in labels
        case "doesnotexist":
            return lambda labels: key not in labels
        case _:
            raise bad_request(f'"{operator}" is not a valid label selector operator')


def _parse_field(resource: Resource, term: str) -> Matcher:
    match = _EQUALITY.match(term)
    if match is None:
        raise bad_request(f"invalid selector: '{term}'; can't understand '{term}'")
    path, operator, wanted = match.groups()
    if path not in resource.selectable and path not in ("metadata.name", "metadata.namespace"):
        raise bad_request(f"field label not supported: {path}")
    if resource.key == EVENTS_V1:
        path = core_path(path)
    # A field that is off by default is left out of the object, and means false.
    default = "false" if path in ("spec.unschedulable", "spec.hostNetwork") else ""
    if operator == "!=":
        return lambda body: (field_value(body, path) or default) != wanted
    return lambda body: (field_value(body, path) or default) == wanted
