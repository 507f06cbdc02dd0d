"""The smallest changes that would let a job or a pod run."""

from stromboli.explain.remedies.search import explained

__all__ = ["explained"]
