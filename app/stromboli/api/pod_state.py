"""Where a pod stands, as the scheduler counts it."""

from __future__ import annotations

from enum import IntEnum


class PodState(IntEnum):
    """The state of a pod in a session. `Allocated`, `Pipelined` and `Binding` exist only in the scheduler's mind."""

    Pending = 0
    #: has a place in this session, not committed yet
    Allocated = 1
    #: gets a place when terminating pods have gone
    Pipelined = 2
    #: committed; the API server has not confirmed it
    Binding = 3
    #: has a node, does not run yet
    Bound = 4
    Running = 5
    #: terminating, still holds its place
    Releasing = 6
    Succeeded = 7
    Failed = 8
    Unknown = 9


#: how many states there are
STATES = len(PodState)

#: states in which a pod counts for its queue and its gang
ALLOCATED_STATES = (PodState.Allocated, PodState.Binding, PodState.Bound, PodState.Running)
#: the same, and pods that are done
READY_STATES = (*ALLOCATED_STATES, PodState.Succeeded)
#: states in which a pod occupies its node
ON_NODE_STATES = (*ALLOCATED_STATES, PodState.Releasing, PodState.Unknown)
