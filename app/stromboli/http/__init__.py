"""The service's port over HTTP: who may ask what, in which turn, and what is answered."""
