"""The demo with its page, as a user starts it."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def demo() -> Iterator[str]:
    """The address of the page that `stromboli demo --serve` prints."""
    command = [sys.executable, "-m", "stromboli", "demo", "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield next(line.split()[1] for line in process.stdout if line.startswith("page "))
        finally:
            process.send_signal(signal.SIGTERM)
