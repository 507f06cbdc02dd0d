"""What holds after every session, whatever the policy and the history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from stromboli.api.decisions import Bind, Nominate
from stromboli.engine import SessionResult
from tests.expectations.world import GPU, VALUES, Size, World, evictions, job_of

RESOURCES = ("cpu", "memory", GPU)
#: what queues hold, by name and resource
Holdings = Mapping[str, Mapping[str, int]]


def holdings(world: World) -> Holdings:
    """What each queue holds, with those below it."""
    return {name: world.held(name) for name in world.queues}


def check_nodes(world: World) -> None:
    """No node holds more than it can allocate, with the pods that terminate there."""
    for job in world.jobs:
        nodes = [node for node in job.pods.values() if node]
        nodes += [node for owner, node, _ in world.leaving.values() if owner is job and node in world.nodes]
        assert not job.apart or len(nodes) == len({*nodes}), f"pods of {job.name} share a node"
    for name, size in world.nodes.items():
        on = [job.asked(pod) for job in world.jobs for pod, node in job.pods.items() if node == name]
        on += [job.asked(pod) for pod, (job, node, _) in world.leaving.items() if node == name]
        has = Size(*size)
        for resource, most in (("cpu", has.cpu), ("memory", has.memory), (GPU, has.gpu)):
            most = max(most, world.overcommitted.get((name, resource), 0))
            assert sum(asks.get(resource, 0) for asks in on) <= most, f"{name} holds too much {resource}"
        assert len(on) <= has.pods
        ports = sum(job.port for job in world.jobs for node in job.pods.values() if node == name)
        ports += sum(job.port for job, node, _ in world.leaving.values() if node == name)
        assert ports <= 1, f"a port of {name} is taken twice"


def check_gangs(world: World) -> None:
    """No gang is bound in part, and none is left running below its minimum, unless it lost its pods with a node."""
    for job in world.jobs:
        job.short = job.short and 0 < job.running < job.least
        racks = {rack for rack, nodes in world.racks.items() if {*job.pods.values()} & {*nodes}}
        assert not job.tight or len(racks) <= 1, f"{job.name} lies in {racks}"
        assert job.short or job.running == 0 or job.running >= job.least, f"{job.name} runs below its minimum"


def check_victims(world: World, disruptions: Mapping[str, int], result: SessionResult) -> None:
    """Critical pods are not evicted, and of no job more than its disruption budget allowed."""
    for name, count in Counter(job_of(victim.name) for victim in evictions(result)).items():
        assert count <= disruptions[name], f"{count} pods of {name} were evicted, {disruptions[name]} were allowed"
    priorities = {job.name: VALUES[job.priority] for job in world.jobs}
    for victim in evictions(result):
        assert priorities[job_of(victim.name)] < VALUES["critical"]


def check_capabilities(world: World, before: Holdings) -> None:
    """No queue, and none above one, came to hold more than it may."""
    for name in world.queues:
        held = world.held(name)
        for resource, most in world.limits(name).items():
            assert held[resource] <= max(most, before[name][resource]), f"{name} holds too much {resource}"


def holdings_now(world: World) -> Holdings:
    """What each queue holds, with those below it and with the pods that terminate."""
    return {name: world.held_now(name) for name in world.queues}


def check_starts(world: World, before: Holdings, result: SessionResult) -> None:
    """With the pods that terminated when it was decided, no queue came to hold more than it may."""
    jobs = {job.name: job for job in world.jobs}
    for name in world.queues:
        started: Counter[str] = Counter()
        for each in result.decisions:
            if isinstance(each, Bind) and (job := jobs[each.name.rpartition("-")[0]]).queue in world.below(name):
                started.update(job.asked(each.name))
        for resource, most in world.limits(name).items():
            if started[resource]:
                assert before[name][resource] + started[resource] <= most, f"{name} started too much {resource}"


def check_guarantees(world: World, before: Holdings) -> None:
    """No queue came to hold what is guaranteed to others; too much together is clipped, and not checked here."""
    tops = _tops(world)
    for resource in filter(lambda each: _can_be_kept(world, each), RESOURCES):
        now = {name: world.held(name) for name in world.queues}
        used, was = (sum(_held_or_kept(world, top, resource, held) for top in tops) for held in (now, before))
        # Pods that were resized in place may have more of a node than it can allocate.
        most = _total(world, resource) + sum(
            max(0, amount - Size(*world.nodes[name])[RESOURCES.index(resource)])
            for (name, of), amount in world.overcommitted.items()
            if of == resource and name in world.nodes
        )
        assert used <= max(most, was), f"{resource} that is guaranteed to others was taken"


def check_given(world: World, before: Holdings, result: SessionResult) -> None:
    """No queue lost what it is guaranteed to pods of other queues.

    Who is moved has another place, and a pod larger than the guarantee had one that was borrowed. Promised pods hold
    what they will. Too much together is clipped here as well, and a pod may be larger than what is left of it.
    """
    jobs = {job.name: job for job in world.jobs}
    promised = [each.name for each in result.decisions if isinstance(each, Nominate)]
    for name in world.queues:
        within = world.below(name)
        lost: Counter[str] = Counter()
        left: Counter[str] = Counter()
        coming: Counter[str] = Counter()
        for pod in promised:
            job = jobs[pod.rpartition("-")[0]]
            if job.queue in within:
                coming.update(job.asked(pod))
        for victim in evictions(result):
            giver, taker = jobs[victim.name.rpartition("-")[0]], jobs.get(victim.beneficiary.rpartition("/")[2])
            if giver.queue not in within:
                continue
            had = giver.asked(victim.name)
            if taker is None or taker.queue in within or victim.action == "consolidation":
                left.update(had)
            elif all(_guarantees(world, name, resource, amount) for resource, amount in had.items()):
                lost.update(had)
        left = Counter(world.held(name)) + (left | coming)
        for resource in lost:
            kept = min(_guaranteed(world, name, resource), _limit(world, name, resource), before[name][resource])
            assert left[resource] >= kept, f"{name} lost {resource} it is guaranteed"


def _can_be_kept(world: World, resource: str) -> bool:
    """All that is guaranteed exists, and no queue is guaranteed more than it may hold."""
    possible = all(_guaranteed(world, name, resource) <= _limit(world, name, resource) for name in world.queues)
    return possible and sum(_guaranteed(world, name, resource) for name in _tops(world)) <= _total(world, resource)


def _guarantees(world: World, name: str, resource: str, amount: int) -> bool:
    """A pod's amount lies within what a queue is guaranteed."""
    return amount <= _guaranteed(world, name, resource) and _can_be_kept(world, resource)


def _total(world: World, resource: str) -> int:
    return sum(Size(*size)[RESOURCES.index(resource)] for size in world.nodes.values())


def _tops(world: World) -> list[str]:
    return _children(world, "root" if "root" in world.queues else "")


def _children(world: World, of: str) -> list[str]:
    return [name for name, spec in world.queues.items() if name != "root" and spec.get("parent", "") == of]


def _held_or_kept(world: World, name: str, resource: str, held: Holdings) -> int:
    children = _children(world, name)
    below = sum(_held_or_kept(world, child, resource, held) for child in children)
    return max(_guaranteed(world, name, resource), below if children else held[name][resource])


def _guaranteed(world: World, name: str, resource: str) -> int:
    """What is guaranteed to a queue, or to those below it."""
    amount = world.guaranteed(name).get(resource, 0)
    below = sum(_guaranteed(world, child, resource) for child in _children(world, name))
    return max(amount, below)


def _limit(world: World, name: str, resource: str) -> int:
    return world.limits(name).get(resource, 10**6)
