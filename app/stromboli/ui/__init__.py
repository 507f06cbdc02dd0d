"""The page: a process of its own that asks the service over HTTP and shows what it says. It writes nothing."""

from stromboli.ui.app import make_ui
from stromboli.ui.service import Service

__all__ = ["Service", "make_ui"]
