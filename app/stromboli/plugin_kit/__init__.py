"""Tools for authors of plugins: a package template, test helpers, and checks on random clusters."""

from stromboli.plugin_kit.surroundings import decide, registry_with
from stromboli.plugin_kit.trial import Finding, try_plugin

__all__ = ["Finding", "decide", "registry_with", "try_plugin"]
