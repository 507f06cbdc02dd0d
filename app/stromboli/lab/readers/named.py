"""Workloads by the name of the file that holds them."""

from __future__ import annotations

import math
from contextlib import nullcontext
from pathlib import Path
from typing import BinaryIO

import msgspec

from stromboli.api.errors import StromboliError
from stromboli.discovery import discover
from stromboli.framework.registry import Registry
from stromboli.lab.processors import Processors
from stromboli.lab.readers.journal import is_journal, read_journal
from stromboli.lab.readers.lines import lines_of
from stromboli.lab.readers.manifests import read_manifests
from stromboli.lab.readers.swf import QueueBy, read_swf
from stromboli.lab.workload import Workload

_MANIFESTS = (".yaml", ".yml", ".json")


class Reading(msgspec.Struct, frozen=True):
    """Settings for reading files that leave something open."""

    #: the column of a log that is the queue
    queue_by: QueueBy = "user"
    #: processors of the largest pods of a log
    per_pod: int = 32
    #: run time in seconds of manifests' jobs that declare none; None to leave them out
    run_time: float | None = None


def read_workload(name: str, reading: Reading, stdin: BinaryIO, registry: Registry | None = None) -> Workload:
    """The jobs of a log, of manifests or of a journal; a log from standard input for `-`. Raises StromboliError."""
    path = Path(name)
    if is_journal(path):
        return read_journal(path, registry or discover())
    if name.endswith(_MANIFESTS) or path.is_dir():
        return read_manifests([name], stdin, math.nan if reading.run_time is None else reading.run_time)
    shape = Processors(reading.per_pod)
    try:
        with nullcontext(stdin) if name == "-" else path.open("rb") as file:
            source = "standard input" if name == "-" else name
            return read_swf(lines_of(file), source, shape=shape, queue_by=reading.queue_by).workload
    except OSError as error:
        raise StromboliError(f"{name}: {error.strerror}") from None
