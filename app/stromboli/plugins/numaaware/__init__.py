"""numa-aware: pods with whole cores go where their cores can be aligned with the memory next to them."""

from stromboli.plugins.numaaware.plugin import NumaAware, NumaAwareArguments

__all__ = ["NumaAware", "NumaAwareArguments"]
