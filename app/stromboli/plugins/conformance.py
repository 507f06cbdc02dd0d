"""conformance: what the cluster itself needs is never a victim."""

from __future__ import annotations

from stromboli.framework.plugin import Plugin


class Conformance(Plugin):
    name = "conformance"
