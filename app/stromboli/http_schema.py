"""What the service's port says of itself: the OpenAPI document, with the answers that msgspec writes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from stromboli.api.version import version
from stromboli.explain.answers import Answer, QueueAnswer
from stromboli.explain.board import (
    JobPage,
    Nodes,
    Overview,
    PodPage,
    PolicyInForce,
    QueuePage,
    Sessions,
    Shares,
)
from stromboli.explain.whatif import WhatIf

#: what is answered in JSON
ANSWERS = (
    *(Answer, QueueAnswer, WhatIf),
    *(Overview, QueuePage, JobPage, PodPage, Nodes, Shares, Sessions, PolicyInForce),
)
_REFUSALS = {
    400: "What was sent cannot be read; `detail` says why.",
    401: "A token of the cluster is needed.",
    403: "Whoever asks may not read it, or asks from elsewhere without HTTPS.",
    404: "It is not there.",
    413: "It is too long.",
    415: "The body's Content-Type is one that any web page may send, or none.",
    503: "Nothing is known yet, or this replica does not lead, or the API server does not say who may read what.",
}

Responses = dict[int | str, dict[str, Any]]


def answers(answer: type, *refusals: int) -> Responses:
    """What a route answers, and with which codes it refuses."""
    of = {"schema": {"$ref": f"#/components/schemas/{answer.__name__}"}}
    given: Responses = {200: {"description": _first_line(answer), "content": {"application/json": of}}}
    return given | _refused(refusals)


def file(what: str, *refusals: int) -> Responses:
    """The same of a route that answers with bytes."""
    given: Responses = {200: {"description": what, "content": {"application/octet-stream": {}}}}
    return given | _refused(refusals)


def _refused(codes: Iterable[int]) -> Responses:
    return {code: {"description": _REFUSALS[code]} for code in codes}


def describe(app: FastAPI) -> None:
    """Have an application describe its answers, too."""

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
