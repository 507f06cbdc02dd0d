"""extender: asks an HTTP extender, which takes part in decisions."""

from stromboli.plugins.extender.plugin import Extender, ExtenderArguments

__all__ = ["Extender", "ExtenderArguments"]
