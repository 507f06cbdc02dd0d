"""Remedies for queues that may have no more: limits, weights, and quotas of namespaces."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from pydantic.alias_generators import to_camel

from stromboli.api import quantity
from stromboli.api.resources import PODS, Vector, exact, listed
from stromboli.explain.evictions import RECLAIMING
from stromboli.explain.places import amounts
from stromboli.explain.remedies.case import Candidate, Case, smallest
from stromboli.explain.remedies.changes import set_queue
from stromboli.fairness import lending
from stromboli.framework.cluster.job import Queue, lineage
from stromboli.kube.quotas import PODS as PODS_OF_QUOTAS
from stromboli.kube.quotas import asked_for, common_name, hard_of
from stromboli.state.cluster import ClusterState

#: the weight beyond which nothing is proposed
_MOST_WEIGHT = 65_535
#: reasons of queues that may have no more
_LIMITING = ("QueueCapabilityExceeded", "QueueShareExceeded", "QueueOverused", "NeverFits")
#: times the weights of all queues together, beyond which a weight says that the queue gets everything
_OVERWHELMING = 20


def needs(case: Case) -> Vector:
    """The requests of the pods that have to be bound together."""
    view, job = case.session.view, case.job
    together = case.needed if case.answer.kind == "Job" or job is None else job.min_available - job.ready_count
    asked = view.requested(case.pods[: max(1, together)])
    if job is not None and job.min_resources is not None and job.pending_phase:
        asked = np.maximum(asked, job.min_resources)
    return asked


def limits(case: Case) -> Iterator[Candidate]:
    """A limit raised to the sum of held and requested amounts, in the queue and its ancestors."""
    if case.reason not in _LIMITING or case.job is None:
        return
    view, report, asked = case.session.view, case.session.report, needs(case)
    # The gauges of queues above say what these held when the session began.
    held = view.by_queue(view.membership.allocated_now())
    raised: list[tuple[str, str, dict[str, str]]] = []
    for queue in lineage(case.job.queue, view.queues):
        gauges = report.gauges.get(queue.name)
        if gauges is None or gauges.limit is None:
            continue
        # An admitted job has a claim itself, and other jobs' claims do not keep its pods from places.
        claimed = gauges.amounts.get("inqueue", 0.0) if case.job.pending_phase else 0.0
        wanted = (gauges.amounts["allocated"] if queue is case.job.queue else held[queue.name]) + claimed + asked
        over = (wanted > gauges.limit) & (asked > 0)
        over[PODS] &= view.counts_pods
        beyond = wanted - lending.own(view, queue)
        for field, said, most in (
            ("capability", queue.spec.capability, wanted),
            ("borrowing_limit", queue.spec.borrowing_limit, beyond),
        ):
            short = np.flatnonzero(over & (most > view.vector(said, np.inf))).tolist()
            if short:
                raised.append((queue.name, field, amounts(case.session, most, short)))
    if raised:
        words = "; ".join(f"raise {to_camel(field)} of queue {name} to {listed(most)}" for name, field, most in raised)

        def change(state: ClusterState) -> None:
            for name, field, most in raised:
                said = getattr(state.queues[name].spec, field) or {}
                set_queue(name, **{field: {**said, **most}})(state)

        yield Candidate(words, "admin", change)


def weights(case: Case) -> Iterator[Candidate]:
    """The smallest weight, or amount that is deserved, with which the queue gets enough."""
    evicting = set(RECLAIMING) & set(case.session.policy.actions)
    at_stake = case.stage == "QueueShare" or (case.reason == "Unschedulable" and evicting)
    if case.job is None or not at_stake or "admin" in case.found:
        return
    queue, gauges = case.job.queue, case.session.report.gauges.get(case.job.queue.name)
    if gauges is None:
        return
    if gauges.plugin == "proportion":
        low = queue.spec.weight + 1
        weights = sum(each.spec.weight for each in case.session.view.queues.values() if each.has_jobs)
        most = min(_MOST_WEIGHT, _OVERWHELMING * max(weights, 1))
        weight = smallest(low, most, lambda n: case.helps(set_queue(queue.name, weight=n)))
        if weight is not None:
            words = f"raise the weight of queue {queue.name} from {queue.spec.weight} to {weight}"
            yield Candidate(words, "admin", set_queue(queue.name, weight=weight))
    elif gauges.plugin:
        held = gauges.amounts["allocated"] + needs(case)
        columns = np.flatnonzero(needs(case) > 0).tolist()
        deserved = {**(queue.spec.deserved or {}), **amounts(case.session, held, columns)}
        words = f"raise what queue {queue.name} deserves to {listed(amounts(case.session, held, columns))}"
        yield Candidate(words, "admin", set_queue(queue.name, deserved=deserved))


def kept_by_others(case: Case) -> Iterator[Candidate]:
    """The unused amount that another queue keeps by its guarantee or lending limit, lowered by as much as is needed."""
    if case.job is None or case.reason not in _LIMITING:
        return
    whole, gauges = needs(case), case.session.report.gauges.get(case.job.queue.name)
    bound = None if gauges is None or gauges.bound is None else gauges.bound()
    if gauges is not None and bound is not None:
        # What the queue may still have is not taken from others.
        lacking = np.maximum(whole - np.maximum(bound - gauges.amounts["allocated"], 0), 0)
        if lacking.any() and (lacking < whole).any():
            yield from _less_kept(case, case.job.queue, lacking)
    yield from _less_kept(case, case.job.queue, whole)


def _less_kept(case: Case, own: Queue, asked: Vector) -> Iterator[Candidate]:
    """The unused amount that another queue keeps, lowered by a given amount."""
    view = case.session.view
    line = {queue.name for queue in lineage(own, view.queues)}
    held = view.by_queue(view.membership.allocated_now())
    for queue in [queue for queue in view.queues.values() if queue.name not in line]:
        guaranteed, spec = view.vector(queue.spec.guarantee.resource), queue.spec
        idle = np.flatnonzero((asked > 0) & (guaranteed > held[queue.name])).tolist()
        if idle:
            less = np.maximum(guaranteed - asked, held[queue.name])
            resource = {**(spec.guarantee.resource or {}), **exact_amounts(case, less, idle)}
            guarantee = spec.guarantee.model_copy(update={"resource": resource})
            words = f"lower the guarantee of queue {queue.name} to {listed(exact_amounts(case, less, idle))}"
            yield Candidate(words, "admin", set_queue(queue.name, guarantee=guarantee))
        lent = view.vector(spec.lending_limit, np.inf)
        unlent = np.flatnonzero((asked > 0) & (lent < view.vector(spec.deserved))).tolist()
        if unlent:
            more = exact_amounts(case, lent + asked, unlent)
            words = f"raise lendingLimit of queue {queue.name} to {listed(more)}"
            yield Candidate(words, "admin", set_queue(queue.name, lending_limit={**(spec.lending_limit or {}), **more}))


def exact_amounts(case: Case, vector: Vector, columns: list[int]) -> dict[str, str]:
    """Amounts of some resources, those of nothing with them."""
    names = case.session.view.dimensions
    return {names[c]: exact(names[c], vector[c]) for c in columns}


def quotas(case: Case) -> Iterator[Candidate]:
    """ResourceQuotas of the namespace, raised by what they lack, or else by the whole request."""
    job = case.job
    if case.reason != "ResourceQuotaExceeded" or job is None:
        return
    given = job.pod_group.spec.min_resources or {}
    asked = dict.fromkeys(PODS_OF_QUOTAS, Fraction(job.min_available)) | asked_for(given)
    of_namespace = case.rehearsal.state.objects["ResourceQuota"]
    quotas = {key: quota for key, quota in of_namespace.items() if key.startswith(f"{job.namespace}/")}
    words, raised = list[str](), dict[str, dict[str, str]]()
    for key, quota in quotas.items():
        hard, used = hard_of(quota), (quota.get("status") or {}).get("used") or {}
        needs = {name: asked.get(common_name(name), Fraction(0)) + quantity.parse(used.get(name, 0)) for name in hard}
        above = {name: need for name, need in needs.items() if need > quantity.parse(hard[name])}
        if above:
            raised[key] = {name: f"{math.ceil(need * 1000)}m" for name, need in above.items()}
            words.append(f"raise ResourceQuota {key} to {listed(raised[key])}")
    yield Candidate(" and ".join(words), "admin", partial(_raise, quotas=quotas, raised=raised))
    more = {
        key: {name: _sum(value, asked.get(common_name(name), Fraction(0))) for name, value in hard_of(quota).items()}
        for key, quota in quotas.items()
    }
    words_for_all = f"raise ResourceQuota {', '.join(quotas)} by {listed(given)}"
    yield Candidate(words_for_all, "admin", partial(_raise, quotas=quotas, raised=more))


def _raise(state: ClusterState, quotas: Mapping[str, Any], raised: Mapping[str, Mapping[str, str]]) -> None:
    for key, manifest in quotas.items():
        hard = {**hard_of(manifest), **raised.get(key, {})}
        state.upsert("ResourceQuota", {**manifest, "status": {**(manifest.get("status") or {}), "hard": hard}})


def _sum(one: str | int | float, more: Fraction) -> str:
    """A quantity and an amount on top."""
    total = quantity.parse(one) + more
    return f"{math.ceil(total * 1000)}m"
