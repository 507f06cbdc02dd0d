"""Answers of sessions that are run here."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cached_property, partial
from typing import Any

from stromboli.api.validation import did_you_mean
from stromboli.cli import clusters
from stromboli.cli.known import Known
from stromboli.cli.problems import NotFoundError
from stromboli.cli.question import Question
from stromboli.dashboard.filters import JobFilter
from stromboli.dashboard.report import SessionReport
from stromboli.engine import Engine
from stromboli.explain.absent import refused_to
from stromboli.explain.answers import Answer, QueueAnswer, Starts
from stromboli.explain.checkup import Findings, findings, scheduler_findings
from stromboli.explain.foreign import elsewhere, served_here, with_absent, with_later
from stromboli.explain.history import with_history
from stromboli.explain.named import jobs_meant, keys_in, near_key
from stromboli.explain.overview import JobRow, Nodes, Overview, PodRow, QueueRow
from stromboli.explain.queues import explain_queue
from stromboli.explain.redaction import redacted
from stromboli.explain.remedies import explained
from stromboli.explain.whatif import WhatIf
from stromboli.lab.forecast import with_start
from stromboli.lab.sizes import Gangs, starts_of
from stromboli.simulation.changes import Texts, try_changes
from stromboli.state.pods import group_of


class Here:
    """The answers of sessions that are run here."""

    follows = False

    def __init__(self, known: Known, told: str) -> None:
        self.known = known
        self.told = told
        self._rehearsal = known.rehearsal()

    @cached_property
    def session(self) -> Any:
        """A session on the cluster as it is."""
        return self._rehearsal.session()

    @cached_property
    def _report(self) -> SessionReport:
        seconds = sum(self.session.timings.actions.values())
        return SessionReport(self.session, self.known.now or time.time(), seconds)

    def overview(self) -> Overview:
        return self._report.overview()

    def queues(self) -> list[QueueRow]:
        return self._report.queues(0, len(self.session.view.queues)).items

    def jobs(self, only: JobFilter, limit: int | None = None) -> list[JobRow]:
        everything = self._report.jobs(0, 0).total
        return self._report.jobs(0, everything if limit is None else limit, only).items

    def pods(self, job: str) -> list[PodRow]:
        return self._report.pods(0, len(self.session.view.pods.records), job=job).items

    def nodes(self, resource: str, limit: int) -> Nodes:
        return self._report.nodes(0, limit, resource=resource)

    def explain(self, question: Question) -> Answer | QueueAnswer:
        kind, name = question.kind, question.name
        if kind == "queue":
            of_queue = explain_queue(self._rehearsal.session(jobs_meant(self.known.state, kind, name)), name)
            if of_queue is None:
                raise NotFoundError(f"there is no queue {name}{did_you_mean(name, self.session.view.queues)}")
            return of_queue
        key = f"{question.namespace}/{name}"
        session = self._rehearsal.session(jobs_meant(self.known.state, kind, key))
        found = explained(session, kind, key, self._rehearsal if question.tries else None)
        if found is None:
            raise NotFoundError(self._missing(question, key))
        if kind == "job":
            not_made = self.known.loaded.empty.get(f"{question.namespace}/{found.workload.rpartition('/')[2]}", "")
            # The session tells of the quotas that it sees.
            not_made = "" if "ResourceQuota" in found.detail else not_made
            absent = (not_made, elsewhere(self._foreign_of(key), self.known.state.scheduler_names))
            made = found.workload.replace("/", f" {question.namespace}/")
            later = {why for why in self.known.loaded.later.values() if why.startswith(f"{made} ")}
            found = with_absent(found, "; ".join(filter(None, (*absent, *sorted(later)))))
        elif key in self.known.loaded.later:
            found = with_later(found, self.known.loaded.later[key])
        if question.tries:
            found = with_start(found, self._rehearsal, self.known.past())
        if question.nodes is not None:
            found = with_history(found, self._rehearsal, question.nodes)
        return redacted(found, None)

    def _missing(self, question: Question, key: str) -> str:
        """Why there is no answer, with a suggestion."""
        if question.kind == "pod" and (forbidden := self.known.loaded.forbidden.get(key)):
            return f"pod {key} is not made: {forbidden}"
        if question.kind == "pod" and (later := self.known.loaded.later.get(key)):
            return f"pod {key} is not made yet: {later}"
        if question.kind == "pod" and (scheduler := self._foreign(key)) is not None:
            served = self.known.state.scheduler_names
            near = did_you_mean(scheduler, served)
            return f"pod {key} names scheduler {scheduler}, and only {served_here(served)}{near}"
        if question.kind == "job" and (paused := self.known.loaded.without_pods().get(key)):
            return paused
        if question.kind == "job" and (bare := self._without_pods(key)):
            return bare
        keys = self.known.state.pods.by_key if question.kind == "pod" else keys_in(self.session, "job")
        near = near_key(key, keys)
        return f"there is no {question.kind} {key}{f', did you mean {near!r}?' if near else ''}"

    def _without_pods(self, key: str) -> str:
        """Why an existing workload has no pods, if that is known; empty otherwise."""
        known = self.known.loaded
        for owner in known.owners.values():
            meta, kind = owner["metadata"], known.kinds.of(owner)
            namespace = meta.get("namespace") or clusters.DEFAULT_NAMESPACE
            if kind is not None and f"{namespace}/{meta.get('name')}" == key:
                if other := elsewhere(self._foreign_to(namespace, str(meta["name"])), self.known.state.scheduler_names):
                    return f"{kind.row.kind} {key}: {other}"
                said = refused_to(str(owner.get("apiVersion", "")), kind.row.kind, str(meta["name"]), namespace)
                return f"{kind.row.kind} {key} has no pods: {said}"
        return ""

    def _foreign(self, key: str) -> str | None:
        """The scheduler that a pod names which is there and not ours."""
        pods = (obj for kind, obj in self.known.loaded.objects if kind == "Pod" and obj.metadata.key == key)
        return next((pod.spec.scheduler_name or "" for pod in pods), None)

    def _foreign_to(self, namespace: str, owner: str) -> Iterator[str]:
        """The schedulers of the pods of a workload that are not ours."""
        pods = (obj for kind, obj in self.known.loaded.objects if kind == "Pod" and not self.known.state.is_ours(obj))
        for pod in pods:
            owners = {reference.name for reference in pod.metadata.owner_references or ()}
            if pod.metadata.namespace == namespace and owner in owners:
                yield pod.spec.scheduler_name or ""

    def _foreign_of(self, key: str) -> Iterator[str]:
        """The schedulers of the pods of a PodGroup that are not ours."""
        for kind, obj in self.known.loaded.objects:
            if (
                kind == "Pod"
                and not obj.spec.node_name
                and group_of(obj.metadata) == key
                and not self.known.state.is_ours(obj)
            ):
                yield obj.spec.scheduler_name or ""

    def starts(self, gangs: Gangs) -> Starts:
        return starts_of(gangs, self._rehearsal, self.known.past())

    def whatif(self, changes: Texts) -> WhatIf:
        engine_of = partial(Engine, registry=self.known.engine.registry, source=", ".join(changes))
        return try_changes(changes, self._rehearsal, engine_of)

    def findings(self) -> Findings:
        pods = [
            (obj.metadata.key, obj.spec.scheduler_name or "", not obj.spec.node_name)
            for kind, obj in self.known.loaded.objects
            if kind == "Pod"
        ]
        served = sorted(self.known.state.scheduler_names)
        return Findings([*findings(self.known.engine, self.session), *scheduler_findings(pods, served)], served)
