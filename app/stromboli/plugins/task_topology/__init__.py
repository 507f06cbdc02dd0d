"""task-topology: roles of a job that belong on one node, or must not share one."""

from stromboli.plugins.task_topology.plugin import Bucket, TaskTopology, TaskTopologyArguments
from stromboli.plugins.task_topology.roles import Roles

__all__ = ["Bucket", "Roles", "TaskTopology", "TaskTopologyArguments"]
