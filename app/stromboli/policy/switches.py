"""The switches of a plugin in the policy file: which extension points it takes part in.

Volcano reads each switch in one of two spellings, `enableX` or `enabledX`, and ignores the other in silence.
Here both spellings of every switch mean the same; `SWITCHES` has the one that Volcano reads.
"""

from __future__ import annotations

from collections.abc import Mapping

#: what is switched -> the key that Volcano reads; `framework.points` says which extension points that are
SWITCHES: Mapping[str, str] = {
    "job_order": "enableJobOrder",
    "job_ready": "enableJobReady",
    "job_pipelined": "enableJobPipelined",
    "task_order": "enableTaskOrder",
    "preemptable": "enablePreemptable",
    "reclaimable": "enableReclaimable",
    "preemptive": "enablePreemptive",
    "queue_order": "enableQueueOrder",
    "predicate": "enablePredicate",
    "node_order": "enableNodeOrder",
    "job_enqueued": "enableJobEnqueued",
    "job_starving": "enableJobStarving",
    "victim": "enabledVictim",
    "overused": "enabledOverused",
    "allocatable": "enabledAllocatable",
    "hyper_node_order": "enabledHyperNodeOrder",
    "sub_job_ready": "enabledSubJobReady",
    "sub_job_pipelined": "enabledSubJobPipelined",
    "sub_job_order": "enabledSubJobOrder",
    "hyper_node_gradient": "enabledHyperNodeGradient",
}
#: the same of points that Volcano has and nothing here reads: their switches are accepted, and named
WITHOUT_EFFECT: Mapping[str, str] = {
    "best_node": "enableBestNode",
    "target_job": "enableTargetJob",
    "reserved_nodes": "enableReservedNodes",
    "cluster_order": "enabledClusterOrder",
}
#: not an extension point: whether the plugin heeds the hierarchy of queues
HIERARCHY = "hierarchy"
#: switches that are off unless the policy turns them on
OFF_BY_DEFAULT = frozenset({HIERARCHY})


def _other_spelling(key: str) -> str:
    stem = key.removeprefix("enable").removeprefix("d")
    return f"enable{stem}" if key.startswith("enabled") else f"enabled{stem}"


_SWITCH_OF_VOLCANO_KEY = {
    "enableHierarchy": HIERARCHY,
    **{key: switch for switches in (SWITCHES, WITHOUT_EFFECT) for switch, key in switches.items()},
}
#: the keys that Volcano does not read, and what they switch here
OTHER_SPELLINGS: Mapping[str, str] = {_other_spelling(key): switch for key, switch in _SWITCH_OF_VOLCANO_KEY.items()}
#: what each key of the policy file switches, in either spelling
SWITCH_OF_KEY: Mapping[str, str] = {**_SWITCH_OF_VOLCANO_KEY, **OTHER_SPELLINGS}
