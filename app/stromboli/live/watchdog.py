"""The last resort: a process that stands still, or does not get to its end, is ended."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import threading

from stromboli.live.logs import Logger

log = Logger(__name__)


async def watch_loop(patience: float) -> None:
    """Until cancelled, have the process end with 1 when its event loop stands still for `patience` seconds.

    What it was doing then goes to stderr. The thread that waits needs no interpreter lock, which may be what is held.
    """
    try:
        while True:
            faulthandler.dump_traceback_later(patience, exit=True)
            await asyncio.sleep(min(1.0, patience / 4))
    finally:
        faulthandler.cancel_dump_traceback_later()


def end_within(seconds: float, code: int = 1) -> None:
    """Have the process end unless it has ended by then: a thread that hangs would hold it for ever.

    The code is 0 when what is left is of no use to anybody.
    """

    def end() -> None:
        tell, threads = log.error if code else log.info, [thread.name for thread in threading.enumerate()]
        tell("ended by force", after=f"{seconds:.0f}s", threads=threads)
        os._exit(code)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
