"""Whose page it is: by which names it may be asked for, with whose rights, and what a browser may do with it."""

from __future__ import annotations

from collections.abc import Collection

from fastapi import HTTPException, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stromboli.http_api import bearer, brings_token
from stromboli.http_origin import on_loopback

#: nothing but our own files, no script in a page, nobody frames it
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class Headers:
    """An ASGI application whose answers say what a browser may do with them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = (b"cache-control", b"max-age=600" if scope["path"].startswith("/static/") else b"no-store")
                message["headers"] = [*message.get("headers", ()), *_HEADERS, kept]
            await send(message)

        await self._app(scope, receive, guarded)


def token_of(request: Request, hosts: Collection[str], *, own: bool) -> str:
    """The token that the service is asked with: the reader's own; none, for the page's `own` if it has one.

    The service answers everybody on loopback, and the page is there. So whoever brings no token has to be on loopback
    himself, or the page has to have an account, which is what those see who reach it. Raises HTTPException.
    """
    near = on_loopback(request)
    if not near and request.url.hostname not in hosts:
        raise HTTPException(403, f"this page is not asked for as {request.url.hostname}: name it with --host")
    if not brings_token(request) and (near or own):
        return ""
    token = bearer(request)
    if request.url.scheme != "https" and not near:
        raise HTTPException(403, "tokens are taken by HTTPS only: serve the page with a certificate")
    return token
