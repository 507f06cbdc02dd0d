"""Runs the sessions of a journal again, and compares the results byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import msgspec

from stromboli.api.errors import PolicyError
from stromboli.api.validation import shown
from stromboli.engine import Engine
from stromboli.framework.cluster.environment import Environment, ExtenderError
from stromboli.framework.registry import Registry
from stromboli.journal import outcome, wire
from stromboli.journal.outcome import Outcome, Waiting
from stromboli.journal.player import Player
from stromboli.journal.remembered import known
from stromboli.journal.segment import Segment, sessions
from stromboli.journal.wire import JournalError
from stromboli.policy.rules import Compatibility
from stromboli.state.refusals import Refusal

#: lines of a difference that are shown
_SHOWN = 20
_COMPATIBILITIES: Mapping[str | None, Compatibility | None] = {None: None, "volcano": "volcano", "strict": "strict"}


@dataclass(slots=True)
class Moment:
    """A session of a journal, and the cluster as it was then."""

    #: counted from 1 over the whole journal
    number: int
    segment: Segment
    session: wire.Session
    player: Player
    #: the policy in force
    engine: Engine
    #: inputs of the session; the caller sets those of the next one
    environment: Environment
    #: why jobs and pods waited
    waiting: Waiting = field(default_factory=Waiting)
    #: pods whose eviction was refused, by uid
    refused: Mapping[str, Refusal] = field(default_factory=dict)


class Difference(msgspec.Struct):
    """The first session that decides otherwise than it did."""

    session: int
    #: seconds since the epoch
    at: float
    #: `decisions`, `reasons`, or that it `failed` once only
    what: str
    #: lines only in the journal begin with `- `, lines only decided now with `+ `
    lines: list[str]


class Report(msgspec.Struct):
    """The result of a replay."""

    sessions: int = 0
    changes: int = 0
    decisions: int = 0
    #: of the first session and the last, seconds since the epoch
    since: float = 0.0
    until: float = 0.0
    difference: Difference | None = None
    #: what should be known of the answer
    remarks: list[str] = []


class Answers:
    """Replays the answers of an HTTP extender, in their order."""

    def __init__(self) -> None:
        self.left: Iterator[wire.Answer] = iter(())

    def post(self, url: str, payload: Mapping[str, Any], timeout: float) -> Mapping[str, Any]:
        """The answer that was recorded. Raises ExtenderError for one that was, and when something else is asked."""
        found, path = next(self.left, None), urlsplit(url).path
        if found is None or found.path != path:
            raise ExtenderError(f"the journal has no answer to {path}")
        if found.answer is None:
            raise ExtenderError(found.error)
        return found.answer


class Engines:
    """An engine for each policy."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._known: dict[tuple[str, str | None], Engine] = {}

    def of(self, policy: str, compatibility: str | None) -> Engine:
        """Raises JournalError for an invalid policy."""
        key = policy, compatibility
        if key not in self._known:
            if compatibility not in _COMPATIBILITIES:
                raise JournalError(f"{shown(compatibility)} is not a compatibility")
            try:
                self._known[key] = Engine(policy, registry=self.registry, compatibility=_COMPATIBILITIES[compatibility])
            except PolicyError as error:
                raise JournalError(f"its policy cannot be used here: {wire.told(error)}") from None
        return self._known[key]


def moments(entries: Iterable[wire.Entry], engines: Engines, remark: Callable[[str], None]) -> Iterator[Moment]:
    """The sessions of a journal in order, each when the cluster is as it was then. Raises JournalError."""
    moment: Moment | None = None
    answers = Answers()
    for number, (segment, session) in enumerate(sessions(entries), 1):
        if moment is None or moment.segment is not segment:
            for name in segment.layout.remembered.lost:
                remark(f"what {shown(name)} remembered was not kept")
            player = Player(segment.began, engines.registry.reads)
            player.begin(segment.layout, segment.changes)
            environment = known(segment.layout.remembered, engines.registry, answers)
            engine = engines.of(session.policy, segment.began.compatibility)
            moment = Moment(number, segment, session, player, engine, environment)
        _proceed(moment, number, session, engines)
        answers.left = iter(session.answers)
        yield moment


def _proceed(moment: Moment, number: int, session: wire.Session, engines: Engines) -> None:
    """Go on to a session."""
    moment.number, moment.session = number, session
    moment.player.apply(session.changes)
    if session.policy:
        moment.engine = engines.of(session.policy, moment.segment.began.compatibility)
    if session.remembered is not None:
        moment.environment = known(session.remembered, engines.registry, moment.environment.extender)
    if session.node_usage is not None:
        moment.environment = replace(moment.environment, node_usage=session.node_usage)
    if session.queue_usage is not None:
        moment.environment = replace(moment.environment, queue_usage=session.queue_usage)
    if session.refused is not None:
        moment.refused = session.refused
    moment.player.state.refused = dict(moment.refused)
    if session.reasons is not None:
        moment.waiting = moment.waiting.after(session.reasons)


def replay(entries: Iterable[wire.Entry], registry: Registry) -> Report:
    """Run all sessions of a journal again, up to the first that differs. Raises JournalError."""
    report, remarks = Report(), dict[str, None]()
    for moment in moments(entries, Engines(registry), lambda text: remarks.setdefault(text)):
        session = moment.session
        report.sessions, report.until = moment.number, session.now
        report.since = report.since or session.now
        report.changes += sum(not isinstance(change, wire.Class) for change in session.changes)
        report.difference = _difference(moment)
        report.decisions += len(outcome.decisions(session.decisions))
        if report.difference is not None:
            break
    report.remarks = list(remarks)
    return report


def _difference(moment: Moment) -> Difference | None:
    """Run a session; its differences from the record, None if there are none."""
    session, failed, found = moment.session, "", None
    try:
        result = moment.engine.decide(moment.player.state.snapshot(), now=session.now, environment=moment.environment)
    except (Exception, SystemExit) as error:
        failed = f"{type(error).__name__}: {error}"
    else:
        moment.environment = result.environment
        found = Outcome.of(result.session, result.decisions)
    if failed != session.failed:
        return _told(moment, "failed", [session.failed] * bool(session.failed), [failed] * bool(failed))
    if failed:
        return None
    assert found is not None
    decided = found.decided()
    if decided != session.decisions:
        return _told(moment, "decisions", outcome.lines(session.decisions), outcome.lines(decided))
    if found.waiting != moment.waiting:
        names = {record.row: record.key for record in moment.player.state.pods.records if record is not None}
        return _told(moment, "reasons", moment.waiting.lines(names), found.waiting.lines(names))
    return None


def _told(moment: Moment, what: str, recorded: Sequence[str], now: Sequence[str]) -> Difference:
    lines = list(outcome.differences(recorded, now))
    shown = lines[:_SHOWN]
    if len(lines) > _SHOWN:
        shown.append(f"and {len(lines) - _SHOWN} lines more")
    return Difference(moment.number, moment.session.now, what, shown)
