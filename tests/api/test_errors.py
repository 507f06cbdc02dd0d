"""Errors in words."""

from __future__ import annotations

import socket

import aiohttp
import pytest

from stromboli.api.errors import in_words


@pytest.mark.parametrize(
    ("url", "says"), [("http://127.0.0.1:1", "Connection refused"), ("http://nowhere.invalid", "not known")]
)
async def test_a_connection_that_fails_is_told_in_the_words_of_the_system(url: str, says: str) -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorError) as failed:
            await session.get(url)
    if says == "not known" and failed.value.os_error.errno == socket.EAI_AGAIN:
        says = "Temporary failure in name resolution"
    assert says in in_words(failed.value)
    assert "ssl" not in in_words(failed.value)


def test_an_error_without_words_is_told_by_its_type() -> None:
    assert in_words(TimeoutError()) == "TimeoutError()"
    assert in_words(ValueError("wrong")) == "wrong"
