"""How long containers of simulated pods live, and how they end."""

from __future__ import annotations

import pytest

from tests.suites.kubelet import ends


@pytest.mark.parametrize(
    ("command", "end"),
    [
        (["sh", "-c", "sleep 10s"], (10, 0)),
        (["sh", "-c", "sleep 10s && exit 3"], (10, 3)),
        (["sh", "-c", "sleep 10s && xxx"], (10, 127)),
        (["sh", "-c", "sleep 3; sleep 2; exit 1"], (5, 1)),
        (["sh", "-c", "sh fake.sh"], (0, 127)),
        (["env"], (0, 0)),
        (["sh", "-c", "python train.py --steps 10"], (5, 0)),
        (["sh", "-c", "mkdir -p /var/run/sshd; /usr/sbin/sshd -D;"], None),
        (["/bin/sh", "-c", "trap exit TERM; while true; do sleep 1; done"], None),
    ],
)
def test_a_container_ends_as_its_command_says(command: list[str], end: tuple[float, int] | None) -> None:
    assert ends({"image": "busybox", "command": command}) == end


@pytest.mark.parametrize(("image", "end"), [("nginx:1", None), ("busybox", (0, 0))])
def test_a_container_without_a_command_is_what_its_image_is(image: str, end: tuple[float, int] | None) -> None:
    assert ends({"image": image}) == end
