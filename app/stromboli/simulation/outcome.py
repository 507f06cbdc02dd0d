"""The outcome of a run as plain data, in the format of recorded scenarios."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from stromboli.api.pod_state import PodState
from stromboli.api.reasons import Reason
from stromboli.api.resources import CPU, MEMORY, PODS, Vector
from stromboli.explain.evictions import why_no_evictions
from stromboli.explain.warnings import warnings
from stromboli.framework.diagnosis.closing import pod_group_status
from stromboli.framework.diagnosis.explain import all_reasons
from stromboli.framework.plugin.report import QueueGauges
from stromboli.framework.session.session import Session
from stromboli.simulation.run import Run

#: infinity as the recorded gauges have it
_UNLIMITED = sys.float_info.max
#: resources that are reported even when no node has any
_ALWAYS_TOLD = frozenset(("cpu", "memory"))
#: annotations of a binding that are recorded: which cards a pod got
_DEVICE_ANNOTATIONS = frozenset(("volcano.sh/gpu-index", "volcano.sh/vgpu-ids-new"))


def outcome(run: Run) -> dict[str, Any]:
    """Bindings and evictions of all cycles, everything else as it is after the last."""
    session = run.session
    pipelined, allocated = _in_state(session, PodState.Pipelined), _in_state(session, PodState.Allocated)
    jobs = {key: {"bound": 0, "pipelined": 0, "evicted": 0} for key in session.view.jobs}
    queues = {name: {"bound": 0, "pipelined": 0, "evicted": 0} for name in session.view.queues}
    for what, pods in (("bound", run.bindings), ("pipelined", pipelined), ("evicted", run.evicted)):
        for key in pods:
            job = session.view.jobs.get(run.jobs.get(key, ""))
            if job is not None:
                jobs[job.key][what] += 1
                queues[job.queue.name][what] += 1
    return {
        "bindings": run.bindings,
        "pipelined": pipelined,
        "allocated": allocated,
        "evicted": sorted(run.evicted),
        "nominated": _nominated(run),
        "annotations": {
            pod: {key: value for key, value in annotations.items() if key in _DEVICE_ANNOTATIONS}
            for pod, annotations in run.annotations.items()
        },
        "podGroups": {key: _pod_group(session, key) for key in _pod_group_keys(session)},
        "queues": {name: _gauges(session, name, named=name in run.named) for name in session.view.queues},
        "jobs": jobs,
        "perQueue": queues,
        "cycles": run.cycles if len(run.cycles) > 1 else [],
        **_node_shard(session),
    }


def explanation(session: Session) -> dict[str, Any]:
    """Why pods have no place or move, why nothing is evicted for their jobs, and what does not work as specs say.

    With the plugin fairshare also how fair shares were found.
    """
    out: dict[str, Any] = {
        "pods": {key: reason_as_data(reason) for key, reason in sorted(all_reasons(session).items())}
    }
    evicting = {
        key: {action: reason_as_data(why) for action, why in found}
        for key, job in sorted(session.view.jobs.items())
        if (found := list(why_no_evictions(session, job)))
    }
    if evicting:
        out["preemption"] = evicting
    if said := warnings(session):
        out["warnings"] = said
    shares = {
        name: _fair_share(session, gauges)
        for name, gauges in sorted(session.report.gauges.items())
        if gauges.steps and "fair_share" in gauges.amounts
    }
    return out | ({"queues": shares} if shares else {})


#: fields of a queue's fair share besides its steps
FAIR_SHARE_AMOUNTS = ("deserved", "capacity", "request", "allocated", "usage", "fair_share", "saturation")


def _fair_share(session: Session, gauges: QueueGauges) -> dict[str, Any]:
    """A queue's numbers by resource; unlimited ones are absent."""

    def named(vector: Vector) -> dict[str, float]:
        pairs = zip(session.view.dimensions, vector.tolist(), strict=True)
        return {name: value for name, value in pairs if np.isfinite(value) and (value or name in _ALWAYS_TOLD)}

    steps = gauges.steps() if gauges.steps else []
    amounts = {amount: named(gauges.amounts[amount]) for amount in FAIR_SHARE_AMOUNTS}
    return amounts | {"steps": [{"step": step, "share": named(share)} for step, share in steps]}


def reason_as_data(reason: Reason) -> dict[str, Any]:
    """A reason for JSON, in full."""
    reason = reason.in_full
    out: dict[str, Any] = {
        "stage": reason.stage.name,
        "reason": reason.reason,
        "message": reason.message,
        "actionable": str(reason.actionable),
    }
    if reason.detail:
        out["detail"] = reason.detail
    if reason.nodes:
        out["nodes"] = reason.nodes
    return out


def _node_shard(session: Session) -> dict[str, Any]:
    """The status that this scheduler's NodeShard should have; absent when it has it."""
    status = session.view.shard.new_status if session.view.shard else None
    if status is None:
        return {}
    fields = {"nodesInUse": status.in_use, "nodesToAdd": status.to_add, "nodesToRemove": status.to_remove}
    return {"nodeShard": {field: sorted(nodes) for field, nodes in fields.items()}}


def _nominated(run: Run) -> dict[str, str]:
    """The nodes that stand in the status of pods without a place: a nomination is never taken back."""
    old = {
        record.key: record.nominated_node
        for record in run.session.view.pods.records
        if record is not None and record.nominated_node and not record.node_name and record.key not in run.bindings
    }
    return old | run.nominated


def _in_state(session: Session, state: PodState) -> dict[str, str]:
    names = session.view.nodes.facts.records
    rows = np.flatnonzero((session.view.pods.state == state) & (session.view.pods.job >= 0)).tolist()
    return {session.view.record(row).key: names[session.view.pods.node[row]].name for row in rows}


def _pod_group_keys(session: Session) -> list[str]:
    return [pg.key for pg in session.view.snapshot.pod_groups if pg is not None]


def _pod_group(session: Session, key: str) -> dict[str, Any]:
    job = session.view.jobs.get(key)
    if job is None:
        pod_group = next(pg for pg in session.view.snapshot.pod_groups if pg is not None and pg.key == key)
        status = pod_group.status
    else:
        status = pod_group_status(job)
    return {
        "inSession": job is not None,
        "phase": status.phase,
        "running": status.running,
        "succeeded": status.succeeded,
        "failed": status.failed,
        "allocatedHyperNode": session.view.topology.name(job.allocated_hyper_node) if job else "",
        "conditions": [{"type": c.type, "status": c.status, "reason": c.reason} for c in status.conditions],
    }


def _gauges(session: Session, name: str, *, named: bool) -> dict[str, Any]:
    gauges = session.report.gauges.get(name)
    out: dict[str, Any] = {"statusAllocated": dict(session.view.queues[name].resource.status.allocated)}
    if gauges is None:
        return out
    for field in ("share", "weight", "overused"):
        value = getattr(gauges, field)
        if value is not None:
            out[field] = value
    # A resource has a series in every gauge that is set after the first one that names it.
    for field, vector in gauges.amounts.items():
        amounts = _amounts(session, vector)
        named = named or bool(amounts["scalar_resources"])
        if not named:
            del amounts["scalar_resources"]
        out[field] = amounts
    return out


def _amounts(session: Session, vector: Vector) -> dict[str, Any]:
    values = np.where(np.isinf(vector), _UNLIMITED, vector).tolist()
    return {
        "milli_cpu": values[CPU],
        "memory_bytes": values[MEMORY],
        "scalar_resources": {
            session.view.dimensions[c]: values[c] for c in range(PODS, len(values)) if values[c] not in (0, _UNLIMITED)
        },
    }
