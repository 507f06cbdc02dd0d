"""Files that were not recorded: a line that says what is wrong, or a replay, in bounded time and memory.

`STROMBOLI_FUZZ=10000` tries as many.
"""

from __future__ import annotations

import resource
import zlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.engine import Engine
from stromboli.journal import wire
from stromboli.policy.document import DEFAULT_POLICY
from stromboli.state.cluster import ClusterState
from tests import builders
from tests.cli.conftest import stromboli
from tests.fuzz import CHANGES, Change, changed, tried
from tests.journal.recording import Recording

TRIED = tried(25)
HEADING = wire.heading()


@cache
def recorded() -> tuple[list[Any], ...]:
    """The items of a small journal, as plain data."""
    text = DEFAULT_POLICY.replace("allocate, backfill", "allocate, preempt, stalegangeviction, backfill")
    recording = Recording(
        Engine(text.replace("name: proportion", "name: fairshare\n    arguments: {usage.window: 1h}"))
    )
    volume = {"kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": {"capacity": {"storage": "1Gi"}}}
    objs = [builders.node("n", cpu="2"), builders.queue("default"), builders.pod_group("train", 2)]
    pods = [builders.pod(f"train-{number}", "train") for number in range(3)]
    recording.follow([*objs, *pods])
    recording.state.upsert("PersistentVolume", volume)
    recording.session()
    recording.state.assume("default/train-0", "n")
    running = builders.pod_group("train", 2, phase="Running")
    recording.follow([*objs[:2], running, builders.pod("train-0", "train", node="n"), pods[1]])
    recording.session(builders.NOON + 1)
    recording.state.forget("default/train-0")
    recording.session(builders.NOON + 2)
    return tuple(msgspec.to_builtins(entry, builtin_types=(bytes,)) for entry in recording.entries())


def journal(items: Iterable[Any]) -> bytes:
    encoded = map(msgspec.msgpack.encode, items)
    return HEADING + wire.frame(len(item).to_bytes(4) + item for item in encoded)


def answered(path: Path, content: bytes, *options: object) -> str:
    """What a command says of a file: a result, or one line, and remarks above it."""
    path.write_bytes(content)
    result = stromboli("replay", path, *options)
    assert result.exit_code in (0, 1, 2), (result.exception, result.output)
    if result.exit_code == 2:
        *_, line = lines = result.stderr.splitlines()
        assert max(map(len, lines)) < 1_000
        return line
    return result.stdout


def test_what_was_recorded_is_replayed(tmp_path: Path) -> None:
    assert "3 sessions" in answered(tmp_path / "file", journal(recorded()))


@given(CHANGES, st.booleans())
@TRIED
def test_fuzzed_values(tmp_path: Path, changes: list[Change], compared: bool) -> None:
    policy = tmp_path / "policy.conf"
    policy.write_text(DEFAULT_POLICY)
    options = ("--policy", policy, "--diff") if compared else ()
    answered(tmp_path / "file", journal(changed(list(recorded()), changes)), *options)


@given(st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=4), st.booleans())
@TRIED
def test_fuzzed_bytes(tmp_path: Path, flips: list[tuple[int, int]], deflated: bool) -> None:
    whole = journal(recorded())
    content = bytearray(whole if deflated else zlib.decompress(whole[len(HEADING) + 4 :]))
    for at, value in flips:
        content[at % len(content)] = value
    answered(tmp_path / "file", bytes(content) if deflated else HEADING + wire.frame([bytes(content)]))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"kind: Pod\n", "is not a journal of stromboli"),
        (b"stromboli journal 1\n", f"has format 1, and only {wire.FORMAT} is read here"),
        (b"stromboli journal " + b"9" * 10_000, "is not a journal of stromboli"),
        (HEADING + (1 << 30).to_bytes(4), "is damaged: no frame begins where one should"),
        (HEADING + wire.frame([bytes(65 << 20)]), "is damaged: a frame has no end"),
        (HEADING + wire.frame([b"\xff\xff\xff\xff"]), "is damaged: an item is cut off"),
    ],
)
def test_what_is_no_journal(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "file"
    assert answered(path, content) == f"{path}: {says}"


@pytest.mark.exhaustive
@pytest.mark.parametrize("filler", [b"\x90", b"\x91\x90"])
def test_a_small_file_that_stands_for_millions_of_objects_is_refused(tmp_path: Path, filler: bytes) -> None:
    many = (8 << 20) // len(filler)
    began, layout = recorded()[:2]
    layout = [*layout[:-1], layout[-1] | {"left": {"gang": "HERE"}}]
    packed = msgspec.msgpack.encode(layout)
    packed = packed.replace(msgspec.msgpack.encode("HERE"), b"\xdd" + many.to_bytes(4) + filler * many)
    items = (msgspec.msgpack.encode(began), packed)
    content = HEADING + wire.frame(len(item).to_bytes(4) + item for item in items)
    assert len(content) < 1 << 17
    path, before = tmp_path / "file", resource.getrlimit(resource.RLIMIT_AS)
    assert answered(path, content) == f"{path}: takes far more memory than a journal of its size does"
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_what_was_not_written_to_its_end_counts_up_to_there(tmp_path: Path) -> None:
    whole = journal(recorded()[:-1]) + journal(recorded()[-1:])[len(HEADING) :]
    assert "2 sessions" in answered(tmp_path / "file", whole[:-1])


def test_there_is_no_such_file(tmp_path: Path) -> None:
    result = stromboli("replay", tmp_path / "none")
    assert (result.exit_code, "No such file" in result.stderr) == (2, True)


def test_what_is_nested_without_end_is_refused(tmp_path: Path) -> None:
    deep = b"\x91" * 100_000 + b"\xc0"
    content = HEADING + wire.frame([len(deep).to_bytes(4) + deep])
    assert "is damaged" in answered(tmp_path / "file", content)


def test_resources_that_come_together_cost_one_copy_of_all_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shaped, reshape = list[int](), ClusterState.fit_columns

    def counted(state: ClusterState) -> None:
        shaped.append(len(state.dimensions))
        reshape(state)

    monkeypatch.setattr(ClusterState, "fit_columns", counted)
    names = {f"x{at}": {"example.com/r" + str(at): "1"} for at in range(200)}
    nodes = [
        ["node", {"metadata": {"name": name, "uid": name}, "status": {"allocatable": own}}]
        for name, own in names.items()
    ]
    *before, last = recorded()
    assert "3 sessions" in answered(tmp_path / "file", journal([*before, [*last[:2], [*last[2], *nodes], *last[3:]]]))
    assert len(shaped) < 10
    assert max(shaped) < 200
