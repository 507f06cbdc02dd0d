"""In every scenario each pod that waits has a reason, and its numbers add up."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from stromboli.api.decisions import SetPodUnscheduled
from stromboli.api.quantity import parse
from stromboli.api.reasons import Reason
from stromboli.discovery import discover
from stromboli.framework.diagnosis.explain import pending_reasons
from stromboli.framework.session.session import Session
from stromboli.simulation.scenario import Scenario

REGISTRY = discover()
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
HERE = Path(__file__).parent
#: a part of a detail: what is held, claimed and tried, the bound, and what is asked for
QUEUE = re.compile(
    r"(?P<resource>[\w./-]+): holds (?P<held>\S+?)(?: \((?P<elastic>\S+) elastic\))?"
    r"(?:, (?P<tried>\S+) more for other pods of the job)?(?:, (?P<claimed>\S+) more claimed by admitted jobs)?"
    r", (?:deserves|may have|has a quota of) (?P<bound>\S+?)(?:, (?P<asked>\S+) more requested)?$"
)
CLUSTER = re.compile(
    r"\S+: (?P<bound>\S+) may be claimed of \S+, pods hold (?P<held>\S+), "
    r"admitted jobs claim (?P<claimed>\S+), (?P<asked>\S+) more requested$"
)
#: what is rounded for people may be off by such a part, or as much
ROUNDED = parse("1m")
#: amounts that nobody reads: milli-CPU, and bytes one by one
UNREADABLE = re.compile(r"\b[0-9]+m\b|[0-9]{7,}")


def sessions() -> list[tuple[str, Session]]:
    """Every sixth scenario that a policy of ours can run."""
    out = []
    for path in sorted((HERE / "scenarios").glob("*.yaml"))[::6]:
        document: dict[str, Any] = yaml.load(path.read_text(), Loader=LOADER)
        out.append((path.stem, Scenario.parse(document).run("strict", registry=REGISTRY).session))
    return out


def wrong_numbers(reason: Reason, nodes: int) -> list[str]:
    """What of a reason's numbers does not agree with what it says."""
    wrong = [f"{reason.told} is not for people"] * bool(UNREADABLE.search(reason.told))
    if reason.nodes and sum(reason.nodes.values()) != nodes:
        wrong.append(f"{reason.nodes} are not the {nodes} nodes")
    parts = reason.detail.split("; ") if reason.reason.startswith(("Queue", "Cluster")) else []
    for part in parts:
        match = QUEUE.match(part) or CLUSTER.match(part)
        if match is None:
            continue
        numbers = {k: v.replace(",", "") for k, v in match.groupdict().items() if v and k != "resource"}
        amounts = {k: parse(v) for k, v in numbers.items() if v != "unlimited"}
        gives_back = amounts.get("elastic", 0)
        wanted = sum(amounts.get(name, 0) for name in ("held", "tried", "claimed", "asked")) - gives_back
        if min(amounts.values()) < 0 or (
            "bound" in amounts and "asked" in amounts and wanted * (1 + ROUNDED) + ROUNDED < amounts["bound"]
        ):
            wrong.append(part)
    return wrong


def test_each_pod_that_waits_has_a_reason_whose_numbers_add_up() -> None:
    wrong, explained, counted = [], 0, 0
    for name, session in sessions():
        view, reasons = session.view, pending_reasons(session)
        told = {d.key for d in session.decisions if isinstance(d, SetPodUnscheduled)}
        for record in view.pods.records:
            if record is None or record.node_name or record.key in session.bound:
                continue
            if view.pods.job[record.row] < -1 or record.key not in reasons:
                wrong.append(f"{name}: {record.key} has no reason")
                continue
            reason = reasons[record.key]
            if record.key not in told and not record.pod_class.gated:
                wrong.append(f"{name}: {record.key} does not say {reason.told}")
            wrong += [f"{name}: {record.key}: {each}" for each in wrong_numbers(reason, len(view.nodes))]
            explained += 1
            counted += bool(reason.nodes or any(character.isdigit() for character in reason.detail))
    assert wrong == []
    assert explained > 150
    assert counted > explained * 0.7
