"""nodepools: shares of queues by pools of nodes, and which pools a job may use, in which order."""

from stromboli.plugins.nodepools.arguments import NodePool, NodePoolsArguments
from stromboli.plugins.nodepools.plugin import NodePools

__all__ = ["NodePool", "NodePools", "NodePoolsArguments"]
