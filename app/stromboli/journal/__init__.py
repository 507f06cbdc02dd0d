"""Record and replay: the inputs and decisions of sessions, kept and run again."""

from stromboli.journal.recorder import Journal, RecordedSessions
from stromboli.journal.replay import Report, replay
from stromboli.journal.ring import Folder, private, segments
from stromboli.journal.tape import Tape
from stromboli.journal.wire import JournalError, read

__all__ = [
    "Folder",
    "Journal",
    "JournalError",
    "RecordedSessions",
    "Report",
    "Tape",
    "private",
    "read",
    "replay",
    "segments",
]
