"""minruntime: a gang runs for a minimum time before it may be preempted or reclaimed."""

from stromboli.plugins.minruntime.plugin import MinRuntime

__all__ = ["MinRuntime"]
