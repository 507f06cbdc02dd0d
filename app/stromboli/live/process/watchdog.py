"""The last resort: ends a process that hangs, or does not terminate."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import threading

from stromboli.live.process.logs import Logger

log = Logger(__name__)


async def watch_loop(patience: float) -> None:
    """Exit with code 1 if the event loop stands still for `patience` seconds; runs until cancelled.

    The stacks of all threads then go to stderr. The watching thread does not need the GIL, which may be the cause.
    """
    try:
        while True:
            faulthandler.dump_traceback_later(patience, exit=True)
            await asyncio.sleep(min(1.0, patience / 4))
    finally:
        faulthandler.cancel_dump_traceback_later()


def end_within(seconds: float, code: int = 1) -> None:
    """Exit unless the process has ended by then, since a hanging thread would keep it alive.

    The code is 0 if all remaining work can be dropped.
    """

    def end() -> None:
        tell, threads = log.error if code else log.info, [thread.name for thread in threading.enumerate()]
        tell("exit forced", after=f"{seconds:.0f}s", threads=threads)
        os._exit(code)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
