"""The parts of the service that need no API server."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.api import objects
from stromboli.api.crds import PodGroup, PodGroupCondition, PodGroupStatus, Queue
from stromboli.api.decisions import Bind, SetQueueStatus
from stromboli.api.errors import InvalidObjectError, PolicyError
from stromboli.live.api_server.client import refusal, status_error
from stromboli.live.loop import still_valid
from stromboli.live.policy import PolicyFile
from stromboli.live.process.limits import Backoff, TokenBucket
from stromboli.live.process.logs import LogFormat, Logger, configure
from stromboli.live.queues.controller import PhaseCounts, queue_fields
from stromboli.live.reporting.status import comparable, pod_group_fields
from stromboli.live.watch.mirror import Mirror
from stromboli.live.watch.reflector import lines
from stromboli.state.cluster import ClusterState
from stromboli.state.queue_states import next_state
from stromboli.workloads import is_bare, pod_group_for
from stromboli.workloads.amounts import min_resources
from tests.live.conftest import Recorder

Object = dict[str, Any]


def pod(name: str = "p", **fields: Any) -> objects.Pod:
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", **fields.pop("metadata", {})}
    status = fields.pop("status", {"phase": "Pending"})
    container = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
    spec = {"schedulerName": "stromboli", "containers": [container], **fields}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, objects.Pod)


def node(name: str, **changes: Any) -> objects.Node:
    manifest = {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9"}}}
    return msgspec.convert({**manifest, **changes}, objects.Node)


def group(name: str, queue: str = "default", phase: str = "", minimum: int = 1, version: str = "1") -> Object:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default", "resourceVersion": version},
        "spec": {"queue": queue, "minMember": minimum},
        "status": {"phase": phase} if phase else {},
    }


def json_objects() -> st.SearchStrategy[Object]:
    """Objects that look a little like a Status."""
    keys = st.sampled_from(["code", "reason", "message", "details", "retryAfterSeconds"])
    leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
    return st.dictionaries(keys, leaves | st.dictionaries(keys, leaves))


# -- lines ---------------------------------------------------------------------------------------------------------


class Chunks:
    """A stream that hands out what it is given."""

    def __init__(self, chunks: list[bytes]) -> None:
        self._chunks = chunks

    async def iter_any(self) -> Any:
        for chunk in self._chunks:
            yield chunk


@given(st.lists(st.binary().filter(lambda b: b"\n" not in b)), st.lists(st.integers(0, 500)))
def test_lines_come_whole_however_they_are_cut(texts: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(text + b"\n" for text in texts)
    edges = [0, *sorted({min(cut, len(stream)) for cut in cuts}), len(stream)]
    chunks = [stream[a:b] for a, b in pairwise(edges)]

    async def read() -> list[bytes]:
        content: Any = Chunks(chunks)
        return [line async for some in lines(content) for line in some]

    assert asyncio.run(read()) == [text for text in texts if text]


async def test_what_follows_the_last_newline_is_left_out() -> None:
    content: Any = Chunks([b"whole\nbrok", b"en"])
    assert [some async for some in lines(content)] == [[b"whole"]]


# -- limits --------------------------------------------------------------------------------------------------------


def test_tokens_come_at_the_rate_and_a_pause_saves_no_more_than_a_burst() -> None:
    now = [0.0]
    bucket = TokenBucket(10, burst=2, clock=lambda: now[0])
    assert [bucket.take() for _ in range(4)] == pytest.approx([0, 0, 0.1, 0.2])
    now[0] = 100.0
    assert [bucket.take() for _ in range(3)] == pytest.approx([0, 0, 0.1])


def test_delays_double_up_to_a_limit_and_respect_the_server() -> None:
    backoff = Backoff(1.0, 4.0)
    for longest in (1, 2, 4, 4):
        assert longest / 2 <= backoff.delay() <= longest
    assert backoff.delay(at_least=30) == 30
    backoff.reset()
    assert backoff.delay() <= 1


@pytest.mark.parametrize(
    ("status", "headers", "body", "shown", "delay", "retriable"),
    [
        (404, {}, b'{"reason":"NotFound","message":"no such pod"}', "404 NotFound: no such pod", None, False),
        (429, {"Retry-After": "3"}, b"slow down", "429 : slow down", 3.0, True),
        (504, {}, b'{"details":{"retryAfterSeconds":1}}', "504 : ", 1.0, True),
        (500, {"Retry-After": "soon"}, b"[]", "500 : []", None, True),
        (503, {}, b'{"code":"busy","reason":7,"message":["x"],"details":"y"}', "503 7: ['x']", None, True),
        (503, {}, b"<html>down</html>", "503 : <html>down</html>", None, True),
        (404, {}, b'{"code":503}', "404 : ", None, False),
    ],
)
def test_refusals_are_read(
    status: int, headers: Object, body: bytes, shown: str, delay: float | None, retriable: bool
) -> None:
    error = refusal(status, headers, body)
    assert (str(error), error.retry_after, error.retriable) == (shown, delay, retriable)


@pytest.mark.parametrize(
    ("asked", "waits"),
    [
        ("3600", 30), ("inf", 30), ("1e400", 30), (10**400, 30), ("-5", 0), ("-inf", 0), ("nan", None), ("", None),
        ([1], None), ("Fri, 31 Dec 2099 23:59:59 GMT", 30), ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
        ("Fri, 31 Dec 99999 23:59:59 GMT", None),
    ],
)  # fmt: skip
def test_what_a_server_asks_to_wait_has_a_limit(asked: object, waits: float | None) -> None:
    assert status_error({"details": {"retryAfterSeconds": asked}}).retry_after == waits
    assert status_error({}, asked).retry_after == waits


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists) | json_objects())
def test_whatever_stands_for_a_status_is_an_error(status: object) -> None:
    error = status_error(status)
    assert isinstance(error.status, int)
    assert error.retry_after is None or 0 <= error.retry_after <= 30


def test_lines_of_one_cause_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    log = Logger("test", clock=lambda: now[0])
    for second in range(100):
        now[0] = float(second)
        log.recurring("list failed", "no route", kind="Pod")
        log.recurring("list failed", "refused" if second == 50 else "no route", kind="Node")
    now[0] = 2_000.0
    log.recurring("list failed", "no route", kind="Pod")
    told = [vars(record)["fields"] for record in caplog.records]
    assert [(fields["error"], fields.get("repeated", 1)) for fields in told] == [
        ("no route", 1), ("no route", 20), ("no route", 40), ("refused", 1), ("no route", 79), ("no route", 1)
    ]  # fmt: skip


def test_log_lines_name_their_fields(caplog: pytest.LogCaptureFixture) -> None:
    Logger("test").warning("binding refused", pod="default/a", error='409 "no"', empty="")
    record = caplog.records[0]
    assert record.getMessage() == 'binding refused pod=default/a error="409 \\"no\\"" empty=""'
    assert vars(record)["fields"] == {"pod": "default/a", "error": '409 "no"', "empty": ""}
    assert record.filename == "test_parts.py"


def test_a_line_in_json_has_the_fields_under_their_names(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(logging.root, "level", logging.WARNING)
    configure("info", LogFormat.json)
    log = Logger("stromboli.test")
    log.info("evicted", pod="default/a", job="default/train", queue="research", session=7, why=ValueError("no"))
    log.debug("not told")
    try:
        raise RuntimeError("odd")
    except RuntimeError as error:
        log.exception("plugin failed", error, plugin="mine")
    logging.getLogger("kubernetes").warning("a line of %s", "somebody else's")
    evicted, failed, other = map(json.loads, capsys.readouterr().err.splitlines())
    assert list(evicted)[:4] == ["time", "level", "logger", "event"]
    assert datetime.fromisoformat(evicted.pop("time")).tzinfo is not None
    assert evicted == {
        "level": "info", "logger": "stromboli.test", "event": "evicted", "pod": "default/a", "job": "default/train",
        "queue": "research", "session": 7, "why": "no",
    }  # fmt: skip
    assert (failed["event"], failed["plugin"], failed["error"]) == ("plugin failed", "mine", "odd")
    assert "RuntimeError: odd" in failed["traceback"]
    assert (other["event"], other["logger"]) == ("a line of somebody else's", "kubernetes")


# -- mirror --------------------------------------------------------------------------------------------------------


@pytest.fixture
def wakes() -> list[bool]:
    return []


@pytest.fixture
def mirror(wakes: list[bool]) -> Mirror:
    return Mirror(ClusterState(["stromboli"]), wakes.append, Recorder())


def test_a_list_forgets_what_it_does_not_hold(mirror: Mirror) -> None:
    for name in ("a", "b", "c"):
        mirror.event("Node", "ADDED", node(name))
    told: list[tuple[str, Any]] = []
    mirror.listen("Node", lambda type, obj: told.append((type, obj)))
    listing = mirror.listing("Node")
    listing.add(node("a"))
    listing.keep("b")
    assert listing.complete() == ["c"]
    assert set(mirror.state.nodes.by_name) == {"a", "b"}
    assert told == [("ADDED", node("a")), ("DELETED", "c")]


def test_what_was_read_by_itself_outweighs_only_an_older_list(mirror: Mirror) -> None:
    for name in ("older", "newer", "deleted"):
        mirror.event("PodGroup", "ADDED", group(name, version="10"))
    listing = mirror.listing("PodGroup")
    for name in ("older", "newer", "deleted"):
        mirror.looked_up("PodGroup", group(name, queue="read", version="100"))
    listing.add(group("older", queue="listed", version="20"))
    listing.add(group("newer", queue="listed", version="101"))
    assert listing.complete() == ["default/deleted"]
    groups = {name: mirror.state.pod_group(f"default/{name}") for name in ("older", "newer")}
    assert {name: each and each.spec.queue for name, each in groups.items()} == {"older": "read", "newer": "listed"}


@pytest.mark.parametrize("kind", ["PodGroup", "Pod"])
@pytest.mark.parametrize("told", ["event", "list"])
def test_what_was_deleted_before_it_was_read_stays_away(mirror: Mirror, kind: str, told: str) -> None:
    def read(name: str, version: str) -> Any:
        return group(name, version=version) if kind == "PodGroup" else pod(name, metadata={"resourceVersion": version})

    mirror.event(kind, "ADDED", read("made", "100"))
    if told == "event":
        mirror.event(kind, "DELETED", read("made", "101"))
    else:
        mirror.listing(kind).complete("101")
    mirror.looked_up(kind, read("made", "100"))
    assert not mirror.state.keys(kind)
    # One that is made again meanwhile, or that the watch has yet to tell of, is there.
    mirror.looked_up(kind, read("made", "102"))
    mirror.event(kind, "ADDED", read("other", "103"))
    mirror.looked_up(kind, read("made", "102"))
    assert set(mirror.state.keys(kind)) == {"default/made", "default/other"}


def test_only_what_may_give_a_pod_a_place_is_urgent(mirror: Mirror, wakes: list[bool]) -> None:
    def woke(kind: str, type: str, obj: Any) -> bool:
        wakes.clear()
        mirror.event(kind, type, obj)
        return any(wakes)

    running = {"phase": "Running"}
    assert woke("Node", "ADDED", node("n"))
    assert not woke("Node", "MODIFIED", node("n"))
    assert woke("Node", "MODIFIED", node("n", spec={"unschedulable": True}))
    assert not woke("Pod", "ADDED", pod())
    in_pair = {"annotations": {"scheduling.k8s.io/group-name": "pair"}}
    assert woke("PodGroup", "ADDED", group("pair", minimum=2))
    assert not woke("Pod", "MODIFIED", pod(metadata=in_pair))
    assert woke("Pod", "ADDED", pod("second", metadata=in_pair))
    refused = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]}
    assert not woke("Pod", "MODIFIED", pod("second", metadata=in_pair, status=refused))
    assert woke("Pod", "MODIFIED", pod("second", metadata=in_pair, priority=7))
    assert not woke("Pod", "MODIFIED", pod(nodeName="n"))
    assert not woke("Pod", "MODIFIED", pod(nodeName="n", status=running))
    assert woke("Pod", "MODIFIED", pod(nodeName="n", status={"phase": "Succeeded"}))
    assert woke("Pod", "DELETED", pod(nodeName="n", status={"phase": "Succeeded"}))
    asking = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}], "nodeName": "n"}
    assert not woke("Pod", "ADDED", pod("resized", **asking))
    for cpu, urgent in (("3", False), ("3", False), ("2", True), ("1", False)):
        in_force = [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]
        assert woke("Pod", "MODIFIED", pod("resized", **asking, status={"containerStatuses": in_force})) == urgent
    other = {"schedulerName": "default-scheduler"}
    assert not woke("Pod", "ADDED", pod("o", **other))
    assert not woke("Pod", "MODIFIED", pod("o", nodeName="n", **other))
    assert woke("Pod", "MODIFIED", pod("o", nodeName="n", status={"phase": "Failed"}, **other))
    assert not woke("Pod", "MODIFIED", pod("o", nodeName="n", status={"phase": "Failed"}, **other))
    assert woke("PodGroup", "ADDED", group("g"))
    assert not woke("PodGroup", "MODIFIED", group("g", phase="Inqueue"))
    assert woke("PodGroup", "MODIFIED", group("g", queue="q"))


def test_a_heartbeat_of_a_node_wakes_nobody(mirror: Mirror, wakes: list[bool]) -> None:
    mirror.event("Node", "ADDED", node("n"))
    told: list[str] = []
    mirror.listen("Node", lambda type, obj: told.append(type))
    wakes.clear()
    mirror.event("Node", "MODIFIED", node("n", metadata={"name": "n", "resourceVersion": "2"}))
    assert wakes == []
    assert told == ["MODIFIED"]
    mirror.event("Node", "MODIFIED", node("n", metadata={"name": "n", "labels": {"a": "b"}}))
    assert wakes == [True]


def test_finished_pods_are_kept_for_their_gang_only(mirror: Mirror) -> None:
    done = {"phase": "Succeeded"}
    mirror.event("Pod", "ADDED", pod("ours", nodeName="n", status=done))
    mirror.event("Pod", "ADDED", pod("other", nodeName="n", status=done, schedulerName="default-scheduler"))
    assert set(mirror.state.pods.by_key) == {"default/ours"}


def test_a_broken_object_keeps_what_was_known_and_is_told_once(
    mirror: Mirror, caplog: pytest.LogCaptureFixture
) -> None:
    queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "q"}}
    mirror.event("Queue", "ADDED", {**queue, "spec": {"weight": 3}})
    for _ in range(2):
        mirror.event("Queue", "MODIFIED", {**queue, "spec": {"deserved": {"cpu": "many"}}})
    assert mirror.state.queues["q"].spec.weight == 3
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1
    assert "kind=Queue key=q" in told[0]
    assert "spec.deserved.cpu" in told[0]
    mirror.event("Queue", "MODIFIED", {**queue, "spec": {"weight": 4}})
    mirror.event("Queue", "MODIFIED", {**queue, "spec": {"weight": "x"}})
    assert len(caplog.records) == 2


# -- binds that still stand ------------------------------------------------------------------------------------------


def test_one_stale_bind_takes_its_gang_with_it(mirror: Mirror) -> None:
    mirror.event("Node", "ADDED", node("n"))
    names = ("replaced-0", "replaced-1", "whole-0", "whole-1", "deleted-0", "deleted-1", "homeless-0", "alone")
    for name in names:
        annotations = {"scheduling.k8s.io/group-name": name.split("-")[0]} if "-" in name else {}
        mirror.event("Pod", "ADDED", pod(name, metadata={"annotations": annotations}))
    snapshot = mirror.state.snapshot()
    binds = [Bind("default", name, f"uid-{name}", "gone" if name == "homeless-0" else "n") for name in names]
    mirror.event("Pod", "MODIFIED", pod("replaced-1", metadata={"uid": "another"}))
    mirror.event("Pod", "DELETED", pod("deleted-1"))

    def standing(held: str = "") -> list[str]:
        valid, stale = still_valid(binds, snapshot, mirror.state, lambda key: key == held)
        assert len(valid) + len(stale) == len(binds)
        return [bind.name for bind in valid]

    assert standing() == ["whole-0", "whole-1", "alone"]
    assert standing(held="default/whole-0") == ["alone"]
    mirror.state.assume("default/whole-1", "n")
    assert standing() == ["alone"]
    mirror.event("Pod", "MODIFIED", pod("alone", nodeName="n"))
    assert standing() == []


@pytest.mark.parametrize(("gone", "stands"), [("", True), ("bound", True), ("refused", False), ("deleted", False)])
def test_a_bind_relies_on_those_of_its_gang_that_were_under_way(mirror: Mirror, gone: str, stands: bool) -> None:
    annotations = {"scheduling.k8s.io/group-name": "gang"}
    mirror.event("Node", "ADDED", node("n"))
    for name in ("first", "later"):
        mirror.event("Pod", "ADDED", pod(name, metadata={"annotations": annotations}))
    mirror.state.assume("default/first", "n")
    snapshot, bind = mirror.state.snapshot(), Bind("default", "later", "uid-later", "n")
    if gone == "refused":
        mirror.state.forget("default/first")
    elif gone:
        at = {"nodeName": "n"} if gone == "bound" else {}
        type = "DELETED" if gone == "deleted" else "MODIFIED"
        mirror.event("Pod", type, pod("first", metadata={"annotations": annotations}, **at))
    valid, stale = still_valid([bind], snapshot, mirror.state, lambda key: False)
    assert (valid, stale) == (([bind], []) if stands else ([], [bind]))


# -- queues and statuses ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "pod_groups", "expected"),
    [("", 0, "Open"), ("", 2, "Open"), ("Open", 0, "Open"), ("Closing", 1, "Closing"), ("Closing", 0, "Closed"),
     ("Closed", 3, "Closed"), ("Unknown", 0, "Unknown")],
)  # fmt: skip
def test_states_of_queues(state: str, pod_groups: int, expected: str) -> None:
    assert next_state(state, pod_groups) == expected


def test_only_what_differs_of_a_queue_is_written(mirror: Mirror) -> None:
    counts = PhaseCounts(mirror)
    for name, phase in (("a", "Running"), ("b", ""), ("c", "Pending"), ("d", "Inqueue"), ("e", "Running")):
        mirror.event("PodGroup", "ADDED", group(name, "q" if name != "d" else "", phase))
    mirror.event("PodGroup", "MODIFIED", group("c", "q", "Running"))
    mirror.event("PodGroup", "DELETED", group("e", "q", "Running"))
    assert counts.of("default") == {"Inqueue": 1}
    status = {"state": "Open", "running": 2, "allocated": {"cpu": "1", "nvidia.com/gpu": "2"}}
    manifest = {"metadata": {"name": "q"}, "status": status}
    queue = Queue.parse({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", **manifest})
    assert queue_fields(queue, counts.of("q"), None) == {"pending": 1}
    assert queue_fields(queue, counts.of("q"), SetQueueStatus("q", {"cpu": "3"}))["allocated"] == {
        "cpu": "3",
        "nvidia.com/gpu": None,
    }


def test_a_condition_keeps_its_time_while_its_status_stands() -> None:
    since = "2026-01-02T03:04:05Z"
    manifest = group("g")
    manifest["metadata"]["generation"] = 7
    manifest["status"]["conditions"] = [{"type": "Ready", "status": "False", "lastTransitionTime": since}]
    observed = PodGroup.parse(manifest)
    same, changed = (
        pod_group_fields(
            PodGroupStatus(phase="Pending", conditions=[PodGroupCondition(type="Ready", status=status)]), observed
        )["conditions"][0]
        for status in ("False", "True")
    )
    assert same == {"type": "Ready", "status": "False", "lastTransitionTime": since, "observedGeneration": 7}
    assert changed["lastTransitionTime"] > since
    assert comparable({"conditions": [same]}) != comparable({"conditions": [changed]})
    assert comparable({"conditions": [same]}) == comparable({"conditions": [{**same, "lastTransitionTime": "now"}]})


# -- groups of bare pods -----------------------------------------------------------------------------------------------


def test_min_resources_count_as_a_quota_does() -> None:
    def container(requests: Object, limits: Object | None = None, **more: Any) -> Object:
        return {"name": "c", "resources": {"requests": requests, "limits": limits or {}}, **more}

    found = pod(
        containers=[container({"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "1"})],
        initContainers=[
            container({"cpu": "250m"}, {"cpu": "1"}, restartPolicy="Always"),
            container({"cpu": "2"}),
        ],
        overhead={"cpu": "100m"},
    )
    assert min_resources(found.spec, 2) == {
        "count/pods": "2",
        "pods": "2",
        "cpu": "4700m",
        "requests.cpu": "4700m",
        "memory": str(2 * 2**30),
        "requests.memory": str(2 * 2**30),
        "nvidia.com/gpu": "2",
        "requests.nvidia.com/gpu": "2",
        "limits.cpu": "2200m",
    }
    assert min_resources(found.spec, 0) == {}


def test_the_group_of_a_pod_takes_what_the_pod_says() -> None:
    annotations = {
        "scheduling.volcano.sh/queue-name": "research",
        "volcano.sh/preemptable": "false",
        "volcano.sh/jdb-max-unavailable": "1",
        "volcano.sh/network-topology-mode": "Soft",
        "volcano.sh/network-topology-highest-tier": "2",
        "unrelated": "x",
    }
    labels = {"volcano.sh/cooldown-time": "5m", "app": "x"}
    made = pod_group_for(pod(metadata={"annotations": annotations, "labels": labels}, priorityClassName="high"), [])
    assert made["metadata"]["name"] == "podgroup-uid-p"
    assert made["metadata"]["labels"] == {"volcano.sh/cooldown-time": "5m"}
    assert set(made["metadata"]["annotations"]) == {"volcano.sh/preemptable", "volcano.sh/jdb-max-unavailable"}
    spec = made["spec"]
    assert (spec["queue"], spec["priorityClassName"], spec["minMember"]) == ("research", "high", 1)
    assert spec["networkTopology"] == {"mode": "soft", "highestTierAllowed": 2}
    assert made["status"] == {"phase": "Pending"}


@pytest.mark.parametrize("text", ["9" * 5000, "²", "-1", "", "2147483648", "1e3"])
def test_a_number_of_a_bare_pod_or_its_owner_that_cannot_be_read_is_named(text: str) -> None:
    tier = {"volcano.sh/network-topology-highest-tier": text}
    least = {"scheduling.volcano.sh/group-min-member": text}
    owner = {"kind": "ReplicaSet", "metadata": {"name": "web", "namespace": "a", "annotations": least}}
    with pytest.raises(InvalidObjectError, match=r"Pod default/p: metadata\.annotations\[.*highest-tier\]: should be"):
        pod_group_for(pod(metadata={"annotations": tier}), [])
    with pytest.raises(InvalidObjectError, match=r"ReplicaSet a/web: metadata\.annotations\[.*min-member\]: should be"):
        pod_group_for(pod(), [owner])


@pytest.mark.parametrize(
    ("fields", "bare"),
    [
        ({}, True),
        ({"metadata": {"annotations": {"scheduling.k8s.io/group-name": ""}}}, True),
        ({"metadata": {"annotations": {"scheduling.k8s.io/group-name": "g"}}}, False),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, False),
        ({"schedulingGroup": {"podGroupName": "g"}}, False),
        ({"status": {"phase": "Succeeded"}}, False),
    ],
)
def test_which_pods_are_bare(fields: Object, bare: bool) -> None:
    assert is_bare(pod(**fields)) is bare


# -- policy --------------------------------------------------------------------------------------------------------


class Policies:
    """Loads texts, but not those that are bad."""

    def __init__(self) -> None:
        self.loaded: list[str] = []
        self.reports: list[str | None] = []

    def load(self, text: str) -> None:
        if text.startswith("bad"):
            raise PolicyError([f"{text!r} is no policy"])
        self.loaded.append(text)


def test_a_bad_policy_is_reported_once_and_the_good_one_stays(tmp_path: Path) -> None:
    """The file is a link into a directory that is exchanged, as of a mounted ConfigMap."""
    policies, numbers = Policies(), iter(range(100))

    def publish(text: str | bytes) -> None:
        content = tmp_path / f"..{next(numbers)}"
        content.mkdir()
        (content / "policy").write_bytes(text if isinstance(text, bytes) else text.encode())
        (tmp_path / "new").symlink_to(content)
        os.replace(tmp_path / "new", tmp_path / "data")

    publish("first")
    file = PolicyFile(tmp_path / "data" / "policy", policies.load, policies.reports.append)
    for text in ("first", "bad one", "bad one", b"\xff", "second"):
        publish(text)
        file.check()
        file.check()
    (tmp_path / "data" / "policy").unlink()
    file.check()
    file.check()
    publish("second")
    file.check()
    assert policies.loaded == ["first", "second", "second"]
    assert policies.reports[:2] == [None, "'bad one' is no policy"]
    assert str(policies.reports[2]).startswith("is not UTF-8")
    assert policies.reports[3:] == [None, "cannot be read: No such file or directory", None]
