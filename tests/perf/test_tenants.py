"""What any user may write into an object costs no more than in proportion, counted in calls of functions."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from stromboli import gate
from stromboli.api import crds, objects
from stromboli.api.decisions import SetPodGroupStatus
from stromboli.engine import Engine, Successive
from stromboli.framework.cluster.environment import Environment
from stromboli.simulation import synthetic
from stromboli.state.cluster import ClusterState
from tests import builders

ENGINE = Engine(builders.policy("gang", "predicates nodeorder binpack"))
_FEW, _MANY = 60, 120
Fields = dict[str, Any]


def _affinity(terms: Any) -> Fields:
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def _expressions(count: int, *values: str) -> list[Fields]:
    return [{"key": f"k{number}", "operator": "NotIn", "values": ["a", *values]} for number in range(count)]


def _containers(count: int, **fields: Any) -> list[Fields]:
    return [{"name": f"c{number}", "resources": {"requests": {"cpu": "1m"}}, **fields} for number in range(count)]


def _names(count: int) -> Fields:
    return {f"example.com/r{number}": "1" for number in range(count)}


#: by what a pod has many of: its spec, and the calls that one more may cost in an event and a session with it
SPECS: dict[str, tuple[Callable[[int], Fields], int]] = {
    "terms": (lambda n: _affinity({"nodeSelectorTerms": [{"matchExpressions": [e]} for e in _expressions(n)]}), 130),
    "expressions": (lambda n: _affinity({"nodeSelectorTerms": [{"matchExpressions": _expressions(n)}]}), 100),
    "values": (
        lambda n: _affinity({"nodeSelectorTerms": [{"matchExpressions": _expressions(1, *map(str, range(n)))}]}),
        10,
    ),
    "tolerations": (lambda n: {"tolerations": [{"key": f"k{at}", "operator": "Exists"} for at in range(n)]}, 60),
    "containers": (lambda n: {"containers": _containers(n)}, 80),
    "ports": (
        lambda n: {"containers": _containers(1, ports=[{"hostPort": at + 1, "containerPort": 1} for at in range(n)])},
        10,
    ),
    "resources": (lambda n: {"containers": _containers(1, resources={"requests": _names(n)})}, 40),
    "volumes": (
        lambda n: {
            "volumes": [{"name": f"v{at}", "persistentVolumeClaim": {"claimName": f"c{at}"}} for at in range(n)]
        },
        150,
    ),
    "resource claims": (
        lambda n: {"resourceClaims": [{"name": f"c{at}", "resourceClaimName": f"c{at}"} for at in range(n)]},
        10,
    ),
    "scheduling gates": (lambda n: {"schedulingGates": [{"name": f"g{at}"} for at in range(n)]}, 5),
    "labels": (lambda n: {"labels": {f"l{at}": "x" for at in range(n)}}, 5),
    "annotations": (lambda n: {"annotations": {f"a{at}": "x" * 10_000 for at in range(n)}}, 5),
}


def _annotated(obj: Any, **annotations: str) -> Any:
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, annotations=annotations))


def _group(annotations: dict[str, str] | None = None, **spec: Any) -> list[Any]:
    """A PodGroup in its queue, and one of its pods."""
    group = builders.pod_group("g", **spec)
    group.metadata.annotations.update(annotations or {})
    return [builders.queue("default"), group, builders.pod("p", "g", cpu="1m", labels={"x": "1"})]


def _roles(count: int) -> list[Any]:
    """Roles that attract each other, and as many that repel each other."""
    names = [f"r{at}" for at in range(count)]
    halves = {
        "volcano.sh/task-topology-affinity": ",".join(names[::2]),
        "volcano.sh/task-topology-anti-affinity": ",".join(names[1::2]),
    }
    pods = [
        builders.pod(f"p-{role}", "g", cpu="1m", memory="1Mi", annotations={"volcano.sh/task-spec": role})
        for role in names
    ]
    return [builders.node("n"), *_group(halves), *pods]


def _policies(count: int) -> list[Any]:
    """Sub groups of many keys and conditions, for many pods."""
    conditions = [{"key": f"k{at}", "operator": "DoesNotExist"} for at in range(count)]
    policy = {"labelSelector": {"matchExpressions": conditions}, "matchLabelKeys": ["no"]}
    policies = [{"name": f"s{at}", **policy} for at in range(5)]
    return [builders.node("n"), *_group(subGroupPolicy=policies), *builders.gang("g", 20, cpu="1m")]


_VGPU = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "1"}


def _cards(pods: int, listed: int) -> list[Any]:
    """Nodes with cards, and pods that name the cards that they may have, each others."""
    amounts = dict.fromkeys(("volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"), "800")
    register = "GPU-{}-{},10,32768,NVIDIA-A,true,hami-core:"
    nodes = [
        _annotated(
            builders.node(f"n{at}", resources=amounts),
            **{"volcano.sh/node-vgpu-register": "".join(register.format(at, card) for card in range(8))},
        )
        for at in range(10)
    ]
    names = [",".join([*(f"x{at}" for at in range(listed)), f"GPU-0-{pod % 8}"]) for pod in range(pods)]
    container = {"name": "main", "resources": {"requests": {"cpu": "1m"}, "limits": _VGPU}}
    wanting = [
        builders.pod(
            f"v{at}",
            "g",
            containers=[container],
            annotations={"volcano.sh/vgpu-use-gpuuuid": name, "nvidia.com/use-gputype": f"NVIDIA,{name}"},
        )
        for at, name in enumerate(names)
    ]
    return [*nodes, *_group(), *wanting]


def _chain(count: int) -> list[Any]:
    """HyperNodes one below the other."""

    def below(at: int) -> Fields:
        kind, name = ("HyperNode", f"h{at - 1:05}") if at else ("Node", "n")
        return {"type": kind, "selector": {"exactMatch": {"name": name}}}

    chain = [
        crds.HyperNode.parse({"metadata": {"name": f"h{at:05}"}, "spec": {"tier": at + 1, "members": [below(at)]}})
        for at in range(count)
    ]
    return [builders.node("n"), *chain, *_group(networkTopology={"mode": "hard", "highestTierAllowed": 100_000})]


def _claims(count: int, pods: int = 1, volumes: int = 0) -> list[Any]:
    """Pods with claims of their own, of a class that waits for them, and volumes of it: half can be used anywhere."""
    once = {"accessModes": ["ReadWriteOnce"], "storageClassName": "late"}
    delayed = {"kind": "StorageClass", "metadata": {"name": "late"}, "volumeBindingMode": "WaitForFirstConsumer"}
    there = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n"]}
    local = {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [there]}]}}}
    made: list[Any] = [builders.node("n", cpu="1000", labels={"kubernetes.io/hostname": "n"}), *_group()]
    made.append({**delayed, "provisioner": "kubernetes.io/no-provisioner" if volumes else "example.com/disks"})
    for at in range(volumes):
        spec = {**once, "capacity": {"storage": "1Gi"}, **(local if at % 2 else {})}
        kept = {"kind": "PersistentVolume", "metadata": {"name": f"v{at}"}, "spec": spec}
        made.append({**kept, "status": {"phase": "Available"}})
    for pod in range(pods):
        names = [f"c{pod}-{at}" for at in range(count)]
        claim = {"kind": "PersistentVolumeClaim", "spec": {**once, "resources": {"requests": {"storage": "1Gi"}}}}
        made += [{**claim, "metadata": {"name": name, "namespace": "default"}} for name in names]
        mounts = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
        made += [builders.pod_group(f"g{pod}"), builders.pod(f"p{pod}", f"g{pod}", cpu="1m", volumes=mounts)]
    return made


def _amounts(count: int) -> Fields:
    return {f"example.com/r{at}": "1" for at in range(count)}


def _preferring(at: int) -> Fields:
    """Preferences by topology keys of its own for nearly all pods."""
    selector = {"matchExpressions": [{"key": "l", "operator": "NotIn", "values": [str(at)]}]}
    terms = [{"topologyKey": f"t{at}-{more}", "labelSelector": selector} for more in range(4)]
    weighted = [{"weight": 1, "podAffinityTerm": term} for term in terms]
    return {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}


def _needing(at: int) -> Fields:
    """A need for pods without labels that no other pod names."""
    absent = [{"key": f"l{at}-{more}", "operator": "DoesNotExist"} for more in range(20)]
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchExpressions": absent}}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _neighbours(count: int, affinity: Callable[[int], Fields]) -> list[Any]:
    pods = [builders.pod(f"p{at}", f"g{at}", labels={"l": "x"}, affinity=affinity(at)) for at in range(count)]
    nodes = [
        builders.node(f"n{at}", labels={"kubernetes.io/hostname": f"n{at}"}, cpu="999", memory="9Ti") for at in range(2)
    ]
    return [*nodes, builders.queue("default"), *(builders.pod_group(f"g{at}") for at in range(count)), *pods]


_DEVICES = "{name: deviceshare, arguments: {deviceshare.VGPUEnable: true}}"
#: by what there is much of: the objects, the plugins that read them, and how many there are
OBJECTS: dict[str, tuple[Callable[[int], list[Any]], str, int]] = {
    "roles": (_roles, "task-topology", 40),
    "sub groups": (_policies, "network-topology-aware", 50),
    "roles with a least number": (
        lambda n: [builders.node("n"), *_group(minTaskMember={f"r{at}": 1 for at in range(n)})],
        "priority",
        400,
    ),
    "least resources": (lambda n: [builders.node("n"), *_group(minResources=_amounts(n))], "proportion", 400),
    "resources of queues": (
        lambda n: [builders.node("n"), *_group(), builders.queue("q", deserved=_amounts(n), capability=_amounts(n))],
        "capacity",
        200,
    ),
    "pods with cards of their own": (lambda n: _cards(n, 1), _DEVICES, 20),
    "cards that a pod names": (lambda n: _cards(1, n), _DEVICES, 400),
    "claims with volumes": (lambda n: _claims(n, volumes=n), "nodeorder", 100),
    "topology keys of preferences": (lambda n: _neighbours(n, _preferring), "nodeorder", 50),
    "labels that affinity names": (lambda n: _neighbours(n, _needing), "nodeorder", 50),
    "levels of HyperNodes": (_chain, "network-topology-aware", 100),
}


def calls(work: Callable[[], object]) -> int:
    """How many functions some work calls, those of C as well; none of those that a collection of garbage calls."""
    count = 0

    def counted(frame: Any, event: str, of: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.disable()
    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def cluster() -> ClusterState:
    nodes = [builders.node(f"n{at}", taints=[{"key": f"t{at}", "effect": "NoSchedule"}]) for at in range(10)]
    return builders.state(nodes, builders.queue("default"), builders.pod_group("g"))


def cost(fields: Fields) -> int:
    """The calls of a pod's event and of a session with it."""
    fields = dict(fields)
    labels, annotations = fields.pop("labels", {}), fields.pop("annotations", {})
    pod: objects.Pod = builders.pod("p", "g", labels=labels, annotations=annotations, **fields)

    def event(state: ClusterState) -> None:
        gate.read("Pod", pod)
        state.upsert("Pod", pod)
        ENGINE.decide(state.snapshot(), now=builders.NOON)

    # What is read the first time only is not counted.
    event(cluster())
    state = cluster()
    return calls(lambda: event(state))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("what", SPECS)
def test_a_pod_with_many(what: str) -> None:
    fields, most = SPECS[what]
    few, many = cost(fields(_FEW)), cost(fields(_MANY))
    assert (many - few) / (_MANY - _FEW) <= most


def test_a_gang_that_wants_more_pods_than_there_are() -> None:
    def session(members: int) -> int:
        state = builders.state(builders.node("n0"), builders.queue("default"), builders.pod_group("g", members))
        state.upsert("Pod", builders.pod("p", "g"))
        ENGINE.decide(state.snapshot(), now=builders.NOON)
        return calls(lambda: ENGINE.decide(state.snapshot(), now=builders.NOON))

    assert session(100_000) <= session(100) + 10


@pytest.mark.exhaustive
def test_the_search_for_a_gang_of_distinct_pods_costs_their_square() -> None:
    """Each pod is placed in turn, and it is looked at all of them which is the next."""
    engine = Engine(builders.policy("gang", "predicates"))

    def search(members: int) -> int:
        # Without the pods that run the last one would have a place, too, so that the search goes to its end.
        sizes = [f"{100 + at}m" for at in range(members - 1)] + ["7500m"]
        pods = [builders.pod(f"p{at}", "g", cpu=cpu) for at, cpu in enumerate(sizes)]
        nodes = [builders.node(f"n{at}", cpu="8") for at in range(members // 8)]
        running = [builders.pod(f"r{at}", node=f"n{at}", phase="Running") for at in range(len(nodes))]
        group = builders.pod_group("g", members, phase="Inqueue")
        state = builders.state(nodes, builders.queue("default"), group, pods, running)
        return calls(lambda: engine.decide(state.snapshot(), now=builders.NOON))

    search(8)
    assert search(160) <= 4.4 * search(80)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("plugin", ["overcommit", "proportion", "capacity"])
def test_jobs_that_were_admitted_and_have_no_turn_are_summed_up_at_once(plugin: str) -> None:
    engine = Engine(builders.policy("gang", f"predicates {plugin}") + "\nsession: {steps: 1000}")

    def session(jobs: int) -> int:
        groups = [builders.pod_group(f"g{at}", minResources={"cpu": str(1 + at)}) for at in range(jobs)]
        pods = [builders.pod(f"p{at}", f"g{at}", cpu=str(1 + at)) for at in range(jobs)]
        tree = [builders.queue("root"), builders.queue("default", parent="root")]
        full = [builders.node("n0", cpu="1000"), builders.pod("full", cpu="1000", node="n0", phase="Running")]
        state = builders.state(full, tree, groups, pods)
        engine.decide(state.snapshot(), now=builders.NOON)
        return len(engine.decide(state.snapshot(), now=builders.NOON).session.view.jobs.made)

    assert session(400) == session(200)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("what", OBJECTS)
def test_twice_as_much_costs_twice_the_calls(what: str) -> None:
    make, plugin, count = OBJECTS[what]
    engine = Engine(
        builders.policy("gang", "predicates").rstrip() + f"\n  - {plugin if '{' in plugin else f'name: {plugin}'}"
    )

    def work(count: int) -> tuple[int, int]:
        """The calls of all events with the first session, and of a session after an event that is about none of it."""
        objects, state = make(count), builders.state()

        def first() -> None:
            for obj in objects:
                kind = builders.kind_of(obj)
                state.upsert(kind, gate.read(kind, obj))
            engine.decide(state.snapshot(), now=builders.NOON)

        def again() -> None:
            engine.decide(state.snapshot(), now=builders.NOON)

        at_first = calls(first)
        state.upsert("Pod", builders.pod("other"))
        return at_first, calls(again)

    work(2)
    (first, again), (first_of_twice, again_of_twice) = work(count), work(2 * count)
    assert first_of_twice <= 2.2 * first
    assert again_of_twice <= 2.2 * again


def test_what_a_pod_names_is_read_once() -> None:
    """A session with pods that name thousands of cards costs no more than one with pods that name few."""

    def session(listed: int) -> int:
        state = builders.state(_cards(3, listed))
        engine = Engine(builders.policy("predicates").rstrip() + f"\n  - {_DEVICES}")
        engine.decide(state.snapshot(), now=builders.NOON)
        state.upsert("Pod", builders.pod("other"))
        return calls(lambda: engine.decide(state.snapshot(), now=builders.NOON))

    session(1)
    assert session(1_000) <= session(10) + 3 * 1_000


@pytest.mark.exhaustive
def test_pods_with_hundreds_of_claims_are_reached_over_many_sessions() -> None:
    def session(pods: int) -> int:
        state = builders.state(_claims(200, pods))
        ENGINE.decide(state.snapshot(), now=builders.NOON)
        return calls(lambda: ENGINE.decide(state.snapshot(), now=builders.NOON))

    session(1)
    assert session(30) <= 1.5 * session(15)


def test_a_gang_that_is_too_large_to_move_costs_no_trial_for_each_node() -> None:
    """consolidation looks at no member of it, on however many nodes it runs."""
    engine = Engine(builders.policy("gang", "predicates", actions="allocate, consolidation"))

    def session(nodes: int) -> int:
        objects = [builders.node(f"n{at}", cpu="40") for at in range(nodes)]
        pods = [builders.pod(f"r{at}-{n}", "runs", cpu="1", node=f"n{at}") for at in range(nodes) for n in range(20)]
        wants = [builders.pod_group("g"), *(builders.pod(f"p{n}", "g", cpu=f"{30 + n}") for n in range(2))]
        group = builders.pod_group("runs", 20 * nodes, phase="Running")
        state = builders.state(*objects, builders.queue("default"), group, *pods, *wants)
        engine.decide(state.snapshot(), now=builders.NOON)
        return calls(lambda: engine.decide(state.snapshot(), now=builders.NOON))

    assert session(16) <= 4 * session(4)


@pytest.mark.exhaustive
def test_jobs_that_never_fit_cost_a_few_calls_each_and_are_told_over_many_sessions() -> None:
    """Their pods are still to come, and each asks for another amount."""

    def session(jobs: int) -> tuple[int, int]:
        groups = [builders.pod_group(f"g{at}", 2, phase="", minResources={"cpu": str(100 + at)}) for at in range(jobs)]
        state = builders.state(builders.node("n"), builders.queue("default"), groups)
        decided = len(ENGINE.decide(state.snapshot(), now=builders.NOON).decisions)
        return decided, calls(lambda: ENGINE.decide(state.snapshot(), now=builders.NOON))

    (few, cost_of_few), (many, cost_of_many) = session(600), session(1_200)
    assert 0 < many == few
    assert cost_of_many - cost_of_few <= 600 * 100


@pytest.mark.parametrize("owned", [True, False])
def test_admitted_groups_that_have_no_pods_cost_no_object_each(owned: bool) -> None:
    """Be it that they wait for their pods, or that their owner has made others of them."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}

    def session(groups: int) -> int:
        found = [builders.pod_group(f"g{at}", minResources={"cpu": "1m"}, phase="Inqueue") for at in range(groups)]
        for group in found if owned else ():
            group.metadata.owner_references.append(owner)
        pods = [builders.pod_group("lone"), builders.pod("lone", "lone")]
        state = builders.state(builders.node("n", cpu="8"), builders.queue("default"), found, pods)
        return len(Engine().decide(state.snapshot(), now=builders.NOON).session.view.jobs.made)

    assert session(400) <= session(200) + 10


@pytest.mark.exhaustive
def test_groups_of_queues_that_do_not_exist_cost_a_few_calls_each_whatever_queues_come() -> None:
    """Each names another queue, much like those that there are: all are told so, and some which one was meant."""

    def session(jobs: int) -> int:
        queues = [builders.queue("default"), *(builders.queue(f"team-{at}") for at in range(100))]
        groups = [builders.pod_group(f"g{at}", queue=f"taem-{at}", phase="Pending") for at in range(jobs)]
        pods = [builders.pod(f"p{at}", f"g{at}") for at in range(jobs)]
        state, decide = builders.state(builders.node("n"), queues, groups, pods), Successive(ENGINE, Environment())
        for _ in range(1 + jobs // 40):
            result = decide.decide(state.snapshot(), now=builders.NOON)
            synthetic.write_statuses(state, result.decisions)
            assert sum(isinstance(each, SetPodGroupStatus) for each in result.decisions) <= 64
        assert not result.unfinished
        told = [str(status.conditions) for group in groups if (status := state.pod_group(group.key).status)]
        assert all("there is no queue taem-" in each for each in told)
        assert "did you mean team-0?" in told[0]
        state.upsert("Queue", builders.queue("team-new"))
        return calls(lambda: ENGINE.decide(state.snapshot(), now=builders.NOON))

    # What is compared the first time is known later on.
    assert session(50) <= 100_000
    assert session(800) - session(400) <= 400 * 150
