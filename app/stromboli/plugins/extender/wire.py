"""Requests and responses of extenders, with the field names of Volcano's structures."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from stromboli.api.crds import dumped
from stromboli.api.pod_state import PodState
from stromboli.api.resources import CPU, MEMORY, Vector
from stromboli.framework.cluster.environment import ExtenderError
from stromboli.framework.cluster.job import Job, Queue
from stromboli.framework.cluster.view import View
from stromboli.state.pods import PodRecord

#: each state is a bit
_BIT = {
    PodState.Pending: 1,
    PodState.Allocated: 2,
    PodState.Pipelined: 4,
    PodState.Binding: 8,
    PodState.Bound: 16,
    PodState.Running: 32,
    PodState.Releasing: 64,
    PodState.Succeeded: 128,
    PodState.Failed: 256,
    PodState.Unknown: 512,
}
#: phase of a pod by state, if it is not Pending
_PHASE = {PodState.Running: "Running", PodState.Releasing: "Running", PodState.Succeeded: "Succeeded"}
_READY = 1
#: code of a refusal that evictions may lift
UNSCHEDULABLE = 2


# -- requests --------------------------------------------------------------------------------------------------------


def task(view: View, pod: PodRecord, node: int | None = None) -> dict[str, Any]:
    """A pod; `node` is the node that it is about to get."""
    state = PodState(int(view.pods.state[pod.row]))
    at = int(view.pods.node[pod.row]) if node is None else node
    where = view.nodes.name(at) if at >= 0 else pod.node_name
    request = resource(view, view.request(pod))
    return {
        "UID": pod.uid,
        "Job": pod.job,
        "Name": pod.name,
        "Namespace": pod.namespace,
        "TaskRole": pod.role,
        "Resreq": request,
        "InitResreq": request,
        "NodeName": where,
        "Status": _BIT[state],
        "Priority": pod.priority,
        "BestEffort": pod.pod_class.best_effort,
        "SchGated": pod.pod_class.gated,
        "Pod": _pod(pod, where, state),
    }


def node(view: View, row: int) -> dict[str, Any]:
    """A node and the pods on it."""
    nodes, record = view.nodes, view.nodes.facts.records[row]
    pods = view.records(np.flatnonzero(view.pods.node == row))
    return {
        "Name": record.name,
        "Node": {
            "metadata": {"name": record.name, "labels": record.labels, "annotations": record.annotations},
            "spec": {"unschedulable": record.unschedulable, "taints": msgspec.to_builtins(record.taints)},
            "status": {"allocatable": record.allocatable, "capacity": record.capacity},
        },
        "State": {"Phase": _READY, "Reason": ""},
        "Allocatable": resource(view, nodes.allocatable[:, row]),
        "Capacity": resource(view, view.vector(record.capacity)),
        "Idle": resource(view, nodes.idle[:, row]),
        "Used": resource(view, nodes.used[:, row]),
        "Releasing": resource(view, nodes.releasing[:, row]),
        "Pipelined": resource(view, nodes.pipelined[:, row]),
        "Tasks": {pod.uid: task(view, pod) for pod in pods},
    }


def job(view: View, subject: Job) -> dict[str, Any]:
    """A PodGroup and its pods."""
    tasks = {pod.uid: task(view, pod) for pod in view.members(subject)}
    by_status: dict[str, dict[str, Any]] = {}
    for uid, each in tasks.items():
        by_status.setdefault(str(each["Status"]), {})[uid] = each
    return {
        "UID": subject.key,
        "PgUID": subject.pod_group.metadata.uid,
        "Name": subject.name,
        "Namespace": subject.namespace,
        "Queue": subject.queue.name,
        "Priority": subject.priority,
        "MinAvailable": subject.min_available,
        "TaskMinAvailable": dict(subject.min_by_role),
        "Tasks": tasks,
        "TaskStatusIndex": by_status,
        "Allocated": resource(view, view.job_allocated[subject.index]),
        "TotalRequest": resource(view, view.job_requested[subject.index]),
        "CreationTimestamp": _time(subject.created),
        "PodGroup": dumped(subject.pod_group) | {"Version": "v1beta1"},
    }


def queue(subject: Queue) -> dict[str, Any]:
    """A queue."""
    annotations = subject.resource.metadata.annotations
    return {
        "UID": subject.name,
        "Name": subject.name,
        "Weight": subject.spec.weight,
        "Weights": annotations.get("volcano.sh/hierarchy-weights", ""),
        "Hierarchy": annotations.get("volcano.sh/hierarchy", ""),
        "Queue": dumped(subject.resource),
    }


def everything(view: View) -> dict[str, Any]:
    """The whole session."""
    return {
        "Jobs": {key: job(view, each) for key, each in view.jobs.items()},
        "Nodes": {view.nodes.name(row): node(view, row) for row in view.nodes.rows.tolist()},
        "Queues": {name: queue(each) for name, each in view.queues.items()},
        "NamespaceInfo": {},
        "RevocableNodes": {},
        "NodeList": None,
    }


def resource(view: View, amounts: Vector) -> dict[str, Any]:
    """Amounts: milli-cpu, bytes, all others in thousandths except the number of pods."""
    others = {name: value for name, value in zip(view.dimensions, amounts.tolist(), strict=True) if value}
    return {
        "MilliCPU": float(amounts[CPU]),
        "Memory": float(amounts[MEMORY]),
        "ScalarResources": {name: value for name, value in others.items() if name not in ("cpu", "memory")},
        "MaxTaskNum": 0,
    }


def _pod(pod: PodRecord, where: str, state: PodState) -> dict[str, Any]:
    return {
        "metadata": {
            "name": pod.name,
            "namespace": pod.namespace,
            "uid": pod.uid,
            "labels": dict(pod.labels),
            "annotations": dict(pod.annotations),
            "creationTimestamp": _time(pod.created),
        },
        "spec": msgspec.to_builtins(pod.pod_class.spec)
        | {"nodeName": where, "priority": pod.spec_priority, "schedulerName": pod.scheduler_name},
        "status": {"phase": _PHASE.get(state, "Pending")},
    }


def _time(seconds: float) -> str | None:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if seconds else None


# -- answers ---------------------------------------------------------------------------------------------------------


def _caseless(value: object) -> object:
    """A mapping with lower-case keys; other values are left for the model to reject."""
    if not isinstance(value, Mapping):
        return value
    return {str(key).casefold(): item for key, item in value.items() if item is not None}


class Answer(BaseModel):
    """Base of the responses: keys are case-insensitive, unknown ones are ignored."""

    model_config = ConfigDict(frozen=True)


class PredicateAnswer(Answer):
    status: str = ""
    """Why the node is refused; empty if it is not."""
    code: int = 0


class PrioritizeAnswer(Answer):
    scores: dict[str, float] | None = Field(default=None, alias="nodescore")
    error: str = Field(default="", alias="errormessage")


class VoteAnswer(Answer):
    status: int = 0
    """Above 0 permits, below 0 rejects."""


class Victim(Answer):
    uid: str


class VictimsAnswer(Answer):
    status: int = 0
    """0 means no opinion."""
    victims: list[Annotated[Victim, BeforeValidator(_caseless)]] = Field(default_factory=list)


class ReadyAnswer(Answer):
    status: bool = False


class OverusedAnswer(Answer):
    overused: bool = False


class EventAnswer(Answer):
    error: str = Field(default="", alias="errormessage")


AnyAnswer = TypeVar("AnyAnswer", bound=Answer)


def parse(model: type[AnyAnswer], answer: Mapping[str, Any]) -> AnyAnswer:
    """A response as its model. Raises ExtenderError."""
    try:
        return model.model_validate(_caseless(answer))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ExtenderError(f"the response's {'.'.join(map(str, first['loc']))} is invalid: {first['msg']}") from None
