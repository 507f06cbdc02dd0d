"""Limits the memory that a command may use for a given file, so that a small file cannot fill the machine.

A few bytes of a compressed file can stand for millions of objects. Counting them beforehand would mean decoding the
file twice, so the address space of the process is limited instead, and decoding fails at the object that is one too
many.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

#: bytes for any file, however small, and for each byte of it: a journal that a service wrote takes a tenth of that
_BASIS, _TIMES = 256 << 20, 256
_PAGE = resource.getpagesize()


@contextmanager
def in_proportion() -> Iterator[Callable[[int], None]]:
    """While this is entered, what is allocated raises MemoryError beyond a multiple of the bytes that were read.

    Yields a function to call with the number of further bytes that were read. On systems without `/proc`, or where a
    limit is in force already, nothing changes.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    start = _address_space()
    if not start or soft != resource.RLIM_INFINITY:
        yield lambda size: None
        return
    allowed = start + _BASIS

    def allow(size: int) -> None:
        nonlocal allowed
        allowed += size * _TIMES
        resource.setrlimit(resource.RLIMIT_AS, (_capped(allowed, hard), hard))

    try:
        allow(0)
        yield allow
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _capped(size: int, hard: int) -> int:
    return size if hard == resource.RLIM_INFINITY else min(size, hard)


def _address_space() -> int:
    """Bytes of address space that this process has now; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0
