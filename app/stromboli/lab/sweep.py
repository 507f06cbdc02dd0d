"""Sweeps: many trials, in any order, on all cores or on a cluster, whose outcomes are saved as they arrive.

Outcomes are lines of JSON, appended to a file. A sweep that is started again skips trials that have a line: they are
identified by all their inputs (`Trial.key`). An incomplete last line, of a sweep that was killed, is dropped.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from io import BufferedWriter
from pathlib import Path

import msgspec

from stromboli.api.errors import StromboliError
from stromboli.lab.trials import Outcome, Trial, TrialError, failed, outcome_or_error

#: trials that wait in each process, so that none has nothing to do
_AHEAD = 2


class StoreError(StromboliError):
    """A file that does not hold outcomes."""


class Store:
    """The file of outcomes."""

    def __init__(self, path: Path, *, grows: bool = False) -> None:
        """A store that `grows` belongs to this process alone while it is open. Raises StoreError, OSError."""
        self._path = path
        self._file = self._claimed() if grows else None
        self.outcomes = self._read()

    def add(self, outcome: Outcome) -> None:
        """Keep an outcome, even if the machine fails."""
        assert self._file is not None
        self._file.write(msgspec.json.encode(outcome) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.outcomes.append(outcome)

    def _claimed(self) -> BufferedWriter:
        """The file to add to. What two sweeps add at once would be tried twice."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = self._path.open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise StoreError(f"{self._path}: another sweep adds to it: wait for it, or name another file") from None
        return file

    def missing(self, trials: Sequence[Trial]) -> list[Trial]:
        """The trials without an outcome, each once."""
        known = {outcome.key for outcome in self.outcomes}
        found: dict[str, Trial] = {}
        for trial in trials:
            key = trial.key()
            if key not in known:
                found.setdefault(key, trial)
        return list(found.values())

    def of(self, trials: Sequence[Trial]) -> list[Outcome]:
        """The outcomes of some trials, in their order, under the names that these give them."""
        known = {outcome.key: outcome for outcome in self.outcomes}
        return [
            msgspec.structs.replace(known[key], workload=trial.workload, policy=trial.policy.name)
            for trial in trials
            if (key := trial.key()) in known
        ]

    def _read(self) -> list[Outcome]:
        if not self._path.exists():
            return []
        data = self._path.read_bytes()
        whole, newline, rest = data.rpartition(b"\n")
        if rest and self._file is not None:
            with self._path.open("r+b") as file:
                file.truncate(len(whole) + len(newline))
        decoder = msgspec.json.Decoder(Outcome)
        outcomes = []
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                outcomes.append(decoder.decode(line))
            except msgspec.DecodeError as error:
                why = f"line {number} is no outcome of a trial: {error}"
                raise StoreError(f"{self._path}: {why}; without the line its trial is run again") from None
        return outcomes


def on_cores(trials: Sequence[Trial], processes: int) -> Iterator[Outcome | TrialError]:
    """The outcomes of trials as they come, from a number of processes, or the error of one.

    Raises StromboliError where a process is ended.
    """
    if processes == 1:
        yield from map(outcome_or_error, trials)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_end_with_parent) as pool:
        left = list(trials)[::-1]
        running: set[Future[Outcome | TrialError]] = set()
        try:
            while left or running:
                while left and len(running) < _AHEAD * processes:
                    running.add(pool.submit(outcome_or_error, left.pop()))
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        except BrokenProcessPool:
            raise StromboliError(
                "a process was ended in a trial, such as for want of memory: try fewer at once"
            ) from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _end_with_parent() -> None:
    """Have this process end when the one that started it is killed: it would wait for its next trial for good."""

    def watch() -> None:
        if (parent := multiprocessing.parent_process()) is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def on_dask(trials: Sequence[Trial], address: str) -> Iterator[Outcome | TrialError]:
    """The outcomes of trials as they come, from the workers of a Dask scheduler, or what is wrong with one.

    Raises StromboliError where Dask is missing or the scheduler is not there.
    """
    try:
        from distributed import Client, as_completed
    except ImportError:
        raise StromboliError("--scheduler needs Dask: pip install 'stromboli[dask]'") from None
    try:
        client = Client(address, timeout="10s")
    except (OSError, ValueError) as error:
        raise StromboliError(f"{address}: no Dask scheduler: {error}") from None
    with client:
        futures = dict(zip(client.map(outcome_or_error, list(trials), pure=False), trials, strict=True))
        try:
            for future in as_completed(list(futures)):
                try:
                    found = future.result()
                except StromboliError:
                    raise
                except Exception as error:
                    # Its workers were lost again and again, or the scheduler is gone.
                    found = failed(futures[future], f"lost by {address}: {error!r:.200}")
                yield found
        finally:
            with suppress(Exception):
                client.cancel(list(futures))


def cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0))
