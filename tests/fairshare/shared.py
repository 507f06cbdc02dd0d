"""Where everything lies that was recorded of KAI-Scheduler."""

from __future__ import annotations

import os
from pathlib import Path


def recorded() -> Path:
    """The folder with `cases` and `scenarios`; it may not be there."""
    beside = Path(__file__).parents[3] / "shared" / "fairshare"
    return Path(os.environ.get("STROMBOLI_FAIRSHARE") or beside)
