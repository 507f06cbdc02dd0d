"""shuffle: evicts the pods that plugins select for rescheduling.

Under strict rules no protected pod is evicted, and no gang falls below its minimum.
"""

from __future__ import annotations

import numpy as np

from stromboli.api.pod_state import PodState
from stromboli.eviction.eligibility import agrees
from stromboli.framework.action import Action
from stromboli.framework.session.session import Session
from stromboli.state.pods import PodRecord


class Shuffle(Action):
    name = "shuffle"

    def run(self, session: Session) -> None:
        pods = session.view.pods
        running = session.view.records(np.flatnonzero((pods.state == PodState.Running) & (pods.job >= 0)))
        victims = session.ask.victim_tasks([pod for pod in running if pod.job in session.view.jobs])
        if session.ask.heeds_vetoes:
            victims = session.ask.evictable([pod for pod in victims if agrees(session, pod)])
        for pod in victims:
            self._evict(session, pod)

    def _evict(self, session: Session, pod: PodRecord) -> None:
        statement = session.statement()
        statement.evict(pod, self.name)
        if session.rules.whole_gang_eviction and session.ask.job_missing(session.view.jobs[pod.job]) > 0:
            statement.discard()
        else:
            statement.commit()
