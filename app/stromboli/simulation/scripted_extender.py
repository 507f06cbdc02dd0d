"""An extender that answers by rules instead of over a network, as recorded scenarios describe it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from stromboli.api import keys
from stromboli.api.errors import InvalidObjectError
from stromboli.api.patterns import compiled
from stromboli.api.validation import field_path, problem
from stromboli.framework.cluster.environment import ExtenderError

_OK = 200
_NOT_FOUND = 404
#: verbs that are told, not asked
_NOTICES = frozenset(("onSessionOpen", "onSessionClose", "jobEnqueued", "deallocateFunc"))


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


def _expression(pattern: str) -> str:
    compiled(pattern)
    return pattern


Expression: TypeAlias = Annotated[str, Field(max_length=253), AfterValidator(_expression)]


class Rule(_Model):
    """One rule; the first that matches a request is taken."""

    pods: Expression = ""
    """A regular expression for the whole `NAMESPACE/NAME` of the pod or job; empty for all."""
    nodes: list[str] | None = None
    """Names of nodes; absent for all."""
    message: str = ""
    code: int = 0
    node_score: dict[str, float] | None = Field(default=None, alias="nodeScore")
    keep: Expression = ""
    """A regular expression for the pods that are victims."""
    status: int | None = None

    def matches(self, subject: str, node: str = "") -> bool:
        """Whether the rule is about a pod or job, and a node where there is one."""
        about = not self.pods or compiled(self.pods).fullmatch(subject) is not None
        return about and (self.nodes is None or node in self.nodes)


class Script(_Model):
    """All rules, by verb."""

    predicate: list[Rule] = Field(default_factory=list)
    prioritize: list[Rule] = Field(default_factory=list)
    preemptable: list[Rule] = Field(default_factory=list)
    reclaimable: list[Rule] = Field(default_factory=list)
    job_enqueueable: list[Rule] = Field(default_factory=list, alias="jobEnqueueable")
    queue_overused: list[str] = Field(default_factory=list, alias="queueOverused")
    job_not_ready: list[str] = Field(default_factory=list, alias="jobNotReady")
    allocate_func: list[Rule] = Field(default_factory=list, alias="allocateFunc")
    http_status: dict[str, int] = Field(default_factory=dict, alias="httpStatus")


@dataclass(slots=True)
class ScriptedExtender:
    """Answers requests by a script and keeps them."""

    script: Script
    #: verb and payload of each request
    requests: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)

    #: methods that answer verbs
    _HANDLERS: ClassVar[Mapping[str, str]] = {
        "predicate": "_predicate",
        "prioritize": "_prioritize",
        "preemptable": "_preemptable",
        "reclaimable": "_reclaimable",
        "jobEnqueueable": "_job_enqueueable",
        "queueOverused": "_queue_overused",
        "jobReady": "_job_ready",
        "allocateFunc": "_allocate",
    }

    @classmethod
    def parse(cls, written: object, where: str = "scenario") -> ScriptedExtender:
        """Read a script. Raises InvalidObjectError."""
        try:
            return cls(Script.model_validate(written))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise InvalidObjectError(where, field_path(first["loc"], "extender"), problem(first)) from None

    def post(self, url: str, payload: Mapping[str, Any], timeout: float) -> Mapping[str, Any]:
        """Answer a request; the verb is the end of the URL."""
        verb = url.rsplit("/", 1)[-1]
        self.requests.append((verb, payload))
        known = verb in _NOTICES or verb in self._HANDLERS
        status = self.script.http_status.get(verb, _OK if known else _NOT_FOUND)
        if status != _OK:
            raise ExtenderError(f"{verb}: HTTP status {status}")
        handler = self._HANDLERS.get(verb)
        answer: Mapping[str, Any] = getattr(self, handler)(payload) if handler else {}
        return answer

    def _predicate(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        rule = _first(self.script.predicate, _key(payload["task"]), payload["node"]["Name"])
        return {"status": rule.message, "code": rule.code} if rule else {}

    def _prioritize(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        rule = _first(self.script.prioritize, _key(payload["task"]))
        return {"nodeScore": rule.node_score, "errorMessage": rule.message} if rule else {}

    def _preemptable(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        return _victims(self.script.preemptable, payload)

    def _reclaimable(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        return _victims(self.script.reclaimable, payload)

    def _job_enqueueable(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        rule = _first(self.script.job_enqueueable, _key(payload["job"]))
        return {"status": rule.status or 0 if rule else 0}

    def _queue_overused(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"overused": payload["queue"]["Name"] in self.script.queue_overused}

    def _job_ready(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"status": _key(payload["job"]) not in self.script.job_not_ready}

    def _allocate(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        rule = _first(self.script.allocate_func, _key(payload["task"]))
        return {"errorMessage": rule.message if rule else ""}


def _first(rules: Sequence[Rule], subject: str, node: str = "") -> Rule | None:
    return next((rule for rule in rules if rule.matches(subject, node)), None)


def _victims(rules: Sequence[Rule], payload: Mapping[str, Any]) -> Mapping[str, Any]:
    rule = _first(rules, _key(payload["evictor"]))
    if rule is None:
        return {}
    victims = [task for task in payload["evictees"] if compiled(rule.keep).fullmatch(_key(task))]
    return {"status": 1 if rule.status is None else rule.status, "victims": victims}


def _key(subject: Mapping[str, Any]) -> str:
    return keys.key(subject["Namespace"], subject["Name"])
