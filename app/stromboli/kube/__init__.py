"""Kubernetes' own filters and scores, computed for all nodes at once."""
