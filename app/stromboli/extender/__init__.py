"""Answers to kube-scheduler as its HTTP extender: gangs and queue shares for pods that another scheduler binds."""

from stromboli.extender.answers import Extender
from stromboli.extender.published import Published
from stromboli.extender.routes import extender_routes

__all__ = ["Extender", "Published", "extender_routes"]
