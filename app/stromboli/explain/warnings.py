"""The parts of queues and PodGroups that do not work as specified, in the words of their conditions."""

from __future__ import annotations

from stromboli.framework.cluster.job import Job, Queue
from stromboli.framework.diagnosis.ignored import CONDITION, ignored_of_job, ignored_of_queue, told
from stromboli.framework.session.session import Session


def warnings(session: Session) -> dict[str, dict[str, str]]:
    """Messages by type of condition, by `Queue NAME` and `PodGroup NAMESPACE/NAME`, of those that have any."""
    queues = {f"Queue {queue.name}": of_queue(session, queue) for queue in session.view.queues.values()}
    jobs = {f"PodGroup {job.key}": of_job(session, job) for job in session.view.jobs.values()}
    return {name: found for name, found in sorted((queues | jobs).items()) if found}


def of_queue(session: Session, queue: Queue) -> dict[str, str]:
    """The conditions of a queue besides those for open and used up, whether or not the rules publish them."""
    reported = session.report.queue_conditions.get(queue.name, {}).values()
    found = {each.type: each.message for each in reported if each.status == "True"}
    ignored = ignored_of_queue(session, queue)
    return found | ({CONDITION: told(ignored)} if ignored else {})


def of_job(session: Session, job: Job) -> dict[str, str]:
    """Warnings about a PodGroup."""
    ignored = ignored_of_job(session, job)
    return {CONDITION: told(ignored)} if ignored else {}
