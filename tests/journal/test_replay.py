"""What `stromboli record` writes and `stromboli replay` says."""

from __future__ import annotations

import errno
import stat
from dataclasses import fields
from pathlib import Path

import msgspec
import numpy as np
import pytest
import yaml

from stromboli.api.crds import SCHEDULING, PodGroup, PodGroupCondition, PodGroupPhase, PodGroupStatus
from stromboli.api.decisions import SetPodGroupStatus
from stromboli.api.objects import (
    ContainerStatus,
    Metadata,
    PodCondition,
    PodResourceClaimStatus,
    PriorityClass,
    ResourceRequirements,
)
from stromboli.engine import Engine
from stromboli.framework.cluster.churn import Churn, History
from stromboli.framework.cluster.environment import OFFLINE, Admission, Admitted, Environment, NodeUsage, Sharding
from stromboli.framework.cluster.reservation import Place, Reservation
from stromboli.journal import Folder, redaction, wire
from stromboli.journal.outcome import Outcome, Waiting
from stromboli.journal.plain import NotPlainError, plain, value_of
from stromboli.journal.remembered import known, written
from stromboli.plugins.fairshare.usage import Bucket, Memory, UsageHistory
from stromboli.policy.document import DEFAULT_POLICY
from stromboli.simulation.scripted_extender import ScriptedExtender
from stromboli.state.refusals import Refusal
from tests.builders import NOON, node, pod, pod_group, queue
from tests.cli.conftest import stromboli
from tests.disks import mounts, small_disk
from tests.journal.recording import Recording
from tests.kube import test_volumes as volumes
from tests.kube.test_dra import claim, device, device_class, resource_slice
from tests.plugins.sessions import policy


@pytest.fixture
def recording() -> Recording:
    """A pod is placed on one of two nodes, another one waits."""
    recording = Recording(Engine())
    recording.follow([node("a", cpu="2"), node("b", cpu="1"), queue("default"), pod_group("train"), pod_group("big")])
    recording.session()
    for each in (pod("train-0", "train", cpu="2"), pod("big-0", "big", cpu="4")):
        recording.state.upsert("Pod", each)
    recording.session(NOON + 1)
    return recording


def test_claims_that_were_made_for_a_pod_are_recorded() -> None:
    """Its status names them, a moment after it came."""
    recording, owner = Recording(Engine()), {"kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
    recording.follow([node("n0"), queue("default"), pod_group("g")])
    for obj in (
        device_class(),
        resource_slice("n0", device("gpu-0")),
        claim("made", metadata={"ownerReferences": [owner]}),
    ):
        recording.state.upsert(obj["kind"], obj)
    templated = pod("p", "g", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "t"}])
    recording.state.upsert("Pod", templated)
    assert recording.session().session.bound == {}
    statuses = [PodResourceClaimStatus("gpu", "made")]
    named = msgspec.structs.replace(templated.status, resource_claim_statuses=statuses)
    recording.state.upsert("Pod", msgspec.structs.replace(templated, status=named))
    assert recording.session(NOON + 1).session.bound == {"default/p": "n0"}
    assert recording.replayed().difference is None


def test_a_round_of_turns_is_replayed_from_its_middle() -> None:
    """The journal begins when some jobs of each queue and namespace had their turns and others had not."""
    text = f"{DEFAULT_POLICY}session: {{steps: 60_000}}\n"
    recording = Recording(Engine(text), largest=1 << 16)
    objs: list[object] = [node("n0", cpu="8"), queue("default"), queue("other"), pod_group("runs", phase="Running")]
    objs.append(pod("runs-0", "runs", cpu="4", node="n0"))
    for at in range(40):
        name, namespace = f"mass-{at:02}", f"team-{at % 3}"
        group = pod_group(name, queue=("default", "other")[at % 2], namespace=namespace, phase="Inqueue")
        objs += [group, pod(name, name, cpu=f"{5_000 + at}m", namespace=namespace)]
    recording.follow(objs)
    unfinished = [recording.session(NOON + at).unfinished for at in range(9)]
    assert sum(unfinished) > 4
    told = recording.sessions.environment.left["turns of allocate"]
    assert set(told["had"]) == {"default", "other"}
    report = recording.replayed()
    assert report.difference is None
    assert report.sessions == len(unfinished)


def test_what_is_known_of_volumes_is_recorded() -> None:
    """Also what the service alone says of a claim, and how much storage drivers publish."""
    recording = Recording(Engine())
    recording.follow([node("n0"), node("n1", labels={"zone": "a"}), queue("default"), pod_group("g")])
    published = {"storageClassName": "made", "capacity": "9Gi", "nodeTopology": {"matchLabels": {"zone": "a"}}}
    waiting = volumes.claim("data", "made")
    waiting["metadata"]["uid"] = "uid-data"
    for obj in (
        volumes.storage_class("made", "d"),
        {"kind": "CSIDriver", "metadata": {"name": "d"}, "spec": {"storageCapacity": True}},
        {"kind": "CSIStorageCapacity", "metadata": {"name": "c", "namespace": "default"}, **published},
        waiting,
    ):
        recording.state.upsert(obj["kind"], obj)
    recording.state.upsert("Pod", volumes.pod("p", "data"))
    assert recording.session().session.bound == {"default/p": "n1"}
    waiting["metadata"]["annotations"]["stromboli.io/volume-refused-on"] = "n1"
    recording.state.upsert("PersistentVolumeClaim", waiting)
    assert recording.session(NOON + 1).session.bound == {}
    assert recording.replayed().difference is None
    assert b"uid-data" in outcome_of(recording)


def outcome_of(recording: Recording) -> bytes:
    """What the first session decided."""
    return next(entry for entry in recording.entries() if isinstance(entry, wire.Session)).decisions


def test_pods_that_were_resized_count_as_they_did() -> None:
    recording = Recording(Engine())
    running = pod("run-0", "run", cpu="2", node="n0")
    recording.follow([node("n0", cpu="4"), queue("default"), pod_group("run"), pod_group("wait"), running])
    recording.state.upsert("Pod", pod("wait-0", "wait", cpu="3"))
    for cpu, bound in (("2", {}), ("3", {}), ("1", {"default/wait-0": "n0"})):
        spec = pod("run-0", "run", cpu="1", node="n0").spec
        in_force = ContainerStatus("main", resources=ResourceRequirements(requests={"cpu": cpu}))
        status = msgspec.structs.replace(running.status, container_statuses=[in_force])
        recording.state.upsert("Pod", msgspec.structs.replace(running, spec=spec, status=status))
        assert recording.session().session.bound == bound
    assert recording.replayed().difference is None


@pytest.mark.parametrize("before", [True, False], ids=["before it begins", "meanwhile"])
def test_pods_of_a_group_that_was_deleted_count_again(before: bool) -> None:
    """Both where a journal begins with them and where the group goes while it is written."""
    recording = Recording(Engine())
    held = [pod(f"gone-{number}", "gone", node="n0", deleted=True) for number in range(2)]
    small = queue("small", capability={"cpu": "3"})
    recording.follow([node("n0"), queue("default"), small, pod_group("gone", queue="small"), *held])
    if not before:
        recording.session()
    recording.state.delete("PodGroup", "default/gone")
    recording.state.upsert("PodGroup", pod_group("new", queue="small"))
    for number in range(3):
        recording.state.upsert("Pod", pod(f"new-{number}", "new"))
    assert len(recording.session(NOON + 1).session.bound) == 1
    recording.state.delete("Pod", "default/gone-0")
    recording.session(NOON + 2)
    assert recording.replayed().difference is None


def written_to(path: Path, entries: list[wire.Entry]) -> Path:
    path.write_bytes(wire.heading() + wire.frame(map(wire.item, entries)))
    return path


def test_what_is_decided_again_is_said_in_a_line(recording: Recording, tmp_path: Path) -> None:
    result = stromboli("replay", written_to(tmp_path / "file", recording.entries()))
    line = "2 sessions from 2023-11-14T22:13:20Z to 2023-11-14T22:13:21Z: 2 changes, 7 decisions, all as recorded\n"
    assert (result.exit_code, result.stdout) == (0, line)


def test_a_journal_that_ends_before_its_first_session_is_no_success(recording: Recording, tmp_path: Path) -> None:
    beginning = [entry for entry in recording.entries() if not isinstance(entry, wire.Session)]
    result = stromboli("replay", written_to(tmp_path / "cut", beginning))
    assert (result.exit_code, result.stderr) == (2, f"{tmp_path / 'cut'}: no session is in it\n")


def test_of_a_journal_that_is_cut_off_what_is_whole_is_replayed(recording: Recording, tmp_path: Path) -> None:
    path = written_to(tmp_path / "cut", recording.entries())
    path.write_bytes(path.read_bytes() + wire.frame([b"more"])[:-1])
    result = stromboli("replay", path)
    assert (result.exit_code, result.stderr) == (0, f"{path}: is cut off: what is whole counts\n")
    assert result.stdout.startswith("2 sessions")


def test_the_first_difference_is_shown(recording: Recording, tmp_path: Path) -> None:
    entries = recording.entries()
    for entry in entries:
        if isinstance(entry, wire.Session):
            # Another client binds elsewhere than this version would.
            entry.decisions = entry.decisions.replace(b"\xa4node\xa1a", b"\xa4node\xa1b")
    result = stromboli("replay", written_to(tmp_path / "file", entries))
    assert result.exit_code == 1
    first, *lines = result.stdout.splitlines()[1:]
    assert first == "session 2 at 2023-11-14T22:13:21Z ends differently (decisions: - recorded, + now)"
    (recorded, now) = lines
    assert recorded.startswith("- Bind ")
    assert now.startswith("+ Bind ")
    assert '"node":"b"' in recorded
    assert '"node":"a"' in now
    plain = msgspec.json.decode(stromboli("replay", tmp_path / "file", "-o", "json").stdout)
    assert (plain["difference"]["session"], plain["difference"]["what"]) == (2, "decisions")


def test_a_reason_that_differs_is_shown(recording: Recording, tmp_path: Path) -> None:
    entries = recording.entries()
    for entry in entries:
        if isinstance(entry, wire.Session) and entry.reasons is not None:
            entry.reasons.given = [msgspec.structs.replace(each, reason="NeverFeet") for each in entry.reasons.given]
    result = stromboli("replay", written_to(tmp_path / "file", entries))
    assert result.exit_code == 1
    assert "(reasons: - recorded, + now)" in result.stdout
    assert "- job default/big: NeverFeet: no node is large enough in cpu" in result.stdout
    assert "+ job default/big: NeverFits: no node is large enough in cpu" in result.stdout


def test_who_recorded_is_told_when_it_was_another_version(recording: Recording, tmp_path: Path) -> None:
    entries = recording.entries()
    assert isinstance(entries[0], wire.Began)
    entries[0].version = "0.0.1"
    result = stromboli("replay", written_to(tmp_path / "file", entries))
    assert result.exit_code == 0
    assert result.stderr.startswith("recorded by stromboli '0.0.1', this is ")


def test_other_policies_and_sessions_that_failed_are_replayed(recording: Recording) -> None:
    recording.sessions.engine = Engine(policy("capacity"))
    recording.session(NOON + 2)
    recording.sessions.engine = broken = Engine()
    broken._actions = {}
    with pytest.raises(KeyError):
        recording.session(NOON + 3)
    recording.sessions.engine = Engine()
    recording.session(NOON + 4)
    (difference,) = [recording.replayed().difference]
    assert difference is not None
    assert (difference.session, difference.what, difference.lines) == (4, "failed", ["- KeyError: 'enqueue'"])


def test_an_http_extender_answers_as_it_did() -> None:
    verbs = {"extender.urlPrefix": "http://user:hunter2@extender/v1", "extender.predicateVerb": "predicate"}
    rules = [{"pods": ".*", "nodes": ["a"], "message": "broken", "code": 2}]
    world = Environment(extender=ScriptedExtender.parse({"predicate": rules}))
    recording = Recording(Engine(policy("extender", verbs)), world)
    recording.follow([node("a"), node("b"), queue("default"), pod_group("train"), pod("train-0", "train")])
    assert recording.session().session.bound == {"default/train-0": "b"}
    assert recording.replayed().difference is None
    assert b"hunter2" not in msgspec.msgpack.encode(recording.entries())


def test_what_drivers_are_told_is_not_recorded() -> None:
    """Parameters of classes and claims, which the allocation of a claim has, too."""
    recording = Recording(Engine())
    recording.follow([node("n0"), queue("default"), pod_group("g")])
    config = {"config": [{"opaque": {"driver": "gpu.example.com", "parameters": {"licence": "hunter2"}}}]}
    gpus = device_class()
    gpus["spec"] |= config
    made = volumes.storage_class("made", "d", parameters={"restuserkey": "hunter2"})
    for obj in (gpus, made, resource_slice("n0", device("gpu-0")), claim("made", devices=config)):
        recording.state.upsert(obj["kind"], obj)
    recording.state.upsert("Pod", pod("p", "g", resourceClaims=[{"name": "gpu", "resourceClaimName": "made"}]))
    result = recording.session()
    (use,) = result.decisions[0].claims
    assert [each["opaque"]["parameters"]["licence"] for each in use.allocation["devices"]["config"]] == ["hunter2"] * 2
    recording.session(NOON + 1)
    assert recording.replayed().difference is None
    assert b"hunter2" not in msgspec.msgpack.encode(recording.entries())


def test_a_policy_is_recorded_without_secrets() -> None:
    text = """
# the old password: hunter2
tiers:
- plugins:
  - name: licences
    arguments: {url: "https://me:hunter2@example.com", apiKey: hunter2, headers: {Authorization: [hunter2]}, weight: 3}
metrics: {type: prometheus, address: http://monitoring, token: hunter2}
"""
    kept = redaction.policy(text)
    assert "hunter2" not in kept
    (tier,) = yaml.safe_load(kept)["tiers"]
    assert tier["plugins"][0]["arguments"]["weight"] == 3
    assert yaml.safe_load(kept)["metrics"] == {"type": "prometheus"}
    without = "# three tiers\nactions: allocate\n"
    assert redaction.policy(without) == without


def test_what_was_measured_is_told_again() -> None:
    recording = Recording(Engine(policy("usage", {"thresholds": {"cpu": 80, "mem": 80}})))
    recording.follow([node("a"), node("b"), queue("default"), pod_group("train"), pod("train-0", "train")])
    recording.session()
    recording.sessions.node_usage = {"a": NodeUsage(90, 10, NOON), "b": NodeUsage(10, 10, NOON)}
    recording.session(NOON + 1)
    (told,) = [
        entry.node_usage for entry in recording.entries() if isinstance(entry, wire.Session) and entry.node_usage
    ]
    assert told["a"].cpu == 90
    assert recording.replayed().difference is None


def test_who_could_not_be_evicted_is_left_alone_again() -> None:
    text = DEFAULT_POLICY.replace("allocate, backfill", "allocate, preempt, backfill")
    recording = Recording(Engine(text))
    high = PriorityClass(metadata=Metadata(name="high"), value=100)
    urgent = pod("urgent-0", "urgent", cpu="2", priority=100)
    low = (pod_group("low"), *(pod(f"low-{number}", "low", node=name, cpu="2") for number, name in enumerate("ab")))
    recording.follow(
        [
            *(node("a", cpu="2"), node("b", cpu="2"), queue("default"), high, *low),
            *(pod_group("urgent", priorityClassName="high"), urgent),
        ]
    )
    (first,) = recording.session().session.evicted
    recording.sessions.environment = Environment()
    recording.state.refused[f"uid-{first.rpartition('/')[2]}"] = Refusal("default/low", "default/urgent", "a budget")
    (second,) = recording.session(NOON + 1).session.evicted
    assert first != second
    assert recording.replayed().difference is None


def test_who_leaves_for_another_does_so_again() -> None:
    """Under Volcano's rules a pod evicts no pod while another leaves its node for it, though the node is closed."""
    text = DEFAULT_POLICY.replace("allocate, backfill", "allocate, preempt, backfill")
    recording = Recording(Engine(text, compatibility="volcano"))
    high = PriorityClass(metadata=Metadata(name="high"), value=100)
    leaving = pod("low-0", "low", node="a", cpu="2", priority=0, deleted=True)
    why = [PodCondition("PodScheduled", "True"), PodCondition("DisruptionTarget", "True", "PreemptionByScheduler")]
    leaving = msgspec.structs.replace(leaving, status=msgspec.structs.replace(leaving.status, conditions=why))
    running = [pod(f"low-{name}", "low", node=name, cpu="2", priority=0) for name in "bc"]
    urgent = pod("urgent-0", "urgent", cpu="2", priority=100, nominated="a")
    nodes = (node("a", cpu="2", unschedulable=True), node("b", cpu="2"), node("c", cpu="2"))
    groups = (pod_group("low"), pod_group("urgent", priorityClassName="high"))
    recording.follow([*nodes, queue("default"), high, *groups])
    recording.session()
    for each in (leaving, *running, urgent):
        recording.state.upsert("Pod", each)
    assert recording.session(NOON + 1).session.evicted == {}
    assert recording.replayed().difference is None


# -- what is kept ------------------------------------------------------------------------------------------------------


def test_old_segments_go_and_the_rest_is_replayed(recording: Recording, tmp_path: Path) -> None:
    small = Recording(Engine(), largest=1, folder=Folder(tmp_path, 4_000))
    small.follow([node("a"), queue("default"), *(pod_group(f"group-{number}") for number in range(20))])
    for number in range(5):
        small.tape.wants_whole = True
        small.session(NOON + number)
        small.session(NOON + number + 0.5)
    entries = small.entries()
    assert [entry.number for entry in entries if isinstance(entry, wire.Began)] == [5]
    assert [entry.now for entry in entries if isinstance(entry, wire.Session)] == [NOON + 4, NOON + 4.5]
    assert small.replayed().difference is None
    files = sorted(tmp_path.iterdir())
    assert 0 < len(files) < 5
    assert sum(file.stat().st_size for file in files) <= 4_000
    assert "all as recorded" in stromboli("replay", tmp_path).stdout
    assert stromboli("record", "-f", tmp_path, "-o", tmp_path / "one").exit_code == 0
    assert {stat.S_IMODE(path.stat().st_mode) for path in (*files, tmp_path / "one")} == {0o600}
    assert stromboli("replay", tmp_path / "one").stdout == stromboli("replay", tmp_path).stdout


@mounts
def test_a_full_disk_costs_the_oldest_segments_and_nothing_else(tmp_path: Path) -> None:
    problems: list[Exception] = []
    dropped: list[OSError] = []
    with small_disk(tmp_path / "kept", 256) as kept:
        recording = Recording(Engine(), folder=Folder(kept, 1 << 30, dropped.append), report=problems.append)
        recording.follow([node("a"), queue("default"), *(pod_group(f"group-{number}") for number in range(200))])
        recording.session()
        recording.journal.flush()
        (kept / "others.txt").write_bytes(bytes(200 << 10))
        for number in range(1, 20):
            recording.tape.wants_whole = True
            recording.session(NOON + number)
            recording.journal.flush()
        assert problems == []
        assert {error.errno for error in dropped} == {errno.ENOSPC}
        files = sorted(each for each in kept.iterdir() if each.suffix == ".journal")
        assert (kept / "others.txt").stat().st_size == 200 << 10
        assert 0 < len(files) < 20
        assert files[-1].name.endswith("-000020.journal")
        assert "all as recorded" in stromboli("replay", kept).stdout


@mounts
def test_what_a_full_disk_does_not_take_as_a_whole_is_no_part_of_a_segment(tmp_path: Path) -> None:
    began = wire.Began("run", 1, NOON, "0", ["stromboli"], [], "strict")
    with small_disk(tmp_path / "kept", 64) as kept:
        folder = Folder(kept, 1 << 30)
        folder.begin(began)
        folder.add(bytes(40 << 10))
        with pytest.raises(OSError, match="No space left"):
            folder.add(bytes(40 << 10))
        assert [each.stat().st_size for each in kept.iterdir()] == [40 << 10]
        (kept / "others.txt").write_bytes(bytes(20 << 10))
        folder.begin(msgspec.structs.replace(began, number=2))
        # The only other segment is dropped, and that is not enough.
        with pytest.raises(OSError, match="No space left"):
            folder.add(bytes(60 << 10))
        assert [each.name for each in kept.iterdir()] == ["others.txt"]


def test_a_folder_that_cannot_be_written_stops_no_session(tmp_path: Path) -> None:
    problems: list[Exception] = []
    recording = Recording(Engine(), folder=Folder(tmp_path / "gone", 1 << 20), report=problems.append)
    (tmp_path / "gone").rmdir()
    recording.follow([node("a"), queue("default")])
    recording.session()
    assert recording.replayed().sessions == 1
    assert isinstance(problems[0], FileNotFoundError)


def test_what_cannot_be_written_ends_the_journal_and_no_session() -> None:
    problems: list[Exception] = []
    recording = Recording(Engine(), report=problems.append)
    recording.follow([node("a"), queue("default")])
    recording.session()
    recording.state.upsert("NodeShard", {"metadata": {"name": "x"}, "spec": {"nodes": 1 << 70}})
    recording.session(NOON + 1)
    assert recording.replayed().sessions == 1
    # Another segment would begin with it.
    recording.session(NOON + 2)
    assert recording.replayed().sessions == 1
    assert len(problems) == 1
    recording.session(NOON + 3)
    assert (recording.replayed().sessions, len(problems)) == (1, 1)


def test_statuses_that_say_the_same_are_the_same_bytes_whoever_wrote_them() -> None:
    condition = PodGroupCondition(type="Scheduled", status="True", reason="ready")
    status = PodGroupStatus(phase="Running", conditions=[condition], running=2)
    manifest = {"apiVersion": SCHEDULING, "kind": "PodGroup", "metadata": {"name": "g"}, "status": status.model_dump()}
    read = PodGroup.parse(manifest).status
    assert read.model_fields_set != status.model_fields_set
    written = [
        Outcome((SetPodGroupStatus("default", "g", each),), Waiting()).decided()
        for each in (status, read, status.model_copy(update={"phase": PodGroupPhase.Running}))
    ]
    assert len(set(written)) == 1


def test_a_service_that_is_not_there_or_has_no_journal(tmp_path: Path) -> None:
    result = stromboli("record", "-o", tmp_path / "file", "--url", "http://127.0.0.1:1")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert not list(tmp_path.iterdir())
    result = stromboli("record", "-f", tmp_path, "-o", tmp_path / "file")
    assert (result.exit_code, result.stderr) == (2, f"{tmp_path}: no journals are in this folder\n")


def test_what_sessions_remember_is_kept_exactly() -> None:
    history = UsageHistory.begin(Memory(window=3600.0), ("a", "b"), ("cpu", "memory"), NOON)
    history = history.holds(np.array([[1 / 3, 2.0], [0.0, 1e12]]), np.array([4.0, 1e13]))
    history = history.advanced(Memory(window=3600.0), NOON + 600)
    told = Environment(
        node_usage={"n": NodeUsage(0.1, 0.2, NOON)},
        sharding=Sharding("soft", "shard"),
        queue_usage={"a": {"cpu": 0.5}},
        admitted=Admitted([Admission("default/a", "uid", "a", (("cpu", 1), ("memory", "1Gi")))], np.array([True])),
        nominated_hyper_nodes={"group": "rack"},
        reservations={
            "default/a": Reservation("uid", (Place("n", {"cpu": 1.0}),), NOON, NOON + 9, complete=3),
            "default/b": Reservation("uid", (Place("n", {"cpu": 1.0}, "uid"),), NOON, NOON + 9),
        },
        churn=Churn({("default/a", "b"): History((NOON,), 2, frozenset({"x", "y"}))}),
        left={
            "fairshare": history,
            "tdm": 0.1,
            "stalegangeviction": {("default/a", "uid"): NOON},
            "timeouts": {("default/a", "uid"): (2, NOON)},
            "other": object(),
        },
    )
    registry = Engine().registry
    content = msgspec.msgpack.encode(written(told, registry))
    remembered = msgspec.msgpack.decode(content, type=wire.Remembered)
    assert remembered.lost == ["other"]
    again = known(remembered, registry, None)
    for each in fields(Environment):
        if each.name not in ("left", "extender"):
            assert getattr(told, each.name) != getattr(OFFLINE, each.name), f"{each.name} is not tried"
            assert getattr(again, each.name) == getattr(told, each.name)
    plainly = ("tdm", "stalegangeviction", "timeouts")
    assert {name: again.left[name] for name in plainly} == {name: told.left[name] for name in plainly}
    assert plain(again.left["fairshare"], (UsageHistory, Bucket)) == plain(history, (UsageHistory, Bucket))


@pytest.mark.parametrize(
    "content",
    [
        ["object", "Popen", "true"],
        ["array", "O", [1], b"12345678"],
        ["array", "<f8", [1 << 40], b"12345678"],
        ["array", "<f8", [-1], b"12345678"],
        ["dict", "odd"],
        ["set", ["list"]],
        ["nothing"],
        [],
        {"a": 1},
    ],
)
def test_files_make_nothing_but_values(content: object) -> None:
    with pytest.raises(NotPlainError):
        value_of(content, (UsageHistory,))
