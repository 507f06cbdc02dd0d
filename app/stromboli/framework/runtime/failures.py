"""Plugins that fail: what each failure disables, and how it is recorded.

Extension points that express preferences (orders, scores, victims) are disabled for that plugin for the rest of the
session. Those that admit (filters and gates) reject the pods, the job or the queue about which they were asked, and no
others. While actions run, an exception says what has to be restarted; afterwards questions are answered without the
plugin.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stromboli.api.words import by_number
from stromboli.framework import reasons
from stromboli.framework.cluster.job import Job, SubJob, title_of
from stromboli.state.pods import PodRecord

#: failures that are kept of one point of one plugin
_MOST = 20


class PluginLeftError(Exception):
    """A plugin, or one of its points, was disabled: attempts based on its answers are undone and restarted."""


class JobHeldError(Exception):
    """A plugin failed when it was asked about a job, which has to be set aside."""

    def __init__(self, job: str, plugin: str, error: BaseException) -> None:
        super().__init__(job)
        self.job = job
        self.plugin = plugin
        self.error = error


class TurnCutError(Exception):
    """A turn would take more steps than it may."""

    #: number of the job's pods that had places by then, all of which were undone
    placed: int = 0


#: errors that pass through a plugin's code to their handler
PASSED_ON = (KeyboardInterrupt, PluginLeftError, JobHeldError, TurnCutError)


@dataclass(frozen=True, slots=True)
class PluginFailure:
    """An error that a plugin raised, or a wrong answer that it gave."""

    plugin: str
    #: the key of the job that is held because of it; else the extension point, or the action that raised it
    where: str
    error: BaseException
    #: the extension point; empty where that is not known
    point: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """The key that distinguishes failures."""
        return self.plugin, self.point, self.where


class Failures:
    """The failures of one session: each once, and of a point that fails for many jobs the first ones."""

    def __init__(self) -> None:
        self.found: list[PluginFailure] = []
        self._known: set[tuple[str, str, str]] = set()
        self._count: Counter[tuple[str, str]] = Counter()

    def add(self, plugin: str, point: str, where: str, error: BaseException) -> None:
        """Keep a failure. Raises the error when it interrupts the process."""
        if isinstance(error, KeyboardInterrupt):
            raise error
        failure = PluginFailure(plugin, where, error, point)
        if failure.key in self._known or self._count[plugin, point] >= _MOST:
            return
        self._known.add(failure.key)
        self._count[plugin, point] += 1
        self.found.append(failure)


def asked_about(subject: Sequence[Any]) -> str:
    """The key of the job that a question is about; empty where it is about none."""
    for each in subject:
        found = _job_of(each)
        if found:
            return found
    return ""


def _job_of(subject: Any) -> str:
    if isinstance(subject, Job):
        return subject.key
    if isinstance(subject, SubJob):
        return subject.job.key
    if isinstance(subject, PodRecord):
        return subject.job
    if isinstance(subject, list | tuple) and subject and isinstance(subject[0], PodRecord):
        return subject[0].job
    return ""


def summaries(failures: Sequence[PluginFailure], jobs: Mapping[str, Job]) -> dict[tuple[str, str], str]:
    """A line for each point of each plugin that failed, with the first error and which of `jobs` are held for it."""
    by_point: dict[tuple[str, str], list[PluginFailure]] = {}
    for failure in failures:
        by_point.setdefault((failure.plugin, failure.point or failure.where), []).append(failure)
    return {each: _summary(each[1], found, jobs) for each, found in by_point.items()}


def _summary(point: str, failures: Sequence[PluginFailure], known: Mapping[str, Job]) -> str:
    first = failures[0]
    jobs = sorted(failure.where for failure in failures if "/" in failure.where)
    more = f" and {len(jobs) - 1} more" if len(jobs) > 1 else ""
    held = f"; {title_of(known, jobs[0])}{more} {by_number(len(jobs), 'waits', 'wait')} for it" if jobs else ""
    return f"plugin {first.plugin} failed in {point}: {reasons.error_told(first.error)}{held}"
