"""Answers for those who may not read the pods of every namespace."""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from stromboli.explain.answers import Answer, Holding, QueueAnswer


def namespaces(answer: Answer | QueueAnswer) -> set[str]:
    """The namespaces of the jobs that an answer names beside the one it is about."""
    others = [*answer.holders, *(answer.ahead if isinstance(answer, Answer) else ())]
    named = {each.namespace for each in others}
    if isinstance(answer, Answer):
        named |= {key.partition("/")[0] for remedy in answer.remedies for key in remedy.jobs} | {answer.namespace}
    return named


def redacted(answer: Answer | QueueAnswer, readable: Collection[str]) -> Answer | QueueAnswer:
    """The answer without the jobs of namespaces that are not readable; amounts of queues stay."""

    def kept(some: list[Holding]) -> list[Holding]:
        return [each for each in some if each.namespace in readable]

    if isinstance(answer, QueueAnswer):
        return replace(answer, holders=kept(answer.holders))
    remedies = [remedy for remedy in answer.remedies if all(key.partition("/")[0] in readable for key in remedy.jobs)]
    return replace(answer, holders=kept(answer.holders), ahead=kept(answer.ahead), remedies=remedies)
