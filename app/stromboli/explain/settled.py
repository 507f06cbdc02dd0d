"""Sessions on a cluster that no service has scheduled yet: they run until none prepares anything for the next one."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from stromboli.explain.rehearsal import Rehearsal, advance
from stromboli.framework.session.session import Session


def asks_for_another(session: Session, without: set[str]) -> bool:
    """Whether the session after gives places that this one prepared: to pods whose gate was lifted, and to jobs that
    were not admitted for what others laid claim to that have no places. `without` are those others so far, by key.
    """
    gave_up = session.admissions.gave_up - without if session.admissions is not None else set()
    without |= gave_up
    return bool(gave_up or session.view.lifted_gates.now)


class SettledRehearsal(Rehearsal):
    """A rehearsal that tells of the session that `stromboli simulate` tells of, and that a service soon reaches."""

    def session(self, about: Collection[str] = ()) -> Session:
        """A session after which no session prepares places for the next one; the state is left as it was."""
        session, without = super().session(about), set[str]()
        while asks_for_another(session, without):
            result = self.begun.result if self.begun else None
            assert result is not None
            advance(self.state, result.decisions, self.now)
            self.environment = replace(result.environment, extender=self.environment.extender)
            session = super().session(about)
        return session
