"""`stromboli` in processes that are forked from one in which the service is imported already.

The import takes longer than most of what tests then ask of the service.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["stromboli.cli.run", "tests.e2e.preloaded", __name__])


class Forked:
    """A command like one of `subprocess.Popen`, in a process group of its own, that logs into a file.

    `settings` are those of the service that no option sets, and constants of the modules of `stromboli.live`.
    """

    def __init__(
        self, argv: Sequence[str], log: Path, environment: Mapping[str, str], settings: Mapping[str, Any]
    ) -> None:
        self.argv = argv
        self._process = _FORKS.Process(target=_run, args=(list(argv), str(log), dict(environment), dict(settings)))
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code; raises TimeoutExpired."""
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(self.argv, timeout or 0)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()


def _run(argv: list[str], log: str, environment: dict[str, str], settings: dict[str, Any]) -> None:
    from stromboli.cli import main

    for name in [name for name in settings if "." in name]:
        module, _, constant = name.rpartition(".")
        vars(importlib.import_module(f"stromboli.live.{module}"))[constant] = settings.pop(name)
    command: Any = importlib.import_module("stromboli.cli.run")
    command.Settings = partial(command.Settings, **settings)
    os.setpgid(0, 0)
    os.environ.clear()
    os.environ.update(environment)
    with open(os.devnull) as nothing, open(log, "ab") as sink:
        for source, number in ((nothing, 0), (sink, 1), (sink, 2)):
            os.dup2(source.fileno(), number)
    sys.argv = argv
    main()
