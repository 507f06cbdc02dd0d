"""The web page: a process of its own that queries the service over HTTP and renders the answers. It writes nothing."""

from stromboli.ui.app import make_ui
from stromboli.ui.service import Service

__all__ = ["Service", "make_ui"]
