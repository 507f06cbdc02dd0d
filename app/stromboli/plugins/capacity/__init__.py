"""capacity: queues with amounts of their own, flat or as a tree."""

from stromboli.plugins.capacity.plugin import Capacity, CapacityArguments

__all__ = ["Capacity", "CapacityArguments"]
