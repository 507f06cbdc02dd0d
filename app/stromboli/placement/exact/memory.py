"""What was found out about gangs in earlier sessions, by what it follows from.

For a gang that was searched for in vain nothing is searched again while its problem is the same one. That is remembered
as a digest in the environment of sessions, so that a replay knows it. To read the problem of a gang takes longer than
to see that nothing has changed: that is kept beside it, as a cache that decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from stromboli.api.pod_state import PodState
from stromboli.api.reasons import Actionable, Reason, Stage
from stromboli.framework.job import Job
from stromboli.framework.session import Session
from stromboli.placement.exact.problem import Problem

#: what sessions leave under this name: by key of the job the digest of its problem, and what was found
_NAME = "places in vain"
_DIGEST = 16


@dataclass(frozen=True, slots=True)
class Vain:
    """What is known of a gang that has no places."""

    digest: str
    #: why, where it is not just that others hold them
    reason: Reason | None

    def tell(self, session: Session, job: Job) -> None:
        """Say it in this session, in place of what single pods lack: they may lack it in one order only."""
        if self.reason is not None:
            trace = session.view.trace
            trace.job(job.key, self.reason)
            for pod in session.view.pending(job):
                trace.pods.pop(pod.row, None)


def recall(session: Session, job: Job, *problems: Problem | None) -> Vain | None:
    """What is known of a gang whose problems are these; without any, where nothing changed that they follow from.

    Where the time or others outside were asked, more may have changed than can be seen.
    """
    entry = _entries(session).get(job.key)
    if entry is None:
        return None
    known = _seen(session)
    if problems:
        digest = digest_of(*problems)
        known.digests[job.key] = known.situation(session), digest
    else:
        situation, digest = known.digests.get(job.key, ("", ""))
        if session.view.volatile or situation != known.situation(session):
            return None
    return _vain(entry) if entry[0] == digest else None


def keep(session: Session, job: Job, vain: Vain) -> None:
    """Remember that a gang has no places."""
    known, reason = _seen(session), vain.reason
    known.digests[job.key] = known.situation(session), vain.digest
    entry = [vain.digest]
    if reason is not None:
        entry += [str(int(reason.stage)), reason.reason, reason.message, reason.actionable.value, reason.detail]
        entry += ["scalable"] if reason.scalable else []
    entries = dict(_entries(session))
    entries[job.key] = entry
    session.actions_left[_NAME] = entries


def _entries(session: Session) -> dict[str, list[str]]:
    """What earlier turns and sessions remember, of gangs that still wait."""
    found: dict[str, list[str]] | None = session.actions_left.get(_NAME)
    if found is None:
        jobs, before = session.view.jobs, session.view.environment.left.get(_NAME, {})
        if not before:
            return {}
        found = {key: entry for key, entry in before.items() if key in jobs and jobs[key].counts[PodState.Pending]}
        session.actions_left[_NAME] = found
    return found


def _vain(entry: list[str]) -> Vain:
    if len(entry) == 1:
        return Vain(entry[0], None)
    digest, stage, word, message, who, detail, *scalable = entry
    reason = Reason(Stage(int(stage)), word, message, Actionable(who), detail, scalable=bool(scalable))
    return Vain(digest, reason)


# -- what a problem is -------------------------------------------------------------------------------------------------


def digest_of(*problems: Problem | None) -> str:
    """The same for equal problems, in every process."""
    return blake2b(repr([_plain(each) for each in problems]).encode(), digest_size=_DIGEST).hexdigest()


def _plain(value: Any) -> object:
    """A value of dataclasses, lists and mappings by what is in it."""
    if is_dataclass(value):
        return [_plain(getattr(value, each.name)) for each in fields(value)]
    if isinstance(value, dict):
        return sorted((key, _plain(each)) for key, each in value.items())
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value] if any(map(is_dataclass, value)) else value
    return value


# -- what has not changed ----------------------------------------------------------------------------------------------


class _Seen:
    """What the problems of a session follow from, beside the places of pods."""

    def __init__(self, session: Session, before: _Seen | None) -> None:
        snapshot, environment = session.view.snapshot, session.view.environment
        self._parts = (
            session.policy,
            snapshot.nodes.facts,
            snapshot.pods.records,
            snapshot.pod_groups,
            dict(snapshot.queues),
            dict(snapshot.hyper_nodes),
            dict(snapshot.objects),
            environment.node_usage,
            environment.sharding,
        )
        same = before is not None and all(map(_same, self._parts, before._parts))
        #: by key of the job: the situation in which its problem was read, and the digest of that
        self.digests: dict[str, tuple[str, str]] = dict(before.digests) if before is not None and same else {}
        self._asked = -1
        self._situation = ""

    def of(self, session: Session) -> bool:
        """Whether it is about a session."""
        return self._parts[2] is session.view.snapshot.pods.records

    def situation(self, session: Session) -> str:
        """What is placed where, as a digest."""
        view = session.view
        if self._asked != len(view.nodes.log):
            self._asked = len(view.nodes.log)
            digest = blake2b(digest_size=_DIGEST)
            for array in (view.nodes.room(view.nodes.rows), view.pods.state, view.pods.node):
                digest.update(np.ascontiguousarray(array).tobytes())
            self._situation = digest.hexdigest()
        return self._situation


def _same(mine: object, its: object) -> bool:
    return mine is its or bool(mine == its)


def _seen(session: Session) -> _Seen:
    derived = session.view.snapshot.derived
    found = derived.get(_Seen)
    if not isinstance(found, _Seen) or not found.of(session):
        found = derived[_Seen] = _Seen(session, found if isinstance(found, _Seen) else None)
    return found
