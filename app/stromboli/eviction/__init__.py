"""Whom to evict so that others find places; for actions."""
