"""Answers as text, line by line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from stromboli.api import duration, quantity
from stromboli.api.resources import in_bytes, listed, told_quantity
from stromboli.api.words import counted
from stromboli.explain.answers import Answer, Holding, QueueAnswer, Start, Starts

#: who can resolve these reasons
_WHO_BY_REASON = {
    "QueueIsNew": "no one: the service opens it",
    "SchedulingGated": "what set the gates",
    "NoPodGroup": "the service makes one, if it may",
}
_WHO = {"wait": "no one; it may resolve as others finish", "user": "the user", "admin": "an administrator"}
#: spans of time, the longest first
_SPANS = ((86_400, "d"), (3_600, "h"), (60, "m"))
#: seconds
_AT_ONCE = 5.0
_ROUNDED = ((86_400, "d"), (3_600, "h"), (60, "min"))
_VERDICTS = {"passed": "ok", "blocks": "BLOCKS", "open": "-"}


def who(word: str, reason: str = "") -> str:
    """The party that can resolve a reason, in a few words."""
    return _WHO_BY_REASON.get(reason) or _WHO.get(word, word)


def _who_of_one(answer: Answer) -> str:
    """The party that can resolve an answer's reason; self-resolution is only claimed if it was tried."""
    if answer.who != "wait" or answer.reason in _WHO_BY_REASON:
        return who(answer.who, answer.reason)
    sure = any(remedy.who == "wait" for remedy in answer.remedies)
    return f"no one; it {'resolves' if sure else 'may resolve'} as others finish"


def amount(value: float | None, resource: str) -> str:
    """An amount in whole units, such as cores or bytes, or a dash."""
    return "–" if value is None else quantity.in_words(value, binary=in_bytes(resource))


def lasting(seconds: float) -> str:
    """A span of time as kubectl writes one: `42s`, `5m`, `3h`, `12d`."""
    passed = max(0.0, seconds)
    return next((f"{passed // span:.0f}{unit}" for span, unit in _SPANS if passed >= span), f"{passed:.0f}s")


def expected(start: Start) -> str:
    """Expected start of a job, in a sentence: `Expected to start in 12 min (8 to 31 min)`."""
    named, late = _first(start.unknown, start.unknown_count), _first(start.overdue, start.overdue_count)
    if _is_now(start):
        return f"Expected to start as soon as these end, which are overdue: {late}" if late else "Expected to start now"
    if start.earliest is None:
        return f"No start can be predicted: {start.why}{': ' if named else ''}{named}"
    if start.expected is None:
        said = f"Expected to start in {_span(start.earliest)} or later"
    else:
        said = f"Expected to start in {_span(start.expected)} ({_range(start)})"
        if start.within_of and start.within is not None:
            said += f"; of the last {counted(start.within_of, 'job')} with a predicted start, "
            said += f"{start.within:.0%} started within their range"
        elif start.within is not None:
            said += f"; on other workloads, {start.within:.0%} started within such a range"
    said += f"; these run for longer than they said: {late}" if late else ""
    return f"{said}; nothing says how long these run: {named}" if named else said


def _first(names: Sequence[str], count: int) -> str:
    """The first of `count` jobs, and how many more there are: `a/b, 2 more`."""
    rest = count - len(names)
    return ", ".join([*names, f"{rest} more"] if names and rest else names)


def _range(start: Start) -> str:
    assert start.earliest is not None
    if start.latest is None:
        return f"{_span(start.earliest)} or later"
    first, last = _span(start.earliest), _span(start.latest)
    number, unit = first.split(" ")
    return first if first == last else f"{number if last.endswith(f' {unit}') else first} to {last}"


def _span(seconds: float) -> str:
    """A span of time in its largest unit, rounded: `45 s`, `12 min`, `3 h`, `2 d`."""
    span, unit = next(((span, unit) for span, unit in _ROUNDED if seconds >= 2 * span), (1, "s"))
    return f"{seconds / span:.0f} {unit}"


def lines(answer: Answer | QueueAnswer | Starts) -> Iterator[str]:
    """The answer, the cause first."""
    if isinstance(answer, Starts):
        yield from _starts(answer)
    else:
        yield from _queue(answer) if isinstance(answer, QueueAnswer) else _job(answer)


def _starts(answer: Starts) -> Iterator[str]:
    yield f"Gangs of pods that ask for {listed(answer.request)} each, submitted now to queue {answer.queue}"
    width = max(len(str(each.size)) for each in answer.sizes)
    for each in answer.sizes:
        yield f"  {each.size:>{width}}: {'Could start now' if _is_now(each.start) else expected(each.start)}"


def _is_now(start: Start) -> bool:
    """Whether a job starts in the next session or the one after it, whatever happens."""
    return start.latest is not None and start.latest < _AT_ONCE


def _job(answer: Answer) -> Iterator[str]:
    what = title(answer)
    if not answer.reason:
        yield f"{what}: {answer.message}"
        yield from _history(answer)
        yield from _ignored(answer.ignored)
        return
    yield f"{what} waits at {answer.stage}: {answer.reason}"
    yield from _cause(answer)
    if answer.steps:
        yield "Stages"
        for step in answer.steps:
            yield f"  {_VERDICTS[step.verdict]:<6} {step.stage}: {step.text}"
    if answer.evictions:
        yield "Evictions"
        for each in answer.evictions:
            yield f"  {each.action}: {each.reason}: {each.message}{f' ({each.detail})' if each.detail else ''}"
    if answer.nodes:
        yield "Nodes"
        yield from (f"  {counted(cause.nodes, 'node')}: {cause.all_of_it}" for cause in answer.nodes)
        if answer.nearest:
            yield f"  nearest: {answer.nearest}"
    if answer.holders:
        yield "Who holds what is missing"
        yield from _holdings(answer.holders)
    if answer.ahead:
        yield f"Ahead of it: {counted(answer.ahead_count, 'job')}"
        yield from _holdings(answer.ahead)
    yield from _history(answer)
    if answer.remedies:
        yield "What would help (tried on a copy of the cluster)"
        yield from (f"  {remedy.who}: {remedy.change} -> {remedy.effect}" for remedy in answer.remedies)
    elif answer.tried:
        yield "No single change that was tried would help."
    if answer.unfinished:
        yield "Others were not tried: it would take too long."
    yield from _ignored(answer.ignored)


def title(answer: Answer) -> str:
    """The subject of an answer by its familiar name: `RayJob default/train (PodGroup podgroup-4f...)`."""
    if answer.kind == "Pod":
        return f"Pod {answer.namespace}/{answer.name}{f' of {answer.part_of}' if answer.part_of else ''}"
    kind, _, name = answer.workload.partition("/")
    if not name:
        return f"Job {answer.namespace}/{answer.name}"
    return f"{kind} {answer.namespace}/{name}{f' (PodGroup {answer.name})' if answer.name != name else ''}"


def _cause(answer: Answer) -> Iterator[str]:
    """Why a job or a pod waits, and until when."""
    yield f"  {answer.message}"
    if answer.detail:
        yield f"  {answer.detail}"
    yield f"  Who can change it: {_who_of_one(answer)}"
    if answer.start is not None:
        yield f"  {expected(answer.start)}"
    if answer.pods:
        gang = f"{answer.placed} of {counted(answer.pods, 'pod')} placed"
        gang += f", {answer.min_member} start together" if answer.min_member > 1 else ""
        gang += f" and run at most {duration.written(answer.run_time)}" if answer.run_time else ""
        asks = f"; a pod asks for {listed(answer.request)}" if answer.request else ""
        yield f"  Queue {answer.queue or '-'}; {gang}{asks}"


def _history(answer: Answer) -> Iterator[str]:
    """The history of a pod, with the plugins' verdicts on the nodes at each choice."""
    if not answer.history:
        return
    yield "What would happen if it had no place" if answer.hypothetical else "What happened in the session"
    for number, each in enumerate(answer.history, 1):
        where, why = f" {each.node}" if each.node else "", f": {each.reason}" if each.reason else ""
        yield f"  {number}. {each.action or 'close'}: {each.what}{where}{why}"
        for node in each.nodes:
            mark = ">" if node.node == each.node else " "
            if node.cause:
                by = f"{node.plugin}: " if node.plugin else ""
                yield f"   {mark} {node.node}: {by}{node.cause}"
            else:
                scores = ", ".join(f"{plugin} {score:.6g}" for plugin, score in node.scores.items())
                yield f"   {mark} {node.node}: {node.total:.6g}{f' = {scores}' if scores else ''}"
        if each.node_count > len(each.nodes) > 0:
            yield f"     and {counted(each.node_count - len(each.nodes), 'more node')}"


def _ignored(fields: Mapping[str, str]) -> Iterator[str]:
    if fields:
        # The framework takes a command longer to import than most answers to print.
        from stromboli.framework.diagnosis.ignored import place_of

        yield "Ignored"
        yield from (f"  {place_of(name)} {why}" for name, why in fields.items())


def _holdings(some: Iterable[Holding]) -> Iterator[str]:
    for each in some:
        name = each.called or each.name or "pods in no PodGroup"
        queue = f" in queue {each.queue}" if each.queue else ""
        held = f", {listed(each.amounts)}" if each.amounts else ""
        yield f"  {each.namespace}/{name}{queue}: {counted(each.pods, 'pod')}{held}"


def _queue(answer: QueueAnswer) -> Iterator[str]:
    share = "-" if answer.share is None else f"{answer.share:.2f}"
    by = f", shares by {answer.divided_by}" if answer.divided_by else ""
    yield f"Queue {answer.name}: {answer.state or 'no state'}, weight {answer.weight}, share {share}{by}"
    yield from (f"  {sentence}" for sentence in answer.words)
    if answer.rounds:
        yield "What it deserves, step by step"
        yield from (f"  {each.step}: {listed(each.amounts)}" for each in answer.rounds)
    if answer.levels:
        yield "Amounts of the queue and those above it"
        for level in answer.levels:
            parts = {
                "holds": level.held,
                "requests": level.requested,
                "claimed": level.inqueue if level.inqueue != "0" else "",
                "deserves": level.deserved,
                "guarantee": level.guarantee,
                "may have": level.limit,
            }
            told = ", ".join(f"{name} {told_quantity(level.resource, each)}" for name, each in parts.items() if each)
            if level.terminating:
                told += f", and {told_quantity(level.resource, level.terminating)} more until terminating pods are gone"
            of_pool = f" in node pool {level.pool}" if level.pool else ""
            yield f"  {level.queue} {level.resource}{of_pool}: {told}"
    yield from _ignored(answer.ignored)
    if answer.jobs:
        yield "Jobs: " + ", ".join(f"{number} {phase}" for phase, number in answer.jobs.items())
    if answer.waiting:
        yield "Waiting: " + ", ".join(f"{number} {reason}" for reason, number in answer.waiting.items())
    if answer.holders:
        yield "Held by"
        yield from _holdings(answer.holders)
