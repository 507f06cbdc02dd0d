"""fairshare: quotas, and above them a fair share by priority, weight and past usage, in a tree of queues.

This is what KAI-Scheduler's proportion plugin does, on the Queues that all plugins here use.
"""

from stromboli.plugins.fairshare.arguments import FairShareArguments
from stromboli.plugins.fairshare.plugin import FairShare

__all__ = ["FairShare", "FairShareArguments"]
