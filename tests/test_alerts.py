"""The chart's alerts and its dashboard: they ask for what there is, and alerts tell what they are about."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from stromboli.metrics.definitions import SUBJECTS, definitions
from tests import pages

FILES = Path(__file__).parents[1] / "charts/stromboli/files"
ALERTS = FILES / "alerts.yaml"
METRICS = {each.name: each for subject in SUBJECTS.values() for each in definitions(subject)}
#: labels that a scrape adds, and that of buckets
ADDED = {"namespace", "job", "pod", "le"}


def alerts() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def runbooks(repository: Path) -> dict[str, str]:
    """The sections of the page of runbooks, by their anchors."""
    text = (repository / "docs/runbooks.md").read_text()
    sections = re.findall(r"^## (.*)\n((?:(?!## ).*\n)*)", text, re.MULTILINE)
    return {title.lower().replace(" ", "-"): section for title, section in sections}


def panels() -> list[dict[str, Any]]:
    return [each for each in json.loads((FILES / "dashboard.json").read_text())["panels"] if each["type"] != "row"]


def expressions() -> Iterator[tuple[str, str]]:
    """What is asked, by whom."""
    yield from ((rule["alert"], rule["expr"]) for rule in alerts())
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def promtool(*arguments: object) -> None:
    """Run it, or skip the test where there is none."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("there is no promtool on this machine")
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("who", "expression"), list(expressions()))
def test_metrics_and_labels_that_are_asked_for_exist(who: str, expression: str) -> None:
    plain = re.sub(r"\[[^]]*\]", "", expression)
    asked = re.findall(r"\b((?:stromboli|volcano|process)_\w+)(?:{([^}]*)})?", plain)
    assert asked
    labels = set()
    for name, matchers in asked:
        whole = re.sub("_(bucket|sum|count)$", "", name)
        found = METRICS.get(name) or METRICS.get(whole)
        assert found is not None or name.startswith("process_"), name
        assert found is None or name == found.name or found.kind == "histogram", name
        known = ADDED | set(found.labels if found else ())
        assert set(re.findall(r"(\w+)(?:=~|!=|!~|=)", matchers)) <= known, name
        labels |= known
    grouped = {label for names in re.findall(r"by \(([^)]*)\)", plain) for label in names.split(", ")}
    assert grouped <= labels, grouped - labels


def test_reasons_that_are_asked_for_exist(repository: Path) -> None:
    known = set(re.findall(r"^\| `(\w+)` \|", (repository / "docs/reasons.md").read_text(), re.MULTILINE))
    asked = re.findall(r'reason=~"([\w|]+)"', "\n".join(expression for _, expression in expressions()))
    assert asked
    assert {word for words in asked for word in words.split("|")} <= known


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: str(rule["alert"]))
def test_every_alert_leads_to_a_runbook_whose_commands_are_run(rule: dict[str, Any], repository: Path) -> None:
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert (page, anchor) == ("docs/runbooks.md", rule["alert"].lower())
    section = runbooks(repository)[anchor]
    shown = [each.words for each in pages.commands() if each.page == page and each.words in section]
    run = [words for words in shown if not any(re.search(pattern, words) for pattern in pages.NOT_RUN)]
    assert run, "tests/e2e/test_pages.py runs none"


def test_what_pages_look_for_in_logs_is_logged(repository: Path) -> None:
    source = "\n".join(path.read_text() for path in (repository / "app").rglob("*.py"))
    phrases = [found for each in pages.commands() for found in re.findall(r'logs .* \| grep ("[^"]+")', each.words)]
    assert phrases
    assert [phrase for phrase in phrases if phrase not in source] == []


def test_every_panel_says_what_it_shows() -> None:
    dashboard = json.loads((FILES / "dashboard.json").read_text())
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    assert all(panel["targets"] and panel["title"] for panel in panels())
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    asked = set(re.findall(r"\$({?\w+}?)", json.dumps([each for _, each in expressions()])))
    assert asked - {"__rate_interval"} <= variables


def test_prometheus_reads_all_of_it(tmp_path: Path) -> None:
    asked = (re.sub(r"\$__rate_interval", "5m", expression) for _, expression in expressions())
    rules = [{"record": f"asked:{number}", "expr": expression} for number, expression in enumerate(asked)]
    (tmp_path / "dashboard.yaml").write_text(yaml.safe_dump({"groups": [{"name": "asked", "rules": rules}]}))
    promtool("check", "rules", ALERTS, tmp_path / "dashboard.yaml")


def test_prometheus_scrapes_what_the_chart_serves(repository: Path, tmp_path: Path) -> None:
    config = yaml.safe_load((repository / "deploy/prometheus.yaml").read_text())
    (keep,) = [each for each in config["scrape_configs"][0]["relabel_configs"] if each.get("action") == "keep"]
    found = yaml.safe_load_all((repository / "deploy/kustomize/stromboli.yaml").read_text())
    services = [each for each in found if each and each["kind"] == "Service"]
    kept = [
        each["metadata"]["name"]
        for each in services
        if f"{each['metadata']['labels']['app.kubernetes.io/name']};{each['spec']['ports'][0]['name']}" == keep["regex"]
    ]
    assert kept == ["stromboli"]
    (rules,) = config["rule_files"]
    assert repository / rules == ALERTS
    # A promtool of Debian knows no Kubernetes.
    assert config["scrape_configs"][0].pop("kubernetes_sd_configs") == [{"role": "endpointslice"}]
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump({**config, "rule_files": [str(ALERTS)]}))
    promtool("check", "config", tmp_path / "prometheus.yaml")


WELL = {
    "stromboli_leading": "1+0x60",
    'stromboli_sessions_total{result="completed"}': "0+60x60",
    'stromboli_session_seconds_bucket{le="1"}': "0+60x60",
    'stromboli_session_seconds_bucket{le="+Inf"}': "0+60x60",
    'stromboli_last_watch_event_timestamp_seconds{kind="Node"}': "0+60x60",
    "stromboli_policy_last_reload_successful": "1+0x60",
    'stromboli_bindings_total{result="bound"}': "0+600x60",
    'stromboli_api_writes_total{kind="Event", result="posted"}': "0+60x60",
    'stromboli_pending_pods{queue="a", stage="Placement", reason="Unschedulable"}': "8+0x60",
}
#: what is otherwise when something is wrong; nothing is an absent series
ILL = {
    "StromboliNobodySchedules": {"stromboli_leading": "0+0x60"},
    "StromboliIsGone": dict.fromkeys(WELL, ""),
    "StromboliSessionsFail": {'stromboli_sessions_total{result="failed"}': "0+1x60"},
    "StromboliSessionsAreSlow": {
        'stromboli_session_seconds_bucket{le="1"}': "0+50x60",
        'stromboli_session_seconds_bucket{le="2.5"}': "0+60x60",
    },
    "StromboliSeesNoEvents": {'stromboli_last_watch_event_timestamp_seconds{kind="Node"}': "60+0x60"},
    "StromboliPolicyRefused": {"stromboli_policy_last_reload_successful": "1 1 0+0x58"},
    "StromboliBindingsFail": {'stromboli_bindings_total{result="refused"}': "0+60x60"},
    "StromboliWritesFail": {'stromboli_api_writes_total{kind="PodGroup/status", result="failed"}': "0+1x60"},
    "StromboliPluginFails": {'stromboli_plugin_failures_total{plugin="mine"}': "0+1x60"},
    "StromboliCannotReadObjects": {'stromboli_malformed_objects_total{kind="Pod"}': "0 0 0 0 3+0x56"},
    "StromboliEvictionsPaused": {'stromboli_evictions_paused{queue="a"}': "2+0x60"},
    "StromboliPodsWaitForTheAdmin": {
        'stromboli_pending_pods{queue="a", stage="Admission", reason="QueueMisconfigured"}': "3+0x60"
    },
}


@pytest.mark.exhaustive
def test_each_alert_tells_of_its_own_trouble_and_none_when_all_is_well(tmp_path: Path) -> None:
    """An hour of series a minute apart, of a service that is well but for one thing."""
    assert {rule["alert"] for rule in alerts()} == ILL.keys()
    cases = [_case("", WELL)] + [_case(alert, WELL | changed) for alert, changed in ILL.items()]
    (tmp_path / "tests.yaml").write_text(
        yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": cases})
    )
    promtool("test", "rules", tmp_path / "tests.yaml")


def _case(trouble: str, series: dict[str, str]) -> dict[str, Any]:
    """A test of promtool's: what fires after an hour, by the number of alerts of each name."""
    fires = [
        {
            "expr": f'count(ALERTS{{alertname="{rule["alert"]}", alertstate="firing"}}) or vector(0)',
            "eval_time": "1h",
            "exp_samples": [{"labels": "{}", "value": int(rule["alert"] == trouble)}],
        }
        for rule in alerts()
    ]
    given = [{"series": name, "values": values} for name, values in series.items() if values]
    return {"name": trouble or "all is well", "interval": "1m", "input_series": given, "promql_expr_test": fires}
