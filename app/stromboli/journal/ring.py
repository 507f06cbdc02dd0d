"""Where segments are kept: the newest in memory, and in a folder if there is one, each up to a size."""

from __future__ import annotations

import errno
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from stromboli.journal.wire import Began

#: errors of a disk, or of a quota, that has no room
_FULL = (errno.ENOSPC, errno.EDQUOT)
#: suffix of files of segments
SUFFIX = ".journal"


@dataclass(slots=True)
class _Segment:
    """The frames of a segment."""

    frames: list[bytes] = field(default_factory=list)
    size: int = 0


class Ring:
    """The newest segments up to a size; the last is kept however large it is. Safe to be read by other threads."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._segments: deque[_Segment] = deque()
        self._lock = threading.Lock()

    def add(self, frame: bytes, *, begins: bool) -> None:
        """Append to the last segment, or begin another one."""
        with self._lock:
            if begins:
                self._segments.append(_Segment())
            last = self._segments[-1]
            last.frames.append(frame)
            last.size += len(frame)
            while len(self._segments) > 1 and self._size > self._largest:
                self._segments.popleft()

    @property
    def _size(self) -> int:
        return sum(segment.size for segment in self._segments)

    def content(self) -> bytes:
        """All segments, the oldest first."""
        with self._lock:
            frames = [frame for segment in self._segments for frame in segment.frames]
        return b"".join(frames)


class Folder:
    """A file for each segment; the oldest files go when all are larger than they may be, or when the disk is full."""

    def __init__(self, path: Path, largest: int, dropped: Callable[[OSError], None] = lambda error: None) -> None:
        """`dropped` is told of a full disk for which files went. Raises OSError when the folder cannot be made."""
        self._path = path
        self._largest = largest
        self._dropped = dropped
        self._file: Path | None = None
        path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def begin(self, began: Began) -> None:
        """Another segment begins."""
        at = datetime.fromtimestamp(began.at, UTC).strftime("%Y%m%dT%H%M%S")
        self._file = self._path / f"{at}-{began.run}-{began.number:06}{SUFFIX}"

    def add(self, frame: bytes) -> None:
        """More of the segment. Raises OSError, and then nothing of the frame is there."""
        full: OSError | None = None
        while True:
            try:
                self._append(frame)
                break
            except OSError as error:
                if error.errno not in _FULL or not self._drop_oldest():
                    raise
                full = error
        if full is not None:
            self._dropped(full)
        self._drop()

    def _append(self, frame: bytes) -> None:
        assert self._file is not None
        before = self._file.stat().st_size if self._file.exists() else 0
        try:
            with open(self._file, "ab", opener=private) as file:
                file.write(frame)
        except OSError:
            # A full disk takes a part.
            if before:
                os.truncate(self._file, before)
            else:
                self._file.unlink(missing_ok=True)
            raise

    def _drop_oldest(self) -> bool:
        """Delete the oldest segment but the one that is written; False when there is none."""
        oldest = next((each for each in segments(self._path) if each != self._file), None)
        if oldest is not None:
            oldest.unlink(missing_ok=True)
        return oldest is not None

    def _drop(self) -> None:
        found = [(each, each.stat().st_size) for each in segments(self._path)]
        size = sum(size for _, size in found)
        for each, of_file in found:
            if size <= self._largest or each == self._file:
                return
            each.unlink(missing_ok=True)
            size -= of_file


def private(path: str, flags: int) -> int:
    """Open a file that only its owner may read: it holds everything that sessions read."""
    return os.open(path, flags, 0o600)


def segments(folder: Path) -> Iterator[Path]:
    """The files of a folder with journals, the oldest first."""
    yield from sorted(each for each in folder.iterdir() if each.suffix == SUFFIX)
