"""The pages, with the queries that each sends and the template that it renders."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, PlainTextResponse, StreamingResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.staticfiles import StaticFiles

from stromboli.api.resources import listed, told_quantity
from stromboli.explain.answers import Answer, QueueAnswer
from stromboli.explain.overview import (
    JobPage,
    JobRow,
    Nodes,
    Overview,
    PodPage,
    PolicyInForce,
    QueuePage,
    QueueRow,
    Sessions,
    Shares,
)
from stromboli.explain.whatif import WhatIf
from stromboli.explain.words import amount, who
from stromboli.http.origin import demand_own_form
from stromboli.ui import figures, words
from stromboli.ui.guard import Headers, token_of
from stromboli.ui.service import Service, ServiceError

T = TypeVar("T")

#: rows of a table
_ROWS = 100
#: nodes on a map
_MOST_NODES = 10_000
#: sessions in a timeline
_SESSIONS = 60
#: remedies are computed on request only if a session takes longer than this, in seconds
_CHEAP = 0.1
#: placeholder for slow parts of a page, which escaped text cannot contain
_LATER = "<!--later-->"
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
    pages = _Pages(refresh)

    def ask(request: Request) -> _Asking:
        return _Asking(service, token_of(request, hosts, own=service.token_file is not None))

    @app.exception_handler(ServiceError)
    async def refused(request: Request, error: ServiceError) -> Response:
        return pages.show("error.html", request, status=error.status, problem=str(error))

    @app.exception_handler(StarletteHTTPException)
    async def wrong(request: Request, error: StarletteHTTPException) -> Response:
        answer = pages.show("error.html", request, status=error.status_code, problem=str(error.detail))
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
            asking.get(QueuePage, "queues", offset=offset, limit=_ROWS),
            asking.get(Sessions, "sessions", limit=1),
        )
        resource = resource if resource in cluster.total else figures.scarcest(cluster)
        bars = figures.bars(queues.items, resource, cluster.total)
        shown: dict[str, Any] = {"cluster": cluster, "queues": queues, "bars": bars, "sessions": sessions.items}
        return pages.show("overview.html", request, resource=resource, **shown)

    @app.get("/queues/{name}")
    async def queue(request: Request, name: str, resource: str = "") -> Response:
        asking = ask(request)
        row, said, cluster = await asyncio.gather(
            asking.get(QueueRow, "queues", name),
            asking.get(QueueAnswer, "explain", "queue", name, last="true"),
            asking.get(Overview, "overview"),
        )
        resource = resource or figures.scarcest(cluster)
        shares = await asking.get(Shares, "shares", resource=resource, queue=name)
        bars = {
            each: figures.bar(row, each, figures.scale([row], each, cluster.total))
            for each in cluster.total
            if any(of.get(each) for of in (row.held, row.requested, row.deserved, row.guarantee))
        }
        chart = figures.chart(shares, requested=True)
        return pages.show("queue.html", request, row=row, said=said, bars=bars, shares=shares, chart=chart)

    @app.get("/jobs")
    async def jobs(request: Request, offset: int = 0, sort: str = "") -> Response:
        wanted = {key: request.query_params.get(key, "") for key in ("namespace", "queue", "reason", "phase", "name")}
        found = await ask(request).get(JobPage, "jobs", offset=offset, limit=_ROWS, sort=sort, **wanted)
        return pages.show("jobs.html", request, page=found, wanted=wanted)

    @app.get("/jobs/{namespace}/{name}")
    async def job(
        request: Request, namespace: str, name: str, offset: int = 0, tried: bool = False, renew: bool = False
    ) -> Response:
        asking, key = ask(request), f"{namespace}/{name}"
        said, row, pods, nodes, sessions = await asyncio.gather(
            asking.get(Answer, "explain", "job", namespace, name, last="true", remedies="false"),
            asking.get(JobRow, "jobs", namespace, name),
            asking.get(PodPage, "jobs", namespace, name, "pods", offset=offset, limit=_ROWS),
            asking.maybe(Nodes, "nodes", job=key, limit=_MOST_NODES),
            asking.maybe(Sessions, "sessions", limit=1),
        )
        on_map = nodes and figures.node_map(nodes)
        soon = (tried or _cheap(sessions)) and not renew
        return pages.explained(request, asking, said, soon, row=row, pods=pods, map=on_map, nodes=nodes)

    @app.get("/pods")
    async def pods(
        request: Request, offset: int = 0, namespace: str = "", reason: str = "", node: str = ""
    ) -> Response:
        wanted = {"namespace": namespace, "reason": reason, "node": node}
        found = await ask(request).get(PodPage, "pods", offset=offset, limit=_ROWS, **wanted)
        return pages.show("pods.html", request, page=found, wanted=wanted)

    @app.get("/pods/{namespace}/{name}")
    async def pod(request: Request, namespace: str, name: str, tried: bool = False, renew: bool = False) -> Response:
        asking = ask(request)
        said, sessions = await asyncio.gather(
            asking.get(Answer, "explain", "pod", namespace, name, last="true", remedies="false"),
            asking.maybe(Sessions, "sessions", limit=1),
        )
        soon = (tried or _cheap(sessions)) and not renew
        return pages.explained(request, asking, said, soon, row=None, pods=None, map=None, nodes=None)

    @app.get("/nodes")
    async def nodes(request: Request, resource: str = "", name: str = "", offset: int = 0) -> Response:
        asking = ask(request)
        resource = resource or await asking.scarcest()
        found = await asking.get(Nodes, "nodes", resource=resource, name=name, limit=_MOST_NODES)
        rows = range(max(0, offset), min(len(found.names), max(0, offset) + _ROWS))
        return pages.show(
            "nodes.html", request, nodes=found, map=figures.node_map(found), rows=rows, name=name, offset=offset
        )

    @app.get("/shares")
    async def shares(request: Request, resource: str = "", parent: str = "root") -> Response:
        asking = ask(request)
        resource = resource or await asking.scarcest()
        found = await asking.get(Shares, "shares", resource=resource, parent=parent, limit=figures.COLOURS)
        return pages.show("shares.html", request, shares=found, chart=figures.chart(found))

    @app.get("/sessions")
    async def sessions(request: Request) -> Response:
        rows = (await ask(request).get(Sessions, "sessions", limit=_SESSIONS)).items
        parts, slices = figures.slices(rows)
        return pages.show("sessions.html", request, rows=rows, parts_of=parts, slices=slices)

    @app.get("/policy")
    async def policy(request: Request) -> Response:
        return pages.show("policy.html", request, policy=await ask(request).get(PolicyInForce, "policy"))

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


class _Asking:
    """The service, queried with the permissions of one user."""

    def __init__(self, service: Service, token: str) -> None:
        self.service = service
        self.token = token

    async def get(self, kind: type[T], *path: str, **asked: str | int) -> T:
        """An answer. Raises ServiceError."""
        said = {key: max(0, value) if isinstance(value, int) else value for key, value in asked.items()}
        return await self.service.get(path, kind, self.token, said)

    async def maybe(self, kind: type[T], *path: str, **asked: str | int) -> T | None:
        """An answer, None without permission."""
        try:
            return await self.get(kind, *path, **asked)
        except ServiceError as error:
            if error.status != 403:
                raise
            return None

    async def scarcest(self) -> str:
        """The resource of which least is left, `cpu` for those who may not know."""
        cluster = await self.maybe(Overview, "overview")
        return "cpu" if cluster is None else figures.scarcest(cluster)


class _Pages:
    """The templates, with shared functions. Values are escaped."""

    def __init__(self, refresh: float) -> None:
        self._templates = Environment(
            loader=PackageLoader("stromboli.ui"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(
            amount=amount,
            listed=listed,
            quantity=lambda written, resource: told_quantity(resource, written),
            seconds=words.seconds,
            moment=words.moment,
            stamp=words.stamp,
            who=who,
            look=words.look,
        )
        self._templates.globals.update(
            age=words.age, counted=words.counted, path=words.path, query=words.query, rows_shown=_ROWS, refresh=refresh
        )

    def show(self, template: str, request: Request, *, status: int = 200, **shown: Any) -> Response:
        """A page."""
        return HTMLResponse(self._render(template, request, {"status": status, **shown}), status)

    def explained(
        self, request: Request, asking: _Asking, said: Answer, soon: bool, **shown: Any
    ) -> StreamingResponse | Response:
        """The page of a job or pod; remedies are streamed into their placeholder when they are found."""
        looked_for = bool(said.reason) and soon
        page = self._render("job.html", request, {"said": said, "soon": soon, "later": _LATER, **shown})
        if not looked_for:
            return HTMLResponse(page.replace(_LATER, "", 1))

        async def parts() -> AsyncIterator[str]:
            before, _, after = page.partition(_LATER)
            yield before
            yield await self._remedies(asking, said)
            yield after

        return StreamingResponse(parts(), media_type="text/html")

    async def _remedies(self, asking: _Asking, said: Answer) -> str:
        problem = ""
        try:
            said = await asking.get(Answer, "explain", said.kind.lower(), said.namespace, said.name)
        except ServiceError as error:
            problem = str(error)
        return self._templates.get_template("remedies.html").render(said=said, problem=problem)

    def _render(self, template: str, request: Request, shown: Mapping[str, Any]) -> str:
        here = request.url.path
        asked = {key: value for key, value in request.query_params.items() if key != "renew"}
        return self._templates.get_template(template).render(here=here, asked=asked, now=time.time(), **shown)
