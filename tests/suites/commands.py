"""Commands that specs run in containers and on nodes: kwok runs them on this machine, with a `/mnt` of their own."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.controlplane.build import Binaries

_KWOK = """\
#!/bin/sh
PATH={folder}:$PATH exec unshare --map-root-user --mount \\
  sh -c 'mount -t tmpfs tmpfs /mnt && exec "$@"' kwok {kwok} "$@"
"""
#: what is run on a node is called as `nsenter --mount=… -- COMMAND` in a pod that has its files
_ON_NODE = """\
#!/bin/sh
shift 2
exec "$@"
"""
_ANSWERS = {
    "apiVersion": "kwok.x-k8s.io/v1alpha1",
    "kind": "ClusterExec",
    "metadata": {"name": "commands"},
    "spec": {"execs": [{"local": {}}]},
}


def that_run(binaries: Binaries, folder: Path) -> tuple[Binaries, Path]:
    """The binaries with a kwok that runs commands, and what it is told with `answers`; both lie in `folder`."""
    made = folder / "binaries"
    made.mkdir(exist_ok=True)
    for file in binaries.directory.iterdir():
        if file.name != "kwok":
            (made / file.name).unlink(missing_ok=True)
            (made / file.name).symlink_to(file)
    programs = folder / "on-nodes"
    programs.mkdir(exist_ok=True)
    scripts = {programs / "nsenter": _ON_NODE, made / "kwok": _KWOK.format(folder=programs, kwok=binaries["kwok"])}
    for file, text in scripts.items():
        file.write_text(text)
        file.chmod(0o755)
    answers = folder / "answers.yaml"
    answers.write_text(yaml.safe_dump(_ANSWERS))
    return Binaries(made), answers
