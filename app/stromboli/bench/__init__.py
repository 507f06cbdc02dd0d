"""One trial for each feature: what a session with it costs on a large cluster."""

from stromboli.bench.features import FEATURES
from stromboli.bench.trial import Cluster, Figures, Trial, measure

__all__ = ["FEATURES", "Cluster", "Figures", "Trial", "measure"]
