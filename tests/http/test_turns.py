"""Questions that take long: one at a time, users in turn, and none whose client is gone."""

from __future__ import annotations

import asyncio
import threading

import pytest
from fastapi import HTTPException, Request

from stromboli.http.turns import Turns, while_asked


async def ask(turns: Turns, user: str, order: list[str]) -> None:
    async with turns.turn(user):
        order.append(user)
        await asyncio.sleep(0)


async def test_users_take_turns_however_many_questions_one_has() -> None:
    turns, order = Turns(), list[str]()
    await asyncio.gather(*(ask(turns, user, order) for user in ("ann", "ann", "ann", "ann", "bob", "eve", "bob")))
    assert order == ["ann", "ann", "bob", "eve", "ann", "bob", "ann"]


async def test_of_one_user_only_so_many_questions_wait() -> None:
    turns, order = Turns(most=2), list[str]()
    asked = [asyncio.create_task(ask(turns, "ann", order)) for _ in range(4)]
    done = await asyncio.gather(*asked, ask(turns, "bob", order), return_exceptions=True)
    assert [getattr(each, "status_code", 200) for each in done] == [200, 200, 200, 429, 200]
    await asyncio.gather(ask(turns, "ann", order), ask(turns, "ann", order))


@pytest.mark.parametrize("who_leaves", [1, 2])
async def test_who_leaves_while_waiting_keeps_nobody_back(who_leaves: int) -> None:
    turns, order, held = Turns(), list[str](), asyncio.Event()

    async def hold() -> None:
        async with turns.turn("first"):
            await held.wait()

    asked = [asyncio.create_task(hold())]
    await asyncio.sleep(0)
    asked += [asyncio.create_task(ask(turns, user, order)) for user in ("ann", "bob")]
    await asyncio.sleep(0)
    asked[who_leaves].cancel()
    held.set()
    await asyncio.gather(*asked, return_exceptions=True)
    await asyncio.wait_for(ask(turns, "eve", order), 60)
    assert order == [["bob", "eve"], ["ann", "eve"]][who_leaves - 1]


async def test_a_turn_that_was_just_given_to_someone_who_leaves_goes_on() -> None:
    turns, order = Turns(), list[str]()

    async def hold() -> None:
        async with turns.turn("first"):
            leaving.cancel()

    holding = asyncio.create_task(hold())
    leaving = asyncio.create_task(ask(turns, "ann", order))
    await asyncio.gather(holding, leaving, return_exceptions=True)
    await asyncio.wait_for(ask(turns, "bob", order), 60)
    assert order == ["bob"]


async def test_what_nobody_waits_for_any_longer_is_abandoned() -> None:
    abandoned = threading.Event()

    async def receive() -> dict[str, str]:
        return {"type": "http.disconnect"}

    with pytest.raises(HTTPException, match="disconnected"):
        await while_asked(Request({"type": "http"}, receive), lambda: abandoned.wait(30), abandoned.set)
    assert abandoned.is_set()
