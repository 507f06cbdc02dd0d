"""The HTTP extender of kube-scheduler: gangs and queue shares for pods that another scheduler binds."""

from stromboli.extender.extender import Extender
from stromboli.extender.published import Published
from stromboli.extender.routes import ExtenderFirst, extender_routes
from stromboli.extender.sources import NO_SESSION, NoAnswerError, Source, Standing

__all__ = [
    "NO_SESSION",
    "Extender",
    "ExtenderFirst",
    "NoAnswerError",
    "Published",
    "Source",
    "Standing",
    "extender_routes",
]
