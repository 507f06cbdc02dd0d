"""Answers for users who may not read the pods of every namespace."""

from __future__ import annotations

from collections.abc import Collection
from typing import overload

from msgspec.structs import replace

from stromboli.api.reasons import detailed
from stromboli.explain.answers import Answer, Holding, QueueAnswer, Start, Starts


def namespaces(answer: Answer | QueueAnswer | Starts) -> set[str]:
    """The namespaces of the jobs that an answer names besides the one it is about."""
    if isinstance(answer, Starts):
        return {key.partition("/")[0] for each in answer.sizes for key in each.start.unknown}
    others = [*answer.holders, *(answer.ahead if isinstance(answer, Answer) else ())]
    named = {each.namespace for each in others}
    if isinstance(answer, Answer):
        unknown = answer.start.unknown if answer.start is not None else []
        keys = [*unknown, *(key for remedy in answer.remedies for key in remedy.jobs)]
        named |= {key.partition("/")[0] for key in keys} | {answer.namespace}
        passages = [*answer.passages, *(passage for each in answer.evictions for passage in each.passages)]
        named |= {each for passage in passages for each in passage.namespaces}
    return named - {""}


@overload
def redacted(answer: Answer, readable: Collection[str] | None) -> Answer: ...


@overload
def redacted(answer: QueueAnswer, readable: Collection[str] | None) -> QueueAnswer: ...


@overload
def redacted(answer: Starts, readable: Collection[str] | None) -> Starts: ...


@overload
def redacted(
    answer: Answer | QueueAnswer | Starts, readable: Collection[str] | None
) -> Answer | QueueAnswer | Starts: ...


def redacted(answer: Answer | QueueAnswer | Starts, readable: Collection[str] | None) -> Answer | QueueAnswer | Starts:
    """The answer without the jobs of namespaces that are not readable; amounts of queues stay.

    `readable` is None for a reader of everything.
    """

    def may(*namespaces: str) -> bool:
        return readable is None or set(namespaces) <= set(readable)

    def kept(some: list[Holding]) -> list[Holding]:
        return [each for each in some if may(each.namespace)]

    def seen(start: Start) -> Start:
        return replace(start, unknown=[each for each in start.unknown if may(each.partition("/")[0])])

    if isinstance(answer, Starts):
        return replace(answer, sizes=[replace(each, start=seen(each.start)) for each in answer.sizes])
    if isinstance(answer, QueueAnswer):
        return replace(answer, holders=kept(answer.holders))
    return replace(
        answer,
        start=seen(answer.start) if answer.start is not None else None,
        detail=detailed(answer.detail, answer.passages, readable),
        passages=[],
        evictions=[
            replace(each, detail=detailed(each.detail, each.passages, readable), passages=[])
            for each in answer.evictions
        ],
        holders=kept(answer.holders),
        ahead=kept(answer.ahead),
        remedies=[each for each in answer.remedies if may(*(key.partition("/")[0] for key in each.jobs))],
    )
