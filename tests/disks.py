"""Disks that are small, for what happens when one is full."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

#: of tests that use one
mounts = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")


@contextmanager
def small_disk(folder: Path, kibibytes: int = 512) -> Iterator[Path]:
    """A folder that is a file system of some KiB."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kibibytes}k", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
