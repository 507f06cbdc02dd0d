"""Common parts of routes: the service asked with the rights of one user, and the templates."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from functools import cache
from typing import Any, TypeVar

from fastapi import Request, Response
from fastapi.responses import HTMLResponse, StreamingResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from stromboli.api.resources import listed, told_quantity
from stromboli.api.words import by_number, counted
from stromboli.explain.answers import Answer
from stromboli.explain.overview import Freshness, Overview
from stromboli.explain.words import amount, expected, title, who
from stromboli.ui import figures, words
from stromboli.ui.service import Service, ServiceError

T = TypeVar("T")

#: rows of a table
ROWS = 100
#: placeholder for slow parts of a page, which escaped text cannot contain
_LATER = "<!--later-->"


class Asking:
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
        """The resource with the least left; `cpu` for readers without the right to know."""
        cluster = await self.maybe(Overview, "overview")
        return "cpu" if cluster is None else figures.scarcest(cluster)

    async def problems(self) -> list[str]:
        """Why the service may not know the cluster as it is."""
        try:
            return (await self.get(Freshness, "freshness")).problems
        except ServiceError:
            # What else was asked says so better.
            return []


@cache
def _templates() -> Environment:
    """The templates, with shared functions, compiled once in a process. Values are escaped."""
    templates = Environment(
        loader=PackageLoader("stromboli.ui"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters.update(
        amount=amount,
        listed=listed,
        quantity=lambda written, resource: told_quantity(resource, written),
        seconds=words.seconds,
        moment=words.moment,
        stamp=words.stamp,
        who=who,
        expected=expected,
        title_of=title,
        look=words.look,
        lasting=figures.story,
    )
    templates.globals.update(
        age=words.age,
        by_number=by_number,
        counted=counted,
        path=words.path,
        query=words.query,
        when=words.when,
        spans=figures.SPANS,
        rows_shown=ROWS,
    )
    return templates


class Pages:
    """Answers with pages, which are renewed every `refresh` seconds."""

    def __init__(self, refresh: float) -> None:
        self._refresh = refresh

    def show(self, template: str, request: Request, *, status: int = 200, **shown: Any) -> Response:
        """A page about nothing that the service says."""
        return HTMLResponse(self._render(template, request, {"status": status, "problems": [], **shown}), status)

    async def answer(self, template: str, request: Request, asking: Asking, **shown: Any) -> Response:
        """A page about an answer of the service."""
        return self.show(template, request, problems=await asking.problems(), **shown)

    async def explained(
        self, request: Request, asking: Asking, said: Answer, soon: bool, **shown: Any
    ) -> StreamingResponse | Response:
        """The page of a job or pod; remedies are streamed into their placeholder when they are found."""
        looked_for = bool(said.reason) and soon
        known = {"said": said, "soon": soon, "later": _LATER, "problems": await asking.problems()}
        page = self._render("job.html", request, {**known, **shown})
        if not looked_for:
            return HTMLResponse(page.replace(_LATER, "", 1))

        async def parts() -> AsyncIterator[str]:
            before, _, after = page.partition(_LATER)
            yield before
            yield await self._remedies(asking, said)
            yield after

        return StreamingResponse(parts(), media_type="text/html")

    async def _remedies(self, asking: Asking, said: Answer) -> str:
        problem = ""
        try:
            said = await asking.get(Answer, "explain", said.kind.lower(), said.namespace, said.name)
        except ServiceError as error:
            problem = str(error)
        return _templates().get_template("remedies.html").render(said=said, problem=problem)

    def _render(self, template: str, request: Request, shown: Mapping[str, Any]) -> str:
        here = request.url.path
        asked = {key: value for key, value in request.query_params.items() if key != "renew"}
        page = _templates().get_template(template)
        return page.render(here=here, asked=asked, now=time.time(), refresh=self._refresh, **shown)
