"""drf: jobs take turns by their dominant share, the largest part of any one resource that they hold."""

from stromboli.plugins.drf.plugin import Drf

__all__ = ["Drf"]
