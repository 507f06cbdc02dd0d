"""Names of annotations and labels that are almost those of keys that are read, so that nothing is read under them."""

from __future__ import annotations

from functools import lru_cache

from stromboli.api import crds
from stromboli.api.validation import nearest
from stromboli.state.pods import EVICTED_TOGETHER, GROUP_ANNOTATION
from stromboli.workloads import labelled, said
from stromboli.workloads.groups import ROLE_ANNOTATION
from stromboli.workloads.readers import MIN_PARALLELISM

#: keys that users set on workloads, pods and PodGroups
_READ = tuple(
    key
    for key in (
        *(
            *said.MIN_MEMBER,
            *said.QUEUE,
            *said.PRIORITY_CLASS,
            *said.RUN_TIME,
            *said.POD_ANNOTATIONS,
            *said.POD_BUDGETS,
        ),
        *(said.PREEMPTIBILITY, said.TOPOLOGY_MODE, *said.TIERS, *said.TIER_NAMES, MIN_PARALLELISM),
        *(*labelled.KEYS, *labelled.ONE_BY_ONE, labelled.KUEUE_COUNT, labelled.LIGHT_COUNT),
        *(GROUP_ANNOTATION, ROLE_ANNOTATION, EVICTED_TOGETHER, crds.NODE_POOLS, "volcano.sh/sla-waiting-time"),
    )
    if "/" in key
)
#: keys of others that are much like one of them
_OTHERS = ("kueue.x-k8s.io/podset-group-name",)
#: domains of Volcano's keys, which are taken for each other
_DOMAINS = ("volcano.sh", "scheduling.volcano.sh", "scheduling.k8s.io")
#: least similarity to a key that was meant: a letter or two differ
_ALIKE = 0.94


@lru_cache(4_096)
def meant(key: str) -> str:
    """The key that is read for which another one was probably meant; empty for none."""
    domain, slash, name = key.partition("/")
    if not slash or key in _READ or key in _OTHERS:
        return ""
    if domain in _DOMAINS:
        elsewhere = (each for each in _READ if each.partition("/")[2] == name and each.partition("/")[0] in _DOMAINS)
        if found := next(elsewhere, ""):
            return found
    return nearest(key, _READ, _ALIKE)
