"""The framework: sessions, statements, plugins and the points at which plugins take part.

What authors of plugins and actions need is exported here.
"""

from stromboli.api.pod_state import PodState
from stromboli.api.reasons import Actionable, Reason, Stage
from stromboli.api.resources import Mask, Matrix, Rows, Vector
from stromboli.framework.action import Action
from stromboli.framework.cluster.job import Job, Queue, SubJob
from stromboli.framework.cluster.nodes import NodeView
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Arguments, Key, Plugin, Verdict, Vote
from stromboli.framework.plugin.causes import Administrative, Anywhere, Filters, Passing, Unprovided
from stromboli.framework.plugin.operation import Operation
from stromboli.framework.plugin.relations import Apart, Balanced, Limited, Narrowing, Near, Rationed, Relation, Unclear
from stromboli.framework.plugin.report import Report
from stromboli.framework.session.session import Session
from stromboli.state.pods import PodRecord
from stromboli.state.reads import Reads

__all__ = [
    "Action",
    "Actionable",
    "Administrative",
    "Anywhere",
    "Apart",
    "Arguments",
    "Balanced",
    "Filters",
    "Job",
    "Key",
    "Limited",
    "Mask",
    "Matrix",
    "Narrowing",
    "Near",
    "NodeView",
    "Operation",
    "Passing",
    "Plugin",
    "PodRecord",
    "PodState",
    "Queue",
    "Rationed",
    "Reads",
    "Reason",
    "Relation",
    "Report",
    "Rows",
    "Session",
    "Stage",
    "SubJob",
    "Unclear",
    "Unprovided",
    "Vector",
    "Verdict",
    "View",
    "Vote",
]
