"""The service's port over HTTP: which questions are answered, for which callers, and in which turn."""
