"""The condition of pods that have a node: why they do not run as they should, and the number of a job's that do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stromboli.api.pod_state import PodState
from stromboli.api.words import by_number, counted
from stromboli.framework.cluster.job import Job
from stromboli.framework.session.session import Session
from stromboli.kube.pod_claims import claims_of
from stromboli.kube.storage import storage_of
from stromboli.state.pods import PodRecord, timestamp

#: states of a pod between a decision and a running container
_BINDING = (PodState.Allocated, PodState.Binding, PodState.Bound)


def placed(session: Session, pod: PodRecord, state: PodState) -> str:
    node = session.bound.get(pod.key) or pod.node_name
    if not node and (row := int(session.view.pods.node[pod.row])) >= 0:
        node = session.view.nodes.name(row)
    if state in _BINDING:
        if pod.node_name:
            why = _held_up(session, pod)
            return f"it is bound to {node} and does not run: {why}" if why else f"it is bound to {node} and starts"
        lacking = volumes_that_lack(session, pod)
        return f"it is bound to {node} once it has {lacking}" if lacking else f"it is being bound to {node}"
    if state is PodState.Releasing:
        return f"it is terminating{f' on {node}' if node else ''}"
    where = f"{state.name} on {node}" if node else state.name
    if state is PodState.Failed:
        return f"{where}: {pod.held_up}" if pod.held_up else where
    why = _held_up(session, pod) if state is PodState.Running else ""
    return f"{where}, but {why}" if why else where


def _held_up(session: Session, pod: PodRecord) -> str:
    """Cause why a pod with a node does not run as it should; empty if nothing is known."""
    said, row = [pod.held_up] if pod.held_up else [], int(session.view.pods.node[pod.row])
    if row >= 0 and not (node := session.view.nodes.facts.records[row]).is_ready:
        said.append(f"node {node.name} is not ready (Ready is {node.ready})")
    elif row < 0 and pod.node_name:
        said.append(f"node {pod.node_name} does not exist")
    resize = next((each for each in pod.conditions if each.type == "PodResizePending" and each.status == "True"), None)
    if resize is not None:
        instead = " (lower it, or recreate the pod for a larger node)" if resize.reason == "Infeasible" else ""
        because = f": {resize.message}" if resize.message else ""
        said.append(f"its resize is {(resize.reason or 'pending').lower()}{because}{instead}")
    return "; ".join(said)


def held_up_together(session: Session, job: Job) -> str:
    """Number of a job's pods that do not run on their nodes, number of failed ones, and why the first of each."""
    pods = session.view.records(session.view.membership.rows(job.index))
    states = session.view.pods.state
    held = [
        (pod, why)
        for pod in pods
        if pod.node_name and states[pod.row] in (PodState.Bound, PodState.Running) and (why := _held_up(session, pod))
    ]
    failed = [(pod, pod.held_up) for pod in pods if states[pod.row] == PodState.Failed and pod.held_up]
    verb, they = ("does", "it") if len(held) == 1 else ("do", "they")
    told = ((held, f"{verb} not run as {they} should"), (failed, "failed"))
    return "; ".join(f"{len(some)} of them {what}: {_first_of(some)}" for some, what in told if some)


def _first_of(some: Sequence[tuple[PodRecord, str]]) -> str:
    """The first of some pods, with its node and its problem."""
    pod, why = some[0]
    return f"{pod.name}{f' on {pod.node_name}' if pod.node_name else ''}: {why}"


def volumes_that_lack(session: Session, pod: PodRecord) -> str:
    """The volumes that a pod waits for, each with its provisioner and since when; empty without any."""
    return " and ".join(_waited_for(session, pod))


def _waited_for(session: Session, pod: PodRecord) -> Iterator[str]:
    storage = storage_of(session.view.snapshot)
    for claim in claims_of(pod, storage):
        if claim.bound or claim.waiting_since is None:
            continue
        storage_class = storage.storage_class(claim.storage_class)
        made = claim.selected_node is not None and storage_class is not None
        by = f", which {storage_class.provisioner} is to make" if made and storage_class else ""
        yield f"the volume of claim {claim.metadata.name}{by} (waited for since {timestamp(claim.waiting_since)})"


def binding(session: Session, job: Job) -> str:
    held = held_up_together(session, job)
    under_way = sum(job.counts[state] for state in _BINDING)
    if not under_way:
        return held
    rows = session.view.membership.rows(job.index)
    binding = session.view.records(rows[session.view.pods.state[rows] == PodState.Binding])
    lacking = list(filter(None, (volumes_that_lack(session, pod) for pod in binding)))
    waits = f"; {counted(len(lacking), 'pod')} of them lack volumes, the first {lacking[0]}" if lacking else ""
    verb = by_number(under_way, "is", "are")
    return f"{counted(under_way, 'pod')} {verb} decided and not running yet{waits}{f'; {held}' if held else ''}"


def finished(job: Job) -> str:
    """Result of a job whose pods are all done; empty for others."""
    succeeded, failed = job.counts[PodState.Succeeded], job.counts[PodState.Failed]
    if not succeeded + failed or succeeded + failed < job.size:
        return ""
    return (
        f"it has finished: {succeeded} of {counted(job.size, 'pod')} succeeded{f', {failed} failed' if failed else ''}"
    )


def have_places(placed: int, pods: int) -> str:
    return f"{placed} of {counted(pods, 'pod')} {by_number(pods, 'has', 'have')} a place"
