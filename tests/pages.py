"""The commands that the pages show, and where they are run: each in a test, or in a table with the reason why not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
_PROGRAMS = ("stromboli", "kubectl", "helm", "curl", "pip", "make", "docker", "python3", "python", "pytest", "cd")
_COMMAND = re.compile(rf"(?:\.venv/bin/)?(?:{'|'.join(_PROGRAMS)})\b")


@dataclass(frozen=True, slots=True)
class Command:
    """A command as a page has it, on one line and without its comment."""

    page: str
    words: str


def commands() -> Iterator[Command]:
    """All commands of README.md and of docs, in order: those in blocks that are indented, and in those of `sh`."""
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        page = path.relative_to(ROOT).as_posix()
        yield from (Command(page, words) for words in _of_page(path.read_text()))


def _of_page(text: str) -> Iterator[str]:
    fence = ""
    lines = iter(text.splitlines())
    for line in lines:
        opened = re.match(r" *```(\w*)", line)
        if opened:
            fence = "" if fence else opened[1] or "text"
        elif not (fence == "sh" or (not fence and line.startswith("    "))):
            continue
        elif _COMMAND.match(line.strip()):
            words = line.strip()
            while words.endswith("\\") or words.count('"') % 2:
                words = f"{words.removesuffix(chr(92)).rstrip()} {next(lines).strip()}"
            yield re.sub(r" +# .*", "", words)


#: commands that other tests run, by pattern: the test
ELSEWHERE = {
    r"helm (install|upgrade|rollback) ": "tests/controlplane/test_chart.py::test_the_helm_lines_of_the_pages_work",
    r"kubectl apply --server-side -k ": (
        "tests/controlplane/test_chart.py::test_the_kustomize_base_is_what_the_chart_makes"
    ),
    r"stromboli (lab simulate large|why .*-f cluster\.yaml --policy policy)": (
        "tests/test_docs.py::test_the_commands_below_the_examples_print_what_the_page_says"
    ),
    r"kubectl auth can-i create ": (
        "tests/controlplane/test_chart.py::test_users_may_do_with_podgroups_and_queues_what_the_table_of_roles_says"
    ),
    r"helm uninstall |kubectl delete (namespace|crd) ": (
        "tests/controlplane/test_chart.py::test_an_uninstall_leaves_what_the_page_says_and_its_commands_leave_nothing"
    ),
    r"helm test ": "tests/e2e/test_chart.py::test_the_test_of_a_release_starts_a_gang",
    r"stromboli plugins new team$|cd stromboli-team|pytest|stromboli plugins check team ": (
        "tests/test_contributing.py::test_a_plugin_is_written_as_its_guide_says"
    ),
}

#: commands that no test runs as they are, by pattern: why not
NOT_RUN = {
    r"docker ": "needs Docker and a registry",
    r"pip install ": "installs from a registry",
    r"make image": "needs a registry; tests/image builds on a base of its own",
    r"make (venv|test|demo|bench-growth)": "makes the environment of the tests, or runs them, or takes an hour",
    r"stromboli bench (matrix|engine)": "takes minutes to measure",
    r"stromboli lab (run|sweep|recommend)": "reads published traces, which are not in the repository",
    r"stromboli lab (generate --jobs 800|starts)": "takes minutes; tests/lab/test_starts.py has a short workload",
    r"python -m tests\.(tenants|perf)": "takes minutes to measure",
}
