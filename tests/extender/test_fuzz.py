"""Whatever is asked of the extender, it answers, and goes on to answer."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from stromboli.api import objects
from tests import builders
from tests.extender.questions import by_name, client, in_full, published
from tests.fuzz import CHANGES, Change, changed, tried

TRIED = tried(30)
NODES = ["n0", "n1"]
POD: objects.Pod = builders.gang("train", 1)[0]
PUBLISHED = published(
    builders.state(
        [builders.node(name) for name in NODES], builders.queue("default"), builders.pod_group("train", 1), [POD]
    ),
    builders.policy("gang", "predicates nodeorder"),
)
BINDING = {"PodName": "train-0", "PodNamespace": "default", "PodUID": "u", "Node": "n0"}
QUESTIONS = [json.loads(by_name(POD, NODES)), json.loads(in_full(POD, NODES)), BINDING]
VERBS = st.sampled_from(("filter", "prioritize", "bind"))


def answered(verb: str, body: bytes) -> None:
    """An answer in JSON, or a refusal; and an answer to a question that can be read."""

    async def ask() -> None:
        async with client(PUBLISHED) as http:
            response = await http.post(f"/{verb}", content=body)
            assert response.status_code in (200, 400, 413, 422), response.text
            assert len(response.content) < 2_000 + 2 * len(body)
            if response.status_code == 200:
                found: Any = response.json()
                assert isinstance(found, dict | list)
            good = await http.post("/filter", content=by_name(POD, NODES))
            assert good.status_code == 200
            assert good.json()["NodeNames"]

    asyncio.run(ask())


@TRIED
@given(VERBS, st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_body(verb: str, body: bytes) -> None:
    answered(verb, body)


@TRIED
@given(VERBS, st.sampled_from(QUESTIONS), CHANGES)
def test_questions_with_hostile_values(verb: str, question: Any, changes: list[Change]) -> None:
    answered(verb, msgspec.json.encode(changed(question, changes)))


@TRIED
@given(
    VERBS, st.sampled_from(QUESTIONS), st.integers(0, 5_000), st.sampled_from((b"", b"{", b"[" * 5_000, b"\xff", b'"'))
)
def test_questions_that_are_cut(verb: str, question: Any, end: int, then: bytes) -> None:
    answered(verb, msgspec.json.encode(question)[:end] + then)
