"""Fields that an object sets and the policy does not heed: a condition on the object says so."""

from __future__ import annotations

from collections.abc import Iterable

from stromboli.api.crds import Condition, PodGroupCondition
from stromboli.framework.job import Job, Queue
from stromboli.framework.session import Session
from stromboli.framework.topology import says_topology

CONDITION = "FieldIgnored"
#: what heeds a field, for people
_HEEDED_BY = {
    "networkTopology": "network-topology-aware",
    "capability": "proportion or capacity",
    "deserved": "capacity",
    "guarantee": "proportion or capacity",
    "parent": "capacity with enableHierarchy",
    "affinity": "nodegroup",
    "dequeueStrategy": "",
}
_OVER = PodGroupCondition(type=CONDITION, status="False", reason="PolicyHeedsIt")


def tell(session: Session) -> None:
    """Report a condition for each PodGroup and Queue of which the session's policy leaves something unread."""
    if not session.rules.ignored_fields:
        return
    heeded = heeded_fields(session)
    topology = bool(session.points.all("hyper_node_gradient"))
    known = session.view.jobs
    spread = [] if topology else known.of(known.holds("topology", says_topology))
    jobs = known.where(known.holds(CONDITION, lambda group: _is_told(group.status.conditions)))
    over = [job for job in jobs if _is_told(job.conditions)]
    for job in over:
        session.report.condition(job, _OVER)
    for job in spread:
        _tell_job(session, job)
    for queue in session.view.queues.values():
        ignored = [field for field in _set_fields(queue) if field not in heeded]
        if ignored:
            said = Condition(type=CONDITION, status="True", reason="NotInPolicy", message=_message(ignored))
            session.report.queue_condition(queue.name, said)


def _is_told(conditions: Iterable[PodGroupCondition]) -> bool:
    return any(said.type == CONDITION and said.status == "True" for said in conditions)


def heeded_fields(session: Session) -> frozenset[str]:
    """The fields of queues that some plugin of the policy heeds."""
    plugins = session.points.plugins
    heeded = frozenset[str]().union(*(plugin.queue_fields for plugin in plugins))
    if session.rules.fifo:
        heeded |= {"dequeueStrategy"}
    if any(plugin.hierarchy and "deserved" in plugin.queue_fields for plugin in plugins):
        heeded |= {"parent"}
    return heeded


def _tell_job(session: Session, job: Job) -> None:
    message = _message(["networkTopology"])
    said = PodGroupCondition(type=CONDITION, status="True", reason="NotInPolicy", message=message)
    session.report.condition(job, said)


def _set_fields(queue: Queue) -> Iterable[str]:
    """The fields of a queue's spec that say something and that a policy may not heed."""
    spec = queue.spec
    if spec.capability:
        yield "capability"
    if spec.deserved:
        yield "deserved"
    if spec.guarantee.resource:
        yield "guarantee"
    if queue.parent not in ("", "root"):
        yield "parent"
    if spec.affinity.node_group_affinity is not None or spec.affinity.node_group_anti_affinity is not None:
        yield "affinity"
    if spec.dequeue_strategy != "traverse":
        yield "dequeueStrategy"


def _message(fields: Iterable[str]) -> str:
    sentences = (
        f"spec.{field} has no effect: no plugin of the policy heeds it"
        + (f", as {_HEEDED_BY[field]} would" if _HEEDED_BY[field] else "")
        for field in fields
    )
    return "; ".join(sentences)
