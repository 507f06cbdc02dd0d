"""Cluster state in columns: events change rows, a snapshot copies arrays, nothing here knows a network."""
