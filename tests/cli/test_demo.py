"""What the demo starts ends with it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest


@pytest.mark.exhaustive
def test_a_demo_ends_with_what_to_do_next() -> None:
    words = [sys.executable, "-m", "stromboli", "demo"]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    *_, reached, following = done.stdout.splitlines()
    assert reached == "every queue has what it deserves"
    assert following.endswith(" demo --serve keeps all of it up, with a page to look at")


@pytest.mark.exhaustive
def test_a_demo_that_is_terminated_ends_its_service() -> None:
    with subprocess.Popen([sys.executable, "-m", "stromboli", "demo"], stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        lines = (re.match(r"scheduler +(http://\S+)", line) for line in demo.stdout)
        (address,) = next(filter(None, lines)).groups()
        with urlopen(f"{address}/healthz") as answer:
            assert answer.status == 200
        demo.send_signal(signal.SIGTERM)
    assert demo.returncode == 128 + signal.SIGTERM
    with pytest.raises(OSError, match="refused"):
        urlopen(f"{address}/healthz")


@pytest.mark.exhaustive
def test_a_demo_says_when_its_scheduler_ends() -> None:
    words = [sys.executable, "-u", "-m", "stromboli", "demo", "--serve"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        assert any(line.startswith("Ctrl-C ends all") for line in demo.stdout)
        os.kill(_scheduler_of(demo.pid), signal.SIGKILL)
        told = [next(demo.stdout) for _ in range(2)]
        demo.send_signal(signal.SIGTERM)
    assert told[0] == "the scheduler ended with code -9\n"
    assert told[1].startswith("nothing is scheduled any more; the last lines of its log:")
    assert demo.returncode == 0


def _scheduler_of(demo: int) -> int:
    """The process of the scheduler that a demo started."""
    children = map(int, Path(f"/proc/{demo}/task/{demo}/children").read_text().split())
    return next(each for each in children if b"\0run\0" in Path(f"/proc/{each}/cmdline").read_bytes())
