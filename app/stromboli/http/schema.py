"""The OpenAPI document of the service, with schemas of the structs that msgspec encodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from stromboli.api.version import version
from stromboli.explain.answers import Answer, QueueAnswer, Starts
from stromboli.explain.checkup import Findings
from stromboli.explain.overview import (
    Freshness,
    JobPage,
    NodePage,
    Nodes,
    Overview,
    PodPage,
    PolicyInForce,
    QueuePage,
    SessionPage,
    Sessions,
    Shares,
    Story,
)
from stromboli.explain.whatif import WhatIf

#: structs that are JSON responses
ANSWERS = (
    *(Answer, QueueAnswer, Starts, WhatIf, Findings),
    *(Overview, QueuePage, JobPage, PodPage, Nodes, NodePage, Shares, Sessions, SessionPage, Story),
    *(PolicyInForce, Freshness),
)
_REFUSALS = {
    400: "The request cannot be read; `detail` says why.",
    401: "A bearer token of the cluster is required.",
    403: "The caller lacks the permission, or is not on loopback and does not use HTTPS.",
    404: "The object does not exist.",
    413: "The body is too large.",
    415: "The Content-Type is missing, or is one that any web page may send.",
    429: "Too many requests of the same user are waiting.",
    503: "No data yet, this replica does not lead, or the API server does not answer token and access reviews.",
}

Responses = dict[int | str, dict[str, Any]]


def answers(answer: type, *refusals: int) -> Responses:
    """The response of a route, and its error codes."""
    of = {"schema": {"$ref": f"#/components/schemas/{answer.__name__}"}}
    given: Responses = {200: {"description": _first_line(answer), "content": {"application/json": of}}}
    return given | _refused(refusals)


def file(what: str, *refusals: int) -> Responses:
    """The response of a route that returns bytes."""
    given: Responses = {200: {"description": what, "content": {"application/octet-stream": {}}}}
    return given | _refused(refusals)


def _refused(codes: Iterable[int]) -> Responses:
    return {code: {"description": _REFUSALS[code]} for code in codes}


def describe(app: FastAPI) -> None:
    """Make an application include these schemas in its document."""

    def document() -> dict[str, Any]:
        if not app.openapi_schema:
            made = get_openapi(title=app.title, version=version(), description=app.description, routes=app.routes)
            _, components = msgspec.json.schema_components(ANSWERS, ref_template="#/components/schemas/{name}")
            made.setdefault("components", {}).setdefault("schemas", {}).update(components)
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _first_line(answer: type) -> str:
    return (answer.__doc__ or "").partition("\n")[0]
