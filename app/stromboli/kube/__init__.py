"""Kubernetes' own placement rules, filters and scores, answered for all nodes at once."""
