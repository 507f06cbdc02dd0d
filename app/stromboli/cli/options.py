"""Options that several commands have; those that name a cluster are in `clusters`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Mode(StrEnum):
    """Compatibility modes."""

    volcano = "volcano"
    strict = "strict"


Compatible = Annotated[Mode | None, typer.Option(help="Overrides what the policy says.")]
PluginsDir = Annotated[Path | None, typer.Option(help="Folder of Python files with more plugins.")]
