"""Which pods to evict so that others find places; for actions."""
