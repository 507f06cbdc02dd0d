"""The state of a pod in the scheduler."""

from __future__ import annotations

from enum import IntEnum


class PodState(IntEnum):
    """The state of a pod in a session. `Allocated`, `Pipelined` and `Binding` exist in the scheduler only."""

    Pending = 0
    #: placed in this session, not committed yet
    Allocated = 1
    #: placed where terminating pods still hold resources
    Pipelined = 2
    #: committed; not confirmed by the API server yet
    Binding = 3
    #: has a node, is not running yet
    Bound = 4
    Running = 5
    #: terminating, still holds its resources
    Releasing = 6
    Succeeded = 7
    Failed = 8
    Unknown = 9


#: number of states
STATES = len(PodState)

#: states in which a pod counts for its queue and its gang
ALLOCATED_STATES = (PodState.Allocated, PodState.Binding, PodState.Bound, PodState.Running)
#: those states, and those of succeeded pods
READY_STATES = (*ALLOCATED_STATES, PodState.Succeeded)
#: states in which a pod holds resources of its node
ON_NODE_STATES = (*ALLOCATED_STATES, PodState.Releasing, PodState.Unknown)
#: states in which a pod can be evicted
HELD = (PodState.Running, PodState.Bound)
