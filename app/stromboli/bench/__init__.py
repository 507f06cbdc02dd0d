"""One trial for each feature: the cost of a session with it on a large cluster."""

from stromboli.bench.features import FEATURES
from stromboli.bench.trial import Cluster, Figures, Trial, measure

__all__ = ["FEATURES", "Cluster", "Figures", "Trial", "measure"]
