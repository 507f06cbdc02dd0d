"""Prometheus metrics: Volcano's names where it has one for the same thing, `stromboli_*` for the rest."""

from stromboli.metrics.observer import Metrics

__all__ = ["Metrics"]
