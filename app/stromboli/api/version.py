"""The version of the package."""

from __future__ import annotations

from importlib import metadata


def version() -> str:
    """The version of the installed package; `unknown` where the code runs without being installed."""
    try:
        return metadata.version("stromboli")
    except metadata.PackageNotFoundError:
        return "unknown"
