"""What came of a session, in bytes: the same decisions for the same reasons give the same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from stromboli.api.crds import KubeModel, dumped
from stromboli.api.decisions import Decision
from stromboli.api.reasons import Reason
from stromboli.framework.session import Session


def _hook(value: Any) -> Any:
    if isinstance(value, KubeModel):
        return dumped(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(type(value).__name__)


_encoder = msgspec.msgpack.Encoder(enc_hook=_hook)
_reasons = msgspec.msgpack.Encoder(order="deterministic")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a session decided and why pods and jobs wait; nobody changes what is in it."""

    decisions: Sequence[Decision]
    #: why jobs wait, by key, and pods, by row
    jobs: Mapping[str, Reason]
    pods: Mapping[int, Reason]

    @classmethod
    def of(cls, session: Session, decisions: Sequence[Decision]) -> Outcome:
        """What came of a session that has just ended."""
        trace = session.view.trace
        return cls(tuple(decisions), trace.jobs.copy(), trace.pods.copy())

    def decided(self) -> bytes:
        """The decisions in their order."""
        return _encoder.encode([(type(each).__name__, each) for each in self.decisions])

    def reasons(self) -> bytes:
        """Why pods and jobs wait; pods are told by their rows."""
        jobs, rows = sorted(self.jobs), sorted(self.pods)
        given = [*(self.jobs[key] for key in jobs), *(self.pods[row] for row in rows)]
        # Many share one reason, which is written once.
        _, first, which = np.unique(np.fromiter(map(id, given), np.intp, len(given)), True, True)
        contents = [_reasons.encode(given[index]) for index in first.tolist()]
        table = {content: number for number, content in enumerate(sorted(set(contents)))}
        numbers = np.array([table[content] for content in contents], np.int32)[which]
        of_jobs, of_pods = numbers[: len(jobs)], numbers[len(jobs) :]
        return msgspec.msgpack.encode(
            [list(table), jobs, of_jobs.tobytes(), np.array(rows, np.int32).tobytes(), of_pods.tobytes()]
        )


def decisions(decided: bytes) -> list[str]:
    """Decisions in words, one a line."""
    return [f"{name} {_json(fields)}" for name, fields in _listed(decided)]


def reasons(encoded: bytes | None, pods: Mapping[int, str]) -> list[str]:
    """Why jobs and pods wait in words, one a line; `pods` has their keys by row."""
    if encoded is None:
        return []
    contents, jobs, *numbers = _listed(encoded)
    words = [_words(content) for content in contents]
    of_jobs, rows, of_pods = (np.frombuffer(each, np.int32).tolist() for each in numbers)
    lines = [f"job {key}: {words[number]}" for key, number in zip(jobs, of_jobs, strict=True)]
    named = (pods.get(row, f"in row {row}") for row in rows)
    return lines + [f"pod {key}: {words[number]}" for key, number in zip(named, of_pods, strict=True)]


def _words(content: bytes) -> str:
    reason = msgspec.msgpack.decode(content, type=Reason)
    return f"{reason.reason}: {reason.numbered}"


def _listed(encoded: bytes) -> list[Any]:
    return msgspec.msgpack.decode(encoded, type=list[Any])


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def differences(recorded: Sequence[str], now: Sequence[str]) -> Iterator[str]:
    """What is in one of two lists of lines only, as in a diff; when only the order differs, all of both."""
    one, other = set(recorded), set(now)
    gone, new = [line for line in recorded if line not in other], [line for line in now if line not in one]
    if not gone and not new:
        gone, new = list(recorded), list(now)
    yield from (f"- {line}" for line in gone)
    yield from (f"+ {line}" for line in new)
