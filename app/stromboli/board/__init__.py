"""The cluster at a glance, over HTTP: what the last session saw and decided, and what sessions did before it."""

from stromboli.board.history import History
from stromboli.board.routes import Last, board_routes

__all__ = ["History", "Last", "board_routes"]
