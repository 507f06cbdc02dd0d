"""A request is trusted as one of this machine only when everything about it says so."""

from __future__ import annotations

import pytest
from fastapi import HTTPException, Request

from stromboli.http.origin import demand_media_type, demand_own_form, from_another_site, on_loopback


def request(*headers: tuple[str, str], client: str = "127.0.0.1", version: str = "1.1") -> Request:
    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
    return Request(
        {
            "type": "http",
            "http_version": version,
            "scheme": "http",
            "method": "POST",
            "path": "/",
            "query_string": b"",
            "headers": raw,
            "client": (client, 4711),
            "server": ("127.0.0.1", 8080),
        }
    )


@pytest.mark.parametrize(
    ("host", "client"),
    [
        ("localhost", "127.0.0.1"),
        ("LOCALHOST:8080", "127.8.9.1"),
        ("127.0.0.1:8080", "127.0.0.1"),
        ("[::1]:8080", "::1"),
        ("localhost", "::ffff:127.0.0.1"),
    ],
)
def test_this_machine_is_trusted_by_its_names(host: str, client: str) -> None:
    assert on_loopback(request(("Host", host), client=client))


@pytest.mark.parametrize(
    "host",
    [
        *("", " ", "evil.example", "localhost.evil.example", "localhost@evil.example", "evil.example#localhost"),
        *("127.0.0.1.evil.example", "127.1", "0x7f.1", "127.0.0.256", "2130706433", "0.0.0.0", "[::]", "[::1", "::1"),
        *("localhost:", "localhost:http", "localhost:8080:8080", "localhost/evil", "localhost\\evil", "localhost,evil"),
        *("localhost evil", "\u00b2localhost", "[::1%25lo]", "[1]", "localhost."),
    ],
)
def test_no_other_host_is_this_machine(host: str) -> None:
    assert not on_loopback(request(("Host", host)))


def test_a_host_is_named_once() -> None:
    assert not on_loopback(request(version="1.0"))
    assert not on_loopback(request(("Host", "localhost"), ("Host", "localhost")))


@pytest.mark.parametrize(
    "name",
    [
        *(
            "Forwarded",
            "X-Forwarded-For",
            "X-Forwarded-Host",
            "X-Forwarded-Proto",
            "X-Forwarded",
            "Forwarded-For",
            "Via",
        ),
        *("X-Real-IP", "X-Client-IP", "X-Cluster-Client-IP", "X-Original-Forwarded-For", "X-Envoy-External-Address"),
        *("True-Client-IP", "CF-Connecting-IP", "Fastly-Client-IP", "X-Remote-Addr", "X-Proxy-User"),
        *("WL-Proxy-Client-IP", "Proxy-Client-IP", "Fly-Client-IP", "X-Azure-ClientIP", "CloudFront-Viewer-Address"),
        *("X-Amzn-Trace-Id", "CDN-Loop", "Proxy-Connection", "X-AppEngine-User-IP"),
    ],
)
def test_behind_a_proxy_nobody_is_on_this_machine(name: str) -> None:
    assert not on_loopback(request(("Host", "localhost"), (name, "127.0.0.1")))


def test_an_address_elsewhere_is_not_this_machine() -> None:
    assert not on_loopback(request(("Host", "localhost"), client="10.0.0.9"))
    assert not on_loopback(request(("Host", "localhost"), client="::ffff:10.0.0.9"))


@pytest.mark.parametrize(
    ("headers", "foreign"),
    [
        ((), False),
        ((("Sec-Fetch-Site", "none"),), False),
        ((("Sec-Fetch-Site", "same-origin"), ("Origin", "null")), False),
        ((("Sec-Fetch-Site", "same-site"),), True),
        ((("Sec-Fetch-Site", "cross-site"),), True),
        ((("Sec-Fetch-Site", "same-origin"), ("Sec-Fetch-Site", "cross-site")), True),
        ((("Sec-Fetch-Site", "anything"),), True),
        ((("Origin", "http://localhost:8080"),), False),
        ((("Origin", "http://localhost:3000"),), True),
        ((("Origin", "https://evil.example"),), True),
        ((("Origin", "null"),), True),
        ((("Origin", ""),), True),
        ((("Origin", "http://[evil"),), True),
        ((("Referer", "https://evil.example/page"),), True),
        ((("Referer", "http://localhost:8080/whatif"),), False),
        ((("Origin", "http://localhost:8080"), ("Origin", "https://evil.example")), True),
    ],
)
def test_pages_of_other_sites_are_told_apart(headers: tuple[tuple[str, str], ...], foreign: bool) -> None:
    assert from_another_site(request(("Host", "localhost:8080"), *headers).headers.raw) is foreign


@pytest.mark.parametrize(
    ("headers", "own"),
    [
        ((), False),
        ((("Sec-Fetch-Site", "same-origin"),), True),
        ((("Sec-Fetch-Site", "none"),), False),
        ((("Sec-Fetch-Site", "none"), ("Origin", "http://localhost:8080")), True),
        ((("Origin", "http://localhost:8080"),), True),
        ((("Origin", "https://evil.example"),), False),
        ((("Sec-Fetch-Site", "cross-site"), ("Origin", "http://localhost:8080")), False),
    ],
)
def test_a_form_has_to_prove_that_it_is_of_this_site(headers: tuple[tuple[str, str], ...], own: bool) -> None:
    sent = request(("Host", "localhost:8080"), *headers)
    if own:
        demand_own_form(sent)
    else:
        with pytest.raises(HTTPException, match="cross-site") as refused:
            demand_own_form(sent)
        assert refused.value.status_code == 403


@pytest.mark.parametrize("kind", ["application/yaml", "Application/JSON; charset=utf-8"])
def test_bodies_of_types_that_need_leave_are_taken(kind: str) -> None:
    demand_media_type(request(("Content-Type", kind)))


@pytest.mark.parametrize("kind", ["", "text/plain", "multipart/form-data", "application/x-www-form-urlencoded"])
def test_bodies_that_any_page_may_send_are_refused(kind: str) -> None:
    with pytest.raises(HTTPException, match="Content-Type") as refused:
        demand_media_type(request(("Content-Type", kind)) if kind else request())
    assert refused.value.status_code == 415
