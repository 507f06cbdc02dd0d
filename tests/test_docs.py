"""What the pages say is there: links, files, names, and what the examples of docs/concepts.md print."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from stromboli.api.errors import PolicyError
from stromboli.cli import make_app
from stromboli.cli.references.commands import commands
from stromboli.cli.references.pages import PAGES as PAGES_WRITTEN
from stromboli.cli.references.pages import tables, written
from stromboli.discovery import discover
from stromboli.engine import Engine
from stromboli.explain.checkup import policy_findings
from stromboli.metrics.definitions import SUBJECTS, definitions
from stromboli.policy.rules import RULES
from stromboli.policy.switches import SWITCH_OF_KEY
from tests import pages
from tests.picture import demo

ROOT = Path(__file__).parents[1]
PAGES = sorted(page.relative_to(ROOT).as_posix() for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")))
WRITTEN_HERE = ["docs/concepts.md", "docs/migration.md", "docs/operations.md", "docs/policy.md", "docs/start.md"]
WRITTEN_HERE += ["docs/default-scheduler.md", "docs/words.md", "docs/index.md"]


def read(page: str) -> str:
    return (ROOT / page).read_text()


def prose(page: str) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", read(page), flags=re.DOTALL | re.MULTILINE)


def anchors(page: str) -> set[str]:
    """The names that headings of a page have in links."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def table(page: str, heading: str) -> list[str]:
    """The first cells of the table below a heading."""
    section = read(page).partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("|")]
    assert len(rows) > 2
    return rows[2:]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        linked = (ROOT / page).parent / path if path else ROOT / page
        assert linked.is_file(), target
        if anchor:
            assert anchor in anchors(linked.resolve().relative_to(ROOT).as_posix()), target


def test_every_page_is_in_the_menu_and_linked_from_the_readme() -> None:
    site = yaml.safe_load(read("mkdocs.yml"))
    menu = {path for section in site["nav"] for path in re.findall(r"[\w-]+\.md", json.dumps(section))}
    pages = {Path(page).name for page in PAGES if page.startswith("docs/")}
    assert menu == pages
    assert {page for page in pages - {"index.md"} if f"(docs/{page})" not in read("README.md")} == set()


def test_pages_say_what_the_code_says() -> None:
    """`make references` writes them."""
    made = written(ROOT / "docs")
    assert made.keys() == {*PAGES_WRITTEN, *tables(ROOT / "docs")}
    assert {name for name, text in made.items() if read(f"docs/{name}") != text} == set()


def test_a_page_without_a_place_for_its_tables_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "policy.md").write_text("# Policy\n")
    with pytest.raises(ValueError, match="no place for the table 'keys'"):
        written(tmp_path)


def test_the_picture_is_what_the_demo_shows() -> None:
    assert read("docs/demo.svg") == demo()


# -- concepts ----------------------------------------------------------------------------------------------------------


def examples() -> list[tuple[str, str, str]]:
    """Of each example in docs/concepts.md the policy above it, the cluster, and what is printed."""
    found, policy = [], ""
    for cluster, shown in re.findall(
        r"^```yaml\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?", read("docs/concepts.md"), re.DOTALL | re.MULTILINE
    ):
        if cluster.startswith("actions:"):
            policy = cluster
        else:
            found.append((policy, cluster, shown))
    return found


@pytest.mark.parametrize(("policy", "cluster", "shown"), examples())
def test_the_examples_print_what_the_page_says(policy: str, cluster: str, shown: str, tmp_path: Path) -> None:
    (tmp_path / "policy.conf").write_text(policy)
    (tmp_path / "cluster.yaml").write_text(cluster)
    arguments = ["simulate", str(tmp_path / "cluster.yaml"), "--policy", str(tmp_path / "policy.conf")]
    printed = [line.rstrip() for line in CliRunner().invoke(make_app(), arguments).output.splitlines() if line.strip()]
    assert shown.strip()
    assert "\n".join(line.rstrip() for line in shown.splitlines()) in "\n".join(printed)


def below_examples() -> list[tuple[str, str, str, str]]:
    """Of each block of commands in docs/concepts.md the last policy and cluster above it, and what is printed."""
    found, policy, cluster = [], "", ""
    for kind, block, shown in re.findall(
        r"^```(yaml|sh)\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?", read("docs/concepts.md"), re.DOTALL | re.MULTILINE
    ):
        if kind == "sh":
            found.append((policy, cluster, block, shown))
        elif block.startswith("actions:"):
            policy = block
        else:
            cluster = block
    return found


@pytest.mark.parametrize(("policy", "cluster", "typed", "shown"), below_examples())
@pytest.mark.one_in(3)
def test_the_commands_below_the_examples_print_what_the_page_says(
    policy: str, cluster: str, typed: str, shown: str, tmp_path: Path
) -> None:
    (tmp_path / "policy.conf").write_text(policy)
    (tmp_path / "cluster.yaml").write_text(cluster)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-ec", typed], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "\n".join(line.rstrip() for line in shown.splitlines()) in "\n".join(
        line.rstrip() for line in done.stdout.splitlines()
    )


# -- policy ------------------------------------------------------------------------------------------------------------


def test_the_policy_of_the_reference_is_one() -> None:
    (policy,) = re.findall(r"^```yaml\n(.*?)^```$", read("docs/policy.md"), re.DOTALL | re.MULTILINE)
    (in_place,) = re.findall(r"^```yaml\n(.*?)^```$", read("docs/default-scheduler.md"), re.DOTALL | re.MULTILINE)
    assert in_place == read("deploy/default-scheduler.conf")
    assert [finding.problem for finding in policy_findings(Engine(policy))] == []
    keys = read("docs/policy.md").partition("## Actions")[0]
    assert list(yaml.safe_load(policy)) == re.findall(r"^\| `(\w+)` \|", keys, re.MULTILINE)
    with pytest.raises(PolicyError, match=", ".join(sorted(yaml.safe_load(policy)))):
        Engine("strange:")


def test_the_reference_names_every_action_plugin_switch_and_rule() -> None:
    page, registry = read("docs/policy.md"), discover()
    linked = re.findall(r"\[`([\w-]+)`\]\((?:plugins|fair-shares)\.md", page)
    assert sorted(set(linked)) == sorted((*registry.actions, *registry.plugins))
    switches = set(re.findall(r"`([eE]nabled?[A-Z]\w+)`", "\n".join(table("docs/policy.md", "Switches"))))
    assert {SWITCH_OF_KEY[name] for name in switches} == set(SWITCH_OF_KEY.values())
    assert set(re.findall(r"\(`(\w+)`\)", read("docs/migration.md"))) <= set(RULES)


# -- commands, metrics, values -----------------------------------------------------------------------------------------

METRICS = {each.name: each for subject in SUBJECTS.values() for each in definitions(subject)}
HISTOGRAMS = {name for name, each in METRICS.items() if each.kind == "histogram"}


@pytest.fixture(scope="module")
def known() -> dict[str, set[str]]:
    """The options of each command."""
    options = {
        name: {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        for name, command in commands()
    }
    return {**options, "stromboli plugins": {"--plugins-dir"}, "stromboli": set()}


@pytest.mark.parametrize("page", [*WRITTEN_HERE, "README.md", "docs/troubleshooting.md"])
def test_commands_and_options_exist(known: dict[str, set[str]], page: str) -> None:
    for line in re.findall(r"(?:^    |`|\| |bin/|kubectl )(stromboli [a-z-][^`\n#|>]*)", read(page), re.MULTILINE):
        words = line.split()
        length = next(n for n in range(len(words), 0, -1) if " ".join(words[:n]) in known)
        assert length > 1 or words[1] in ("--help", "..."), line
        options = {word.partition("=")[0] for word in words[length:] if re.match(r"--?\w", word)}
        assert options <= known[" ".join(words[:length])] | {"--help"}, line


def test_options_of_the_service_exist(known: dict[str, set[str]]) -> None:
    for heading in ("Replicas", "Tuning"):
        assert {row.strip("`") for row in table("docs/operations.md", heading)} <= known["stromboli run"]


@pytest.mark.parametrize("page", [*WRITTEN_HERE, "docs/fair-shares.md", "README.md"])
def test_metrics_exist(page: str) -> None:
    named = set(re.findall(r"\b((?:stromboli|volcano)_\w*[a-z])\b", read(page)))
    assert named - {re.sub("_bucket$", "", name) for name in named} <= {f"{name}_bucket" for name in HISTOGRAMS}
    assert {re.sub("_bucket$", "", name) for name in named} <= METRICS.keys()


def test_values_of_the_chart_exist() -> None:
    values = yaml.safe_load(read("charts/stromboli/values.yaml"))
    named = {key for page in WRITTEN_HERE for key in re.findall(r"--set(?:-file)? ([\w.]+)=", read(page))}
    named |= set(re.findall(r"`(leaderElection\.\w+|serviceMonitor\.\w+|extraArgs)`", read("docs/operations.md")))
    assert named
    for key in named:
        value = values
        for part in key.split("."):
            value = value[part]


def test_the_changelog_is_of_this_version() -> None:
    version = tomllib.loads(read("pyproject.toml"))["project"]["version"]
    assert re.search(rf"^## \[(Unreleased|{re.escape(version)})\]", read("CHANGELOG.md"), re.MULTILINE)


def test_the_tests_that_stand_against_threats_are_there(repository: Path) -> None:
    named = re.findall(r"`(tests/[a-z0-9_/]+\.py)::(test_[a-z0-9_]+)`", (repository / "SECURITY.md").read_text())
    assert len(named) > 15
    assert [each for each in named if f"def {each[1]}(" not in (repository / each[0]).read_text()] == []


def test_every_command_is_run_somewhere_or_not_for_a_reason(repository: Path) -> None:
    """Those in neither table are run by tests/e2e/test_pages.py. A pattern that fits nothing is out of date."""
    shown = [each.words for each in pages.commands()]
    assert len(shown) > 80
    for table in (pages.ELSEWHERE, pages.NOT_RUN):
        assert [each for each in table if not any(re.search(each, words) for words in shown)] == []
    for test in pages.ELSEWHERE.values():
        path, _, name = test.partition("::")
        assert f"def {name}(" in (repository / path).read_text()
