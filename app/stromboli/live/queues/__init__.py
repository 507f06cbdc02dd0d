"""Queues: they are opened and closed, created where they are required, and their states are written."""
