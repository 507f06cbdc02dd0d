"""Dynamic resource allocation: what selectors mean, which devices claims get, and what a queue may hold of them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stromboli.api import objects
from stromboli.api.decisions import Bind
from stromboli.framework.diagnosis.explain import pending_reasons
from stromboli.framework.session.session import Session
from tests import builders

DRIVER = "gpu.example.com"
POLICY = builders.policy("gang", "predicates binpack")
QUOTA = builders.policy("gang", "predicates capacity", actions="enqueue, allocate")


def device_class(name: str = "gpu", expression: str = f'device.driver == "{DRIVER}"') -> dict[str, Any]:
    return {
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def device(name: str, **attributes: Any) -> dict[str, Any]:
    memory = attributes.pop("memory", "80Gi")
    more = attributes.pop("more", {})
    kinds = {str: "string", bool: "bool", int: "int"}
    return {
        "name": name,
        "attributes": {key: {kinds[type(value)]: value} for key, value in attributes.items()},
        "capacity": {"memory": {"value": memory}},
        **more,
    }


def resource_slice(node: str, *devices: dict[str, Any], **spec: Any) -> dict[str, Any]:
    where = {} if {"allNodes", "nodeSelector"} & spec.keys() else {"nodeName": node}
    return {
        "kind": "ResourceSlice",
        "metadata": {"name": f"slice-{node}"},
        "spec": {
            "driver": DRIVER,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": list(devices),
            **where,
            **spec,
        },
    }


def request(name: str = "r", *selectors: str, **exactly: Any) -> dict[str, Any]:
    cels = {"selectors": [{"cel": {"expression": text}} for text in selectors]} if selectors else {}
    return {"name": name, "exactly": {"deviceClassName": "gpu", **cels, **exactly}}


def claim(name: str, *requests: dict[str, Any], **more: Any) -> dict[str, Any]:
    devices = {"requests": list(requests or (request(),)), **more.pop("devices", {})}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", **more.pop("metadata", {})}
    return {"kind": "ResourceClaim", "metadata": metadata, "spec": {"devices": devices}, **more}


def allocation(node: str, *devices: str, **result: Any) -> dict[str, Any]:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    results = [{"request": "r", "driver": DRIVER, "pool": node, "device": name, **result} for name in devices]
    selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"allocation": {"devices": {"results": results}, "nodeSelector": selector}}


def pod(name: str, *claims: str, group: str = "g", node: str = "", **more: Any) -> Any:
    named = [{"name": each, "resourceClaimName": each} for each in claims]
    return builders.pod(name, group, node=node, resourceClaims=named, **more)


def run(*objs: Any, policy: str = POLICY, **capability: Any) -> tuple[dict[str, str], Session]:
    """Bindings of one session on nodes n0 and n1, of which binpack prefers the smaller n0; and the session."""
    spec = {"capability": capability} if capability else {}
    groups = [] if any(type(obj).__name__ == "PodGroup" for obj in objs) else [builders.pod_group("g")]
    nodes = [builders.node("n0"), builders.node("n1", cpu="16")]
    cluster = builders.state(nodes, builders.queue("default", **spec), groups)
    for obj in objs:
        cluster.upsert(obj["kind"] if isinstance(obj, dict) else type(obj).__name__, obj)
    result = builders.decide(cluster, policy)
    return {d.name: d.node for d in result.decisions if isinstance(d, Bind)}, result.session


def why(session: Session, name: str) -> str:
    return pending_reasons(session)[f"default/{name}"].message


A, C = f'device.attributes["{DRIVER}"]', f'device.capacity["{DRIVER}"]'

# -- devices ---------------------------------------------------------------------------------------------------------

A100, H100 = device("gpu-0", model="a100", memory="40Gi"), device("gpu-0", model="h100")
SLICES = (
    device_class(),
    resource_slice("n0", A100),
    resource_slice("n1", H100, device("gpu-1", model="h100"), device("gpu-2", model="a100", memory="40Gi")),
)


def test_a_claim_goes_where_a_device_matches() -> None:
    wanted = claim("c", request("r", f'{A}.model == "h100"', f'{C}.memory.compareTo(quantity("60Gi")) >= 0'))
    assert run(*SLICES, wanted, pod("p", "c"))[0] == {"p": "n1"}


def taint_rule(effect: str = "NoSchedule", name: str = "rule", **selector: str) -> dict[str, Any]:
    taint = {"key": "broken", "value": "yes", "effect": effect}
    return {"kind": "DeviceTaintRule", "metadata": {"name": name}, "spec": {"deviceSelector": selector, "taint": taint}}


@pytest.mark.parametrize(
    ("rule", "node"),
    [
        (taint_rule(), None),
        (taint_rule(driver=DRIVER), None),
        (taint_rule(effect="NoExecute"), None),
        (taint_rule(effect="None"), "n0"),
        (taint_rule(driver="other.example.com"), "n0"),
        (taint_rule(pool="n0"), "n1"),
        (taint_rule(pool="n0", device="gpu-0"), "n1"),
        (taint_rule(pool="n0", device="gpu-1"), "n0"),
        (taint_rule(device="gpu-0"), "n1"),
    ],
)
def test_rules_taint_devices(rule: dict[str, Any], node: str | None) -> None:
    assert run(*SLICES, rule, claim("c"), pod("p", "c"))[0] == ({"p": node} if node else {})
    tolerant = claim("c", request(tolerations=[{"key": "broken", "operator": "Exists"}]))
    assert run(*SLICES, rule, tolerant, pod("p", "c"))[0] == {"p": "n0"}


def test_a_rule_without_a_selector_taints_nothing() -> None:
    rule = taint_rule()
    del rule["spec"]["deviceSelector"]
    assert run(*SLICES, rule, claim("c"), pod("p", "c"))[0] == {"p": "n0"}


def test_a_claim_gets_as_many_devices_as_it_counts() -> None:
    assert run(*SLICES, claim("c", request(count=3)), pod("p", "c"))[0] == {"p": "n1"}
    assert run(*SLICES, claim("c", request(count=4)), pod("p", "c"))[0] == {}


def test_devices_that_an_earlier_pod_got_are_gone_for_the_next() -> None:
    claims = [claim(f"c{i}") for i in range(5)]
    bound, session = run(*SLICES, *claims, *[pod(f"p{i}", f"c{i}") for i in range(5)])
    assert sorted(bound.values()) == ["n0", "n1", "n1", "n1"]
    assert why(session, "p4") == "no node takes the pod: cannot allocate all claims"


def test_a_discarded_gang_gives_its_devices_back() -> None:
    gang = [builders.pod_group("big", 5), builders.pod_group("small", 1, created=9)]
    pods = [pod(f"b{i}", f"b{i}", group="big") for i in range(5)]
    claims = [claim(f"b{i}") for i in range(5)]
    small = claim("s", request(count=3)), pod("s", "s", group="small")
    # The search for other places of the gang would take the whole session.
    bound, _ = run(*SLICES, *gang, *claims, *pods, *small, policy=f"session: {{steps: 0}}\n{POLICY}")
    assert bound == {"s": "n1"}


def test_a_claim_that_is_being_allocated_takes_no_second_pod_under_volcanos_rules() -> None:
    shared = (claim("c"), pod("p0", "c"), pod("p1", "c"))
    bound, session = run(*SLICES, *shared, policy=f"compatibility: volcano\n{POLICY}")
    assert bound == {"p0": "n0"}
    assert 'resourceclaim "c" is in the process of being allocated' in why(session, "p1")


def test_a_gang_that_shares_a_claim_starts_where_the_devices_are() -> None:
    gang = [builders.pod_group("g", 3), *(pod(f"p{i}", "c", cpu="3") for i in range(3))]
    shared = claim("c", request("r", f'{A}.model == "h100"'))
    assert run(*SLICES, shared, *gang)[0] == {"p0": "n1", "p1": "n1", "p2": "n1"}
    elsewhere = claim("c", request("r", f'{A}.model == "a100"', count=1))
    small = (device_class(), resource_slice("n0", A100))
    bound, session = run(*small, elsewhere, *gang)
    assert bound == {}
    assert "they could be with more cpu on a node, or with more devices of class gpu on a node" in why(session, "p0")


def test_unlike_pods_that_share_a_claim_need_room_for_both_of_them() -> None:
    gang = [builders.pod_group("g", 2), pod("p0", "c", cpu="6"), pod("p1", "c", cpu="2")]
    assert run(device_class(), resource_slice("n0", A100), claim("c"), *gang)[0] == {"p0": "n0", "p1": "n0"}


def test_a_gang_that_shares_a_claim_passes_over_nodes_that_are_too_small_for_it() -> None:
    """Of two nodes with such devices binpack prefers n0, where two of the pods fit."""
    gang = [builders.pod_group("g", 3), *(pod(f"p{i}", "c", cpu="3") for i in range(4))]
    assert set(run(*SLICES, claim("c"), *gang)[0].values()) == {"n1"}
    elastic = [builders.pod_group("g", 2), *(pod(f"p{i}", "c", cpu="3") for i in range(4))]
    assert run(*SLICES, claim("c"), *elastic)[0] == {"p0": "n0", "p1": "n0"}
    network = resource_slice("net", device("d"), allNodes=True)
    assert len(run(device_class(), network, claim("c"), *gang)[0]) == 4


def test_an_allocated_claim_is_shared_where_it_is() -> None:
    shared = claim("c", status=allocation("n1", "gpu-1"))
    assert run(*SLICES, shared, pod("p0", "c"), pod("p1", "c"))[0] == {"p0": "n1", "p1": "n1"}


def test_devices_of_allocated_claims_are_taken() -> None:
    taken = claim("taken", status=allocation("n0", "gpu-0"))
    assert run(*SLICES, taken, claim("c"), pod("p", "c"))[0] == {"p": "n1"}
    watched = claim("taken", status=allocation("n0", "gpu-0", adminAccess=True))
    assert run(*SLICES, watched, claim("c"), pod("p", "c"))[0] == {"p": "n0"}


def test_a_placed_pod_whose_claim_has_no_status_yet_holds_devices() -> None:
    placed = pod("run", "c0", node="n0")
    assert run(*SLICES, claim("c0"), placed, claim("c1"), pod("p", "c1"))[0] == {"p": "n1"}


def test_a_claim_with_256_pods_is_full() -> None:
    reserved = [{"resource": "pods", "name": f"x{i}", "uid": f"x{i}"} for i in range(256)]
    full = claim("c", status={**allocation("n1", "gpu-1"), "reservedFor": reserved})
    assert "maximum number of consumers" in why(run(*SLICES, full, pod("p", "c"))[1], "p")


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        (claim("other"), 'resourceclaim "c" not found'),
        (claim("c", metadata={"deletionTimestamp": "2024-01-01T00:00:00Z"}), 'resourceclaim "c" is being deleted'),
        (claim("c", request(deviceClassName="fpga")), 'device class "fpga" not found'),
        (
            claim("c", request("r", "device.x.fold(y, y)")),
            "resourceclaim \"c\", request r: the selector 'device.x.fold(y, y)' is not supported: the function 'fold'",
        ),
        (claim("c", request("r", f'{A}.serial == "x"')), "no such key: serial"),
        (claim("c", request(count=33)), "a claim can hold 32 devices, not 33"),
        (claim("c", {"name": "r"}), "request r is of an unsupported kind"),
        (claim("c", request(capacity={"requests": {"memory": "much"}})), "'much' is not a Kubernetes quantity"),
    ],
)
def test_claims_that_nothing_can_satisfy_say_why(wanted: Any, problem: str) -> None:
    bound, session = run(*SLICES, wanted, pod("p", "c"))
    assert bound == {}
    assert problem in why(session, "p")


def numbered(node: str) -> dict[str, Any]:
    return resource_slice(node, *[device(f"gpu-{i}", model="h100", serial=f"{node}-{i}") for i in range(64)])


def test_devices_that_agree_in_what_a_selector_reads_cost_as_one() -> None:
    costly = f"{list(range(900))}.all(x, x >= 0) && {A}.model == 'h100'"
    slices = (device_class(), numbered("n0"), numbered("n1"))
    assert run(*slices, claim("c", request("r", costly, count=32)), pod("p", "c"))[0] == {"p": "n0"}


@pytest.mark.parametrize("end", [f"{A}.serial != ''", f"{A}.serial == 1 / 0"])
def test_a_selector_that_costs_too_much_for_all_devices_is_stopped_and_named(end: str) -> None:
    costly = f"{list(range(900))}.all(x, [x, x, x, x, x] != []) && {A}.serial != '' && {end}"
    wanted = claim("c", request("r", costly, count=32))
    bound, session = run(
        device_class(), numbered("n0"), numbered("n1"), wanted, claim("d"), pod("p", "c"), pod("q", "d")
    )
    assert bound == {"q": "n0"}
    assert 'resourceclaim "c", request r: the selector \'[0, 1, 2' in why(session, "p")


def test_two_claims_of_a_pod_are_satisfied_together() -> None:
    only_h100 = claim("c1", request("r", f'{A}.model == "h100"'), request("s", f'{A}.model == "h100"'))
    any_two = claim("c0", request(count=2))
    assert run(*SLICES, any_two, only_h100, pod("p", "c0", "c1"))[0] == {}
    assert run(*SLICES, claim("c0"), only_h100, pod("p", "c0", "c1"))[0] == {"p": "n1"}


def test_alternatives_are_tried_in_order() -> None:
    subs = [{"name": "two", **request(count=4)["exactly"]}, {"name": "one", **request()["exactly"]}]
    first = claim("c", {"name": "r", "firstAvailable": subs})
    assert run(*SLICES, first, pod("p", "c"))[0] == {"p": "n0"}


def test_all_devices_are_all_that_match_and_must_be_free() -> None:
    every = claim("c", request("r", f'{A}.model == "h100"', allocationMode="All"))
    assert run(*SLICES, every, pod("p", "c"))[0] == {"p": "n1"}
    assert run(*SLICES, claim("t", status=allocation("n1", "gpu-1")), every, pod("p", "c"))[0] == {}


def test_admin_access_looks_at_devices_that_others_hold() -> None:
    taken = [claim(f"t{node}", status=allocation(node, *names)) for node, names in (("n0", ["gpu-0"]),)]
    admin = claim("c", request("r", f'{A}.model == "a100"', adminAccess=True))
    assert run(*SLICES, *taken, admin, claim("d"), pod("p", "c"), pod("q", "d"))[0] == {"p": "n0", "q": "n1"}


def test_constraints_between_devices() -> None:
    def constrained(**constraint: str) -> dict[str, Any]:
        return claim("c", request(count=2), devices={"constraints": [{"requests": ["r"], **constraint}]})

    mixed = resource_slice("n0", device("gpu-0", model="a100"), device("gpu-1", model="h100"))
    alike = resource_slice("n1", device("gpu-0", model="h100"), device("gpu-1", model="h100"))
    model = f"{DRIVER}/model"
    assert run(device_class(), mixed, alike, constrained(matchAttribute=model), pod("p", "c"))[0] == {"p": "n1"}
    assert run(device_class(), mixed, alike, constrained(distinctAttribute=model), pod("p", "c"))[0] == {"p": "n0"}
    assert run(device_class(), mixed, alike, constrained(matchAttribute="x/y"), pod("p", "c"))[0] == {}


@pytest.mark.parametrize("kind", ["matchAttribute", "distinctAttribute"])
def test_a_device_without_the_attribute_of_a_constraint_is_no_choice(kind: str) -> None:
    """On a node whose devices are like those of another but for that."""
    lacking, having = resource_slice("n0", device("gpu-0")), resource_slice("n1", device("gpu-0", numa=1))
    wanted = claim("c", devices={"constraints": [{kind: f"{DRIVER}/numa"}]})
    assert run(device_class(), lacking, wanted, pod("p", "c"))[0] == {}
    assert run(device_class(), lacking, having, wanted, pod("p", "c"))[0] == {"p": "n1"}
    pair = claim("c", request("r", count=2), devices={"constraints": [{kind: f"{DRIVER}/numa"}]})
    both = resource_slice("n1", device("gpu-0", numa=1), device("gpu-1", numa=1 if kind == "matchAttribute" else 2))
    one = resource_slice("n0", device("gpu-0", numa=1), device("gpu-1"))
    assert run(device_class(), one, both, pair, pod("p", "c"))[0] == {"p": "n1"}


def test_tainted_devices_need_a_toleration() -> None:
    broken = device("gpu-0", model="a100", more={"taints": [{"key": "broken", "effect": "NoSchedule"}]})
    tolerant = request(tolerations=[{"key": "broken", "operator": "Exists"}])
    assert run(device_class(), resource_slice("n0", broken), claim("c"), pod("p", "c"))[0] == {}
    assert run(device_class(), resource_slice("n0", broken), claim("c", tolerant), pod("p", "c"))[0] == {"p": "n0"}


def test_devices_must_have_the_capacity_that_is_requested() -> None:
    assert run(*SLICES, claim("c", request(capacity={"requests": {"memory": "60Gi"}})), pod("p", "c"))[0] == {"p": "n1"}


def test_a_device_that_several_nodes_reach_is_given_once() -> None:
    network = resource_slice("net", device("d"), allNodes=True)
    bound, _ = run(device_class(), network, claim("c0"), claim("c1"), pod("p0", "c0"), pod("p1", "c1"))
    assert bound == {"p0": "n0"}


def test_pools_that_are_incomplete_or_outdated_are_not_used() -> None:
    partial = resource_slice("n0", A100, pool={"name": "n0", "generation": 2, "resourceSliceCount": 2})
    assert run(device_class(), partial, claim("c"), pod("p", "c"))[0] == {}
    newer = resource_slice("n1", A100, pool={"name": "n0", "generation": 3, "resourceSliceCount": 1})
    assert run(device_class(), partial, newer, claim("c"), pod("p", "c"))[0] == {"p": "n1"}


@pytest.mark.parametrize(
    "pool",
    [
        {"pool": {"name": "other", "generation": 1, "resourceSliceCount": 2}},
        # A device twice.
        {"pool": {"name": "other", "generation": 1, "resourceSliceCount": 1}, "devices": [device("x"), device("x")]},
    ],
)
@pytest.mark.parametrize("mode", [{"allocationMode": "All"}, {}])
def test_all_devices_are_not_known_while_a_pool_of_the_node_is_not_ready(mode: Any, pool: Any) -> None:
    """As in kube-scheduler; a number of devices is taken from those that are known."""
    unready = resource_slice("n0", device("x"), **pool)
    unready["metadata"]["name"] = "unready"
    objs = (device_class(), resource_slice("n0", H100), claim("c", request("r", **mode)), pod("p", "c"))
    bound, session = run(*objs, unready)
    assert bound == ({} if mode else {"p": "n0"})
    assert not mode or "a pool is being updated or inconsistent" in why(session, "p")
    assert run(*objs, resource_slice("n1", H100), unready)[0] == {"p": "n1" if mode else "n0"}
    unready["spec"]["nodeName"] = "n1"
    assert run(*objs, unready)[0] == {"p": "n0"}


def test_a_selector_without_an_answer_ends_the_search_where_it_is_reached() -> None:
    """As in kube-scheduler, which takes the first devices that match and looks at no other."""
    good, bad = device("good", model="h100"), {"name": "bad"}
    wanted = claim("c", request("r", f'{A}.model == "h100"'))
    assert run(device_class(), resource_slice("n0", good, bad), wanted, pod("p", "c"))[0] == {"p": "n0"}
    bound, session = run(device_class(), resource_slice("n0", bad, good), wanted, pod("p", "c"))
    assert bound == {}
    assert "has no answer" in why(session, "p")
    # Nodes with the same devices in another order, a second device of the good kind, and all devices.
    two = (resource_slice("n0", bad, good), resource_slice("n1", good, bad))
    assert run(device_class(), *two, wanted, pod("p", "c"))[0] == {"p": "n1"}
    pair = claim("c", request("r", f'{A}.model == "h100"', count=2))
    assert run(device_class(), resource_slice("n0", good, bad, good | {"name": "z"}), pair, pod("p", "c"))[0] == {}
    every = claim("c", request("r", f'{A}.model == "h100"', allocationMode="All"))
    assert run(device_class(), resource_slice("n0", good, bad), every, pod("p", "c"))[0] == {}


def test_a_pods_status_names_the_claims_that_were_made_from_templates() -> None:
    def made(uid: str) -> dict[str, Any]:
        owner = {"kind": "Pod", "name": "p", "uid": uid, "controller": True}
        return claim("p-gpus-x7", request(count=2), metadata={"ownerReferences": [owner]})

    def templated(*statuses: objects.PodResourceClaimStatus) -> objects.Pod:
        found: objects.Pod = builders.pod("p", "g", resourceClaims=[{"name": "gpus", "resourceClaimTemplateName": "t"}])
        status = msgspec.structs.replace(found.status, resource_claim_statuses=list(statuses))
        return msgspec.structs.replace(found, status=status)

    named = templated(objects.PodResourceClaimStatus("gpus", "p-gpus-x7"))
    assert run(*SLICES, made("uid-p"), named)[0] == {"p": "n1"}
    assert run(*SLICES, templated(objects.PodResourceClaimStatus("gpus")))[0] == {"p": "n0"}, "none is needed"
    assert "has not been created from its template yet" in why(run(*SLICES, made("uid-p"), templated())[1], "p")
    assert 'resourceclaim "p-gpus-x7" not found' in why(run(*SLICES, made("another"), named)[1], "p")


def test_an_unreadable_slice_is_set_aside() -> None:
    broken = {"kind": "ResourceSlice", "metadata": {"name": "x"}, "spec": {"driver": DRIVER, "pool": "n0"}}
    assert run(*SLICES, broken, claim("c"), pod("p", "c"))[0] == {"p": "n0"}


# -- quota -----------------------------------------------------------------------------------------------------------


def argument(**arguments: Any) -> str:
    lines = "".join(f"\n      capacity.{key}: {str(value).lower()}" for key, value in arguments.items())
    return QUOTA.replace("- name: capacity", f"- name: capacity\n    arguments:{lines}")


def three(**exactly: Any) -> list[Any]:
    return [
        *SLICES,
        *[claim(f"c{i}", request(**exactly)) for i in range(3)],
        *[pod(f"p{i}", f"c{i}") for i in range(3)],
    ]


def test_a_queue_holds_as_many_devices_as_it_may() -> None:
    bound, session = run(*three(), policy=QUOTA, **{"deviceclass/gpu": "2"})
    assert len(bound) == 2
    reason = pending_reasons(session)["default/p2"]
    assert reason.message == "queue default has no capacity left in deviceclass/gpu"
    assert reason.detail == "deviceclass/gpu: uses 2, limit 2, 1 more requested"


@pytest.mark.parametrize("limits", [{"deviceclass/fpga": "1"}, {"deviceclass/gpu": "0"}])
def test_classes_without_a_limit(limits: dict[str, str]) -> None:
    assert len(run(*three(), policy=QUOTA, **limits)[0]) == 3


def test_the_quota_of_devices_can_be_turned_off() -> None:
    policy = argument(DynamicResourceAllocationEnable=False)
    assert len(run(*three(), policy=policy, **{"deviceclass/gpu": "1"})[0]) == 3


def test_a_quota_of_capacity() -> None:
    limit, wanted = {"memory.deviceclass/gpu": "50Gi"}, {"requests": {"memory": "20Gi"}}
    assert len(run(*three(capacity=wanted), policy=QUOTA, **limit)[0]) == 2
    policy = argument(DRAConsumableCapacityEnable=False)
    assert len(run(*three(capacity=wanted), policy=policy, **limit)[0]) == 3
    assert len(run(*three(capacity=wanted), policy=QUOTA, **{"deviceclass/gpu": "3"})[0]) == 0


def test_requests_for_all_devices_do_not_count() -> None:
    every = claim("c", request(allocationMode="All"))
    assert run(*SLICES, every, pod("p", "c"), policy=QUOTA, **{"deviceclass/gpu": "1"})[0] == {"p": "n0"}


def test_running_pods_count_and_a_shared_claim_counts_once() -> None:
    shared = claim("c", status=allocation("n1", "gpu-1"))
    objs = [*SLICES, shared, claim("d"), pod("run", "c", node="n1"), pod("p", "c"), pod("q", "d")]
    assert run(*objs, policy=QUOTA, **{"deviceclass/gpu": "1"})[0] == {"p": "n1"}


def test_jobs_are_admitted_while_there_is_room_for_the_devices_they_need() -> None:
    waiting: dict[str, Any] = {"phase": "Pending", "minResources": {"cpu": "2"}}
    groups = [builders.pod_group(name, 2, created=i, **waiting) for i, name in enumerate("ab")]
    pods = [pod(f"{g}{i}", f"{g}{i}", group=g) for g in "ab" for i in range(2)]
    claims = [claim(f"{g}{i}") for g in "ab" for i in range(2)]
    bound, session = run(*SLICES, *groups, *claims, *pods, policy=QUOTA, **{"deviceclass/gpu": "3"})
    assert sorted(bound) == ["a0", "a1"]
    assert session.view.jobs["default/b"].phase == "Pending"
    assert why(session, "b0") == "queue default has no capacity left in deviceclass/gpu"


@pytest.mark.parametrize(("limit", "phase"), [("2", "Inqueue"), ("1", "Pending")])
def test_a_minimum_by_role_counts_the_first_pod_of_each(limit: str, phase: str) -> None:
    spec: dict[str, Any] = {"minTaskMember": {"worker": 2}, "minResources": {"cpu": "2"}}
    group = builders.pod_group("a", 2, phase="Pending", **spec)
    worker: dict[str, Any] = {"annotations": {"volcano.sh/task-spec": "worker"}}
    workers = [pod(f"a{i}", f"a{i}", group="a", **worker) for i in range(2)]
    claims = [claim("a0"), claim("a1", request(count=5))]
    _, session = run(*SLICES, group, *claims, *workers, policy=QUOTA, **{"deviceclass/gpu": limit})
    assert session.view.jobs["default/a"].phase == phase


# -- older versions of the API ---------------------------------------------------------------------------------------


def test_v1beta1_says_the_same_in_another_place() -> None:
    older = resource_slice("n1", {"name": "gpu-0", "basic": {k: v for k, v in H100.items() if k != "name"}})
    inline = {"name": "r", "deviceClassName": "gpu", "selectors": [{"cel": {"expression": f'{A}.model == "h100"'}}]}
    assert run(device_class(), older, claim("c", inline), pod("p", "c"))[0] == {"p": "n1"}
    assert run(device_class(), older, claim("c", {**inline, "count": 2}), pod("p", "c"))[0] == {}
    subs = [{**inline, "name": "two", "count": 2}, {**inline, "name": "one"}]
    first = claim("c", {"name": "r", "firstAvailable": subs})
    assert run(device_class(), older, first, pod("p", "c"))[0] == {"p": "n1"}


@pytest.mark.parametrize(
    ("objs", "says"),
    [
        (
            (claim("c", request("r", count=5)),),
            "wants 5 devices of class gpu: 4 of 4 devices match, 4 are free, at most",
        ),
        (
            (claim("c", request("r", f'{A}.model == "h200"')),),
            f'"c" wants 1 device of class gpu: 0 of 4 devices match, its selector is {A}.model == "h200", '
            "devices have model a100, h100)",
        ),
        (
            (
                claim("held", status=allocation("n1", "gpu-0", "gpu-1")),
                pod("h", "held", node="n1"),
                claim("c", request("r", f'{A}.model == "h100"')),
            ),
            "2 of 4 devices match, none is free",
        ),
        ((claim("c"), taint_rule()), "0 of 4 devices match, 4 would but for taints or too little capacity"),
        (
            (claim("c", request("r", count=3), devices={"constraints": [{"matchAttribute": f"{DRIVER}/model"}]}),),
            f"at most 3 on each of 2 nodes without enough, they must agree in {DRIVER}/model",
        ),
        (
            (claim("c", request("r", allocationMode="All", count=None), request("s", count=4)),),
            'request s of resourceclaim "c" wants 4 devices',
        ),
    ],
)
def test_too_few_devices_are_told_with_their_numbers(objs: Any, says: str) -> None:
    session = run(*SLICES, *objs, pod("p", "c"))[1]
    reason = pending_reasons(session)["default/p"]
    assert says in reason.told
    assert not any(character.isdigit() for character in reason.message.replace("default/p", "").replace("g", ""))


def test_no_devices_are_told_as_such() -> None:
    told = pending_reasons(run(device_class(), claim("c"), pod("p", "c"))[1])["default/p"].told
    assert "wants 1 device of class gpu: there are no devices" in told
