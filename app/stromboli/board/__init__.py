"""The cluster at a glance, over HTTP: what the last session saw and decided, and what sessions did before it."""
