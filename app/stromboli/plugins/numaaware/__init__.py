"""numa-aware: places pods with whole cores where the cores can be aligned with NUMA nodes."""

from stromboli.plugins.numaaware.plugin import NumaAware, NumaAwareArguments

__all__ = ["NumaAware", "NumaAwareArguments"]
