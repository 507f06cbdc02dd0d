"""Victims as Volcano finds them: the first that work, under the rules of `first_fit`."""

from stromboli.eviction.first_fit.bundles import Bundle, bundle_value
from stromboli.eviction.first_fit.gangs import GangFirstFitPolicy, evict_for_gang
from stromboli.eviction.first_fit.pods import FirstFit, FirstFitPolicy, evict_for_pods, may_preempt_again

__all__ = [
    "Bundle",
    "FirstFit",
    "FirstFitPolicy",
    "GangFirstFitPolicy",
    "bundle_value",
    "evict_for_gang",
    "evict_for_pods",
    "may_preempt_again",
]
