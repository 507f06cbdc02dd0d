"""The page about the service's port, written from its OpenAPI document and the answers' own comments."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from stromboli.cli.references.tables import code, table
from stromboli.dashboard.history import History
from stromboli.dashboard.routes import dashboard_routes
from stromboli.explain.checkup import Finding
from stromboli.explain.past_runs import PastRuns
from stromboli.extender import Standing
from stromboli.http.api import api_routes
from stromboli.http.schema import ANSWERS
from stromboli.http.server import Probes, make_app

_HEADER = """\
# HTTP

What the service serves on `--listen`. On loopback, which `kubectl port-forward` is, the questions below `/api/v1` are
answered without a token; all other clients need HTTPS (`--tls-cert-file`) and a token of the cluster, as a bearer, and
are told what they may read. `/openapi.json` has the same for programs.
"""
_FIELD = re.compile(r"    (\w+): ")


class _NoService:
    """Answers no question: the page only asks which routes there are."""

    history = History()
    past = PastRuns()

    def rehearsal(self) -> None: ...

    def last(self) -> None: ...

    def missing(self) -> list[str]:
        return []

    def absent(self, kind: str, key: str) -> str:
        return ""

    def served(self) -> list[str]:
        return []

    def outside_sessions(self) -> list[Finding]:
        return []

    def unreadable(self, kind: str, key: str) -> str:
        return ""

    def engine(self, policy: str) -> Any: ...


def markdown() -> str:
    """The page."""
    routes = [api_routes(_NoService(), None), dashboard_routes(_NoService(), None, "")]
    app = make_app(Standing(lambda: None), CollectorRegistry(), Probes(), more=routes)
    document = app.openapi()
    return "\n".join([_HEADER, *_routes(document), "## Answers\n", *_answers(document["components"]["schemas"])])


def _routes(document: Mapping[str, Any]) -> Iterator[str]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"## {method.upper()} {path}\n"
            yield f"{operation.get('description', operation['summary'])}\n"
            if "requestBody" in operation:
                body = operation["requestBody"]
                yield f"Body: {code(*body['content'])}. {body.get('description', '')}\n"
            if "parameters" in operation:
                yield table(("parameter", "in", "type", "default"), map(_parameter, operation["parameters"]))
            yield table(("status", ""), _statuses(operation["responses"]))


def _parameter(parameter: Mapping[str, Any]) -> tuple[str, ...]:
    schema = parameter["schema"]
    default = code(str(schema["default"]).lower()) if schema.get("default", "") != "" else ""
    return code(parameter["name"]), parameter["in"], schema.get("type", ""), default


def _statuses(responses: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for status, response in sorted(responses.items()):
        if status == "422":
            yield status, "A parameter cannot be read."
            continue
        schema = response.get("content", {}).get("application/json", {}).get("schema", {})
        name = schema.get("$ref", "").rpartition("/")[2]
        yield status, f"[{name}](#{name.lower()}): {response['description']}" if name else response["description"]


def _answers(schemas: Mapping[str, Any]) -> Iterator[str]:
    texts = {each.__name__: each for each in _structs(ANSWERS)}
    for name, struct in sorted(texts.items()):
        comments, fields = _comments(struct), msgspec.structs.fields(struct)
        yield f"### {name}\n"
        yield f"{' '.join((inspect.getdoc(struct) or '').split())}\n"
        of_fields = schemas[name]["properties"]
        rows = (
            (code(field.encode_name), _type(of_fields[field.encode_name]), comments.get(field.name, ""))
            for field in fields
        )
        yield table(("field", "type", ""), rows)


def _structs(of: tuple[type, ...]) -> Iterator[type[msgspec.Struct]]:
    """The structs that answers consist of."""
    _, components = msgspec.json.schema_components(of)
    modules = {inspect.getmodule(each) for each in of}
    for name in components:
        yield next(found for module in modules if (found := getattr(module, name, None)) is not None)


def _comments(struct: type[msgspec.Struct]) -> dict[str, str]:
    """The comments `#:` above the fields of a class and its bases, by field."""
    comments: dict[str, str] = {}
    for base in struct.__bases__:
        comments |= _comments(base) if base is not msgspec.Struct else {}
    lines: list[str] = []
    for line in inspect.getsource(struct).splitlines():
        field = _FIELD.match(line)
        if line.startswith("    #: "):
            lines.append(line.removeprefix("    #: "))
        elif field and lines:
            text = " ".join(lines)
            comments[field[1]] = f"{text[:1].upper()}{text[1:]}."
            lines.clear()
    return comments


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    match schema.get("type"):
        case "array":
            return f"list of {_type(schema['items'])}"
        case "object":
            return f"map to {_type(schema.get('additionalProperties', {}))}"
        case kind:
            return str(kind or "any")
