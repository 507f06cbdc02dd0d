"""Fair shares of queues: dividing a cluster, guarantees and limits. A library for plugins."""
