"""A package template with a plugin or action, its arguments, and a passing test."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from string import Template

from stromboli.api.errors import StromboliError
from stromboli.discovery import discover

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")

_PROJECT = Template("""\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "stromboli-$name"
version = "0.1.0"
description = "The $kind $name for Stromboli"
requires-python = ">=3.11"
dependencies = ["stromboli"]

[project.entry-points."stromboli.${kind}s"]
$name = "$module:$cls"

[tool.setuptools]
py-modules = ["$module"]

[tool.pytest.ini_options]
pythonpath = ["."]
testpaths = ["tests"]
""")

_PLUGIN = Template('''\
"""$name: pods with a label go to nodes with the same value of it, all others stay off these if they can."""

from __future__ import annotations

import numpy as np
from pydantic import Field
from stromboli.framework import Arguments, Filters, NodeView, Plugin, PodRecord, Reads, Vector

LABEL = "example.com/$name"


class ${camel}Arguments(Arguments):
    """Arguments of $name."""

    weight: int = Field(default=1, ge=0, alias="$name.weight")
    """Multiplies the score of nodes without the label, for pods without it."""


class $cls(Plugin):
    name = "$name"
    reads = Reads(labels=(LABEL,))
    Arguments = ${camel}Arguments

    def predicate(self, pod: PodRecord, nodes: NodeView) -> Filters:
        wanted = pod.labels.get(LABEL)
        if wanted is not None:
            yield f"node(s) without {LABEL}={wanted}", nodes.label(LABEL, wanted)

    def node_order(self, pod: PodRecord, nodes: NodeView) -> Vector | None:
        if LABEL in pod.labels:
            return None
        score = 100.0 * self.arguments.weight
        return np.where(nodes.facts.label(LABEL)[nodes.rows] < 0, score, 0.0)
''')

_PLUGIN_TEST = Template('''\
"""Pods with the label and without it, and the plugin on random clusters."""

from stromboli.plugin_kit import decide, try_plugin

from $module import LABEL, $cls

NODES = f"""
kind: Node
metadata: {{name: plain}}
status: {{allocatable: {{cpu: "8", memory: 8Gi, pods: "10"}}}}
---
kind: Node
metadata: {{name: red, labels: {{{LABEL}: red}}}}
status: {{allocatable: {{cpu: "8", memory: 8Gi, pods: "10"}}}}
---
{{kind: Queue, metadata: {{name: default}}, spec: {{weight: 1}}}}
---
{{kind: PodGroup, metadata: {{name: job, namespace: default}}, spec: {{minMember: 1, queue: default}}}}
"""


def pod(name: str, label: str = "") -> str:
    labels = f"labels: {{{LABEL}: {label}}}," if label else ""
    return f"""
---
kind: Pod
metadata: {{name: {name}, namespace: default, {labels} annotations: {{scheduling.k8s.io/group-name: job}}}}
spec:
  schedulerName: stromboli
  containers: [{{name: main, resources: {{requests: {{cpu: "1"}}}}}}]
"""


def test_pods_go_where_their_label_says() -> None:
    placed = decide($cls, NODES + pod("labelled", "red") + pod("other")).session.bound
    assert placed == {"default/labelled": "red", "default/other": "plain"}


def test_a_pod_waits_when_no_node_has_its_label() -> None:
    assert decide($cls, NODES + pod("labelled", "blue")).session.bound == {}


def test_it_holds_on_random_clusters() -> None:
    assert [problem for found in try_plugin($cls, clusters=10, nodes=0) for problem in found.problems] == []
''')

_ACTION = Template('''\
"""$name: admits waiting jobs in order, some in each session, whatever their queues have."""

from __future__ import annotations

from functools import partial

from pydantic import Field
from stromboli.framework import Action, Arguments, Job, Session


class ${camel}Arguments(Arguments):
    """Arguments of $name."""

    most: int = Field(default=10, ge=1, alias="$name.most")
    """Number of jobs that are admitted in a session."""


class $cls(Action):
    name = "$name"
    Arguments = ${camel}Arguments

    def run(self, session: Session) -> None:
        arguments = session.policy.action_arguments[self.name]
        assert isinstance(arguments, ${camel}Arguments)
        waiting = [job for job in session.view.jobs.values() if job.pending_phase]
        for job in sorted(waiting, key=session.ask.job_key)[: arguments.most]:
            session.attempt(job, partial(self._admit, session, job), otherwise=None)

    def _admit(self, session: Session, job: Job) -> None:
        if session.ask.job_valid(job) is None:
            session.admit(job)
''')

_ACTION_TEST = Template('''\
"""Jobs that wait are admitted, as many as the arguments say."""

import pytest
from stromboli.plugin_kit import decide

from $module import $cls

CLUSTER = """
{kind: Queue, metadata: {name: full}, spec: {weight: 1, capability: {cpu: "1"}}}
""" + "".join(
    f"""
---
kind: PodGroup
metadata: {{name: job-{number}, namespace: default}}
spec: {{minMember: 1, queue: full, minResources: {{cpu: "8"}}}}
status: {{phase: Pending}}
---
kind: Pod
metadata:
  name: pod-{number}
  namespace: default
  annotations: {{scheduling.k8s.io/group-name: job-{number}}}
spec:
  schedulerName: stromboli
  containers: [{{name: main, resources: {{requests: {{cpu: "8"}}}}}}]
"""
    for number in range(3)
)


@pytest.mark.parametrize("most", [1, 2])
def test_as_many_are_admitted_as_may_be(most: int) -> None:
    session = decide($cls, CLUSTER, {"$name.most": most}).session
    admitted = [job.key for job in session.view.jobs.values() if not job.pending_phase]
    assert admitted == [f"default/job-{number}" for number in range(most)]
''')


class PackageError(StromboliError):
    """A package that cannot be written, and why."""


def write_package(name: str, folder: Path, *, action: bool = False) -> Path:
    """Write a package with a plugin (or an action) below a folder and return its path.

    Raises PackageError for an invalid or taken name, if the folder exists, and if it cannot be written.
    """
    if not _NAME.fullmatch(name):
        raise PackageError(f"{name!r} is not a valid name: use lower-case letters, digits and '-', such as team-nodes")
    known = discover()
    if name in (known.actions if action else known.plugins):
        raise PackageError(f"the name {name!r} is taken")
    package = folder / f"stromboli-{name}"
    try:
        package.mkdir(parents=True)
        for path, text in _files(name, action=action).items():
            (package / path).parent.mkdir(exist_ok=True)
            (package / path).write_text(text)
    except OSError as error:
        raise PackageError(f"{package}: {error.strerror}") from None
    return package


def _files(name: str, *, action: bool) -> Mapping[str, str]:
    module = f"stromboli_{name.replace('-', '_')}"
    camel, kind = "".join(word.capitalize() for word in name.split("-")), "action" if action else "plugin"
    # The suffix avoids collisions with names that the module imports.
    words = {"name": name, "module": module, "kind": kind, "camel": camel, "cls": camel + kind.capitalize()}
    source, test = (_ACTION, _ACTION_TEST) if action else (_PLUGIN, _PLUGIN_TEST)
    return {
        "pyproject.toml": _PROJECT.substitute(words),
        f"{module}.py": source.substitute(words),
        f"tests/test_{name.replace('-', '_')}.py": test.substitute(words),
    }
