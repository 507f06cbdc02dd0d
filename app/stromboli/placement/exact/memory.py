"""The results of earlier searches for gangs, by their problem.

No search is repeated for a gang that found no places while its problem is the same. That is remembered as a digest in
the environment of sessions, with the reason shown, so that a replay knows it. Reading a gang's problem takes longer
than detecting that nothing has changed, so a cache that affects no decision records the latter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from typing import Any

import msgspec
import numpy as np

from stromboli.api.pod_state import PodState
from stromboli.api.reasons import Reason
from stromboli.framework.cluster.job import Job
from stromboli.framework.session.session import Session
from stromboli.placement.exact.problem import Problem

#: what sessions leave under this name: by key of the job the digest of its problems, the steps of reading them and
#: those that the search might take, and why it and its pods wait
IN_VAIN = "places in vain"
_DIGEST = 16
#: to ask for a gang again counts as this part of reading its problems: as a rule it is seen that they are the same
_ASKED = 4


def waits(session: Session, job: Job) -> bool:
    """Whether the last search found no places for a gang."""
    entries = session.view.environment.left.get(IN_VAIN)
    return entries is not None and job.key in entries


def recall(session: Session, job: Job, budget: int, problems: Callable[[], Sequence[Problem]]) -> bool:
    """Whether a gang's problems are those of its last search, which had about the budget; says again why it waits.

    The problems are only read if something that they depend on changed, or may have changed unseen, such as the time.
    """
    entry = remembered(session, IN_VAIN).get(job.key)
    if entry is None or budget > 2 * entry["budget"]:
        return False
    if _digest_now(session, job, entry["reading"] // _ASKED, problems) != entry["digest"]:
        return False
    told = [msgspec.convert(each, Reason) for each in entry["reasons"]]
    trace, pods = session.view.trace, entry["pods"]
    if entry["job"] >= 0:
        trace.job(job.key, told[entry["job"]])
    for pod in session.view.pending(job):
        if pod.uid in pods:
            trace.pod(pod.row, told[pods[pod.uid]])
    return True


def _digest_now(session: Session, job: Job, steps: int, problems: Callable[[], Sequence[Problem]]) -> str:
    """The digest of a gang's problems; it costs a turn of limited length `steps` steps even if it is cached."""
    kernel, known = session.kernel, _seen(session)
    if kernel.left < math.inf:
        kernel.step(steps)
    situation, digest = known.digests.get(job.key, ("", ""))
    if session.view.volatile or situation != known.situation(session):
        taken, most = kernel.steps, kernel.most
        kernel.most = math.inf
        digest = digest_of(problems())
        kernel.steps, kernel.most = taken, most
        known.digests[job.key] = known.situation(session), digest
    return digest


def keep(session: Session, job: Job, problems: Sequence[Problem], budget: int, reading: int) -> None:
    """Remember that a gang with these problems has no places, and the reason shown for it.

    `budget` is the search's, in steps; `reading` is the number of kernel steps that reading the problems took.
    """
    trace, known, digest = session.view.trace, _seen(session), digest_of(problems)
    known.digests[job.key] = known.situation(session), digest
    said = {pod.uid: trace.pods[pod.row] for pod in session.view.pending(job) if pod.row in trace.pods}
    of_job = trace.jobs.get(job.key)
    reasons = [*said.values(), *([] if of_job is None else [of_job])]
    number = {id(reason): at for at, reason in enumerate({id(reason): reason for reason in reasons}.values())}
    session.actions_left[IN_VAIN] = {
        **remembered(session, IN_VAIN),
        job.key: {
            "digest": digest,
            "budget": budget,
            "reading": reading,
            "job": -1 if of_job is None else number[id(of_job)],
            "pods": {uid: number[id(reason)] for uid, reason in said.items()},
            "reasons": [msgspec.to_builtins(reason) for reason in {id(each): each for each in reasons}.values()],
        },
    }


def remembered(session: Session, name: str) -> dict[str, Any]:
    """The entries of still waiting gangs, by job key, that earlier turns and sessions left under a name."""
    found: dict[str, Any] | None = session.actions_left.get(name)
    if found is None:
        jobs, before = session.view.jobs, session.view.environment.left.get(name, {})
        if not before:
            return {}
        found = {key: entry for key, entry in before.items() if key in jobs and jobs[key].counts[PodState.Pending]}
        session.actions_left[name] = found
    return found


# -- digests of problems -----------------------------------------------------------------------------------------------


def digest_of(problems: Sequence[Problem]) -> str:
    """A digest that equal problems share, in every process."""
    return blake2b(repr([_plain(each) for each in problems]).encode(), digest_size=_DIGEST).hexdigest()


def _plain(value: Any) -> object:
    """A value of dataclasses, lists and mappings by its content."""
    if is_dataclass(value):
        return [_plain(getattr(value, each.name)) for each in fields(value)]
    if isinstance(value, dict):
        return sorted((key, _plain(each)) for key, each in value.items())
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value] if any(map(is_dataclass, value)) else value
    return value


# -- unchanged facts ---------------------------------------------------------------------------------------------------


class _Seen:
    """The inputs of a session's problems other than the places of pods."""

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
        """A digest of the pods' places."""
        view = session.view
        if self._asked != len(view.nodes.log):
            self._asked = len(view.nodes.log)
            digest = blake2b(digest_size=_DIGEST)
            for array in (view.nodes.available(view.nodes.rows), view.pods.state, view.pods.node):
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
