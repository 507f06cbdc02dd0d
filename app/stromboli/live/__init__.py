"""The service on a cluster: watch events go into the state, decisions go out to the API server."""

from stromboli.live.observer import Observer
from stromboli.live.service import Decider, Result, Service
from stromboli.live.settings import Settings

__all__ = ["Decider", "Observer", "Result", "Service", "Settings"]
