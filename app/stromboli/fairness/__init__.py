"""Shares of queues: dividing a cluster, and what a queue holds of its part. A library of plugins."""
