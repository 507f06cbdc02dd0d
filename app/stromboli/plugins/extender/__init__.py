"""extender: asks an HTTP extender of ours, which has a say in decisions."""

from stromboli.plugins.extender.plugin import Extender, ExtenderArguments

__all__ = ["Extender", "ExtenderArguments"]
