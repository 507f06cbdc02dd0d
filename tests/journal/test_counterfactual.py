"""What another policy would have done with recorded work, under which each queue fares as that policy says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from stromboli.api.decisions import Evict
from stromboli.engine import Engine
from stromboli.explain.rehearsal import advance
from stromboli.journal import wire
from stromboli.policy.document import DEFAULT_POLICY
from tests.builders import NOON, node, pod, pod_group, queue
from tests.cli.conftest import stromboli
from tests.journal.recording import Recording

FIRST_COME = DEFAULT_POLICY.replace("  - name: proportion\n", "").replace("  - name: drf\n", "")
SHARED = DEFAULT_POLICY.replace("allocate, backfill", "allocate, reclaim, backfill").replace("proportion", "capacity")
DESERVES = {"deserved": {"cpu": "2", "memory": "64Gi"}, "reclaimable": True}


class Lived(Recording):
    """A cluster where bound pods run and evicted ones come back, second by second."""

    now = NOON

    def passes(self, seconds: int, *then: Any) -> None:
        """Sessions each second, and then objects come."""
        for _ in range(seconds):
            result = self.session(self.now)
            advance(self.state, result.decisions, self.now)
            for decision in result.decisions:
                if isinstance(decision, Evict):
                    job, _, number = decision.name.rpartition("-")
                    again = pod(f"{job}-{int(number) + 100}", job, cpu="1")
                    self.state.upsert("Pod", again)
            self.now += 1
        for each in then:
            self.state.upsert(type(each).__name__, each)

    def ends(self, *names: str) -> None:
        for name in names:
            self.state.delete("Pod", f"default/{name}")

    def file(self, path: Path) -> Path:
        path.write_bytes(self.journal.content())
        return path


def gang(name: str, pods: int, of: str) -> list[Any]:
    """Pods, two of which start together."""
    return [pod_group(name, 2, of), *(pod(f"{name}-{number}", name, cpu="1") for number in range(pods))]


def replayed(journal: Path, policy: str, *options: str) -> Any:
    path = journal.with_name("other.conf")
    path.write_text(policy)
    result = stromboli("replay", journal, "--policy", path, "-o", "json", *options)
    assert result.exit_code == 0, result.stderr
    return msgspec.json.decode(result.stdout)


@pytest.fixture
def hogged(tmp_path: Path) -> Path:
    """Queue a takes all four CPUs for 20 seconds; after 4 seconds b asks for two, and gets them at the end of those."""
    lived = Lived(Engine(FIRST_COME))
    lived.follow([node("n", cpu="4"), queue("a", **DESERVES), queue("b", **DESERVES)])
    for each in gang("hog", 4, "a"):
        lived.state.upsert(type(each).__name__, each)
    lived.passes(4, *gang("late", 2, "b"))
    lived.passes(16)
    lived.ends("hog-0", "hog-1", "hog-2", "hog-3")
    lived.passes(10)
    lived.ends("late-0", "late-1")
    lived.passes(2)
    return lived.file(tmp_path / "file")


def test_the_recorded_policy_does_what_it_did(hogged: Path) -> None:
    fared = replayed(hogged, FIRST_COME, "--diff")
    assert fared["policy"] == fared["recorded"]
    late = fared["recorded"]["b"]
    assert (late["started"], late["stillWaiting"], late["evicted"]) == (2, 0, 0)
    assert late["longestWait"] == pytest.approx(16, abs=2)
    assert fared["recorded"]["a"]["held"]["cpu"] == pytest.approx(20 / 31, abs=0.07)
    assert late["held"]["cpu"] == pytest.approx(2 * 10 / (4 * 31), abs=0.04)


def test_another_policy_evicts_and_has_others_wait(hogged: Path) -> None:
    fared = replayed(hogged, SHARED, "--diff")
    of_a, of_b = fared["policy"]["a"], fared["policy"]["b"]
    assert fared["recorded"]["a"]["evicted"] == 0
    assert of_a["evicted"] == 2
    assert of_b["longestWait"] <= 3
    assert of_b["held"]["cpu"] == pytest.approx(fared["recorded"]["b"]["held"]["cpu"], abs=0.04)
    text = stromboli("replay", hogged, "--policy", hogged.with_name("other.conf"), "--diff").stdout
    assert "queue a\n" in text
    assert "  evicted         0 → 2\n" in text
    assert max(map(len, text.splitlines())) <= 80


def test_who_comes_in_the_stead_of_an_evicted_pod_is_no_other_work(tmp_path: Path) -> None:
    """Under a policy that evicts no pod the pods that came back never came."""
    lived = Lived(Engine(SHARED))
    lived.follow([node("n", cpu="4"), queue("a", **DESERVES), queue("b", **DESERVES), pod_group("hog", 1, "a")])
    for number in range(4):
        lived.state.upsert("Pod", pod(f"hog-{number}", "hog", cpu="1"))
    lived.passes(3, *gang("late", 2, "b"))
    lived.passes(10)
    journal = lived.file(tmp_path / "file")
    decided = [entry.decisions for entry in lived.entries() if isinstance(entry, wire.Session)]
    assert sum(each.count(b"\xa5Evict") for each in decided) == 2
    fared = replayed(journal, FIRST_COME, "--diff")
    assert (fared["recorded"]["a"]["evicted"], fared["policy"]["a"]["evicted"]) == (2, 0)
    assert (fared["recorded"]["a"]["stillWaiting"], fared["policy"]["a"]["stillWaiting"]) == (2, 0)
    assert (fared["recorded"]["b"]["stillWaiting"], fared["policy"]["b"]["stillWaiting"]) == (0, 2)
    assert fared["policy"]["a"]["started"] == 4


def test_what_is_over_several_segments_is_one_history(hogged: Path, tmp_path: Path) -> None:
    lived = Lived(Engine(FIRST_COME))
    lived.follow([node("n", cpu="4"), queue("a"), queue("b")])
    for each in gang("early", 4, "a"):
        lived.state.upsert(type(each).__name__, each)
    for _ in range(3):
        lived.passes(5)
        lived.tape.wants_whole = True
    lived.ends("early-0", "early-1", "early-2", "early-3")
    lived.passes(5)
    fared = replayed(lived.file(tmp_path / "segments"), FIRST_COME)
    assert fared["policy"]["a"]["started"] == 4
    assert fared["policy"]["a"]["held"]["cpu"] == pytest.approx(15 / 19, abs=0.07)
    assert fared["recorded"] is None


def test_what_names_no_queue_counts_for_the_default_queue(tmp_path: Path) -> None:
    lived = Lived(Engine(FIRST_COME))
    lived.follow([node("n", cpu="1"), queue("default"), *gang("large", 2, ""), pod_group("small", 1, "")])
    lived.state.upsert("Pod", pod("small-0", "small", cpu="1"))
    lived.passes(2)
    (figures,) = replayed(lived.file(tmp_path / "file"), FIRST_COME)["policy"].items()
    assert (figures[0], figures[1]["started"], figures[1]["stillWaiting"]) == ("default", 1, 2)


def test_a_diff_needs_a_policy(hogged: Path) -> None:
    result = stromboli("replay", hogged, "--diff")
    assert (result.exit_code, result.stderr) == (2, "--diff: needs a --policy to compare with\n")
