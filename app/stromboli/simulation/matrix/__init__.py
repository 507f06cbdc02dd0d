"""One trial for each feature that a session can be about: what it costs on a large cluster."""

from stromboli.simulation.matrix.features import FEATURES
from stromboli.simulation.matrix.trial import Cluster, Figures, Trial, measure

__all__ = ["FEATURES", "Cluster", "Figures", "Trial", "measure"]
