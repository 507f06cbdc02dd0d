"""Options that several commands have, each defined once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

DEFAULT_URL = "http://127.0.0.1:8080"


class Mode(StrEnum):
    """Compatibility modes."""

    volcano = "volcano"
    strict = "strict"


class ShardMode(StrEnum):
    """Whether a service is confined to the nodes of its shard or prefers them."""

    hard = "hard"
    soft = "soft"


class Output(StrEnum):
    """Forms of output."""

    text = "text"
    wide = "wide"
    json = "json"
    yaml = "yaml"


def policy_option(words: str) -> Any:
    """`--policy`, with its purpose or its default."""
    return typer.Option("--policy", help=f"Policy file{words}.")


def scheduler_name_option(words: str) -> Any:
    """`--scheduler-name`, with whose pods are meant."""
    return typer.Option("--scheduler-name", help=f"Names in spec.schedulerName of {words}. May be repeated.")


# -- policies and plugins --------------------------------------------------------------------------------------------

Compatible = Annotated[Mode | None, typer.Option(help="Overrides what the policy says.")]
PluginsDir = Annotated[Path | None, typer.Option(help="Folder of Python files with more plugins.")]
PolicyFile = Annotated[
    Path | None, policy_option(" to decide by here, on files or on the cluster, instead of asking the service")
]

# -- the cluster that a command is about -----------------------------------------------------------------------------

Files = Annotated[
    list[str] | None, typer.Option("-f", "--filename", help="Files, folders or - for stdin instead of a service.")
]
Kubeconfig = Annotated[Path | None, typer.Option(help="Kubeconfig of the cluster.")]
Context = Annotated[str | None, typer.Option(help="Context of the kubeconfig.")]
Namespace = Annotated[
    str, typer.Option("-n", "--namespace", help="The namespace; by default that of the context.", show_default=False)
]
SchedulerNames = Annotated[list[str] | None, scheduler_name_option("pods to schedule")]
Now = Annotated[
    str | None,
    typer.Option(help="The time at which plain manifests are scheduled, such as 2026-11-23T20:38:00Z; by default now."),
]

# -- a service, as a client ------------------------------------------------------------------------------------------

#: the environment variable that says where the service is
URL = "STROMBOLI_URL"
Url = Annotated[
    str,
    typer.Option(envvar=URL, help="The service's address; by default it is looked for.", show_default=False),
]
Token = Annotated[str, typer.Option(envvar="STROMBOLI_TOKEN", help="A token of the cluster, for a service elsewhere.")]
CaFile = Annotated[Path | None, typer.Option("--certificate-authority", help="Authorities (PEM) of the service.")]

# -- a port that a command serves ------------------------------------------------------------------------------------

CertFile = Annotated[Path | None, typer.Option(help="Certificate (PEM); the port then speaks HTTPS.")]
KeyFile = Annotated[Path | None, typer.Option(help="Its private key (PEM).")]

# -- changes ---------------------------------------------------------------------------------------------------------

DryRun = Annotated[bool, typer.Option("--dry-run", help="Tell what it would do, and write nothing.")]

# -- output ----------------------------------------------------------------------------------------------------------

Format = Annotated[Output, typer.Option("-o", "--output", help="text, wide, json or yaml.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON objects, one a line.")]
