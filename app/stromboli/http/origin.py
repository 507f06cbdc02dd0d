"""The origin of a request: this machine, a proxy, or a page of another site in a user's browser.

Requests without a token are trusted on loopback only, but a port-forward exposes loopback to every web page. So the
request must also name this machine as its host, exactly once, must not have passed a proxy, and must not come from
another site.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

from fastapi import HTTPException, Request
from starlette.datastructures import Headers

#: a `Host` header: a name or address, and a port; URL parsers accept much more
_HOST = re.compile(r"(?:\[(?P<ipv6>[0-9A-Fa-f:]+)\]|(?P<name>[A-Za-z0-9.-]+))(?::[0-9]{1,5})?")
#: headers that proxies add; the connection is then the proxy's, not the client's
_PROXIED = re.compile(
    r".*(forwarded|client-?ip|real-ip|proxy).*|via|cdn-loop"
    r"|(cf|cloudfront|fly)-.*|x-(real|client|cluster-client|remote|original|originating|envoy|amzn|azure|appengine)-.*",
    re.IGNORECASE,
)
#: values of `Sec-Fetch-Site` of requests that no other site caused
_OWN_SITES = frozenset(("same-origin", "none"))
#: content types that a browser sends to other sites without a preflight
_MEDIA_TYPES = frozenset(("application/yaml", "application/x-yaml", "application/json", "text/yaml"))


def on_loopback(request: Request) -> bool:
    """Whether a request comes from this machine without a proxy, and names this machine as its host."""
    hosts = request.headers.getlist("host")
    if len(hosts) != 1 or request.client is None or any(map(_PROXIED.fullmatch, request.headers)):
        return False
    named = _HOST.fullmatch(hosts[0])
    return named is not None and _is_loopback(named["ipv6"] or named["name"]) and _is_loopback(request.client.host)


def from_another_site(raw_headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a browser sends the request for a page of another site. Other clients send none of these headers."""
    headers = Headers(raw=list(raw_headers))
    sites = headers.getlist("sec-fetch-site")
    if sites:
        return any(site not in _OWN_SITES for site in sites)
    return any(not _same_host(headers, origin) for name in ("origin", "referer") for origin in headers.getlist(name))


def demand_own_form(request: Request) -> None:
    """Raises HTTPException unless a page of this site submitted the form."""
    own = request.headers.get("sec-fetch-site") == "same-origin" or "origin" in request.headers
    if not own or from_another_site(request.headers.raw):
        raise HTTPException(403, "cross-site form submissions are refused")


def demand_media_type(request: Request) -> None:
    """Raises HTTPException for content types that a page of another site could send without a preflight."""
    said = request.headers.get("content-type", "")
    if said.partition(";")[0].strip().lower() not in _MEDIA_TYPES:
        raise HTTPException(415, f"Content-Type is {said or 'missing'}; send application/yaml or application/json")


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def _same_host(headers: Headers, origin: str) -> bool:
    """Whether a URL names the host and port that the request names."""
    try:
        return bool(origin) and urlsplit(origin).netloc.lower() == headers.get("host", "").lower()
    except ValueError:
        return False
