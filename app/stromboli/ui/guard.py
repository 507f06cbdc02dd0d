"""Protection of the page: its host names, the permissions of its users, and browser policies."""

from __future__ import annotations

from collections.abc import Collection

from fastapi import HTTPException, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stromboli.http.api import bearer, brings_token
from stromboli.http.origin import on_loopback

#: only our own files, no inline scripts, no framing
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
    """An ASGI application that adds security headers to responses."""

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
    """The token for the service: the user's, or without one the page's `own`, if any.

    The service trusts loopback, and the page runs there. So a user without a token must be on loopback too, or the page
    must have an account of its own, whose permissions all its users get. Raises HTTPException.
    """
    near = on_loopback(request)
    if not near and request.url.hostname not in hosts:
        raise HTTPException(403, f"{request.url.hostname} is not a host name of this page: add it with --host")
    if not brings_token(request) and (near or own):
        return ""
    token = bearer(request)
    if request.url.scheme != "https" and not near:
        raise HTTPException(403, "tokens are accepted over HTTPS only: serve the page with a certificate")
    return token
