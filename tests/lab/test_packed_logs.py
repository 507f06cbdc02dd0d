"""Logs as archives publish them, packed, whole and damaged."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from stromboli.lab.readers import lines
from stromboli.lab.readers.named import Reading, read_workload
from stromboli.lab.workload import Workload

GOOD = b"1 0 5 60 4 -1 -1 4 60 -1 1 4 1 -1 1 -1 -1 -1\n"
#: bzip2 with its smallest blocks, as what is of a block that is cut off is lost
PACKED = [("gz", gzip.compress), ("bz2", partial(bz2.compress, compresslevel=1)), ("xz", lzma.compress)]


def log(count: int) -> bytes:
    """A log of jobs that cannot be told from one another by a pattern, so that packing it leaves something."""
    lengths = (7919 * number * number % 99_991 + 1 for number in range(count))
    return b"; Version: 2.2\n" + b"".join(
        b"%d %d 5 %d 4 -1 -1 4 60 -1 1 4 1 -1 1 -1 -1 -1\n" % (number, number, length)
        for number, length in enumerate(lengths, 1)
    )


def read(file: Path) -> Workload:
    return read_workload(str(file), Reading(), io.BytesIO())


@pytest.mark.parametrize(("suffix", "pack"), PACKED)
def test_packed_logs_are_read_with_the_numbers_of_their_lines(
    suffix: str, pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    file = tmp_path / f"log.swf.{suffix}"
    file.write_bytes(pack(log(50) + b"no job\n" + GOOD))
    jobs = read(file)
    assert len(jobs) == 51
    assert list(jobs.problems) == [f"{file}: line 52: should have 18 fields, not 2"]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_log_may_begin_with_a_byte_order_mark_and_end_lines_as_windows_does(
    pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    file = tmp_path / "log.swf"
    file.write_bytes(pack(b"\xef\xbb\xbf" + (GOOD * 2).replace(b"\n", b"\r\n")))
    jobs = read(file)
    assert (len(jobs), list(jobs.problems)) == (2, [])


def test_a_packed_log_comes_from_standard_input_and_by_any_name(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(gzip.compress(GOOD))
    with file.open("rb") as stdin:
        assert len(read_workload("-", Reading(), stdin)) == len(read(file)) == 1


@pytest.mark.parametrize(("suffix", "pack"), PACKED)
def test_of_a_log_that_is_cut_off_what_is_whole_counts(
    suffix: str, pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    packed, file = pack(log(5_000)), tmp_path / f"log.swf.{suffix}"
    file.write_bytes(packed[: int(0.95 * len(packed))])
    jobs = read(file)
    assert 0 < len(jobs) < 5_000
    # After the comment, a line for each.
    assert jobs.problems[-1] == (f"{file}: line {len(jobs) + 2}: the file is cut off, and nothing is read from here on")


@pytest.mark.parametrize(("suffix", "pack"), PACKED)
def test_of_a_damaged_log_what_is_before_counts(suffix: str, pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    packed, file = bytearray(pack(log(5_000))), tmp_path / f"log.swf.{suffix}"
    at = int(0.9 * len(packed))
    packed[at : at + 200] = b"\xaa" * 200
    file.write_bytes(packed)
    jobs = read(file)
    assert 0 < len(jobs) < 5_000
    assert any("the file is damaged: " in problem for problem in jobs.problems)
    assert all(problem.startswith(f"{file}: ") for problem in jobs.problems)


def test_what_a_small_file_may_unpack_to_is_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "log.swf.gz"
    file.write_bytes(gzip.compress(GOOD + b" " * 10_000_000))
    assert list(read(file).problems) == [
        f"{file}: line 2: a line is longer than 64 KiB, and nothing is read from here on"
    ]
    monkeypatch.setattr(lines, "_MOST", 10 * len(GOOD))
    file.write_bytes(gzip.compress(GOOD * 11))
    jobs = read(file)
    assert len(jobs) == 10
    assert jobs.problems[0].startswith(f"{file}: line 11: the file holds more than ")


def test_what_cannot_be_unpacked_says_so(tmp_path: Path) -> None:
    file = tmp_path / "log.swf.zst"
    file.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(100))
    assert "packed by Zstandard, which is not read here" in read(file).problems[0]
