"""How namespaces share the service's writers."""

from __future__ import annotations

import asyncio
from collections import Counter, deque

from hypothesis import given
from hypothesis import strategies as st

from stromboli.api.keys import namespace_of
from stromboli.live.process.fair_queue import FairQueue


async def drained(queue: FairQueue[str]) -> list[str]:
    return [await queue.get() for _ in range(queue.qsize())]


def test_a_namespace_waits_for_one_item_of_each_other_however_many_they_have() -> None:
    async def order() -> list[str]:
        queue: FairQueue[str] = FairQueue(namespace_of)
        for number in range(1_000):
            queue.put_nowait(f"hostile/{number}")
        for key in ("quiet/0", "quiet/1", "node"):
            queue.put_nowait(key)
        assert queue.waiting("hostile") == 1_000
        return await drained(queue)

    found = asyncio.run(order())
    assert found[:6] == ["hostile/0", "quiet/0", "node", "hostile/1", "quiet/1", "hostile/2"]
    assert len(found) == 1_003


def test_who_waits_for_an_item_gets_it() -> None:
    async def handed_over() -> str:
        queue: FairQueue[str] = FairQueue(namespace_of)
        waiting = asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        assert queue.empty()
        queue.put_nowait("a/0")
        return await waiting

    assert asyncio.run(handed_over()) == "a/0"


@given(st.lists(st.one_of(st.none(), st.sampled_from("abc")), max_size=60))
def test_each_namespace_is_served_in_order_and_no_two_far_apart(steps: list[str | None]) -> None:
    """None takes an item. Of namespaces that wait all the time none is served twice before another one."""

    async def run() -> None:
        queue: FairQueue[str] = FairQueue(namespace_of)
        waiting: dict[str, deque[str]] = {name: deque() for name in "abc"}
        passed_over: Counter[str] = Counter()
        for number, step in enumerate(steps):
            if step is not None:
                queue.put_nowait(f"{step}/{number}")
                waiting[step].append(f"{step}/{number}")
                continue
            if queue.empty():
                assert not any(waiting.values())
                continue
            item = await queue.get()
            name = namespace_of(item)
            assert waiting[name].popleft() == item
            passed_over[name] = 0
            for other in "abc":
                if other != name and waiting[other]:
                    passed_over[other] += 1
                    assert passed_over[other] <= 2
        assert sum(map(len, waiting.values())) == queue.qsize()

    asyncio.run(run())
