"""extender: decisions that an HTTP service has a say in."""

from stromboli.plugins.extender.plugin import Extender, ExtenderArguments

__all__ = ["Extender", "ExtenderArguments"]
