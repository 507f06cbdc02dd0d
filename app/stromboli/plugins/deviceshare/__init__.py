"""deviceshare: cards of nodes that several pods share, or that a pod gets as a whole."""

from stromboli.plugins.deviceshare.plugin import DeviceShare, DeviceShareArguments

__all__ = ["DeviceShare", "DeviceShareArguments"]
