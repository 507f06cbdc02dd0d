"""By which policy a command decides: a file's, or the one that is used when none is given."""

from __future__ import annotations

from pathlib import Path

from stromboli.cli.options import Mode
from stromboli.engine import Engine
from stromboli.framework.registry import Registry
from stromboli.policy.document import DEFAULT_POLICY
from stromboli.policy.rules import Compatibility
from stromboli.simulation.files import LARGEST_POLICY, read_text


def engine_by(policy: Path | None, registry: Registry, mode: Mode | None = None) -> Engine:
    """An engine for a policy file, or for the default policy. Raises PolicyError, UnreadableFileError."""
    text = read_text(policy, LARGEST_POLICY) if policy else DEFAULT_POLICY
    compatibility: Compatibility | None = mode.value if mode else None
    return Engine(text, registry=registry, compatibility=compatibility, source=str(policy or "default policy"))
