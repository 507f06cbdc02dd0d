"""fgd: packs pods onto shared cards, so that the rest of the cards is of use to the pods that usually come."""

from stromboli.plugins.fgd.plugin import Fgd, FgdArguments

__all__ = ["Fgd", "FgdArguments"]
