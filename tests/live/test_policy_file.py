"""The policy file while the service runs, and when it cannot be used at the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from stromboli.api.errors import PolicyError
from tests.live.cluster import Cluster
from tests.live.conftest import StartService, until
from tests.live.first_fit import FirstFit
from tests.live.test_service import recorder


async def test_a_policy_is_followed_and_a_bad_one_told(cluster: Cluster, start: StartService, tmp_path: Path) -> None:
    engines: list[str | None] = []

    def load(text: str | None) -> FirstFit:
        if text == "bad":
            raise PolicyError(["actions: nothing is known of 'bad'"])
        engines.append(text)
        return FirstFit(text)

    path = tmp_path / "policy.conf"
    path.write_text("first")
    service = await start(load, policy=path)
    path.write_text("bad")
    await until(lambda: recorder(service).problems == [None, "actions: nothing is known of 'bad'"])
    await until(lambda: "PolicyRefused" in cluster.reasons())
    (found,) = service.outside_sessions()
    assert (found.area, found.problem) == ("policy", f"{path} was refused, and the policy before it is in force")
    cluster.gang("train", 2)
    await until(lambda: cluster.all_bound(2))
    path.write_text("second")
    await until(lambda: recorder(service).problems[2:] == [None])
    assert engines == ["first", "second"]
    assert service.outside_sessions() == []


def only_good(text: str | None) -> FirstFit:
    """Loads policies that begin so."""
    if not str(text).startswith("good"):
        raise PolicyError([f"{text!r} is not good"])
    return FirstFit(text)


@pytest.mark.parametrize("content", ["bad", None])
async def test_a_bad_policy_at_the_start_is_waited_for(
    cluster: Cluster, start: StartService, tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / "policy.conf"
    if content is not None:
        path.write_text(content)
    cluster.gang("train", 2)
    service = await start(only_good, policy=path, leader_elect=True)
    problem = "'bad' is not good" if content else "cannot be read: No such file or directory"
    assert service.unready() == [f"policy {path}: {problem}"]
    assert not service.leads
    path.write_text("good")
    await until(lambda: cluster.all_bound(2))
    assert service.unready() == []


async def test_the_policy_that_was_kept_stands_in_for_a_bad_one_at_the_start(
    cluster: Cluster, start: StartService, tmp_path: Path
) -> None:
    path, state = tmp_path / "policy.conf", tmp_path / "state" / "of-this-replica"
    path.write_text("good one")
    before = await start(only_good, policy=path, state_dir=state)
    await before.stop()
    path.write_text("bad")
    loaded: list[str | None] = []

    def load(text: str | None) -> FirstFit:
        decider = only_good(text)
        loaded.append(text)
        return decider

    service = await start(load, policy=path, state_dir=state)
    cluster.gang("train", 2)
    await until(lambda: cluster.all_bound(2))
    assert loaded == ["good one"]
    assert service.unready() == []
    assert recorder(service).problems == ["'bad' is not good"]
