"""Jobs that wait, one situation for each cause."""

from __future__ import annotations

from typing import Any

from tests.e2e.situations.site import Site, Situation

TOPOLOGY = "/apis/topology.volcano.sh/v1alpha1/hypernodes"
PORT = [{"hostPort": 8080, "containerPort": 8080}]
HARD = {"mode": "hard", "highestTierAllowed": 1}
SELECTED = {"app": "train"}


def apart(key: str) -> dict[str, Any]:
    """Away from pods of the same job."""
    term = {"labelSelector": {"matchLabels": SELECTED}, "topologyKey": key}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def spread(key: str) -> dict[str, Any]:
    """Evenly over a topology, one more at most."""
    constraint = {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": SELECTED},
    }
    return {"topologySpreadConstraints": [constraint]}


# -- admission ---------------------------------------------------------------------------------------------------------


def queue_misspelt(site: Site) -> None:
    site.node()
    site.train(group={"queue": f"{site.name}x"})


def queue_closed(site: Site) -> None:
    site.node()
    site.close(site.name)
    site.train()


def gated(site: Site) -> None:
    site.node()
    site.train(schedulingGates=[{"name": "example.com/data"}])


def more_than_the_cluster(site: Site) -> None:
    site.node()
    site.train(group={"minResources": {"cpu": "90k"}})


def above_the_limit(site: Site) -> None:
    site.queue(f"{site.name}-small", capability={"cpu": "4"})
    site.runs("other", 3, site.node(), group={"queue": f"{site.name}-small"})
    site.train(2, group={"queue": f"{site.name}-small", "minResources": {"cpu": "2"}})


def never_within_the_limit(site: Site) -> None:
    site.node()
    site.queue(f"{site.name}-small", capability={"cpu": "2"})
    site.train(3, group={"queue": f"{site.name}-small"})


def above_the_quota(site: Site) -> None:
    site.node()
    quota = {"metadata": {"name": "team"}, "spec": {"hard": {"requests.cpu": "2"}}}
    site.put("/api/v1/resourcequotas", quota)
    path = f"/api/v1/namespaces/{site.namespace}/resourcequotas/team"
    site.status(path, {"hard": {"requests.cpu": "2"}, "used": {"requests.cpu": "0"}})
    site.train(0, 4, group={"minResources": {"cpu": "4"}})


# -- share and gang ----------------------------------------------------------------------------------------------------


def strictly_in_order(site: Site) -> None:
    on = site.node(cpu="4")
    site.queue(f"{site.name}-fifo", dequeueStrategy="fifo")
    fifo = {"queue": f"{site.name}-fifo"}
    site.runs("runs", 2, on, group=fifo)
    site.job("first", 3, group=fifo)
    site.wait_a_second()
    site.train(1, group=fifo)


def incomplete(site: Site) -> None:
    site.node()
    site.train(3, 4)


def more_ports_than_nodes(site: Site) -> None:
    site.node("a")
    site.node("b")
    site.train(3, ports=PORT)


def more_than_zones(site: Site) -> None:
    for number in range(4):
        site.node(f"n{number}", labels={"zone": f"{site.name}-{number % 2}"})
    site.train(3, labels=SELECTED, **apart("zone"))


def more_than_the_spread(site: Site) -> None:
    site.node("small", cpu="1")
    site.node("large", cpu="8")
    site.train(4, labels=SELECTED, **spread("kubernetes.io/hostname"))


def above_the_rack(site: Site) -> None:
    for rack in range(2):
        members = [site.node(f"r{rack}-{number}", cpu="2") for number in range(2)]
        selected = [{"type": "Node", "selector": {"exactMatch": {"name": name}}} for name in members]
        site.create(TOPOLOGY, _hyper(f"{site.name}-r{rack}", 1, selected))
    racks = [{"type": "HyperNode", "selector": {"exactMatch": {"name": f"{site.name}-r{rack}"}}} for rack in range(2)]
    site.create(TOPOLOGY, _hyper(f"{site.name}-spine", 2, racks))
    site.train(6, group={"networkTopology": HARD})


def _hyper(name: str, tier: int, members: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": name},
        "spec": {"tier": tier, "members": members},
    }


# -- nodes -------------------------------------------------------------------------------------------------------------


def tainted(site: Site) -> None:
    site.node(taints=[{"key": "team", "value": "vision", "effect": "NoSchedule"}])
    site.train(2)


def cordoned(site: Site) -> None:
    site.node(unschedulable=True)
    site.train(2)


def label_misspelt(site: Site) -> None:
    site.node(labels={"disk": "hdd"})
    site.train(nodeSelector={"disk": "hddd"})


def key_misspelt(site: Site) -> None:
    site.node(labels={"disktype": "hdd"})
    site.train(nodeSelector={"disktyp": "hdd"})


def card_misspelt(site: Site) -> None:
    site.node(offers={"example.com/gpu": "4"})
    site.train(asks={"example.com/gpus": "1"})


def card_of_no_node(site: Site) -> None:
    site.node()
    site.train(asks={"fpga.example.org/board": "2"})


def larger_than_a_node(site: Site) -> None:
    site.node()
    site.train(cpu="12")


def no_room(site: Site) -> None:
    site.runs("holds", 5, site.node(), labels={"app": "web"})
    site.train(4)


def no_zone(site: Site) -> None:
    site.node()
    site.train(labels=SELECTED, **spread("topology.example.com/rack"))


def volume_missing(site: Site) -> None:
    site.node()
    site.train(volumes=[_volume("data")])


def volume_unbound(site: Site) -> None:
    site.node()
    site.put("/api/v1/persistentvolumeclaims", _claim("data", f"{site.name}-gone"))
    site.train(volumes=[_volume("data")])


def _volume(claim: str) -> dict[str, Any]:
    return {"name": claim, "persistentVolumeClaim": {"claimName": claim}}


def _claim(name: str, storage_class: str) -> dict[str, Any]:
    resources = {"requests": {"storage": "1Gi"}}
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": storage_class, "resources": resources}
    return {"metadata": {"name": name}, "spec": spec}


def device_claim_missing(site: Site) -> None:
    site.node()
    site.train(resourceClaims=[{"name": "cards", "resourceClaimName": "cards"}])


def device_class_missing(site: Site) -> None:
    site.node()
    requests = [{"name": "card", "exactly": {"deviceClassName": f"{site.name}.example.com"}}]
    site.put(
        "/apis/resource.k8s.io/v1/resourceclaims",
        {"metadata": {"name": "cards"}, "spec": {"devices": {"requests": requests}}},
    )
    site.train(resourceClaims=[{"name": "cards", "resourceClaimName": "cards"}])


def terminating(site: Site) -> None:
    on = site.node(cpu="4")
    leaves = site.member("old", "", cpu="4", terminationGracePeriodSeconds=600)
    leaves["metadata"]["finalizers"] = ["example.com/tested"]
    site.place(leaves, on)
    site.api.delete(f"/api/v1/namespaces/{site.namespace}/pods/old").raise_for_status()
    site.train(cpu="4")


# -- evictions ---------------------------------------------------------------------------------------------------------


def victims_too_important(site: Site) -> None:
    site.runs("serves", 4, site.node(cpu="4"), 1, group={"priorityClassName": "tested-high"})
    site.train(2, group={"priorityClassName": "tested-mid"})


def victims_in_another_queue(site: Site) -> None:
    site.queue(f"{site.name}-web")
    site.runs("serves", 4, site.node(cpu="4"), 1, group={"queue": f"{site.name}-web"})
    site.train(2, group={"priorityClassName": "tested-mid"})


def victims_protected(site: Site) -> None:
    site.runs("serves", 4, site.node(cpu="4"), 1, labels={"app": "web"})
    budget = {"metadata": {"name": "web"}, "spec": {"minAvailable": 4, "selector": {"matchLabels": {"app": "web"}}}}
    site.put("/apis/policy/v1/poddisruptionbudgets", budget)
    site.train(2, group={"priorityClassName": "tested-mid"})


def victims_unwilling(site: Site) -> None:
    keeps = {"volcano.sh/preemptable": "false"}
    site.runs("serves", 4, site.node(cpu="4"), 1, annotations=keeps)
    site.train(2, group={"priorityClassName": "tested-mid"})


def never_preempts(site: Site) -> None:
    site.runs("serves", 4, site.node(cpu="4"), 1)
    site.train(2, group={"priorityClassName": "tested-meek"}, priorityClassName="tested-meek")


def priority_misspelt(site: Site) -> None:
    site.runs("serves", 4, site.node(cpu="4"), 1)
    site.train(2, group={"priorityClassName": "tested-hihg"})


FULL = "no node is available: Insufficient cpu"

POOLS: dict[str, Situation] = {
    "queue-misspelt": Situation(
        queue_misspelt, "QueueNotFound", "user", ("there is no queue {}x", "did you mean {}?"), ("set queue: {} in",)
    ),
    "queue-closed": Situation(
        queue_closed, "QueueNotOpen", "admin", ("queue {} takes no new work: its state is Closed",), ("open queue {}",)
    ),
    "gated": Situation(
        gated,
        "SchedulingGated",
        "user",
        ("example.com/data",),
        ("have the scheduling gates example.com/data lifted by",),
    ),
    "huge": Situation(
        more_than_the_cluster,
        "QueueCapabilityExceeded",
        "user",
        ("90,000 more requested; it is more than the queue may have even when nothing runs",),
        ("set minResources to 1 cpu",),
        ("take enqueue out", "wait:"),
    ),
    "limit": Situation(
        above_the_limit,
        "QueueShareExceeded",
        "wait",
        ("may have 4, 1 more requested", "{}/other in queue {}-small: 3 pods, 3 cpu"),
        ("raise capability of queue {}-small to 5 cpu", "wait until {}/other ends"),
    ),
    "never": Situation(
        never_within_the_limit,
        "NeverFits",
        "user",
        ("queue {}-small", "asks for 3, the queue may have 2"),
        ("raise capability of queue {}-small to 3 cpu",),
    ),
    "quota": Situation(
        above_the_quota, "ResourceQuotaExceeded", "admin", ("team", "4"), ("raise ResourceQuota {}/team",)
    ),
    "fifo": Situation(
        strictly_in_order,
        "BehindInQueue",
        "wait",
        ("queue {}-fifo serves its jobs strictly in order", "{}/first"),
        ("wait until {}/first ends",),
    ),
    "incomplete": Situation(
        incomplete, "NotEnoughPods", "user", ("3", "4"), ("set minMember: 3 in PodGroup {}/train",)
    ),
    "ports": Situation(
        more_ports_than_nodes,
        "CannotBePlacedTogether",
        "user",
        ("host port 8080/TCP: 3 pods, 2 nodes that could take one each",),
        ("drop the host ports", "add 1 node like {}-a"),
        ("wait:",),
    ),
    "zones": Situation(
        more_than_zones,
        "CannotBePlacedTogether",
        "user",
        ("pod anti-affinity by zone: 3 pods, 2 domains",),
        ("drop the required pod anti-affinity",),
    ),
    "spread": Situation(
        more_than_the_spread,
        "CannotBePlacedTogether",
        "user",
        ("topology spread by kubernetes.io/hostname",),
        ("drop the topology spread constraints",),
    ),
    "rack": Situation(
        above_the_rack,
        "CannotBePlacedTogether",
        "user",
        ("without network topology", "6 pods in one HyperNode"),
        ("set highestTierAllowed: 2 in PodGroup {}/train",),
    ),
    "taint": Situation(
        tainted,
        "NoMatchingNode",
        "user",
        ("untolerated taint {team: vision}",),
        ("tolerate taint team=vision:NoSchedule",),
    ),
    "cordon": Situation(cordoned, "NoMatchingNode", "admin", ("unschedulable",), ("uncordon node {}-n",)),
    "label": Situation(
        label_misspelt, "NoMatchingNode", "user", ("node affinity/selector",), ("correct disk: hddd to hdd",)
    ),
    "key": Situation(
        key_misspelt,
        "NoMatchingNode",
        "user",
        ("node affinity/selector",),
        ("correct disktyp: hdd to disktype: hdd in nodeSelector",),
    ),
    "card": Situation(
        card_misspelt,
        "NeverFits",
        "user",
        ("example.com/gpus",),
        ("ask for example.com/gpu instead of example.com/gpus",),
        ("nodes like", "node like"),
    ),
    "nocard": Situation(card_of_no_node, "NeverFits", "user", ("fpga.example.org/board", "2"), ("with 2 fpga",)),
    "large": Situation(
        larger_than_a_node, "NeverFits", "user", ("12", "8"), ("ask for no more than 8 cpu", "with 12 cpu")
    ),
    "full": Situation(
        no_room,
        "Unschedulable",
        "wait",
        (FULL, "{}-n takes 3 and lacks 1 cpu for one more", "{}/holds in queue {}: 5 pods, 5 cpu"),
        ("wait until {}/holds ends",),
    ),
    "nozone": Situation(
        no_zone, "NoMatchingNode", "user", ("missing required label",), ("drop the topology spread constraints",)
    ),
    "volume": Situation(volume_missing, "NoMatchingNode", "user", ("data",), ("create PersistentVolumeClaim {}/data",)),
    "unbound": Situation(volume_unbound, "NoMatchingNode", "admin", ("{}-gone",), ("create StorageClass {}-gone",)),
    "claim": Situation(device_claim_missing, "NoMatchingNode", "user", ("cards",), ("create ResourceClaim {}/cards",)),
    "class": Situation(
        device_class_missing, "NoMatchingNode", "admin", ("{}.example.com",), ("create DeviceClass {}.example.com",)
    ),
    "leaving": Situation(terminating, "WaitingForRelease", "wait", ("gets its place on {}-n",), ()),
    "priority": Situation(
        victims_too_important,
        "Unschedulable",
        "wait",
        (FULL, "no job has a lower priority than its 50: {}/serves in queue {} has 100 (4 pods)"),
        ("wait until {}/serves ends",),
    ),
    "elsewhere": Situation(
        victims_in_another_queue,
        "Unschedulable",
        "wait",
        (FULL, "jobs of lower priority are in other queues, from which only reclaim takes: ", "{}/serves"),
    ),
    "budget": Situation(
        victims_protected,
        "Unschedulable",
        "wait",
        (FULL, "PodDisruptionBudget {}/web allows no disruption, and covers 4 of them"),
    ),
    "unwilling": Situation(victims_unwilling, "Unschedulable", "wait", (FULL, "4 run, and they, their PodGroups")),
    "meek": Situation(never_preempts, "Unschedulable", "wait", (FULL, "preemptionPolicy is Never")),
    "class-of-priority": Situation(
        priority_misspelt,
        "Unschedulable",
        "wait",
        (FULL, "there is no PriorityClass tested-hihg, did you mean 'tested-high'?"),
    ),
}

__all__ = ["POOLS"]
