"""`stromboli top`: what it shows of a service and of files, in a terminal that it follows and without one."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from stromboli.cli import top
from stromboli.cli.top_screen import Glance, screen
from stromboli.dashboard.report import SessionReport
from stromboli.policy.document import DEFAULT_POLICY
from tests.builders import NOON, decide, node, pod, pod_group, queue, state
from tests.cli.conftest import stromboli
from tests.ui.cluster import Ran, cluster, served

#: seconds after which only a failure still waits
_PATIENCE = 120
#: what a terminal is told to do besides showing text
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def rows(text: str, heading: str) -> list[list[str]]:
    """The cells of the table that begins with a heading."""
    lines = text.partition(f"\n{heading}")[2].splitlines()[2:]
    table = lines[: lines.index("")] if "" in lines else lines
    return [re.split(r"\s{2,}", line.strip()) for line in table]


def test_it_shows_queues_reasons_jobs_and_nodes_of_a_service() -> None:
    with served(Ran(cluster()).app()) as url:
        told = stromboli("top", "--once", "--url", url)
    assert told.exit_code == 0, told.output
    assert f"stromboli {url}" in told.output
    queues = {row[0]: row[1] for row in rows(told.output, "QUEUE (cpu)")}
    assert (queues["a"], queues["b"]) == ("1.00", "0.33")
    assert {"lab", "old (Closed)"} < queues.keys()
    reasons = {row[0]: row[1:4] for row in rows(told.output, "WAITING FOR")}
    assert reasons["QueueNotFound"] == ["Admission", "1", "1"]
    assert reasons["QueueNotOpen"] == ["Admission", "1", "1"]
    assert "default/late" in [row[0] for row in rows(told.output, "JOB THAT WAITS")]
    assert re.search(r"NODES by cpu: \d full, \d in use, \d empty, 1 closed\n\|.{3}\|", told.output)


def test_files_are_shown_as_well_and_programs_get_the_same(files: Path) -> None:
    told = stromboli("top", "-f", files, "--once", "--resource", "memory")
    assert "QUEUE (memory)" in told.output
    assert rows(told.output, "WAITING FOR") == [["NotEnoughPods", "Gang", "1", "1", "the user"]]
    glance = msgspec.convert(json.loads(stromboli("top", "-f", files, "-o", "json").output), Glance)
    assert (glance.overview.nodes, [each.name for each in glance.jobs]) == (1, ["train"])


def test_what_cannot_be_looked_at_is_said_in_a_line() -> None:
    told = stromboli("top", "--url", "http://127.0.0.1:1")
    assert (told.exit_code, told.output.count("\n")) == (2, 1)
    assert "Connection refused" in told.output


def test_a_large_cluster_fits_any_terminal() -> None:
    """More queues, jobs and nodes than there are lines and columns."""
    teams = [f"queue-of-a-team-with-a-long-name-{number}" for number in range(60)]
    many = state(
        [node(f"n{number}", cpu="4") for number in range(500)],
        [queue(team, weight=1) for team in teams],
        [pod_group(f"job-{number}", 9, queue=team) for number, team in enumerate(teams)],
        [pod(f"pod-{number}", f"job-{number}", cpu="2") for number in range(60)],
    )
    report = SessionReport(decide(many, DEFAULT_POLICY).session, NOON, 0.01)
    jobs, nodes = report.jobs(0, 50).items, report.nodes(0, 1_000)
    glance = Glance(source="", overview=report.overview(), queues=report.queues(0, 99).items, jobs=jobs, nodes=nodes)
    for width, height in ((80, 24), (60, 20), (200, 60)):
        console = Console(width=width, height=height)
        with console.capture() as shown:
            console.print(screen(glance, "cpu", "", width, height))
        lines = shown.get().splitlines()
        assert len(lines) <= height
        assert max(map(len, lines)) <= width
        assert lines[-1].startswith("q quits")
        assert any("more queues" in line for line in lines)


# -- in a terminal -----------------------------------------------------------------------------------------------------


@dataclass
class Terminal:
    """A command in a terminal of 100 columns and 40 lines."""

    process: subprocess.Popen[bytes]
    master: int
    shown: str = ""

    def until(self, text: str) -> None:
        """Return when something is shown that was not before."""
        deadline = time.monotonic() + _PATIENCE
        while text not in _CONTROL.sub("", self.shown):
            ready, _, _ = select.select([self.master], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, self.shown
            self.shown += os.read(self.master, 1 << 16).decode(errors="replace")
        self.shown = ""

    def press(self, key: str) -> None:
        """Type something."""
        os.write(self.master, key.encode())

    def ended(self) -> int:
        """The exit code, and the terminal is as before."""
        deadline = time.monotonic() + _PATIENCE
        # Who does not read what it still writes would keep it from ending.
        while time.monotonic() < deadline:
            if not select.select([self.master], [], [], 0.2)[0]:
                continue
            try:
                self.shown += os.read(self.master, 1 << 16).decode(errors="replace")
            except OSError:
                break
        code = self.process.wait(_PATIENCE)
        assert "\x1b[?1049l" in self.shown, "the screen from before is not back"
        assert "Traceback" not in self.shown
        return code


@contextmanager
def terminal(*arguments: object) -> Iterator[Terminal]:
    """`stromboli top` in a terminal, until the context ends."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    command = [sys.executable, "-m", "stromboli", "top", "--interval", "0.1", *map(str, arguments)]
    environment = {**os.environ, "TERM": "xterm-256color"}
    process = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)


@pytest.mark.exhaustive
def test_it_follows_a_service_until_a_key_or_ctrl_c_ends_it() -> None:
    with ExitStack() as service:
        url = service.enter_context(served(Ran(cluster()).app()))
        with terminal("--url", url) as one, terminal("--url", url) as other:
            one.until("q quits, r shows the next resource")
            one.press("x")
            one.press("r")
            one.until("QUEUE (memory)")
            one.press("q")
            assert one.ended() == 0
            other.until("NODES by cpu")
            service.close()
            other.until("Connection refused")
            other.process.send_signal(signal.SIGINT)
            assert other.ended() == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_ends_it_whatever_runs_when_it_is_pressed() -> None:
    class Finalized:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    with top._ctrl_c() as ended:
        assert not ended()
        Finalized()
        assert ended()
