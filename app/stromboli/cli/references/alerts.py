"""The table of the chart's alerts, written from the rules that Prometheus reads."""

from __future__ import annotations

from pathlib import Path

import yaml

from stromboli.cli.references.tables import code, table


def markdown(rules: Path) -> str:
    """Every alert in a file of rules."""
    groups = yaml.safe_load(rules.read_text(encoding="utf-8"))["groups"]
    rows = (
        (
            code(rule["alert"]),
            rule["labels"]["severity"],
            code(rule["expr"]) + (f" for {rule['for']}" if "for" in rule else ""),
            rule["annotations"]["action"],
        )
        for group in groups
        for rule in group["rules"]
    )
    return table(("alert", "severity", "when", "do"), rows)
