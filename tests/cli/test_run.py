"""What `stromboli run` refuses at the start: one line with the option and the value, and no traceback."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from stromboli.cli import make_app
from stromboli.devserver import write_kubeconfig
from stromboli.live.settings import Settings


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """A kubeconfig of an API server that is not there."""
    path = tmp_path / "kubeconfig"
    write_kubeconfig(path, "http://127.0.0.1:1")
    return path


@pytest.fixture
def taken() -> Iterator[str]:
    """An address that another process listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def refused(kubeconfig: Path, *options: str) -> str:
    """The line that says why it does not start."""
    result = CliRunner().invoke(make_app(), ["run", "--kubeconfig", str(kubeconfig), *options])
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    (line,) = result.stderr.splitlines()
    return line


@pytest.mark.parametrize("value", ["-1", "0", "nan", "inf", "1e300"])
@pytest.mark.parametrize("option", ["--schedule-period", "--binds-per-second"])
def test_numbers_have_a_range(kubeconfig: Path, option: str, value: str) -> None:
    line = refused(kubeconfig, f"{option}={value}")
    assert line.startswith(f"{option}: Input should be ")
    assert line.endswith(f", not {float(value)}")


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--log-level", "verbose", "--log-level: 'verbose' is none of debug, info, warning, error"),
        ("--listen", "8080", "'8080' is not an address such as 127.0.0.1:8080"),
        ("--listen", "127.0.0.1:99999", "'127.0.0.1:99999' is not an address such as 127.0.0.1:8080"),
        ("--scheduler-name", "", "--scheduler-name: String should have at least 1 character, not ''"),
        ("--default-queue", "", "--default-queue: String should have at least 1 character, not ''"),
        ("--context", "nowhere", "nowhere"),
    ],
)
def test_an_option_that_makes_no_sense_is_named(kubeconfig: Path, option: str, value: str, says: str) -> None:
    assert says in refused(kubeconfig, option, value)


def test_options_that_do_not_go_together_are_told_in_plain_words(kubeconfig: Path) -> None:
    said = refused(kubeconfig, "--stand-in", "left")
    assert said == "only a shard stands in for others, and this service has all nodes"
    assert refused(kubeconfig, "--lease-duration", "2").startswith("must be retry_period < renew_deadline")


def test_an_address_in_use_is_named(kubeconfig: Path, taken: str) -> None:
    assert "in use" in refused(kubeconfig, "--listen", taken)
    assert repr(int(taken.partition(":")[2])) in refused(kubeconfig, "--listen", taken)


def of_server(server: str) -> bytes:
    """A kubeconfig whose current context is this server; the text is YAML."""
    clusters = "clusters: [{name: a, cluster: {server: " + server + "}}]\nusers: [{name: a, user: {}}]\n"
    return (clusters + "contexts: [{name: a, context: {cluster: a, user: a}}]\ncurrent-context: a\n").encode()


@pytest.mark.parametrize(
    "content",
    [
        b"", b"}{", b"\xff\xfe\x00", b"a: b: c\n  - d", b"7", b"[]", b"kind: Config", b"clusters: 5",
        b"clusters: [5]\ncontexts: [5]\ncurrent-context: a", b"current-context: a\ncontexts: {a: b}",
        of_server("nowhere"), of_server("ftp://a"), of_server("[]"),
        of_server("'https://a', certificate-authority-data: '??'"),
        of_server("'https://a', certificate-authority: /absent"),
    ],
)  # fmt: skip
def test_a_kubeconfig_that_cannot_be_used_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "kubeconfig"
    path.write_bytes(content)
    assert len(refused(path)) < 500


def test_a_kubeconfig_that_is_missing_is_named(tmp_path: Path) -> None:
    line = refused(tmp_path / "absent")
    assert str(tmp_path / "absent") in line
    assert "set --kubeconfig or $KUBECONFIG to use another" in line


@pytest.mark.parametrize("name", [name for name, field in Settings.model_fields.items() if field.annotation is float])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 1e300])
def test_every_number_of_the_settings_has_a_range(name: str, value: float) -> None:
    with pytest.raises(ValidationError, match=name):
        Settings(**{name: value})
