"""Which pods give way to more important ones, and who gets the room."""

from __future__ import annotations

from typing import Any

from tests.controlplane.cluster import eventually
from tests.e2e.beside.neighbors import near, requiring
from tests.e2e.beside.scene import HOSTNAME, SLOWLY, Scene, requesting


def holders(at: Scene, node: str, *priorities: int, cpu: str = "1", **more: Any) -> None:
    """Pods that fill a node, named after it."""
    for number, priority in enumerate(priorities):
        at.running(f"{node}-{number}", node, cpu=cpu, priority=priority, **more)


def budget(at: Scene, least: int, allowed: int, **labels: str) -> None:
    """A budget that leaves pods of some labels there, and may now be without some."""
    path = f"/apis/policy/v1/namespaces/{at.world.namespace}/poddisruptionbudgets"
    spec = {"minAvailable": least, "selector": {"matchLabels": labels}}
    at.world.create(path, {"metadata": {"name": "some"}, "spec": spec})

    def known() -> bool:
        status = at.world.get(f"{path}/some").get("status", {})
        return bool(status) and (status["currentHealthy"], status["disruptionsAllowed"]) == (least + allowed, allowed)

    eventually(known)


def the_least_important_victim_decides(at: Scene) -> None:
    at.nodes("a", "b", cpu="2")
    holders(at, "a", 100, cpu="2")
    holders(at, "b", 1, 1)
    at.pod("urgent", cpu="2", priority=1000)


def the_number_of_victims_decides(at: Scene) -> None:
    at.nodes("a", "b", cpu="3")
    holders(at, "a", 1, 1, 1)
    holders(at, "b", 1, 1, cpu="1500m")
    at.pod("urgent", cpu="3", priority=1000)


def the_newest_victim_decides(at: Scene) -> None:
    at.nodes("a", "b", cpu="1")
    holders(at, "a", 1)
    holders(at, "b", 1)
    at.tell("a-0", startTime="2026-01-01T00:00:00Z")
    at.tell("b-0", startTime="2026-01-02T00:00:00Z")
    at.pod("urgent", cpu="1", priority=1000)


def no_more_than_the_pod_needs(at: Scene) -> None:
    at.nodes("a")
    holders(at, "a", 1, 50, 100, 2)
    at.pod("urgent", cpu="2", priority=1000)


def a_large_victim_spares_small_ones(at: Scene) -> None:
    at.nodes("a", cpu="4")
    holders(at, "a", 3, cpu="2")
    at.pod("small", "a", cpu="1", priority=2)
    at.pod("tiny", "a", cpu="1", priority=1)
    at.pod("urgent", cpu="2", priority=1000)


def pods_as_important_do_not_give_way(at: Scene) -> None:
    at.nodes("a", cpu="1")
    holders(at, "a", 100)
    at.pod("same", cpu="1", priority=100)
    at.pod("patient", cpu="1", priority=1000, preemptionPolicy="Never")


def the_number_of_pods_of_a_node(at: Scene) -> None:
    at.nodes("a", pods="2")
    holders(at, "a", 100, 1, cpu="100m")
    at.pod("urgent", priority=1000)


def a_pod_that_requests_nothing_on_a_node_full_of_pods(at: Scene) -> None:
    at.nodes("a", "b", pods="2")
    holders(at, "a", 100, 50, cpu="100m")
    holders(at, "b", 100, 1, cpu="100m")
    at.pod("urgent", containers=[requesting()], priority=1000)


def a_pod_that_keeps_others_away(at: Scene) -> None:
    at.nodes("a")
    at.pod("alone", priority=1, affinity=requiring(near(HOSTNAME, app="web"), kind="podAntiAffinity"))
    at.pod("other", priority=1)
    at.pod("urgent", labels={"app": "web"}, priority=1000)


def a_victim_that_the_pod_wants_near(at: Scene) -> None:
    at.nodes("a", "b", cpu="2")
    holders(at, "b", 500, 500)
    at.pod("db", "a", cpu="1", labels={"app": "db"}, priority=2000)
    at.pod("other", "a", cpu="1", priority=1)
    at.pod("urgent", cpu="1", affinity=requiring(near(HOSTNAME, app="db")), priority=1000)


def room_that_ends_slowly_is_kept(at: Scene) -> None:
    at.nodes("a", cpu="4")
    holders(at, "a", 1, cpu="3", finalizers=[SLOWLY])
    at.pod("urgent", cpu="4", priority=1000)
    at.pod("small", cpu="1", priority=1)
    at.outcome()
    at.let_go("a-0")


def a_more_important_pod_takes_the_room(at: Scene) -> None:
    at.nodes("a", cpu="1")
    holders(at, "a", 1, finalizers=[SLOWLY])
    at.pod("urgent", cpu="1", priority=1000)
    at.pod("most-urgent", cpu="1", priority=2000)
    at.outcome()
    at.let_go("a-0")


def no_second_victim_while_the_first_ends(at: Scene) -> None:
    at.nodes("a", "b", cpu="1")
    holders(at, "a", 1, finalizers=[SLOWLY])
    holders(at, "b", 2)
    at.pod("urgent", cpu="1", priority=1000)
    at.outcome()
    at.let_go("a-0")


def a_gated_pod_takes_no_room(at: Scene) -> None:
    at.nodes("a", cpu="1")
    holders(at, "a", 1)
    at.pod("gated", cpu="1", schedulingGates=[{"name": "example.com/wait"}], priority=1000)
    at.outcome()


def pods_of_a_budget_are_spared(at: Scene) -> None:
    at.nodes("a", "b", cpu="1")
    holders(at, "a", 1, labels={"app": "db"})
    holders(at, "b", 100)
    budget(at, 1, 0, app="db")
    at.pod("urgent", cpu="1", priority=1000)


def as_many_pods_of_a_budget_as_it_allows(at: Scene) -> None:
    at.nodes("a", "b", "c", cpu="1")
    holders(at, "a", 1, labels={"app": "db"})
    holders(at, "b", 2, labels={"app": "db"})
    holders(at, "c", 100)
    budget(at, 1, 1, app="db")
    at.pod("first", cpu="1", priority=1000)
    at.outcome()
    at.pod("second", cpu="1", priority=1000)
