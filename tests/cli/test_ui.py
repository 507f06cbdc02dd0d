"""`stromboli ui`: it prints where the page is, serves it, and says what is wrong in a line."""

from __future__ import annotations

import signal
import subprocess
import sys

import httpx
import pytest

from tests.cli.conftest import stromboli


@pytest.mark.exhaustive
def test_it_prints_its_address_serves_and_ends_when_it_is_told_to() -> None:
    command = [sys.executable, "-m", "stromboli", "ui", "--url", "http://127.0.0.1:9", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert httpx.get(f"{address}/healthz").text == "ok\n"
        unanswered = httpx.get(address)
        assert (unanswered.status_code, "http://127.0.0.1:9 does not answer" in unanswered.text) == (503, True)
        assert httpx.get(f"{address}/static/style.css").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--url", "service:8080"], "'service:8080' is not an address such as http://127.0.0.1:8080"),
        (["--listen", "nowhere"], "'nowhere' is not an address such as 127.0.0.1:8080"),
        (["--tls-cert-file", "none.pem"], "--tls-cert-file: Path does not point to a file, not"),
        (["--tls-cert-file", "pyproject.toml"], "a certificate and its private key must be given together"),
        (["--url", "https://service", "--certificate-authority", "none.pem"], "No such file"),
    ],
)
def test_what_is_wrong_is_a_line(options: list[str], problem: str) -> None:
    done = stromboli("ui", *options)
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert problem in done.output


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("stromboli.ui")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    done = stromboli("ui")
    assert (done.exit_code, done.output) == (2, "the page needs jinja2: pip install 'stromboli[ui]'\n")
