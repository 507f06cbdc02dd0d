"""The switches of a plugin in the policy file, by which it takes part in extension points.

Volcano reads each switch in one of the spellings `enableX` and `enabledX`, and ignores the other silently. Here both
spellings are equivalent; `SWITCHES` has the one that Volcano reads.
"""

from __future__ import annotations

from collections.abc import Mapping

#: switch -> the key that Volcano reads; `framework.plugin` declares the switch of each extension point
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
#: switches of Volcano's extension points that do not exist here: accepted, and reported as without effect
WITHOUT_EFFECT: Mapping[str, str] = {
    "best_node": "enableBestNode",
    "target_job": "enableTargetJob",
    "reserved_nodes": "enableReservedNodes",
    "cluster_order": "EnabledClusterOrder",
}
#: not an extension point: whether the plugin considers the hierarchy of queues
HIERARCHY = "hierarchy"
#: switches that are off by default
OFF_BY_DEFAULT = frozenset({HIERARCHY})


def _other_spellings(key: str) -> list[str]:
    stem = key[len("enable") :].removeprefix("d")
    return [spelling for spelling in (f"enable{stem}", f"enabled{stem}") if spelling != key]


_SWITCH_OF_VOLCANO_KEY = {
    "enableHierarchy": HIERARCHY,
    **{key: switch for switches in (SWITCHES, WITHOUT_EFFECT) for switch, key in switches.items()},
}
#: spellings that Volcano does not read -> switch
OTHER_SPELLINGS: Mapping[str, str] = {
    spelling: switch for key, switch in _SWITCH_OF_VOLCANO_KEY.items() for spelling in _other_spellings(key)
}
#: keys of the policy file in either spelling -> switch
SWITCH_OF_KEY: Mapping[str, str] = {**_SWITCH_OF_VOLCANO_KEY, **OTHER_SPELLINGS}
