"""Remedies for limits by user: the limit that is for a job, raised."""

from __future__ import annotations

from collections.abc import Iterator

from stromboli.api.resources import listed
from stromboli.explain.remedies.case import Candidate, Case
from stromboli.plugins.userlimits import UserLimits, raised_for


def limits(case: Case) -> Iterator[Candidate]:
    """The policy's limit on the user of a job, raised to what the job needs."""
    plugin = next((plugin for plugin in case.session.points.plugins if isinstance(plugin, UserLimits)), None)
    if plugin is None or case.job is None or case.reason not in ("UserLimitReached", "NeverFits"):
        return
    found = raised_for(plugin, case.job)
    if found is None:
        return
    number, raised = found
    before = plugin.arguments.limits
    amounts = {name: most for name, most in raised.resources.items() if most != before[number].resources.get(name)}
    parts = [f"maxPods to {raised.max_pods}"] if raised.max_pods != before[number].max_pods else []
    parts += [f"resources to {listed(amounts)}"] if amounts else []
    if not parts:
        return
    words = f"raise {' and '.join(parts)} in limits[{number}] of plugin userlimits in the policy"
    limits = [*before[:number], raised, *before[number + 1 :]]
    yield Candidate(words, "admin", engine=case.rehearsal.engine.arguing(UserLimits.name, limits=limits))
