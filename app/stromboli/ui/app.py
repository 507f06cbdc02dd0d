"""The pages, with the queries that each sends and the template that it renders."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.staticfiles import StaticFiles

from stromboli.explain.answers import Answer, QueueAnswer
from stromboli.explain.overview import (
    JobPage,
    JobRow,
    NodePage,
    Nodes,
    Overview,
    PodPage,
    PolicyInForce,
    QueuePage,
    QueueRow,
    SessionPage,
    Sessions,
    Shares,
    Story,
)
from stromboli.explain.whatif import WhatIf
from stromboli.http.origin import demand_own_form
from stromboli.ui import figures
from stromboli.ui.guard import Headers, token_of
from stromboli.ui.pages import ROWS, Asking, Pages
from stromboli.ui.service import Service, ServiceError

#: nodes on a map
_MOST_NODES = 10_000
#: sessions in a timeline
_SESSIONS = 60
#: remedies are computed on request only if a session takes longer than this, in seconds
_CHEAP = 0.1
#: what the page of a job shows besides its answer
_OF_JOBS: dict[str, Any] = {"row": None, "pods": None, "map": None, "nodes": None, "story": []}
_JOB_FILTERS = ("namespace", "queue", "reason", "phase", "name", "cards", "priority", "sort")
_EXAMPLE = """\
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: default}
spec: {weight: 5}
"""


def make_ui(service: Service, *, refresh: float = 5.0, hosts: Collection[str] = ()) -> FastAPI:
    """The application. Pages reload every `refresh` seconds; `hosts` are its host names besides loopback's."""
    app = FastAPI(title="Stromboli", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Headers)
    folder = Path(__file__).parent
    app.mount("/static", StaticFiles(directory=folder / "static"))
    pages = Pages(refresh)

    def ask(request: Request) -> Asking:
        return Asking(service, token_of(request, hosts, own=service.token_file is not None))

    @app.exception_handler(ServiceError)
    async def refused(request: Request, error: ServiceError) -> Response:
        return pages.show("error.html", request, status=error.status, problem=str(error))

    @app.exception_handler(StarletteHTTPException)
    async def wrong(request: Request, error: StarletteHTTPException) -> Response:
        is_path = error.status_code == 404 and error.detail == HTTPStatus.NOT_FOUND.phrase
        problem = f"There is no page {request.url.path}" if is_path else str(error.detail)
        answer = pages.show("error.html", request, status=error.status_code, problem=problem)
        answer.headers.update(error.headers or {})
        return answer

    @app.exception_handler(RequestValidationError)
    async def unreadable(request: Request, error: RequestValidationError) -> Response:
        problem = "; ".join(f"{each['loc'][-1]}: {each['msg']}" for each in error.errors())
        return pages.show("error.html", request, status=422, problem=problem)

    @app.get("/healthz")
    async def healthz() -> PlainTextResponse:
        return PlainTextResponse("ok\n")

    @app.get("/")
    async def overview(request: Request, resource: str = "", offset: int = 0) -> Response:
        asking = ask(request)
        cluster, queues, sessions = await asyncio.gather(
            asking.get(Overview, "overview"),
            asking.get(QueuePage, "queues", offset=offset, limit=ROWS),
            asking.get(Sessions, "sessions", limit=1),
        )
        resource = resource if resource in cluster.total else figures.scarcest(cluster)
        bars = figures.bars(queues.items, resource, cluster.total)
        shown: dict[str, Any] = {"cluster": cluster, "queues": queues, "bars": bars, "sessions": sessions.items}
        return await pages.answer("overview.html", request, asking, resource=resource, **shown)

    @app.get("/queues/{name}")
    async def queue(request: Request, name: str, resource: str = "", span: int = 0) -> Response:
        asking = ask(request)
        row, said, cluster = await asyncio.gather(
            asking.get(QueueRow, "queues", name),
            asking.get(QueueAnswer, "explain", "queue", name, last="true"),
            asking.get(Overview, "overview"),
        )
        resource = resource or figures.scarcest(cluster)
        shares = await asking.get(Shares, "shares", resource=resource, queue=name, span=span)
        bars = {
            each: figures.bar(row, each, figures.scale([row], each, cluster.total))
            for each in cluster.total
            if any(of.get(each) for of in (row.held, row.requested, row.deserved, row.guarantee))
        }
        chart = figures.chart(shares, requested=True)
        shown: dict[str, Any] = {"row": row, "said": said, "bars": bars, "shares": shares, "chart": chart}
        return await pages.answer("queue.html", request, asking, span=span, **shown)

    @app.get("/jobs")
    async def jobs(request: Request, offset: int = 0) -> Response:
        asking, wanted = ask(request), {key: request.query_params.get(key, "") for key in _JOB_FILTERS}
        given = {key: value for key, value in wanted.items() if value}
        found = await asking.get(JobPage, "jobs", offset=offset, limit=ROWS, **given)
        return await pages.answer("jobs.html", request, asking, page=found, wanted=wanted)

    @app.get("/jobs/{namespace}/{name}")
    async def job(
        request: Request, namespace: str, name: str, offset: int = 0, tried: bool = False, renew: bool = False
    ) -> Response:
        asking, key = ask(request), f"{namespace}/{name}"
        said, row, pods, story, nodes, sessions = await asyncio.gather(
            asking.get(Answer, "explain", "job", namespace, name, last="true", remedies="false"),
            asking.get(JobRow, "jobs", namespace, name),
            asking.get(PodPage, "jobs", namespace, name, "pods", offset=offset, limit=ROWS),
            asking.get(Story, "jobs", namespace, name, "story"),
            asking.maybe(Nodes, "nodes", job=key, limit=_MOST_NODES),
            asking.maybe(Sessions, "sessions", limit=1),
        )
        on_map = nodes and figures.node_map(nodes)
        soon = (tried or _cheap(sessions)) and not renew
        shown: dict[str, Any] = {"row": row, "pods": pods, "map": on_map, "nodes": nodes, "story": story.items}
        return await pages.explained(request, asking, said, soon, **shown)

    @app.get("/pods")
    async def pods(
        request: Request, offset: int = 0, namespace: str = "", reason: str = "", node: str = "", sort: str = ""
    ) -> Response:
        asking, wanted = ask(request), {"namespace": namespace, "reason": reason, "node": node}
        found = await asking.get(PodPage, "pods", offset=offset, limit=ROWS, sort=sort, **wanted)
        return await pages.answer("pods.html", request, asking, page=found, wanted=wanted)

    @app.get("/pods/{namespace}/{name}")
    async def pod(
        request: Request,
        namespace: str,
        name: str,
        tried: bool = False,
        scores: bool = False,
        node: str = "",
        renew: bool = False,
    ) -> Response:
        asking = ask(request)
        # A session is run for the scores of nodes; a page that renews itself keeps those that it has.
        how = {"history": "true", "node": node} if scores and not renew else {"last": "true"}
        said, sessions = await asyncio.gather(
            asking.get(Answer, "explain", "pod", namespace, name, remedies="false", **how),
            asking.maybe(Sessions, "sessions", limit=1),
        )
        soon = (tried or _cheap(sessions)) and not renew
        return await pages.explained(request, asking, said, soon, node=node, **_OF_JOBS)

    @app.get("/nodes")
    async def nodes(
        request: Request,
        resource: str = "",
        name: str = "",
        job: str = "",
        cause: str = "",
        sort: str = "",
        offset: int = 0,
    ) -> Response:
        asking = ask(request)
        resource = resource or await asking.scarcest()
        wanted = {"name": name, "job": job, "cause": cause}
        found = await asking.get(Nodes, "nodes", resource=resource, limit=_MOST_NODES, **wanted)
        first = max(0, offset)
        rows = figures.in_order(found, sort)[first : first + ROWS]
        shown: dict[str, Any] = {"nodes": found, "map": figures.node_map(found), "rows": rows, "offset": first}
        return await pages.answer("nodes.html", request, asking, wanted=wanted, **shown)

    @app.get("/nodes/{name}")
    async def node(request: Request, name: str, offset: int = 0) -> Response:
        asking = ask(request)
        found, on_it = await asyncio.gather(
            asking.get(NodePage, "nodes", name),
            asking.maybe(PodPage, "pods", node=name, offset=offset, limit=ROWS),
        )
        return await pages.answer("node.html", request, asking, node=found, pods=on_it)

    @app.get("/shares")
    async def shares(request: Request, resource: str = "", parent: str = "root", span: int = 0) -> Response:
        asking = ask(request)
        resource = resource or await asking.scarcest()
        found = await asking.get(Shares, "shares", resource=resource, parent=parent, limit=figures.COLOURS, span=span)
        return await pages.answer("shares.html", request, asking, shares=found, chart=figures.chart(found), span=span)

    @app.get("/sessions")
    async def sessions(request: Request) -> Response:
        asking = ask(request)
        rows = (await asking.get(Sessions, "sessions", limit=_SESSIONS)).items
        parts, slices = figures.slices(rows)
        return await pages.answer("sessions.html", request, asking, rows=rows, parts_of=parts, slices=slices)

    @app.get("/sessions/{number}")
    async def session(request: Request, number: int, offset: int = 0) -> Response:
        asking = ask(request)
        found = await asking.get(SessionPage, "sessions", str(number), offset=offset, limit=ROWS)
        parts, (slices,) = figures.slices([found.row])
        return await pages.answer("session.html", request, asking, page=found, parts_of=parts, slices=slices)

    @app.get("/policy")
    async def policy(request: Request) -> Response:
        asking = ask(request)
        return await pages.answer("policy.html", request, asking, policy=await asking.get(PolicyInForce, "policy"))

    @app.get("/whatif")
    async def whatif(request: Request) -> Response:
        token_of(request, hosts, own=service.token_file is not None)
        return pages.show("whatif.html", request, change="", example=_EXAMPLE, answer=None, problem="")

    @app.post("/whatif")
    async def tried(request: Request) -> Response:
        demand_own_form(request)
        asking = ask(request)
        change, answer, problem = await _change(request), None, ""
        try:
            answer = await asking.service.post(("whatif",), WhatIf, asking.token, change.encode())
        except ServiceError as error:
            if error.status != 400:
                raise
            problem = str(error)
        return pages.show("whatif.html", request, change=change, example=_EXAMPLE, answer=answer, problem=problem)

    return app


def _cheap(sessions: Sessions | None) -> bool:
    """Whether sessions are short enough to compute remedies without a request; unknown counts as no."""
    return sessions is not None and all(each.seconds < _CHEAP for each in sessions.items)


async def _change(request: Request) -> str:
    """The fields of a form. Raises HTTPException."""
    try:
        form = parse_qs((await request.body()).decode(), keep_blank_values=True, max_num_fields=4, errors="strict")
    except ValueError:
        raise HTTPException(400, "the request is not a form") from None
    return form.get("change", [""])[0].replace("\r\n", "\n")
